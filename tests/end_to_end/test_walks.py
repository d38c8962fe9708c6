"""The walks of ARCHITECTURE.md: from a command to the arithmetic, through the modules that the page names."""

import re
import sys
from pathlib import Path

import pytest

import heedful
from heedful.cli.main import app
from heedful.models.transformer import EncoderDecoder
from heedful.nn.attention.self_attention import SelfAttention
from heedful.objectives.cross_entropy import NextToken

PACKAGE = Path(heedful.__file__).parent
PAGE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALKS = {
    verb: re.findall(r"`([\w/]+\.py)`", steps)
    for verb, steps in re.findall(r"^\| (train|predict|explain) \| (.+) \|$", PAGE, re.MULTILINE)
}
MOST = 6
BESIDES = {"cli/options.py"}  # maps options of the command to arguments
TINY = [
    *("model.d_model=12", "model.n_layers=1"),
    *("model.layer.channels.d_ff=13", "model.layer.mixer.n_heads=3"),
    *(f"training.{key}" for key in ("max_updates=1", "validate_every=1", "save_every=1", "precision=fp32")),
    *("training.compile=off", "training.processes=1", "data.train.limit=60", "data.valid.limit=5"),
    "schedule.warmup=1",
]

pytestmark = pytest.mark.slow


def modules():
    """The modules of heedful on the stack, outermost first, without repetition of neighbours."""
    frame, found = sys._getframe(2), []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            name = path.relative_to(PACKAGE).as_posix()
            if name not in BESIDES and found[-1:] != [name]:
                found.append(name)
        frame = frame.f_back
    return found[::-1]


@pytest.fixture
def walked(monkeypatch):
    """Note the modules on the stack whenever a method is called."""
    stacks = []

    def note(owner, name):
        own = getattr(owner, name)
        file = Path(sys.modules[owner.__module__].__file__).relative_to(PACKAGE).as_posix()

        def called(*arguments, **options):
            stack = modules()
            stacks.append(stack if stack[-1:] == [file] else [*stack, file])
            return own(*arguments, **options)

        monkeypatch.setattr(owner, name, called)

    return stacks, note


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("walks") / "run"
    app(["train", "phrasebook-ta", *TINY, "--out", str(out)], standalone_mode=False)
    return out


def test_the_page_has_three_short_walks():
    assert WALKS.keys() == {"train", "predict", "explain"}
    assert all(len(steps) - 1 <= MOST for steps in WALKS.values())
    assert all((PACKAGE / step).is_file() for steps in WALKS.values() for step in steps)


def test_training_takes_the_walk(walked, tmp_path):
    stacks, note = walked
    note(NextToken, "__call__")
    app(["train", "phrasebook-ta", *TINY, "--out", str(tmp_path / "run")], standalone_mode=False)
    assert WALKS["train"] in stacks


def test_prediction_takes_the_walk(run, walked, tmp_path):
    stacks, note = walked
    note(EncoderDecoder, "extend")
    (tmp_path / "input.txt").write_text("we see the bird\n", encoding="utf-8")
    # A coverage penalty needs attention weights, so the native engine is not used.
    decoding = ["--decoding", "kind=beam", "--decoding", "coverage=0.1"]
    app(["predict", str(run), str(tmp_path / "input.txt"), *decoding], standalone_mode=False)
    assert WALKS["predict"] in stacks


def test_explanation_takes_the_walk(run, walked):
    stacks, note = walked
    note(SelfAttention, "forward")
    app(["explain", str(run), "we see the bird", "--json"], standalone_mode=False)
    assert WALKS["explain"] in stacks
