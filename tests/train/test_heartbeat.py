"""Ranks that torchrun starts again find the words of those before them in the rendezvous store."""

import json
import os
from socket import gethostname
from typing import Any

import pytest
import torch.distributed as dist

from weft.training.heartbeat import Heartbeat


@pytest.fixture
def store() -> Any:
    return dist.TCPStore("127.0.0.1", 0, None, True)


def watcher(store: Any, rank: int) -> Heartbeat:
    inside, _ = os.pipe()
    return Heartbeat(store, rank, 2, 5.0, inside)


def test_what_an_earlier_start_left_in_the_store_is_not_read(store: Any) -> None:
    before = watcher(store, 1)
    before.publish("beat", f"{before.token} 7")
    before.store.set("heartbeat/lost", f"{before.token} 0")
    now = watcher(store, 0)
    assert [now.ask(name) for name in now.watched()] == ["", ""]
    now.exit_if_rank_lost()
    again = watcher(store, 1)
    again.publish("beat", f"{again.token} 7")
    assert now.ask("beat/1") == f"{again.token} 7"


@pytest.mark.parametrize("earlier", [False, True])
def test_a_stopped_neighbour_is_killed_though_it_began_first_and_nobody_of_an_earlier_start(
    store: Any, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    codes, killed = list[int](), list[int]()
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(os, "kill", lambda process, _: killed.append(process))
    neighbour = watcher(store, 1)
    neighbour.publish("process", json.dumps([gethostname(), 123, neighbour.token]))
    neighbour.publish("beat", f"{neighbour.token} 1")
    watching = watcher(store, 0)
    watching.end("other 2" if earlier else f"{neighbour.token} 2")
    assert codes == [75]
    assert killed == ([] if earlier else [123])


def test_a_loss_that_is_found_now_ends_every_rank(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    first, second = watcher(store, 0), watcher(store, 1)
    second.end("beat")
    first.exit_if_rank_lost()
    assert codes == [75, 75]
