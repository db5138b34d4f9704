"""Run the command, or a few lines, in a process of its own that need not import torch again.

A server that has imported Weft and torch forks a child for each call: what the child registers or
changes is gone with it, as with an interpreter started anew, and the five seconds of importing are
spent once.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["weft.cli", "weft.runs.train", "weft.testing", "torch._dynamo", "pandas"]
)


def run_child(folder: Path, variables: Mapping[str, str], words: tuple[str, ...]) -> None:
    """Be `python -m weft.cli WORDS`, or `python -c CODE`, in that folder."""
    os.chdir(folder)
    for file, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(output_of(folder, file), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(variables)
    sys.path.insert(0, str(folder))
    if words[0] == "-c":
        exec(words[1], {"__name__": "__main__"})  # noqa: S102 (lines of a test)
        return
    from weft.cli import main

    sys.argv = ["weft", *words]
    sys.exit(main())


def output_of(folder: Path, file: str) -> Path:
    return folder / f".{file}"


def start(folder: Path, variables: Mapping[str, str], *words: str) -> BaseProcess:
    child = SERVER.Process(target=run_child, args=(folder, dict(variables), words))
    child.start()
    return child


def run(folder: Path, variables: Mapping[str, str], *words: str) -> CompletedProcess[str]:
    child = start(folder, variables, *words)
    child.join()
    output, errors = (output_of(folder, file).read_text() for file in ("stdout", "stderr"))
    assert child.exitcode is not None
    return CompletedProcess(words, child.exitcode, output, errors)
