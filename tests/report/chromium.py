"""A headless Chromium driven over its debugging pipe: open a file, read what happened, look at it."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.waiting import LIMIT

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
# The browser reads commands on descriptor 3 and answers on 4; whatever numbers ours have, they become these two.
LAUNCH = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def installed() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Page:
    """What a page did, and a way to ask it more."""

    browser: Chromium
    session: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def value(self, expression: str) -> Any:
        answer = self.browser.call(
            "Runtime.evaluate", self.session, expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.browser.call("Input.dispatchMouseEvent", self.session, type="mouseMoved", x=x, y=y)
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def resize(self, *, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        self.browser.call(
            "Emulation.setDeviceMetricsOverride",
            self.session,
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.browser.call("Emulation.setEmulatedMedia", self.session, features=feature)

    def screenshot(
        self, path: Path, *, width: int = 1440, height: int = 900, dark: bool = False, whole: bool = False
    ) -> None:
        """Of a page in front: the browser draws no other."""
        self.resize(width=width, height=height, dark=dark)
        shot = self.browser.call("Page.captureScreenshot", self.session, captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


class Chromium:
    """One browser process; `with` ends it."""

    def __init__(self, path: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()
        command = [
            sys.executable,
            "-c",
            LAUNCH,
            str(to_browser),
            str(from_browser),
            path,
            *FLAGS,
            f"--user-data-dir={self.folder}",
        ]
        self.process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self.writing, self.reading = from_us, to_us
        self.numbers = itertools.count(1)
        self.pages: dict[str, Page] = {}
        self.rest = b""

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(LIMIT)
        except (OSError, TimeoutError, subprocess.TimeoutExpired, EOFError):
            self.process.kill()
            self.process.wait()
        os.close(self.writing)
        os.close(self.reading)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + LIMIT
        while True:
            answer = self.message(until)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.note(answer)

    def message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            more = os.read(self.reading, 1 << 20)
            if not more:
                raise EOFError("the browser went away")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        return json.loads(line)

    def note(self, event: dict[str, Any]) -> None:
        page, about = self.pages.get(event.get("sessionId", "")), event.get("params", {})
        if page is None:
            return
        match event["method"]:
            case "Runtime.consoleAPICalled":
                page.console.append(f"{about['type']}: {about['args']}")
            case "Runtime.exceptionThrown":
                page.console.append(json.dumps(about["exceptionDetails"])[:500])
            case "Log.entryAdded":
                page.console.append(f"{about['entry']['level']}: {about['entry']['text']}")
            case "Network.requestWillBeSent":
                page.requests.append(about["request"]["url"])
            case "Page.javascriptDialogOpening":
                page.dialogs.append(about["message"])
            case _:
                pass

    def open(self, path: Path) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        size = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        self.call("Page.navigate", session, url=path.resolve().as_uri())
        until = time.monotonic() + LIMIT
        while page.value("document.readyState") != "complete":
            assert time.monotonic() < until, "the page did not load"
        page.value("new Promise(done => setTimeout(() => done(1), 150))")
        return page
