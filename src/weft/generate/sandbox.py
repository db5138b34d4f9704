"""Sandbox for chat templates, which are untrusted code: a separate process with Jinja's sandbox and
limits of time, memory and output.

A loop inside a sandbox cannot be interrupted from the same process (`9**9**9` is one operation); a
process can be killed.
"""

import atexit
import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import Any

# limits of one rendering, and of the start of the process
SECONDS = 5.0
START = 60.0
MAX_MEMORY_BYTES = 1 << 29  # bytes of address space
MAX_OUTPUT_CHARACTERS = 1 << 22  # characters


class Sandbox:
    """A process that renders templates. It starts at the first call and is killed if it exceeds its
    limits.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = Lock()

    def render(self, template: str, fields: dict[str, Any]) -> str:
        """Render a template. Raises ValueError with the template's error, or if it takes too much
        time or memory.
        """
        with self.lock:
            answer = self.send({"template": template, "fields": fields})
        if "error" in answer:
            raise ValueError(answer["error"])
        return str(answer["text"])

    def start(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.close()
            atexit.register(self.close)
            environment = {
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PATH": os.environ.get("PATH", ""),
            }
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            self.receive(self.process, START)
        return self.process

    def send(self, question: dict[str, Any]) -> dict[str, Any]:
        process = self.start()
        assert process.stdin
        with suppress(BrokenPipeError):  # the process has ended: `receive` reports it
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        return self.receive(process, SECONDS)

    def receive(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        assert process.stdout
        ready = select.select([process.stdout], [], [], seconds)[0]
        line = process.stdout.readline() if ready else b""
        if line.endswith(b"\n"):
            content: dict[str, Any] = json.loads(line)
            return content
        self.close()
        return {"error": TOO_LARGE if ready else f"rendering takes more than {seconds:g} seconds"}

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


TOO_LARGE = f"rendering takes more than {MAX_MEMORY_BYTES >> 20} MB"


# In the process


def serve() -> None:
    """Announce that the process is ready, then answer each line of JSON with one."""
    import resource

    from ..support.processes import die_with_parent

    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    room = environment()
    print("{}", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {
                "text": join_parts(
                    room.from_string(question["template"]).generate(**question["fields"])
                )
            }
        except MemoryError:
            answer = {"error": TOO_LARGE}
        except RecursionError:
            answer = {"error": "the template or its messages are nested too deeply"}
        except (
            Exception
        ) as error:  # a template can raise anything: 1/0, a missing name, include without a loader
            answer = {"error": " ".join(str(error).split())[:500] or type(error).__name__}
        print(json.dumps(answer), flush=True)


def environment() -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(text: str) -> None:
        raise TemplateError(text)

    room = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    room.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    room.filters["tojson"] = lambda value, indent=None: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    return room


def join_parts(parts: Any) -> str:
    """Join the output piece by piece, so that an endless one is stopped."""
    pieces = []
    size = 0
    for part in parts:
        pieces.append(part)
        size += len(part)
        if size > MAX_OUTPUT_CHARACTERS:
            raise ValueError(f"the output has more than {MAX_OUTPUT_CHARACTERS:,} characters")
    return "".join(pieces)


if __name__ == "__main__":
    serve()
