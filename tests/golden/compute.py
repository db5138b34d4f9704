"""Compute what the golden file holds: python -m tests.golden.compute PART prints it as JSON.

Floats must not depend on the machine, so this runs in a process of its own (`computed`): one
thread, and every library that picks its instructions by the CPU held to those of AVX2. Two things
decide the bits of a refactored Weft besides its arithmetic, and are taken from where a renaming
does not reach:

- The initial weights. Weft keys each tensor's random numbers by the parameter's name. Here every
  tensor of one shape gets the same numbers (`SameDraws`), so the initialisation's own rules
  (scales, gains, constants) still count; then the numbers of each parameter are permuted by its
  shape and its place among the parameters of that shape (`permute`). Parameters are taken in
  registration order, which a renaming keeps, and which the bits of a gradient's norm depend on
  anyway; counting per shape leaves room for parts of another shape to move.
- The data: files of `data.py`, under the paths that the recipes name.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import fsum, prod
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).parents[2]
PARTS = ("losses", "dropout", "outputs")
STEPS = 12
# PyTorch's own kernels for AVX2, which every x86 machine of the last decade has; MKL's one code
# path for all processors, Intel's or not.
PINNED = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}

Golden = dict[str, Any]


def computed(part: str) -> Golden:
    """A part of the golden file and the machine that it was computed on, in another process."""
    environment = {
        **os.environ,
        **PINNED,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.golden.compute", part],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"python -m tests.golden.compute {part} failed:\n{done.stderr}")
    found: Golden = json.loads(done.stdout)
    return found


def machine() -> dict[str, str]:
    """What else decides the last bits, or the data that a tokenizer makes."""
    import platform

    import numpy
    import PIL
    import tokenizers
    import torch

    return {
        "architecture": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "tokenizers": tokenizers.__version__,
        "pillow": PIL.__version__,
    }


def same_draws() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class SameDraws(TorchDispatchMode):
        """Every tensor of one shape is filled with the same random numbers, whatever generator Weft
        gives it.
        """

        generators: dict[tuple[int, ...], torch.Generator] = {}

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if (
                func._schema.name in ("aten::normal_", "aten::uniform_")
                and args[0].device.type == "cpu"
            ):
                shape = tuple(args[0].shape)
                asked = kwargs.get("generator")
                key = (asked.initial_seed(), *shape) if asked is not None else ()
                # a truncated normal draws from one generator until all its numbers fit
                if key not in self.generators or not key:
                    self.generators[key] = torch.Generator().manual_seed(
                        crc32(repr(shape).encode())
                    )
                kwargs["generator"] = self.generators[key]
            return func(*args, **kwargs)

    return SameDraws()


def permute(module: Any) -> None:
    """The numbers of each trained parameter in an order of its own; constants stay as they are."""
    import torch

    counts: Counter[tuple[int, ...]] = Counter()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                shape = tuple(parameter.shape)
                generator = torch.Generator().manual_seed(
                    crc32(f"{shape} {counts[shape]}".encode())
                )
                parameter.copy_(
                    parameter.flatten()[torch.randperm(prod(shape), generator=generator)].view(
                        shape
                    )
                )
                counts[shape] += 1


def spread(module: Any) -> None:
    """Numbers large enough for every part to matter: matrices by their inputs, vectors around their
    constant.
    """
    import torch

    counts: Counter[tuple[int, ...]] = Counter()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                shape = tuple(parameter.shape)
                noise = torch.randn(
                    shape,
                    generator=torch.Generator().manual_seed(
                        crc32(f"{shape} {counts[shape]}".encode())
                    ),
                )
                parameter.copy_(
                    noise * (2 * prod(shape[1:]) ** -0.5)
                    if len(shape) > 1
                    else parameter + 0.3 * noise
                )
                counts[shape] += 1


@contextmanager
def data_folder() -> Iterator[None]:
    """A working directory that holds all the data."""
    from .data import write_data

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        os.environ["WEFT_DATA"] = os.environ["XDG_CACHE_HOME"] = folder
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def train(name: str, dropout: bool) -> Golden:
    from . import adapter

    recipe = adapter.small_recipe(name, STEPS, dropout)
    with same_draws():
        if (needed := adapter.needed_model(recipe)) is not None:
            folder, other = needed
            before = adapter.small_recipe(other, STEPS, dropout)
            model = adapter.build_model(before.model)
            permute(model)
            adapter.save_model(model, folder, before)
        module, steps = adapter.start(recipe)
    permute(module)
    taken = list(steps)
    return {
        "amplifies_rounding": adapter.amplifies_rounding(recipe),
        "loss": [step.loss.hex() for step in taken],
        "gradient_norm": [step.gradient_norm.hex() for step in taken],
    }


def output(name: str) -> Golden:
    import torch

    from . import adapter
    from .configs import config_of

    model = adapter.family_model(name, config_of(name)).eval()
    spread(model)
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(
        2, 3, 36 if name == "swin" else 32, 36 if name == "swin" else 32, generator=generator
    )
    tokens = torch.randint(3, 67, (2, 9), generator=generator)
    found = adapter.outputs(model, image if adapter.reads_images(model) else tokens, tokens[:, :5])
    numbers = {
        "argmax": [tensor.argmax(-1).flatten()[:16].tolist() for tensor in found],
        "sum": [float(tensor.double().sum()).hex() for tensor in found],
        "norm": [float(tensor.double().norm()).hex() for tensor in found],
    }
    if not adapter.writes_text(model):
        return numbers
    written = adapter.generate_greedily(model, [row.tolist() for row in tokens], 16)
    return numbers | {
        "greedy": [row for row, _ in written],
        "logprob": [fsum(logprobs).hex() for _, logprobs in written],
    }


def compute(part: str) -> Golden:
    import torch

    from . import adapter

    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # oneDNN picks its code by the CPU
    if part == "outputs":
        return {name: output(name) for name in adapter.FAMILIES}
    with data_folder():
        return {
            name: train(name, dropout=part == "dropout")
            for name in (adapter.DROPOUT if part == "dropout" else adapter.recipe_names())
        }


if __name__ == "__main__":
    print(json.dumps({"machine": machine(), sys.argv[1]: compute(sys.argv[1])}))
