"""Headless Chromium, driven through chromedriver (W3C WebDriver) with the standard library."""

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
"""Script that returns after two rendered frames and all pending events."""


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Browser:
    """Browser session with an empty profile in ``folder``."""

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
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = self._ask("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self._url += f"/{session['sessionId']}"
        # Leave the start page, which makes requests of its own.
        self._ask("POST", "/url", {"url": "about:blank"})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]

    def close(self) -> None:
        """Close the browser, then its driver."""
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(SECONDS)
            assert self._driver.stdout is not None
            self._driver.stdout.close()

    def open(self, document: str) -> str:
        """Write a document to a file and load it; return its URL."""
        path = self.folder / "page.html"
        path.write_text(document, encoding="utf-8")
        return self.visit(path)

    def visit(self, path: Path) -> str:
        """Load a file; return its URL."""
        self.load(path.as_uri())
        # Click first: otherwise the first key press may go to the window instead of the page.
        self.move(1, 1, click=True)
        return path.as_uri()

    def load(self, url: str) -> None:
        """Load a page."""
        self._ask("POST", "/url", {"url": url})

    def execute(self, script: str, *values: Any) -> Any:
        """Run a function body with ``arguments`` set to the values; return its result."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": [*values]})

    def press(self, *names: str) -> None:
        """Press keys one after the other: names in `KEYS`, or characters."""
        actions = [
            {"type": kind, "value": KEYS.get(name, name)} for name in names for kind in ("keyDown", "keyUp")
        ]
        self._act({"type": "key", "id": "keys", "actions": actions})

    def move(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the mouse to a position in CSS pixels; with ``click`` press its button there."""
        actions: list[dict[str, Any]] = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}]
        if click:
            actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self._act(mouse)

    def _act(self, actions: dict[str, Any]) -> None:
        """Perform input actions, and wait for their events; some, like ``toggle``, are asynchronous."""
        self._ask("POST", "/actions", {"actions": [actions]})
        self._ask("POST", "/execute/async", {"script": SETTLED, "args": []})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Run a command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Return the entries of the ``browser`` or ``performance`` log since the last call."""
        return self._ask("POST", "/se/log", {"type": kind})

    def requested(self) -> set[str]:
        """Return the URLs requested since the last call."""
        events = (json.loads(entry["message"])["message"] for entry in self.log("performance"))
        return {
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        }

    def show(self, *, dark: bool = False, width: int = 1400, height: int = 1000, scale: float = 1) -> None:
        """Emulate a screen size and user preferences."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme, still])
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)

    def address(self) -> str:
        """Return the URL of the current page."""
        return self._ask("GET", "/url")

    def image(self) -> bytes:
        """Return a screenshot of the window as PNG."""
        return base64.b64decode(self._ask("GET", "/screenshot"))
