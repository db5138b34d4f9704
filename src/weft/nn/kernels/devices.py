"""Devices and precision of a model."""

import os

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device called `name`.

    Args:
        name: "cpu", "cuda", "cuda:1", "mps", or "auto" for an accelerator if available, else the
            CPU. Under torchrun, "cuda" is the GPU of the local rank.

    Raises:
        ValueError: if the device is not available.
    """
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        name = accelerator.type if accelerator else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"device {name!r} is unknown; use auto, cpu, cuda, cuda:1 or mps"
        ) from None
    backend = {"cuda": torch.cuda, "mps": torch.mps}.get(device.type)
    if backend is None:
        if device.type != "cpu":
            raise ValueError(
                f"device {name!r} is not supported; use auto, cpu, cuda, cuda:1 or mps"
            )
        return device
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.type == "cuda" and local_ranks > 1:
        if device.index is not None:
            raise ValueError(
                f"device {name} cannot serve the {local_ranks} ranks on this machine; use cuda, "
                "which gives each rank its own GPU"
            )
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if (device.index or 0) >= backend.device_count():
        raise ValueError(
            f"{device} is not available: PyTorch {torch.__version__} sees {backend.device_count()} "
            f"{device.type} devices; use cpu"
        )
    return device


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether the device has instructions that multiply bf16 matrices; without them bf16 is
    slower than fp32.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
    return False


def resolve_precision(name: str, device: torch.device) -> str:
    """Return "fp32" or "bf16"; "auto" is bf16 where the device is fast at it, else fp32."""
    if name != "auto":
        return name
    return "bf16" if has_fast_bf16(device) else "fp32"


def resolve_dtype(precision: str = "fp32") -> torch.dtype:
    """Return the data type of a precision: "fp32" or "bf16"."""
    if precision not in DTYPES:
        raise ValueError(f"precision {precision!r} is unknown; use {' or '.join(DTYPES)}")
    return DTYPES[precision]
