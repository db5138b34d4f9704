"""The same option has the same name, values and default on every verb."""

import argparse

import pytest

from weft.cli import parser

VERBS: dict[str, argparse.ArgumentParser] = next(
    action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
)
# option: what may differ between verbs, and why
EXCEPTIONS = {
    "--output": ({"metavar", "help", "default"}, "a folder of shards, a run, a file of predictions or of a receipt; a page has a name to begin with"),
    "--max-bad-row-fraction": ({"default"}, "every row of an input file gets its own prediction"),
    "--device": ({"default"}, "the recipe of a run names its device"),
    "--precision": ({"default", "choices", "help"}, "a recipe names its own; auto is for training; int8 for generation on the CPU"),
    "--columns": ({"help"}, "texts, words, a question and its context, or a label too"),
    "--data": ({"default", "required", "help"}, "training files are needed; a run has data to evaluate on"),
    "--task": ({"help"}, "tune and evaluate know different tasks"),
    "--batch-size": ({"help"}, "rows per step in training, per forward pass elsewhere"),
    "--valid": ({"default", "required"}, "tune takes a tenth of the data; a probe is judged on other images"),
    "--seeds": ({"default", "help"}, "tune looks at the number of rows; a probe fits in closed form"),
    "--shots": ({"default", "help", "type"}, "evaluate puts examples into a prompt, none at first; a probe fits on images per class"),
    "--draw": ({"help", "metavar", "required"}, "boxes are drawn if asked for, into a folder for several images; a reconstruction is a picture"),
    "--shard": ({"type", "metavar", "help"}, "a part of a data set that one of several jobs prepares; devices that share weights"),
    "--seed": ({"default"}, "generate samples once any sampling option is given"),
    "--top-k": ({"default", "metavar", "help"}, "tokens to sample from, and predictions to show"),
    "--num-beams": ({"default"}, "generate decodes greedily, or samples"),
    "--language": ({"default", "help"}, "the language of the text, and of the reference"),
    "--no-answer-threshold": ({"default"}, "answer always answers; SQuAD 2.0's metric has a threshold"),
}  # fmt: skip


def described(action: argparse.Action) -> dict[str, object]:
    """What must be the same; of the help, the sentence before the default."""
    return {
        "dest": action.dest,
        "nargs": action.nargs,
        "type": action.type,
        "choices": action.choices,
        "default": action.default,
        "metavar": action.metavar,
        "required": action.required,
        "help": (action.help or "").partition(" (default")[0],
    }


def actions() -> dict[str, dict[str, argparse.Action]]:
    by_option: dict[str, dict[str, argparse.Action]] = {}
    for verb, own in VERBS.items():
        for option, action in own._option_string_actions.items():
            by_option.setdefault(option, {})[verb] = action
    return by_option


@pytest.mark.parametrize("option", [o for o, by_verb in actions().items() if o.startswith("--")])
def test_an_option_is_the_same_on_every_verb(option: str) -> None:
    allowed, _ = EXCEPTIONS.get(option, (set(), ""))
    every = [described(action) for action in actions()[option].values()]
    differ = {name for one in every for name in one if one[name] != every[0][name]}
    assert differ == allowed, "an exception that is not needed, or a difference without a reason"


def test_every_option_says_what_it_does_and_its_default() -> None:
    for verb, own in VERBS.items():
        for action in own._actions:
            assert action.help, f"{verb} {action.option_strings}"
            if action.default not in (None, False, [], "", argparse.SUPPRESS):
                assert "default" in action.help, f"{verb} {action.option_strings}"


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
    "quickstart": "it runs other verbs with their defaults, and prints them to be changed",
    "new": "no model is built",
    "doctor": "no model is built",
    "completion": "no model is built",
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_runs_a_model_takes_a_device_and_a_precision(verb: str) -> None:
    own = VERBS[verb]._option_string_actions
    assert ("--device" in own) == ("--precision" in own) == (verb not in WITHOUT_DEVICE)


def test_a_verb_of_another_tool_is_answered_with_one_of_ours() -> None:
    from weft.synonyms import VERBS as OTHERS

    assert set(OTHERS.values()) <= VERBS.keys()
    assert not OTHERS.keys() & VERBS.keys()
