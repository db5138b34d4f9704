"""The command `weft doctor`: installed packages, hardware and problems."""

import os
import platform
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple

import weft

from ..support.console import count_of, format_number, print_result, spinner
from ..support.extras import install_extra
from ..support.options.shared import VerbOptions

LEAST_PYTHON = (3, 11)
LEAST_DISK = 1 << 30
LEAST_MEMORY = 1 << 30
CORE = (
    "torch",
    "numpy",
    "safetensors",
    "tokenizers",
    "huggingface_hub",
    "pyarrow",
    "pydantic",
    "pillow",
    "rich",
    "jinja2",
    "fsspec",
    "shtab",
)


class Extra(NamedTuple):
    """An optional dependency: its packages and the features that need them."""

    packages: tuple[str, ...]
    needed_by: str


EXTRAS = {
    "hf": Extra(("transformers", "sentence-transformers"), "weft verify"),
    "hub": Extra(("datasets",), "data sets of the Hugging Face hub"),
    "eval": Extra(("sacrebleu",), "BLEU and chrF: weft train and evaluate of translation"),
    "lmeval": Extra(("lm-eval",), "the adapter for lm-eval"),
    "vision": Extra(("scipy", "faster-coco-eval"), "training and evaluation of detection"),
    "data": Extra(("datasketch",), "the filter of near-duplicates"),
    "s3": Extra(("s3fs",), "s3:// addresses"),
    "ray": Extra(("ray",), "weft prepare --on ray"),
    "tensorboard": Extra(("tensorboard",), "weft train --log-to tensorboard"),
    "wandb": Extra(("wandb",), "weft train --log-to wandb"),
    "mlflow": Extra(("mlflow-skinny",), "weft train --log-to mlflow"),
    "trackio": Extra(("trackio",), "weft train --log-to trackio"),
    "docs": Extra(("zensical",), "scripts/docs builds the site"),
    "viz": Extra(("matplotlib",), "images of weft look, compare and plan"),
}


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(VerbOptions):
    """The options of `weft doctor`."""


def doctor(options: DoctorOptions) -> int:
    """Check the installation and this machine.

    Shows versions, extras and the commands that need them, threads, CPU instructions, accelerators,
    the measured speed of fp32 and bf16, free disk space and memory.
    Exits with code 1 if a required package is missing or broken.
    """
    with spinner("examining this machine"):
        summary = examine()
    print_result(options.json, summary, lambda width: page(summary))
    return 1 if summary["problems"] else 0


def examine() -> dict[str, Any]:
    """Return all facts; `problems` lists errors that stop Weft, each with a fix."""
    core = {name: version_of(name) for name in CORE}
    machine = machine_of(core)
    folder = Path.cwd()
    disk = shutil.disk_usage(folder).free
    summary: dict[str, Any] = {
        "weft": weft.__version__,
        "weft_folder": str(Path(weft.__file__).parent),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "core": core,
        "extras": {name: extra_status(extra) for name, extra in EXTRAS.items()},
        "machine": machine,
        "folder": str(folder),
        "disk_bytes": disk,
        "writable": can_write(folder),
        "data": os.environ.get("WEFT_DATA"),
    }
    return summary | {"problems": problems(summary), "notes": notes(summary)}


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extra_status(extra: Extra) -> dict[str, Any]:
    versions = {package: version_of(package) for package in extra.packages}
    return {"versions": versions, "needed_by": extra.needed_by, "installed": all(versions.values())}


def machine_of(core: dict[str, str | None]) -> dict[str, Any] | str:
    """Return the hardware as PyTorch reports it, or the error of importing PyTorch."""
    if not core["torch"]:
        return "torch is not installed"
    try:
        from ..training.machine import describe_machine

        return describe_machine()
    except Exception as error:  # a package is missing, a library of torch, or a driver is broken
        return f"{type(error).__name__}: {error}"


def can_write(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


# Problems and notes


def problems(summary: dict[str, Any]) -> list[str]:
    lines = []
    if sys.version_info < LEAST_PYTHON:
        lines.append(f"Python {summary['python']} is too old; install 3.11 or newer")
    missing = [name for name, number in summary["core"].items() if number is None]
    if missing:
        lines.append(f"{', '.join(missing)} missing: pip install {' '.join(missing)}")
    least = least_versions()
    for name, number in summary["core"].items():
        if number is not None and release(number) < release(least.get(name, "0")):
            lines.append(
                f"{name} {number} is older than {least[name]}: "
                f"pip install -U '{name}>={least[name]}'"
            )
    if isinstance(summary["machine"], str) and not missing:
        lines.append(
            f"PyTorch cannot be imported ({summary['machine']}): "
            "pip install --force-reinstall torch"
        )
    if not summary["writable"]:
        lines.append(f"{summary['folder']} is not writable; change to a writable folder")
    return lines


def notes(summary: dict[str, Any]) -> list[str]:
    """Return facts that may be unexpected but do not stop Weft."""
    lines = []
    machine = summary["machine"]
    if summary["disk_bytes"] < LEAST_DISK:
        lines.append(f"only {format_number(summary['disk_bytes'], 'B')} of disk space are free")
    if isinstance(machine, dict):
        if machine["memory_bytes"] < LEAST_MEMORY:
            lines.append(f"only {format_number(machine['memory_bytes'], 'B')} of free memory")
        if machine["threads"] < machine["cores"]:
            lines.append(
                f"PyTorch uses {machine['threads']} of {machine['cores']} cores; "
                "set OMP_NUM_THREADS to change this"
            )
        faster = machine["bf16_flops"] > machine["fp32_flops"]
        lines.append(
            f"{'bf16' if faster else 'fp32'} is faster on this machine; "
            "--precision auto selects by CPU instructions"
        )
    data = summary["data"]
    if data is not None and not Path(data).is_dir():
        lines.append(f"WEFT_DATA={data} is not a folder; set it to the folder with your data")
    return lines


def least_versions() -> dict[str, str]:
    """Return the minimum version of each core package from Weft's metadata, or an empty dictionary
    if Weft is not installed."""
    try:
        lines = requires("weft") or []
    except PackageNotFoundError:
        return {}
    matches = (re.match(r"([\w.-]+)[^;]*>=([\w.]+)", line) for line in lines)
    return {m[1].lower().replace("-", "_"): m[2] for m in matches if m and "extra" not in m.string}


def release(number: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", number.partition("+")[0])[:3])


# Printed page


def page(summary: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    core = ", ".join(f"{name} {number or 'MISSING'}" for name, number in summary["core"].items())
    rows = {
        "weft": f"{summary['weft']} in {summary['weft_folder']}",
        "python": f"{summary['python']}, {summary['platform']}",
        "packages": core,
        **machine_rows(summary["machine"]),
        "disk": f"{format_number(summary['disk_bytes'], 'B')} free in {summary['folder']}, "
        + ("writable" if summary["writable"] else "NOT WRITABLE"),
        "data": summary["data"] or "WEFT_DATA is not set; recipe paths start at this folder",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    lines = [f"note: {line}" for line in summary["notes"]]
    lines += [f"PROBLEM: {line}" for line in summary["problems"]] or ["no problems found"]
    return Group(table, "", extras_table(summary["extras"]), "", "\n".join(lines))


def machine_rows(machine: dict[str, Any] | str) -> dict[str, str]:
    if isinstance(machine, str):
        return {"machine": machine}
    speeds = (
        f"{name} {format_number(machine[f'{name}_flops'], 'FLOP/s')}" for name in ("fp32", "bf16")
    )
    instructions = [
        name for name, there in (("AMX", "amx"), ("AVX-512 BF16", "avx512_bf16")) if machine[there]
    ]
    devices = [*machine["cuda"], *(["MPS"] if machine["mps"] else [])]
    return {
        "processor": f"{', '.join([machine['cpu'], *instructions])}; "
        f"{count_of(machine['threads'], 'thread')} on "
        f"{count_of(machine['cores'], 'core')}",
        "accelerators": ", ".join(devices) or "none: CUDA and MPS are not available",
        "speed": f"{', '.join(speeds)} on {machine['device']}, on a 512 × 512 matrix product",
        "memory": f"{format_number(machine['memory_bytes'], 'B')} free",
    }


def extras_table(extras: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column in ("extra", "installed", "needed by"):
        table.add_column(column)
    for name, extra in extras.items():
        versions = ", ".join(f"{p} {number}" for p, number in extra["versions"].items() if number)
        table.add_row(
            name,
            versions if extra["installed"] else f"no: {install_extra(name)}",
            extra["needed_by"],
        )
    return table
