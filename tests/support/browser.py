"""A real Chromium without a window, driven through chromedriver (W3C WebDriver) with the standard library."""

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

PROGRAMS = ("chromium", "chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--force-color-profile=srgb",
)
KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Space": "\ue00d",
    "PageDown": "\ue00f",
    "End": "\ue010",
    "Home": "\ue011",
    "Left": "\ue012",
    "Up": "\ue013",
    "Right": "\ue014",
    "Down": "\ue015",
}
SECONDS = 120
SETTLED = (
    "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))"
)
"""Answers once two frames were drawn and the events that waited are done."""


def missing() -> list[str]:
    """The programs that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Browser:
    """One session with an empty profile in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "HOME": str(folder)}
        self._driver = subprocess.Popen(
            [str(shutil.which("chromedriver")), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self._driver.stdout is not None
        ports = (re.search(r"successfully on port (\d+)", line) for line in self._driver.stdout)
        self._url = f"http://127.0.0.1:{next(port for port in ports if port)[1]}/session"
        options = {
            "binary": shutil.which("chromium"),
            "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._url += f"/{made['sessionId']}"
        # Away from the page that the browser begins with, which loads a lot of its own.
        self._ask("POST", "/url", {"url": "about:blank"})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]

    def close(self) -> None:
        """End the browser, then its driver."""
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(SECONDS)
            assert self._driver.stdout is not None
            self._driver.stdout.close()

    def open(self, document: str) -> str:
        """Load a document from a file; its address."""
        path = self.folder / "page.html"
        path.write_text(document, encoding="utf-8")
        return self.visit(path)

    def visit(self, path: Path) -> str:
        """Load a file; its address."""
        self._ask("POST", "/url", {"url": path.as_uri()})
        # Without a click a first key may go to the window, and not to the page.
        self.move(1, 1, click=True)
        return path.as_uri()

    def execute(self, script: str, *values: Any) -> Any:
        """What a function body returns; ``arguments`` are the values."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": [*values]})

    def press(self, *names: str) -> None:
        """Press keys one after the other: those of `KEYS`, or signs."""
        actions = [
            {"type": kind, "value": KEYS.get(name, name)} for name in names for kind in ("keyDown", "keyUp")
        ]
        self._act({"type": "key", "id": "keys", "actions": actions})

    def move(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the mouse to a place in the window, in pixels of the style, and press its button there."""
        actions: list[dict[str, Any]] = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}]
        if click:
            actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self._act(mouse)

    def _act(self, actions: dict[str, Any]) -> None:
        """Do what people do, and wait for what the page makes of it: some events (``toggle``) come later."""
        self._ask("POST", "/actions", {"actions": [actions]})
        self._ask("POST", "/execute/async", {"script": SETTLED, "args": []})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since the last time: ``browser`` or ``performance``."""
        return self._ask("POST", "/se/log", {"type": kind})

    def requested(self) -> set[str]:
        """The addresses that were asked for since the last time."""
        events = (json.loads(entry["message"])["message"] for entry in self.log("performance"))
        return {
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        }

    def show(self, *, dark: bool = False, width: int = 1400, height: int = 1000, scale: float = 1) -> None:
        """What the page is told of the screen and of what people prefer."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme, still])
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)

    def address(self) -> str:
        """That of the page that is shown."""
        return self._ask("GET", "/url")

    def image(self) -> bytes:
        """The window as a PNG."""
        return base64.b64decode(self._ask("GET", "/screenshot"))
