"""Shared by all tests: one thread each, and `--long` for the counts of a release."""

import re
from functools import cache

import pytest
import torch

import weft.cli
from weft.commands.verbs import all_verbs
from weft.support.options.command_line import command_fields, option_names


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--unshrunk",
        action="store_true",
        help="show the first random spec that fails, not the smallest",
    )
    parser.addoption("--long", action="store_true", help="the counts of a release, not of a commit")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long") and config.option.timeout is None:
        config.option.timeout = 3600  # many times the work of a commit


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def unshrunk(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--unshrunk"))


@cache
def options_by_verb() -> dict[str, set[str]]:
    return {
        verb.name: {name for field in command_fields(verb.options) for name in option_names(field)}
        | {"-h", "--help"}
        for verb in all_verbs()
    }


def unknown_options(verb: str, message: str) -> list[str]:
    """The options that a message of a verb names and the verb lacks; in a clause with `weft VERB`,
    they are of that verb.
    """
    unknown = []
    for clause in re.split(r"[;,()]", message):
        named = verb
        for other, option in re.findall(
            r"(?:weft|(?=torchrun)) ?(\w+)|(?<![\w-])(--[a-z][a-z-]+)", clause
        ):
            named = other or named
            known = options_by_verb().get(named)
            if option and known is not None and option not in known:
                unknown.append(option)
    return unknown


@pytest.fixture(autouse=True)
def _messages_name_options_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever error a test brings about: an option that it names exists on the verb that prints
    it.
    """
    run_verb = weft.cli.run_verb

    def run_and_check(call: weft.cli.Call) -> int:
        try:
            return run_verb(call)
        except ValueError as error:
            if unknown := unknown_options(call.verb.name, str(error)):
                pytest.fail(f"weft {call.verb.name} has no {', '.join(unknown)}: {error}")
            raise

    monkeypatch.setattr(weft.cli, "run_verb", run_and_check)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
