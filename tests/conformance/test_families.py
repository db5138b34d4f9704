"""Every registered family passes the public conformance check."""

from collections.abc import Iterator
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.references.test_start import SMALL
from weft import build
from weft import spec as S
from weft.families import Codec, Family, family, family_names
from weft.support.registry import NAMED, register
from weft.testing import check_family

PAD = {"roberta": {"special_tokens": S.SpecialTokens(pad=1)}}  # its positions start after it


@pytest.fixture
def restored() -> Iterator[None]:
    before = dict(NAMED[Family])
    yield
    NAMED[Family] = before


@pytest.mark.parametrize("name", family_names())
def test_builtin_families_conform(name: str) -> None:
    check_family(family(name), **SMALL[name], **PAD.get(name, {}))


@pytest.mark.parametrize("name", family_names())
def test_an_empty_batch_gives_an_empty_result(name: str) -> None:
    """Also in training, with its gradient."""
    spec = family(name)(**SMALL[name])
    model = build(spec)
    size = getattr(spec.source, "image_size", (64, 64))
    sides = size if isinstance(size, tuple) else (size, size)
    batch = [torch.zeros(0, 3, *sides)]
    if isinstance(spec.source, S.Tokens):
        both = spec.encoder is not None and spec.decoder is not None
        batch = [torch.zeros(0, 3, dtype=torch.long)] * (1 + both)
    for training in (False, True):
        result = model.train(training)(*batch)
        tensors = [result] if isinstance(result, Tensor) else [*result][:1]
        assert [len(tensor) for tensor in tensors] == [0]
        tensors[0].sum().backward()


def test_a_family_that_is_not_registered_is_found() -> None:
    with pytest.raises(AssertionError, match="is not registered"):
        check_family(replace(family("gpt2"), name="own"), **SMALL["gpt2"])


def build_own(**arguments: Any) -> S.Spec:
    return family("gpt2").build_spec(**arguments)


OWN = replace(family("gpt2"), name="own", model_type="own", build_spec=build_own)


@pytest.mark.usefixtures("restored")
def test_a_family_with_a_fault_is_found() -> None:
    unread = replace(OWN.fields[0], codec=Codec(lambda depth: depth + 1, lambda depth: depth))
    faults = {
        "reads back as a different spec": {"fields": (unread, *OWN.fields[1:])},
        r"own cannot express.*decoder\.blocks": {"fields": OWN.fields[1:]},
        "has no row for": {"table": OWN.table[1:]},
        "heads is empty": {"heads": {}},
        "has no size": {"sizes": {}},
    }
    check_family(register(OWN), **SMALL["gpt2"])
    for words, fault in faults.items():
        with pytest.raises((AssertionError, ValueError), match=words):
            check_family(register(replace(OWN, **fault)), **SMALL["gpt2"])


@pytest.mark.usefixtures("restored")
def test_a_family_may_be_registered_again_where_it_is_defined_and_nowhere_else() -> None:
    register(OWN)
    assert register(replace(OWN, paper="another")) is family("own")
    with pytest.raises(ValueError, match="a Family named 'bert' is already registered"):
        register(replace(OWN, name="bert"))
    assert family("bert").paper == "arXiv:1810.04805"


VALUES = {
    "positions": (64, S.SinusoidalPositions2D(), S.SinusoidalPositions2D(scale="unit")),
    "stem": (64, S.ConvStem(widths=(64,) * 3), S.ConvStem(widths=(64,))),
}
DOCUMENTED = [
    (name, argument)
    for name in family_names()
    for argument in VALUES
    if argument in signature(family(name)).parameters
]


@pytest.mark.parametrize(("name", "argument"), DOCUMENTED)
def test_only_values_that_a_family_accepts_are_documented(name: str, argument: str) -> None:
    (line,) = [line for line in help_lines(name) if line.startswith(f"{argument}: ")]
    number, *values = VALUES[argument]
    accepted = [value for value in values if is_accepted(name, argument, value)]
    assert is_accepted(name, argument, number) == (not accepted)
    examples = [f"such as weft.{type(value).__name__}(" in line for value in values]
    assert any(examples) == bool(accepted)


def help_lines(name: str) -> list[str]:
    return [line.strip() for line in (family(name).__doc__ or "").splitlines()]


def is_accepted(name: str, argument: str, value: Any) -> bool:
    try:
        family(name)(**{argument: value})
    except (ValueError, TypeError, AttributeError):
        return False
    return True
