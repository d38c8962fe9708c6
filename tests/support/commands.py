"""Fixtures that run the real command, and two tiny runs trained with it: Transformer and recurrent model.

The fixtures are imported by the ``conftest.py`` of the folders that use them.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
WORDS = ["red", "blue", "green", "dog", "cat", "bird", "runs", "sleeps", "eats", "நாய்"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "100"}
ENVIRONMENT.pop("HEEDFUL_DATA", None)

TRANSFORMER = """\
task: {kind: translation}
data:
  train: {kind: files, columns: {source: train.src, target: train.tgt}}
  valid: {kind: files, columns: {source: valid.src, target: valid.tgt}}
  test:
    own: {kind: files, columns: {source: test.src, target: test.tgt}}
tokenizer: {subwords: {kind: bpe, merges: 40}}
model: {kind: transformer, n_layers: 1, d_model: 16, dropout: 0.1,
  layer: {mixer: {n_heads: 2}, channels: {d_ff: 32}}}
schedule: {kind: constant, peak: 2e-2, warmup: 5}
training:
  {max_updates: 60, tokens_per_update: 200, validate_every: 20, save_every: 10, precision: fp32}
validation: {decode: null, decoding: {kind: beam, beam: 3}}
decoding: {kind: beam, beam: 3}
"""

# Always predicts the same two lines, so that outputs contain a newline.
RECURRENT = """\
task: {kind: translation}
data:
  train: {kind: jsonl, paths: train.jsonl, columns: {source: text.en, target: text.two}}
  valid: {kind: jsonl, paths: train.jsonl, columns: {source: text.en, target: text.two}}
tokenizer:
  shared: false
  subwords: {kind: character}
model:
  kind: recurrent
  d_embedding: 16
  d_hidden: 16
  attention: {kind: dot}
  decoder: luong
  direction: left-to-right
objective: {label_smoothing: 0}
schedule: {kind: constant, peak: 3e-2, warmup: 5}
training: {max_updates: 60, tokens_per_update: 100, validate_every: 60, precision: fp32}
"""


@dataclass(frozen=True)
class Done:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Parse standard output, which must be one line of JSON."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


class Started:
    """A command that is running."""

    def __init__(self, command: "Command", folder: Path) -> None:
        self.command, self.folder = command, folder
        self.pid: int = command.answer()["pid"]

    def wait(self) -> Done:
        self.command.ask("wait")
        status = self.command.answer()["status"]
        self.command.running = None
        # As bytes, because reading as text would convert \r\n to \n.
        out, err = ((self.folder / name).read_bytes().decode("utf-8") for name in ("out", "err"))
        return Done(status, out, err)


class Command:
    """``heedful``, run by forks of one process that has loaded torch already (see server.py)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, 0
        self.running: Started | None = None
        self.server = subprocess.Popen(
            [sys.executable, HERE / "server.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip

    def start(
        self,
        *arguments: Any,
        cwd: Path,
        stdin: str | bytes = b"",
        env: dict[str, str] | None = None,
        file_size: int | None = None,
        out: Path | None = None,
        err: Path | None = None,
    ) -> Started:
        """Start the command.

        Args:
            arguments: arguments of the command.
            cwd: working directory.
            stdin: standard input.
            env: additional environment variables.
            file_size: maximum size in bytes of files that it writes.
            out: file for standard output, which is then missing in `Done`.
            err: file for standard error, likewise.
        """
        self.calls += 1
        folder = self.folder / str(self.calls)
        folder.mkdir()
        for name in ("out", "err"):
            (folder / name).touch()  # for one that is killed before it opens them
        (folder / "in").write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        request = {
            "argv": [str(argument) for argument in arguments],
            "cwd": str(cwd),
            "env": env or {},
            "stdin": str(folder / "in"),
            "stdout": str(out or folder / "out"),
            "stderr": str(err or folder / "err"),
            "file_size": file_size,
        }
        self.end()
        self.ask(request)
        self.running = Started(self, folder)
        return self.running

    def __call__(self, *arguments: Any, **settings: Any) -> Done:
        """Run the command, and wait for it."""
        return self.start(*arguments, **settings).wait()

    def ask(self, request: Any) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()

    def answer(self) -> dict[str, int]:
        assert self.server.stdout is not None
        return json.loads(self.server.stdout.readline())

    def end(self) -> None:
        """Kill a command that a failed test has left running."""
        if self.running is not None:
            os.kill(self.running.pid, signal.SIGKILL)
            self.running.wait()

    def close(self) -> None:
        self.end()
        self.server.communicate(timeout=60)


@pytest.fixture(scope="session")
def heedful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Return the command, without its start-up time."""
    command = Command(tmp_path_factory.mktemp("commands"))
    yield command
    command.close()


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Return the environment variables of the command."""
    return ENVIRONMENT


@pytest.fixture(scope="session")
def process() -> Callable[..., subprocess.CompletedProcess[Any]]:
    """Return a function that runs ``python`` with any arguments in a new interpreter."""

    def run(*arguments: Any, cwd: Path, **settings: Any) -> subprocess.CompletedProcess[Any]:
        settings = {"text": True, "env": ENVIRONMENT, "timeout": 120, **settings}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, capture_output=True, check=False, **settings)

    return run


def write_corpus(folder: Path) -> None:
    """Write a parallel corpus: random words, and the same in capitals and reverse order."""
    rng = random.Random(0)
    for name, n in (("train", 160), ("valid", 23), ("test", 17)):
        rows = [[rng.choice(WORDS) for _ in range(rng.randint(1, 7))] for _ in range(n)]
        text = {"src": rows, "tgt": [[word.upper() for word in reversed(row)] for row in rows]}
        for side, lines in text.items():
            (folder / f"{name}.{side}").write_text("".join(" ".join(x) + "\n" for x in lines), "utf-8")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Return a fresh folder with the recipe ``tiny.yaml`` and its data."""
    write_corpus(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TRANSFORMER, "utf-8")
    return tmp_path


@pytest.fixture(scope="session")
def transformer(heedful: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trained run, which tests must not change."""
    folder = tmp_path_factory.mktemp("transformer")
    write_corpus(folder)
    (folder / "tiny.yaml").write_text(TRANSFORMER, "utf-8")
    done = heedful("train", "tiny.yaml", "--out", "run", cwd=folder)
    assert done.status == 0, done.err
    return folder / "run"


@pytest.fixture(scope="session")
def recurrent(heedful: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trained recurrent run with one tokenizer per side, which tests must not change."""
    folder = tmp_path_factory.mktemp("recurrent")
    rng = random.Random(1)
    rows = [{"text": {"en": "".join(rng.choices("abc ", k=5)) + "d", "two": "x\ny"}} for _ in range(40)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "two.yaml").write_text(RECURRENT, "utf-8")
    done = heedful("train", "two.yaml", "--out", "run", cwd=folder)
    assert done.status == 0, done.err
    return folder / "run"


@pytest.fixture
def own_run(transformer: Path, tmp_path: Path) -> Path:
    """Return a copy of the trained run that a test may modify."""
    return Path(shutil.copytree(transformer, tmp_path / "own-run"))
