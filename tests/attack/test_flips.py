"""One bit, byte or end of one file of a run is changed: an error names the file, or nothing is different.

Whatever the damage, a run never predicts something else without a word, and never fails with an error that
is not heedful's.
"""

import shutil
from pathlib import Path

import pytest

from heedful.api.run import load
from heedful.errors import HeedfulError
from heedful.recipes.trees import Mark, Tree
from heedful.runs import train as training
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run

TEXTS = ["a b c", "c c a", "b", "a a b b", ""]
MODEL = {"d_model": 8, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 11}}}
ROWS = {"kind": "jsonl", "paths": "rows.jsonl", "columns": {"source": "x", "target": "y"}}
LABELLED = {**ROWS, "columns": {"text": "x", "label": "y"}}
NUMBERED = {**ROWS, "columns": {"text": "x", "label": "z"}}
TASKS = {
    "translation": {
        "task": {"kind": "translation"},
        "data": {"train": ROWS, "valid": ROWS},
        "tokenizer": {"subwords": {"kind": "character"}},
        "model": {"kind": "transformer", **MODEL},
        "decoding": {"kind": "beam", "beam": 3},
        "validation": {"decode": None},
    },
    "classification": {
        "task": {"kind": "classification"},
        "data": {"train": LABELLED, "valid": LABELLED},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "encoder", "max_length": 19, **MODEL},
    },
    "regression": {
        "task": {"kind": "regression"},
        "data": {"train": NUMBERED, "valid": NUMBERED},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "encoder", "max_length": 19, **MODEL},
    },
}


@pytest.fixture(scope="session", params=TASKS)
def trained(request, tmp_path_factory):
    """A finished run, and one that was killed as it ended."""
    folder = tmp_path_factory.mktemp("flips")
    rows = [f'{{"x": "{text}", "y": "{text[::-1] or "b"}", "z": {len(text)}}}\n' for text in TEXTS[:-1]]
    (folder / "rows.jsonl").write_text("".join(rows), "utf-8")
    settings = {
        "root": str(folder),
        "schedule": {"kind": "constant", "peak": 3e-2},
        "training": {"max_updates": 3, "validate_every": 2, "save_every": 1, "precision": "fp32"},
    }
    recipe = recipe_from(Tree.of({**TASKS[request.param], **settings}, Mark("here")))
    train_run(recipe, folder / "finished", device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "finish", lambda *arguments: None)
        train_run(recipe, folder / "unfinished", device="cpu")
    return folder


def answers(run: Path):
    """What the run predicts, to the last bit."""
    return [str(prediction) for prediction in load(run, device="cpu").predict(TEXTS)]


def attempt(run: Path):
    """What the run predicts, or the message of heedful's error; others are raised."""
    try:
        return answers(run), ""
    except HeedfulError as error:
        return None, str(error)


def flip_bit(content: bytearray, draw):
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def change_byte(content: bytearray, draw):
    content[draw.randrange(len(content))] = draw.randrange(256)


def cut(content: bytearray, draw):
    del content[draw.randrange(len(content)) :]


def remove(content: bytearray, draw):
    """The file goes as a whole (see `harm`)."""


def harm(path: Path, draw) -> str:
    """Damage a file; return how."""
    how = draw.choice([flip_bit, flip_bit, change_byte, cut, remove])
    content = bytearray(path.read_bytes())
    if how is remove:
        path.unlink()
    elif content:
        how(content, draw)
        path.write_bytes(content)
    return how.__name__


def pick(run: Path, draw) -> Path:
    """A file of the run: of those at its top in half of the cases, since most others are not read."""
    top = draw.random() < 0.5
    return draw.choice(sorted(path for path in (run.glob("*") if top else run.rglob("*")) if path.is_file()))


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_damage_is_named_or_changes_nothing(trained, state, tmp_path, amount, draw):
    run = Path(shutil.copytree(trained / state, tmp_path / "run"))
    before, named = answers(run), 0
    for _ in range(amount(12, 450)):  # of 2,700 in all, about 1,080 are flips of a bit
        path = pick(run, draw)
        content = path.read_bytes()
        how = harm(path, draw)
        where = f"{how} in {path.relative_to(run)}"
        found, error = attempt(run)
        assert found == before or str(path) in error, f"{where}: {error or found}"
        named += bool(error)
        path.write_bytes(content)
    assert named
    assert answers(run) == before
