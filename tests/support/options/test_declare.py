"""Options: one declaration gives a command line and a Python call with the same types, bounds and
defaults.
"""

import inspect
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from weft.support.options.command_line import Parser, add_options, help_text, options_from
from weft.support.options.declare import Option, Options, option_fields
from weft.support.options.python_call import python_call


@dataclass(frozen=True, kw_only=True)
class Shared(Options):
    """What several verbs have."""

    columns: Annotated[Sequence[str], Option("columns to read", metavar="COLUMN")] = ()
    seed: Annotated[int, Option("random seed", metavar="N")] = 0


@dataclass(frozen=True)
class Sample(Shared):
    """One option of each kind."""

    model: Annotated[str, Option("the model", metavar="MODEL", positional=True)]
    texts: Annotated[Sequence[str], Option("texts", metavar="TEXT", positional=True)] = ()
    _: KW_ONLY
    data: Annotated[Sequence[str], Option("files", metavar="FILE", short="-d")]
    rate: Annotated[float, Option("a rate", metavar="X", above=0, example="5e-5")] = 0.5
    part: Annotated[float, Option("a part", metavar="P", least=0, most=1)] = 1.0
    share: Annotated[float, Option("a share", metavar="P", above=0, most=1)] = 1.0
    count: Annotated[int | None, Option("a count", "all", metavar="N", least=1)] = None
    sizes: Annotated[Sequence[int], Option("sizes", metavar="N", least=0)] = (1, 5)
    kind: Annotated[Literal["fast", "slow"], Option("how")] = "fast"
    layout: Annotated[Literal["a", "b"] | None, Option("where")] = None
    quiet: Annotated[bool, Option("print less")] = False
    scaled: Annotated[bool | None, Option("scale the result, 100 %", "as the model says")] = None
    set: Annotated[Sequence[str], Option("change", metavar="PATH=VALUE", repeat=True)] = ()
    json: Annotated[bool, Option("print JSON", only="command")] = False
    value: Annotated[Any, Option("any value", only="python")] = None


def parse(*words: str) -> Sample:
    parser = Parser(prog="weft sample", allow_abbrev=False)
    add_options(parser, Sample)
    return options_from(Sample, parser.parse_args(list(words)))


GIVEN = ("m", "--data", "a", "b")


def test_every_kind_of_option_is_parsed() -> None:
    words = "--rate 2e-3 --part 0 --count 3 --sizes 0 7 --kind slow --layout b --quiet --no-scaled"
    more = "--set a=1 --set b=2 --json --columns x y --seed 4"
    found = parse("m", "one", "two", "-d", "a", "b", *words.split(), *more.split())
    assert found == Sample(
        "m",
        ["one", "two"],
        data=["a", "b"],
        rate=2e-3,
        part=0,
        count=3,
        sizes=[0, 7],
        kind="slow",
        layout="b",
        quiet=True,
        scaled=False,
        set=["a=1", "b=2"],
        json=True,
        columns=["x", "y"],
        seed=4,
    )
    assert found.data == ("a", "b")


def test_the_defaults_are_those_of_the_value() -> None:
    assert parse(*GIVEN) == Sample("m", data=("a", "b"))
    assert parse(*GIVEN) == parse(*GIVEN)


def test_one_text_or_path_is_a_list_of_one() -> None:
    found = Sample("m", data="a b", columns=Path("x/y"))  # type: ignore[arg-type]
    assert (found.data, found.columns) == (("a b",), ("x/y",))


WRONG = [
    ("rate", "0", 0.0, "a number above 0, such as 5e-5"),
    ("rate", "nan", float("nan"), "a number above 0, such as 5e-5"),
    ("rate", "fast", "fast", "a number above 0, such as 5e-5"),
    ("part", "1.5", 1.5, "a number from 0 to 1"),
    ("share", "0", 0.0, "a number above 0, at most 1"),
    ("count", "0", 0, "an integer of at least 1"),
    ("count", "1.5", 1.5, "an integer of at least 1"),
    ("sizes", "-1", [-1], "an integer of at least 0"),
    ("kind", "slwo", "slwo", "one of fast, slow"),
    ("layout", "c", "c", "one of a, b"),
    ("seed", "x", True, "an integer"),
]


@pytest.mark.parametrize(("name", "word", "value", "wanted"), WRONG)
def test_both_sides_refuse_the_same_values_in_one_line(
    name: str, word: str, value: Any, wanted: str
) -> None:
    message = f"--{name} {word}: give {wanted}; see weft sample --help"
    with pytest.raises(ValueError) as error:
        parse(*GIVEN, f"--{name}", word)
    assert str(error.value) == message
    shown = value[0] if isinstance(value, list) else value
    with pytest.raises(ValueError) as error:
        Sample("m", data="a", **{name: value})
    assert str(error.value) == f"{name} = {shown!r}: give {wanted}"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data": 5}, "data = 5: give a list"),
        ({"data": [5]}, "data = 5: give text"),
        ({"data": "a", "quiet": 1}, "quiet = 1: give True or False"),
        ({"data": "a", "rate": "x" * 90}, "…: give a number"),
    ],
)
def test_a_value_of_another_type_is_one_line(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        Sample("m", **values)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the following arguments are required: MODEL, -d/--data"),
        ((*GIVEN, "--nothing"), "unrecognized arguments: --nothing"),
        ((*GIVEN, "--value", "1"), "unrecognized arguments: --value 1"),
        ((*GIVEN, "--rate"), "argument --rate: expected one argument"),
    ],
)
def test_a_wrong_line_ends_with_where_to_look(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse(*words)
    assert str(error.value) == f"{message}; see weft sample --help"


def test_the_help_shows_names_values_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    parser = Parser(prog="weft sample")
    add_options(parser, Sample)
    shown = parser.format_help()
    for line in (
        "MODEL the model",
        "-d FILE [FILE ...], --data FILE [FILE ...] files",
        "--rate X a rate (default: 0.5)",
        "--count N a count (default: all)",
        "--sizes N [N ...] sizes (default: 1 5)",
        "--kind {fast,slow} how (default: fast)",
        "--layout {a,b} where",
        "--quiet print less",
        "--scaled, --no-scaled scale the result, 100 % (default: as the model says)",
        "--set PATH=VALUE change",
    ):
        assert line in " ".join(shown.split())
    assert "--value" not in shown


def test_own_options_come_before_shared_ones_and_names_are_never_declared_twice() -> None:
    names = list(option_fields(Sample))
    assert names[:3] == ["model", "texts", "data"]
    assert names[-2:] == ["columns", "seed"]
    assert sorted(names) == sorted(field.name for field in fields(Sample))


def test_a_field_without_an_option_is_a_mistake_of_the_author() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong(Options):
        plain: int = 0

    with pytest.raises(TypeError, match="plain has no Option"):
        Wrong()


# The Python call


@python_call(Sample)
def sample(options: Sample) -> Sample:
    """Sample a model.

    Returns:
        What was given.
    """
    return options


def test_the_python_call_takes_the_fields() -> None:
    assert sample("m", data="a", rate=2) == Sample("m", data=("a",), rate=2)


def test_the_signature_and_the_docstring_name_every_option_of_python() -> None:
    parameters = inspect.signature(sample).parameters
    assert set(parameters) == {field.name for field in fields(Sample)} - {"json"}
    assert str(parameters["model"]) == "model: str"
    assert str(parameters["count"]) == "count: int | None = None"
    assert parameters["rate"].kind is inspect.Parameter.KEYWORD_ONLY
    doc = inspect.getdoc(sample) or ""
    assert doc.startswith("Sample a model.\n\nArgs:\n    model: the model.\n    texts: texts.\n")
    assert "    count: a count (default: all).\n" in doc
    assert doc.endswith("Returns:\n    What was given.")


def test_an_unknown_or_missing_argument_is_named() -> None:
    with pytest.raises(ValueError, match="sample has no option 'coutn'; did you mean 'count'"):
        sample("m", data="a", coutn=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="sample: missing a required argument: 'data'"):
        sample("m")  # type: ignore[call-arg]


def test_help_of_a_command_is_that_of_its_fields() -> None:
    field = option_fields(Sample)["sizes"]
    assert help_text(field) == "sizes (default: 1 5)"
    assert options_from(Shared, Namespace(columns=[], seed=2)) == Shared(seed=2)
