"""The same option has the same name, values and default on every verb."""

import ast
import inspect
import re
from collections import Counter
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import weft
from weft import api
from weft.commands import EXIT_STOPPED
from weft.commands.verbs import GROUPS, all_verbs
from weft.data.reading.quarantine import MAX_BAD_ROWS
from weft.generate.sampling import FIELDS
from weft.support.options.command_line import command_fields, help_text, option_names
from weft.support.options.declare import OptionField, Options, option_fields
from weft.support.options.python_call import python_fields
from weft.support.options.shared import SamplingOptions, TableOptions, VerbOptions

VERBS = {verb.name: verb for verb in all_verbs()}
# option: what may differ between verbs, and why
EXCEPTIONS = {
    "--output": (
        {"metavar", "help", "default"},
        "a folder of shards, a run, a file of predictions "
        "or of a receipt; a page has a name to begin with",
    ),
    "--max-bad-row-fraction": ({"default"}, "every row of an input file gets its own prediction"),
    "--device": ({"default"}, "the recipe of a run names its device"),
    "--precision": ({"default", "choices", "help"}, "a recipe names its own; auto is for training"),
    "--columns": ({"help"}, "texts, words, a question and its context, or a label too"),
    "--data": ({"default", "help"}, "training files are needed; a run has data to evaluate on"),
    "--task": ({"default", "help"}, "tune and evaluate know different tasks"),
    "--batch-size": ({"help"}, "rows per step in training, per forward pass elsewhere"),
    "--valid": ({"default"}, "tune takes a tenth of the data; a probe is judged on other images"),
    "--seeds": (
        {"default", "help"},
        "tune looks at the number of rows; a probe fits in closed form",
    ),
    "--shots": (
        {"default", "help", "bounds"},
        "evaluate puts examples into a prompt, none at first; a probe fits on images per class",
    ),
    "--draw": (
        {"default", "help", "metavar"},
        "boxes are drawn if asked for, into a folder for "
        "several images; a reconstruction is a picture",
    ),
    "--shard": (
        {"bounds", "default", "type", "metavar", "help"},
        "a part of a data set that one of several jobs prepares; devices that share weights",
    ),
    "--seed": ({"default"}, "generate samples once any sampling option is given"),
    "--top-k": ({"default", "metavar", "help"}, "tokens to sample from, and predictions to show"),
    "--num-beams": ({"default"}, "generate decodes greedily, or samples"),
    "--max-length": (
        {"default", "bounds"},
        "a row of fine-tuning holds its special tokens and a word",
    ),
    "--pooling": ({"default"}, "features of images begin with the class token"),
    "--language": ({"default", "help"}, "the language of the text, and of the reference"),
    "--no-answer-threshold": (
        {"default"},
        "answer always answers; SQuAD 2.0's metric has a threshold",
    ),
}


def described(field: OptionField) -> dict[str, object]:
    """What must be the same."""
    option = field.option
    return {
        "type": field.type,
        "many": field.many,
        "choices": field.choices,
        "default": (field.default, option.default),
        "metavar": option.metavar,
        "bounds": (option.least, option.above, option.most),
        "short": option.short,
        "repeat": option.repeat,
        "help": option.help,
    }


def options_by_name() -> dict[str, dict[str, OptionField]]:
    by_name: dict[str, dict[str, OptionField]] = {}
    for verb in VERBS.values():
        for field in command_fields(verb.options):
            for name in option_names(field):
                by_name.setdefault(name, {})[verb.name] = field
    return by_name


@pytest.mark.parametrize("option", [name for name in options_by_name() if name.startswith("--")])
def test_an_option_is_the_same_on_every_verb(option: str) -> None:
    allowed, _ = EXCEPTIONS.get(option, (set(), ""))
    every = [described(field) for field in options_by_name()[option].values()]
    differ = {name for one in every for name in one if one[name] != every[0][name]}
    assert differ == allowed, "an exception that is not needed, or a difference without a reason"


def test_every_option_says_what_it_does_and_its_default() -> None:
    for verb in VERBS.values():
        for field in command_fields(verb.options):
            assert field.option.help, f"{verb.name} {field.name}"
            assert "default" not in field.option.help, f"{verb.name} {field.name}: generated"
            if field.default not in (MISSING, None, False, (), ""):
                assert "(default: " in help_text(field), f"{verb.name} {field.name}"


def test_a_short_name_is_of_one_option() -> None:
    for name, by_verb in options_by_name().items():
        if not name.startswith("--"):
            assert len({field.name for field in by_verb.values()}) == 1, name


# One declaration


def test_every_verb_is_in_one_group_and_says_what_it_does() -> None:
    functions = [function for group in GROUPS.values() for function in group]
    assert len(set(functions)) == len(functions) == len(VERBS)
    for verb in VERBS.values():
        assert issubclass(verb.options, VerbOptions)
        assert re.fullmatch(r"[a-z].*[^.]", verb.help), verb.name
        assert re.search(r"[.?]$|Example: .*$", verb.description), verb.name
    assert f"exits with code {EXIT_STOPPED}" in VERBS["train"].description


# Python call: the options that the verb has beside it, and why. What only Python has is in the
# value itself.
PYTHON: dict[str, tuple[type[Options], set[str], str]] = {
    "tune": (api.TuneCall, set(), ""),
    "evaluate": (
        api.EvaluateCall,
        {
            "name",
            "output",
            "few_shot",
            "arithmetic",
            "shots",
            "examples",
            "label_texts",
            "num_questions",
            "seed",
        },
        "Python has the model and the metrics themselves; in-context evaluation is of the command "
        "alone",
    ),
    "look": (api.LookCall, {"name", "open"}, "Python has the model itself, and no browser to open"),
}


@pytest.mark.parametrize("verb", PYTHON)
def test_the_python_call_and_the_command_have_the_same_options(verb: str) -> None:
    call, command_alone, _ = PYTHON[verb]
    command = {f.name: f for f in command_fields(VERBS[verb].options) if f.option.only == "both"}
    python = {f.name: f for f in python_fields(call) if f.option.only == "both"}
    assert command.keys() - python.keys() == command_alone
    assert python.keys() <= command.keys()
    for name in python.keys() - {"output"}:
        ours = described(command[name])
        theirs = described(python[name])
        assert {key: ours[key] for key in ours if key != "type"} == {
            key: theirs[key] for key in theirs if key != "type"
        }, name
    assert list(inspect.signature(getattr(weft, verb)).parameters) == [
        field.name for field in python_fields(call)
    ]
    doc = inspect.getdoc(getattr(weft, verb)) or ""
    assert all(f"\n    {name}: " in doc for name in python)


def declarations(cls: type) -> dict[str, type]:
    """The class that declares each field first."""
    owners: dict[str, type] = {}
    for base in reversed(cls.__mro__):
        for name in inspect.get_annotations(base):
            owners.setdefault(name, base)
    return owners


def test_no_option_is_declared_by_two_classes_of_one_verb() -> None:
    for verb in VERBS.values():
        names = [field.name for field in fields(verb.options)]
        assert len(set(names)) == len(names)
        bases = [base for base in verb.options.__mro__ if issubclass(base, Options)]
        for base in bases:
            for name in inspect.get_annotations(base):
                owner = declarations(verb.options)[name]
                assert issubclass(base, owner), f"{verb.name}: {name} of {base} and of {owner}"


def test_no_help_is_written_twice() -> None:
    calls = [
        node
        for path in (Path(weft.__file__).parent).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    texts = [ast.unparse(call.args[0]) for call in calls if call.func.id == "Option"]  # type: ignore[attr-defined]
    assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_sampling_of_the_command_is_that_of_python() -> None:
    assert set(FIELDS) == set(option_fields(SamplingOptions))


def test_the_limit_of_bad_rows_is_that_of_the_data() -> None:
    assert option_fields(TableOptions)["max_bad_row_fraction"].default == MAX_BAD_ROWS


# Verbs that run no model on a device of the user's choice.
WITHOUT_DEVICE = {
    "families": "no model is built",
    "show": "no model is built",
    "plan": "no model is built, but to simulate ranks without a device",
    "verify": "both sides run on the CPU, in fp32: a GPU rounds differently",
    "export": "weights are only copied",
    "prepare": "no model is built",
    "status": "only files are read",
    "compare": "only files are read",
    "new": "no model is built",
    "doctor": "no model is built",
    "completion": "no model is built",
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_runs_a_model_takes_a_device_and_a_precision(verb: str) -> None:
    own = [name for field in command_fields(VERBS[verb].options) for name in option_names(field)]
    assert ("--device" in own) == ("--precision" in own) == (verb not in WITHOUT_DEVICE)


def test_a_verb_of_another_tool_is_answered_with_one_of_ours() -> None:
    from weft.support.synonyms import VERBS as OTHERS

    assert set(OTHERS.values()) <= VERBS.keys()
    assert not OTHERS.keys() & VERBS.keys()
