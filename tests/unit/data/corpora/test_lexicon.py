"""The tables of words: complete, consistent, and in the installed package."""

import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

from heedful.data.corpora import lexicon
from heedful.data.corpora.lexicon import NAMES, NOUNS, PLACES, VERBS, read_rows

ROOT = Path(__file__).parents[4]
TABLES = sorted(path.stem for path in (ROOT / "src/heedful/data/corpora/words").iterdir())


def test_every_table_is_read():
    assert {Path(str(path)).stem for path in files(lexicon.__package__).joinpath("words").iterdir()} == {
        *TABLES
    }
    assert len(TABLES) == 10


@pytest.mark.parametrize("name", TABLES)
def test_rows_have_the_fields_of_the_header_and_come_once(name):
    header, *rows = read_rows(name)
    assert len(set(header)) == len(header)
    assert all(len(row) == len(header) for row in rows)
    assert len({tuple(row) for row in rows}) == len(rows)
    if header[0] == "key":
        assert len({row[0] for row in rows}) == len(rows)


def test_words_are_complete():
    for verb in VERBS.values():
        assert len(verb.german) in (0, 6)
        assert bool(verb.german_participle) == bool(verb.german_case)
    for noun in NOUNS.values():
        assert noun.classes
        assert bool(noun.german) == bool(noun.gender)
        assert bool(noun.tamil) == bool(noun.tamil_person)
    assert all(name.german or name.tamil for name in NAMES.values())
    assert {noun for places in PLACES.values() for noun in places} <= NOUNS.keys()


@pytest.mark.slow
def test_a_wheel_contains_the_tables(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode and "hatchling" in built.stderr:
        pytest.skip("pip cannot install the build backend, hatchling")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    folder = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from heedful.data.corpora.lexicon import NOUNS, __file__\n"
        "print(len(NOUNS), __file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(len(NOUNS)), str(folder / "heedful/data/corpora/lexicon.py")]
