"""Shared by all tests: one thread each, and `--long` for the counts of a release."""
import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the counts of a release, not of a commit")


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))


@pytest.fixture(autouse=True)
def _quiet() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
