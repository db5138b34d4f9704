"""Losses, gradient norms and outputs of every recipe and family, bit for bit as they were: a
refactoring changes none of them.

On a machine of another kind (see `machine` in the golden file) the last bits may differ; there the
numbers agree to 1e-5, and the report says so. For an intended change: scripts/golden --update.
"""

from pathlib import Path
from typing import Any

import pytest

from . import adapter
from .compare import differences, first_difference, is_same_machine, read_golden
from .compute import PARTS, STEPS, computed


@pytest.mark.parametrize("part", PARTS)
def test_losses_gradient_norms_and_outputs_are_those_of_the_golden_file(
    part: str, record_property: Any
) -> None:
    golden = read_golden()
    now = computed(part)
    exact = is_same_machine(golden, now)
    record_property("compared", "bit for bit" if exact else "to 1e-5")
    if not exact:
        print(
            f"another machine than the golden file's, so compared to 1e-5: {now['machine']}, not "
            f"{golden['machine']}"
        )
    assert list(differences(part, golden, now)) == []


def test_the_golden_file_has_every_laptop_recipe_and_every_family() -> None:
    golden = read_golden()
    files = {path.stem for path in (adapter.ROOT / "recipes").glob("*.py")}
    assert {name.partition(":")[0] for name in golden["losses"]} == files
    assert list(golden["losses"]) == adapter.recipe_names()
    assert set(golden["outputs"]) == set(adapter.FAMILIES)
    assert all(
        len(run["loss"]) == len(run["gradient_norm"]) == STEPS
        for part in ("losses", "dropout")
        for run in golden[part].values()
    )


def test_dropout_changes_the_recipes_that_have_it_and_only_those() -> None:
    """The part that may change alone when dropout is drawn in another way."""
    golden = read_golden()
    assert set(golden["dropout"]) == set(adapter.DROPOUT)
    assert all(
        golden["dropout"][name]["loss"] != golden["losses"][name]["loss"]
        for name in golden["dropout"]
    )


def test_the_last_bit_is_seen_and_named() -> None:
    golden = {"loss": [(1.0).hex(), (2.0).hex()], "gradient_norm": [(0.5).hex(), (0.25).hex()]}
    now = {"loss": list(golden["loss"]), "gradient_norm": [(0.5).hex(), (0.25 + 2**-54).hex()]}
    assert first_difference(golden, golden, exact=True) is None
    found = first_difference(golden, now, exact=True)
    assert found.startswith("step 2, gradient_norm: 0.25 (0x1.0000000000000p-2) in the golden file")
    assert first_difference(golden, now, exact=False) is None
    assert (
        first_difference(golden, {**now, "loss": [(1.0 + 2e-5).hex(), (2.0).hex()]}, exact=False)
        is not None
    )


def test_only_the_adapter_knows_weft() -> None:
    """After a renaming one file changes."""
    for path in Path(__file__).parent.glob("*.py"):
        if path.name not in ("adapter.py", Path(__file__).name):
            assert "import weft" not in path.read_text()
            assert "from weft" not in path.read_text()
