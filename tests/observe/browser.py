"""A headless Chromium that is driven through two pipes; the tests that need one are skipped where
it is missing.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Tab": 9}


def find_chromium() -> str:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    return program


class Browser:
    """One page, with the few commands of the DevTools protocol that the tests need."""

    def __init__(self, folder: Path, width: int = 1200, height: int = 900) -> None:
        program = find_chromium()
        (read_here, write_there) = os.pipe()
        (read_there, write_here) = os.pipe()
        # The browser reads commands at descriptor 3 and answers at 4, wherever the pipes are.
        begin = (
            "import fcntl, os, sys\n"
            "ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]\n"
            "os.dup2(ends[0], 3), os.dup2(ends[1], 4)\n"
            "os.execvp(sys.argv[3], sys.argv[3:])"
        )
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                begin,
                str(read_there),
                str(write_there),
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
                f"--user-data-dir={folder}",
                f"--window-size={width},{height}",
                "--disable-background-networking",
                "about:blank",
            ],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        self.read = os.fdopen(read_here, "rb", 0)
        self.write = os.fdopen(write_here, "wb", 0)
        self.count = 0
        self.rest = b""
        self.session = None
        self.events: list[dict[str, Any]] = []
        attached = self.send("Target.attachToTarget", targetId=self.page_target(), flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")
        # A headless window may load a page before it has its size, and without the focus.
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)

    def page_target(self) -> str:
        """Newer browsers list parts of their own interface too, and before the page."""
        while True:
            for target in self.send("Target.getTargets")["targetInfos"]:
                if target["type"] == "page":
                    return str(target["targetId"])
            time.sleep(0.1)

    def message(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = self.read.read(1 << 16)
            assert part, "the browser ended"
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def send(self, method: str, **parameters: Any) -> Any:
        self.count += 1
        command: dict[str, Any] = {"id": self.count, "method": method, "params": parameters}
        if self.session is not None:
            command["sessionId"] = self.session
        self.write.write(json.dumps(command).encode() + b"\0")
        while (message := self.message()).get("id") != self.count:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def wait(self, event: str) -> None:
        while not any(message.get("method") == event for message in self.events):
            self.events.append(self.message())

    def open(self, path: Path, fragment: str = "", dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url="about:blank")
        self.wait("Page.loadEventFired")
        self.events.clear()
        self.send("Page.navigate", url=f"{path.resolve().as_uri()}{fragment}")
        self.wait("Page.loadEventFired")

    def evaluate(self, code: str) -> Any:
        result = self.send(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str, shift: bool = False) -> None:
        fields = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": KEYS[key],
            "modifiers": 8 * shift,
        }
        text = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **fields, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **fields)

    def move_mouse(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def requests(self) -> list[str]:
        """The addresses that the page asked for since it was opened."""
        return [
            message["params"]["request"]["url"]
            for message in self.events
            if message.get("method") == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[Any]:
        return [m for m in self.events if m.get("method") == "Runtime.exceptionThrown"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.read.close()
        self.write.close()
