"""However long what a user gives is, messages are short, and too much is refused before work on it."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from tiers import sampled

import heedful
from heedful import limits
from heedful.cli import main
from heedful.errors import LONGEST_MESSAGE, HeedfulError
from heedful.recipes.yaml import dump_yaml
from heedful.text.tokenizer import Tokenizer

LONG = "x" * 1_500_000
NAME = "x" * 50_000  # in recipes, which take longer to parse
LABELS = {
    "task": {"kind": "classification"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {
        "kind": "encoder",
        "n_layers": 1,
        "d_model": 8,
        "max_length": 32,
        "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 8}},
    },
    "data": {
        "train": {"kind": "jsonl", "paths": "train.jsonl", "columns": {"text": "text", "label": "label"}},
        "valid": {"kind": "jsonl", "paths": "train.jsonl", "columns": {"text": "text", "label": "label"}},
    },
    "training": {"max_updates": 1, "tokens_per_update": 64, "processes": 1, "compile": "off"},
}
ROWS = [{"text": "a red dog", "label": "yes"}, {"text": "a blue cat", "label": "no"}]


@pytest.fixture(scope="module")
def run(make_run, tmp_path_factory):
    recipe = {key: value for key, value in LABELS.items() if key not in ("data", "training")}
    return make_run(tmp_path_factory.mktemp("run") / "run", recipe, ROWS)


def lines(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


FILES: dict[str, str] = {
    "label.jsonl": lines(*ROWS, {"text": "a", "label": LONG}),
    "short-label.jsonl": lines(*ROWS, {"text": "a", "label": LONG[:900_000]}),
    "text.jsonl": lines(*ROWS, {"text": LONG, "label": "yes"}),
    "unknown-word.jsonl": lines(*ROWS, {"text": LONG[:900_000], "label": "yes"}),
    "key.jsonl": lines(*ROWS, {LONG: "a", "label": "yes"}),
    "only-key.jsonl": lines({LONG: "a", "label": "yes"}),
    "type.jsonl": lines({"text": [{LONG: 1}], "label": "yes"}),
    "many-keys.jsonl": lines({f"key{n}": n for n in range(200_000)}),
    "many-words.jsonl": lines({"text": ["a"] * (limits.MOST_ITEMS + 1), "label": "yes"}),
    "deep.jsonl": '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
    "number.jsonl": '{"text": ' + "7" * 1_000_000 + ', "label": "yes"}\n',
    "no-json.jsonl": f"{LONG}\n",
    "header.csv": f"{LONG},label\na,yes\n",
    "columns.csv": ",".join(f"c{n}" for n in range(20_000)) + "\n" + ",".join("1" * 20_000) + "\n",
    "quote.csv": f'text,label\n"{LONG}\n' + "a\n" * 1000,
    "fields.tsv": f"text\tlabel\n{LONG}\n",
    "words.txt": " ".join(["word"] * 260_000) + "\n",
    "word.txt": LONG[:900_000] + "\n",
    "text.txt": LONG + "\n",
}
"""Files of a user; the last ones are inputs alone."""

RECIPES: dict[str, Any] = {
    "key": {**LABELS, NAME: 1},
    "kind": {**LABELS, "task": {"kind": NAME}},
    "model": {**LABELS, "model": {"kind": NAME}},
    "value": {**LABELS, "training": {"max_updates": NAME}},
    "metric": {**LABELS, "training": {"max_updates": 1, "metric": NAME}},
    "labels": {**LABELS, "task": {"kind": "classification", "labels": [NAME, NAME]}},
    "keys": {**LABELS, "training": {f"{n}": n for n in range(3000)}},
    "path": {**LABELS, "data": {"train": {"kind": "jsonl", "paths": NAME, "columns": {"text": "a"}}}},
    "loss": {**LABELS, "objective": {"loss": NAME}},
    "part": {**LABELS, "objective": {"loss": f"package:{NAME}"}},
    "start": {**LABELS, "start": {"run": NAME}},
}


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Runs the command in this process; returns its status, output and messages, which are all short."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main._status_of(lambda: main._run([*arguments]))
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert len(err) <= LONGEST_MESSAGE + 2000, err[:300]
        assert status in (0, 1, 2)
        return status, out, err

    return call


def strings(value: object) -> Iterator[str]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from [part] if isinstance(part, str) else strings(part)


CALLS = {
    "predict": lambda run, text: run.predict([text]),
    "embed": lambda run, text: run.embed([text]),
    "explain": lambda run, text: run.explain(text),
    "explain a list": lambda run, text: run.explain([text]),
    "explain a target": lambda run, text: run.explain("a red dog", target=text),
    "explain others": lambda run, text: run.explain("a red dog", views=["census"], others=[text]),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_in_python_refuses_a_long_text_before_it_is_tokenised(name, run, monkeypatch):
    loaded = heedful.load(run, device="cpu")
    read, encode_batch = [], Tokenizer.encode_batch

    def noted(self, texts, *arguments, **options):
        read.extend(texts)
        return encode_batch(self, texts, *arguments, **options)

    monkeypatch.setattr(Tokenizer, "encode_batch", noted)
    monkeypatch.setattr(limits, "LONGEST_TEXT", 50)
    with pytest.raises(HeedfulError, match="has 51 characters, more than 50; split it"):
        CALLS[name](loaded, "a red dog" + 42 * "x")
    assert not any("x" in text for text in read)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verb", sampled(["predict", "evaluate", "score", "embed"], ["predict", "evaluate"]))
def test_messages_about_a_file_are_short(verb, name, run, command, tmp_path):
    (tmp_path / name).write_text(FILES[name], "utf-8")
    arguments = ["--table", name] if verb == "evaluate" else [name]
    _, out, _ = command(verb, str(run), *arguments, "--device", "cpu")
    for line in out.splitlines() if name.endswith(".jsonl") and verb == "predict" else ():
        answer = json.loads(line)
        notes = [answer.get("note") or "", answer.get("error") or ""]
        assert max(map(len, notes)) <= LONGEST_MESSAGE


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".jsonl")])
def test_messages_of_a_training_are_short(name, command, tmp_path):
    (tmp_path / "train.jsonl").write_text(FILES[name], "utf-8")
    (tmp_path / "recipe.yaml").write_text(dump_yaml(LABELS), "utf-8")
    command("train", "recipe.yaml", "--out", "out", "--device", "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_messages_about_a_recipe_are_short(name, command, tmp_path):
    (tmp_path / "train.jsonl").write_text(lines(*ROWS * 4), "utf-8")
    (tmp_path / "recipe.yaml").write_text(dump_yaml(RECIPES[name]), "utf-8")
    status, _, err = command("train", "recipe.yaml", "--out", "out", "--device", "cpu")
    assert status == 2
    assert err


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (LONG,),
        ("train", LONG),
        ("train", "digits", LONG),
        ("train", "digits", f"{LONG}=1"),
        ("train", "digits", f"model.n_layers={LONG}"),
        ("train", "digits", "--device", LONG),
        ("train", "digits", f"--{LONG}"),
        ("predict", LONG),
        ("predict", "RUN", LONG),
        ("predict", "RUN", "in.jsonl", "--column", LONG),
        ("evaluate", "RUN", "--split", LONG),
        ("describe", LONG),
        ("compare", LONG),
        ("export", "RUN", "--to", LONG),
        ("import", LONG, "out"),
        ("explain", "RUN", LONG),
        ("lab", LONG),
    ],
    ids=lambda arguments: " ".join(argument[:30] for argument in arguments),
)
def test_messages_about_arguments_are_short(arguments, run, command, tmp_path):
    (tmp_path / "in.jsonl").write_text(lines(*ROWS), "utf-8")
    status, _, err = command(*(str(run) if argument == "RUN" else argument for argument in arguments))
    assert status == 2 or arguments[0] == "explain"
    assert err


# Small files that are large in memory ----------------------------------------------------------------------

READ = """
import resource, sys
from pathlib import Path
from heedful.data.annotated import ConllSource, IdxSource, SquadSource
from heedful.data.parquet import parquet_source
from heedful.data.delimited import TsvSource
from heedful.data.json_lines import JsonlSource
from heedful.data.text import TextSource
from heedful.errors import DataError
limit = 3 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
name = sys.argv[1]
sources = {
    "lines": lambda: JsonlSource(paths=name, columns={"text": "text"}),
    "fields": lambda: TsvSource(paths=name, columns={"text": 0}, separator=",", quotes=True),
    "document": lambda: TextSource(paths=name),
    "words": lambda: ConllSource(paths=name, columns={"words": 0}),
    "squad": lambda: SquadSource(paths=name),
    "idx": lambda: IdxSource(columns={"image": name}),
    "parquet": lambda: parquet_source(Path(name), [{"text": "text"}], Path(name)),
}
try:
    n = sum(1 for _ in sources[sys.argv[2]]().open(Path()))
    print(f"{n} rows")
except DataError as error:
    print(error)
"""


def read_in_3_gib(path: Path, kind: str) -> str:
    """What reading a file in a process with little memory comes to."""
    finished = subprocess.run(
        [sys.executable, "-c", READ, str(path), kind], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr[-600:]
    return finished.stdout


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """A gzip file of 4 GiB without line ends, and one of 4 GiB of short lines; each is made once."""
    folder = tmp_path_factory.mktemp("bombs")

    def made(unit: bytes, name: str) -> Path:
        path = folder / f"{name}.gz"
        if not path.exists():
            block = gzip.compress(unit * ((8 << 20) // len(unit)), 1)
            path.write_bytes(block * 512)  # members are read one after another
        return path

    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "fields", "words"])
def test_a_small_archive_without_line_ends_is_refused(bomb, kind):
    path = bomb(b"a", "no-line-ends")
    assert path.stat().st_size < 32 << 20
    assert "no-line-ends.gz:1: the line has more than 64 MiB" in read_in_3_gib(path, kind)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["document", "squad", "idx"])
def test_a_small_archive_that_is_read_whole_is_refused(bomb, kind):
    assert "has more than 1,024 MiB, and is read whole" in read_in_3_gib(bomb(b"a", "no-line-ends"), kind)


@pytest.mark.slow
def test_a_sentence_that_never_ends_is_refused(bomb):
    assert "more than 100,000 words" in read_in_3_gib(bomb(b"a\n", "short-lines"), "words")


@pytest.mark.slow
def test_values_that_a_parquet_file_stores_once_are_read_in_little_memory(tmp_path):
    path, value = tmp_path / "once.parquet", pyarrow.array(["a" * (1 << 20)])
    indices = pyarrow.array([0] * 4096, pyarrow.int32())
    table = pyarrow.table({"text": pyarrow.DictionaryArray.from_arrays(indices, value)})
    # Without the schema of Arrow, texts are read for each row.
    parquet.write_table(
        table, path, compression="zstd", dictionary_pagesize_limit=1 << 30, store_schema=False
    )
    assert path.stat().st_size < 1 << 20
    assert read_in_3_gib(path, "parquet") == "4096 rows\n"


def test_a_text_in_a_parquet_file_has_a_limit(tmp_path, monkeypatch):
    from heedful.data import parquet_rows

    monkeypatch.setattr(limits, "LONGEST_LINE", 1 << 20)
    parquet.write_table(pyarrow.table({"text": ["a" * (2 << 20)]}), tmp_path / "t.parquet")
    with pytest.raises(HeedfulError, match=r"t\.parquet: field 'text' has a text of 2 MiB, more than 1"):
        parquet_rows.rows_at_once(tmp_path / "t.parquet")
