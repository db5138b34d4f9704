"""`weft.testing` detects parts, tasks, metrics and formats with one fault each, and accepts them
without the fault.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from weft.support.registry import CHOICES, IMPLEMENTATIONS, NAMED

MODULE = "wrong_part"
FOLDER = Path(__file__).with_name("wrong_parts")
# file, fault, and what the message names
FAULTS = [
    ("data_parts", "boxes outside", "OwnMirror"),
    ("data_parts", "boxes stay", "OwnMirror"),
    ("data_parts", "fails on nothing", "OwnFilter"),
    ("data_parts", "global generator", "OwnMirror"),
    ("data_parts", "remembers", "OwnFilter"),
    ("feed_forwards", "dropout in eval", "eval"),
    ("feed_forwards", "next token", "other tokens"),
    ("feed_forwards", "plain list", "ModuleList"),
    ("feed_forwards", "unused gate", "gate.weight"),
    ("formats", "last line", "lastline"),
    ("formats", "raises", "BadRow"),
    ("formats", "whole file", "wholefile"),
    ("metrics", "order", "order of rows"),
    ("metrics", "raises", "IndexError"),
    ("metrics", "sorts in place", "inputs"),
    ("model_parts", "global generator", "OwnInit"),
    ("model_parts", "pools padding", "padding"),
    ("norms", "batch", "other tokens"),
    ("norms", "float32", "torch.float32"),
    ("norms", "in place", "input"),
    ("norms", "shape", "(2, 24, 1)"),
    ("norms", "zeros", "eps"),
    ("optimisers", "counts calls", "order of its calls"),
    ("optimisers", "decays all", "weight_decay"),
    ("optimisers", "hidden state", "`state`"),
    ("optimisers", "last step", "scale(99, 100)"),
    ("optimisers", "own rate", "group['lr']"),
    ("patterns", "backend", "own_blocks"),
    ("patterns", "looks ahead", "looks_ahead"),
    ("positions", "heads last", "(1, 24, 24, 4)"),
    ("positions", "slots of the bias", "OwnBias"),
    ("positions", "slots of the input", "OwnPositions"),
    ("tasks", "global generator", "preprocessing"),
    ("tasks", "mean loss", "micro-batches"),
    ("tasks", "other metric", "right_pair"),
    ("tasks", "tensors as predictions", ".tolist()"),
]
FILES = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))


def module_of(thing: Any) -> str:
    return getattr(thing, "__module__", "") or type(thing).__module__


@pytest.fixture
def own() -> Iterator[None]:
    """Parts of these files are registered for one test alone."""
    yield
    for value in [value for value in IMPLEMENTATIONS if value.__module__ == MODULE]:
        del IMPLEMENTATIONS[value]
    for table in (CHOICES, *NAMED.values()):
        for name in [name for name, thing in table.items() if module_of(thing) == MODULE]:
            del table[name]


def check_of(name: str) -> Callable[[str], None]:
    check: Callable[[str], None] = run_path(str(FOLDER / f"{name}.py"), run_name=MODULE)["check"]
    return check


def test_every_file_is_tried() -> None:
    assert {name for name, _, _ in FAULTS} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_part_without_its_fault_passes(own: None, name: str) -> None:
    check_of(name)("")


@pytest.mark.parametrize(("name", "fault", "words"), FAULTS)
def test_a_part_with_a_fault_is_found(own: None, name: str, fault: str, words: str) -> None:
    check = check_of(name)
    with pytest.raises(AssertionError) as error:
        check(fault)
    message = str(error.value)
    assert words in message
    assert "\n" not in message
