"""Mutation test of the parity tests: every wrong field value must be detected."""

import pytest

from weft import spec as S

from .cases import CASES, MAIN, Case, ours
from .flips import EXEMPT, Flip, flips, listed, verdicts

families = pytest.mark.parametrize("c", MAIN.values(), ids=MAIN)


@families
def test_every_change_of_a_field_is_noticed(c: Case) -> None:
    for flip, how in verdicts(c):
        assert how, f"parity holds although {flip}"


@pytest.mark.parametrize("c", [c for c in CASES.values() if not c.main], ids=lambda c: c.name)
def test_every_change_of_another_head_is_noticed(c: Case) -> None:
    assert not [str(flip) for flip, how in verdicts(c, "head") if not how]


@families
def test_no_field_escapes_the_proof(c: Case) -> None:
    tried = {flip.path for flip in flips(ours(c).spec)}
    for path, leaf in S.iterate_leaves(ours(c).spec):
        general = ".".join("*" if name.isdigit() else name for name in path.split("."))
        assert general in tried or listed(EXEMPT, c, f"{general} {leaf} ->"), (
            f"{general} = {leaf} is never changed"
        )


@pytest.mark.parametrize("row", EXEMPT)
def test_every_exemption_is_needed(row: str) -> None:
    rows = {row: ""}
    assert any(listed(rows, c, flip) for c in MAIN.values() for flip in changes(c))


def changes(c: Case) -> list[Flip | str]:
    return [
        *flips(ours(c).spec),
        *(f"{path} {leaf} ->" for path, leaf in S.iterate_leaves(ours(c).spec)),
    ]
