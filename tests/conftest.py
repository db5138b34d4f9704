"""Shared by all tests: one thread each, and `--long` for the counts of a release."""

import pytest
import torch


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


@pytest.fixture(autouse=True)
def _quiet() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
