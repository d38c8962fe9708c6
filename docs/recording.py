"""Record a session of the command as an animated image for the README: docs/images/session.svg.

    python docs/recording.py            runs the demo (about three minutes), then explains a sentence

The commands are really run. The animation types them, shows their output as it came, with pauses of at most a
second, and ends with the page that the last command wrote, as Chromium shows it.
"""

import base64
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SENTENCE = "I enjoyed the film transformers"
COMMANDS = [
    "heedful demo",
    f'echo "{SENTENCE}" | heedful predict runs/demo-ta',
    f'heedful explain runs/demo-ta "{SENTENCE}" --out page.html',
]
IMAGE = Path(__file__).parent / "images" / "session.svg"

ROWS, COLUMNS = 26, 96
LINE, CHARACTER, MARGIN = 18, 8.4, 16
TYPING, LONGEST_PAUSE, READING, PAGE = 0.03, 1.0, 1.5, 6.0
"""Seconds: per typed character, between lines at most, after each command, of the page at the end."""


@dataclass(frozen=True)
class Line:
    """A line of the screen, and the second of the animation in which it appears."""

    text: str
    at: float
    is_command: bool = False


def record(folder: Path) -> list[Line]:
    """Run the commands in a folder; return what a terminal would show."""
    lines, now = [], 0.5
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in COMMANDS:
        lines.append(Line(f"$ {command}", now, is_command=True))
        now += TYPING * len(command) + 0.3
        started = time.monotonic()
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path, "COLUMNS": str(COLUMNS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        for text in process.stdout:
            now += min(time.monotonic() - started, LONGEST_PAUSE)
            started = time.monotonic()
            lines += [Line(part, now) for part in wrapped(text.rstrip("\n"))]
        if process.wait():
            raise SystemExit(f"{command}: exit status {process.returncode}: {lines[-1].text}")
        now += READING
    return lines


def wrapped(text: str) -> list[str]:
    """Return a line in parts as wide as the screen."""
    return [text[i : i + COLUMNS] for i in range(0, max(len(text), 1), COLUMNS)]


def screenshot(page: Path, folder: Path) -> bytes:
    """Return the page as Chromium shows it, as PNG."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("the end of the recording needs Chromium")
    width, height = screen_size()
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--hide-scrollbars",
    ]
    options += [
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={round(width * 1.3)},{round(height * 1.3)}",
    ]
    image = folder / "page.png"
    subprocess.run(
        [browser, *options, f"--screenshot={image}", page.as_uri()], check=True, capture_output=True
    )
    return image.read_bytes()


def screen_size() -> tuple[int, int]:
    """Return width and height of the image."""
    return round(COLUMNS * CHARACTER) + 2 * MARGIN, ROWS * LINE + 2 * MARGIN


def animation(lines: list[Line], page: bytes) -> str:
    """Return the session as an SVG image that repeats."""
    width, height = screen_size()
    end = lines[-1].at + READING
    total = end + PAGE
    style, texts = [], []
    for number, line in enumerate(lines):
        share = 100 * line.at / total
        style.append(appearing(f"l{number}", share, share + 0.01))
        color = "command" if line.is_command else "output"
        attributes = (
            f'class="{color}" x="{MARGIN}" y="{MARGIN + (number + 0.8) * LINE:.0f}" xml:space="preserve"'
        )
        animated = f'style="animation: l{number} {total:.2f}s infinite"'
        texts.append(f"<text {attributes} {animated}>{html.escape(line.text)}</text>")
    scrolls = ["0% {transform: none}"]
    for number, line in enumerate(lines[ROWS:], 1):
        share = 100 * line.at / total
        scrolls.append(f"{share:.2f}% {{transform: translateY({-LINE * number}px)}}")
    scrolls.append(f"100% {{transform: translateY({-LINE * max(len(lines) - ROWS, 0)}px)}}")
    share = 100 * end / total
    style += [
        f"@keyframes scroll {{{' '.join(scrolls)}}}",
        appearing("page", share, share + 2),
        f".screen {{animation: scroll {total:.2f}s steps(1, end) infinite}}",
        f".page {{animation: page {total:.2f}s infinite}}",
        "text {font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #d5d8e0}",
        ".command {fill: #8fd18f; font-weight: bold}",
    ]
    data = base64.b64encode(page).decode("ascii")
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        f"<title>heedful demo, predict, explain</title><style>{' '.join(style)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#1e2029"/><g class="screen">{"".join(texts)}</g>'
        f'<image class="page" width="{width}" height="{height}" preserveAspectRatio="xMidYMin slice" '
        f'href="data:image/png;base64,{data}"/></svg>\n'
    )


def appearing(name: str, start: float, end: float) -> str:
    """Return an animation in which something appears between two percentages of the time."""
    return f"@keyframes {name} {{0%, {start:.2f}% {{opacity: 0}} {end:.2f}%, 100% {{opacity: 1}}}}"


def main() -> None:
    """Record, and write the image."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = record(folder)
        shown = [
            Line(re.sub(re.escape(f"{folder}/"), "", line.text), line.at, line.is_command) for line in lines
        ]
        IMAGE.write_text(animation(shown, screenshot(folder / "page.html", folder)), encoding="utf-8")
    print(IMAGE)


if __name__ == "__main__":
    main()
