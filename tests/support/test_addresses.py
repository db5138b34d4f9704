"""Storage addresses: missing libraries and failures give one-line errors."""

import sys
from pathlib import Path

import pytest

from weft.cli import main
from weft.data.reading.files import find

fsspec = pytest.importorskip("fsspec")


@pytest.mark.parametrize(
    ("address", "package"), [("http://localhost/a.csv", "aiohttp"), ("s3://bucket/a.csv", "s3fs")]
)
def test_an_address_without_its_package_is_one_line(
    address: str,
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for protocol in ("http", "https", "s3", "s3a"):  # those that were opened before
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, protocol, raising=False)
    packages = ("fsspec.implementations.http", "s3fs")
    for name in [name for name in sys.modules if name.startswith(packages)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["prepare", address, "--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert address in said
    assert package in said
    assert said.count("\n") == 1


def test_what_an_address_answers_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise Broken("the server is gone\nsecond line")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.exists", refuse)
    with pytest.raises(
        ValueError,
        match=r"^memory://a\.txt cannot be read: the server is gone; check the address and the "
        r"network$",
    ):
        find("memory://a.txt")


def test_no_credential_is_sent_to_the_machines_of_a_cluster() -> None:
    from weft.data.preparing.on_ray import passed_on

    secrets = ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN")
    given = dict.fromkeys((*secrets, "AWS_ENDPOINT_URL", "WEFT_CACHE", "HOME"), "x")
    assert passed_on(given).keys() == {"AWS_ENDPOINT_URL", "WEFT_CACHE"}
