"""The golden file, and how it differs from what is computed now."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .compute import PARTS, Golden, computed

FILE = Path(__file__).with_name("golden.json")
TOLERANCE = 1e-5  # relative, on a machine of another kind


def read_golden() -> Golden:
    found: Golden = json.loads(FILE.read_text())
    return found


def write_golden() -> None:
    found: Golden = {}
    for part in PARTS:
        found |= computed(part)
    FILE.write_text(
        json.dumps(found, indent=1).replace("\n    ", " ").replace("\n   ]", " ]") + "\n"
    )


def is_same_machine(golden: Golden, now: Golden) -> bool:
    """The same CPU capability and the same libraries: every bit must agree."""
    return bool(golden["machine"] == now["machine"])


def differences(part: str, golden: Golden, now: Golden) -> Iterator[str]:
    """One line for each recipe or family that differs, with the first place where it does."""
    exact = is_same_machine(golden, now)
    names = dict.fromkeys((*golden[part], *now[part]))
    for name in names:
        if name not in golden[part] or name not in now[part]:
            reason = "not computed any more" if name in golden[part] else "not in the golden file"
            yield f"{name}: {reason}"
        elif (place := first_difference(golden[part][name], now[part][name], exact)) is not None:
            yield f"{name}: {place}"


def first_difference(golden: Golden, now: Golden, exact: bool) -> str | None:
    """Loss before gradient norm at each step: what differs first in time. Where an update amplifies
    rounding, machines of two kinds are compared at the first step alone.
    """
    lists = {field: values for field, values in golden.items() if isinstance(values, list)}
    length = max(len(values) for values in lists.values())
    for i in range(length if exact or not golden.get("amplifies_rounding") else 1):
        for field, values in lists.items():
            if i < len(values) and not is_equal(values[i], now[field][i], exact):
                step = f"step {i + 1}, " if "loss" in golden else ""
                return (
                    f"{step}{field}: {show(values[i])} in the golden file, "
                    f"{show(now[field][i])} now"
                )
    return None


def is_equal(golden: Any, now: Any, exact: bool) -> bool:
    if exact or not isinstance(golden, str):
        return bool(golden == now)
    before = float.fromhex(golden)
    after = float.fromhex(now)
    return abs(after - before) <= TOLERANCE * max(abs(before), abs(after))


def show(value: Any) -> str:
    return f"{float.fromhex(value)!r} ({value})" if isinstance(value, str) else repr(value)
