"""How faithful the views that say which words decided are: on planted words, and on the test data of runs.

In the planted data, one word of each text, at any place, decides its label; a third of the texts has none, so
that its absence is no evidence for a label. A small Transformer learns them. See
`heedful.explain.attribution.faithfulness` for the measures. Top sign and top word are means over the texts
whose answer a word supports, as judged; the others are counted.
"""

import argparse
import random
import tempfile
from pathlib import Path

import torch

import heedful
from harness.machine import describe
from harness.report import grid, write
from harness.turns import log
from heedful.explain.attribution.faithfulness import COLUMNS

LABELS, WORDS_EACH, FILLERS = 6, 3, 200
"""Labels of the planted data, words that decide for each, and words that decide nothing."""

ROWS = 3000
"""Rows of training."""

HEADS = {**COLUMNS, "answers": "answers", "without_supporting_word": "without"}


def planted(n: int, seed: int, without: float) -> list[dict[str, str]]:
    """Return rows with a deciding word, but for a share of them."""
    draw = random.Random(seed)
    fillers = [f"w{number}" for number in range(FILLERS)]
    rows = []
    for _ in range(n):
        words, label = draw.choices(fillers, k=draw.randint(8, 30)), "none"
        if draw.random() >= without:
            number = draw.randrange(LABELS)
            label = f"label{number}"
            words.insert(draw.randrange(len(words) + 1), f"d{number}{draw.randrange(WORDS_EACH)}")
        rows.append({"text": " ".join(words), "label": label})
    return rows


def train(folder: Path) -> heedful.Run:
    """Train a small Transformer on planted words."""
    recipe = {
        "task": "classification",
        "data": {"split": {"valid": 0.1}},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {
            "kind": "encoder",
            "d_model": 64,
            "n_layers": 2,
            "dropout": 0.1,
            "layer": {"mixer": {"n_heads": 4}, "channels": {"d_ff": 128}},
        },
        "schedule": {"kind": "cosine", "peak": 0.002, "warmup": 50},
        "training": {"max_updates": 600, "tokens_per_update": 2048, "validate_every": 100, "processes": 1},
    }
    return heedful.train(
        recipe, folder, data={"train": planted(ROWS, 0, 1 / 3)}, device="cpu", progress=False
    )


def rows(name: str, found: heedful.Evaluation) -> tuple[list[list[str]], dict[str, dict[str, float | None]]]:
    """Return a row of the table for each method, and its numbers."""
    cells, record = [], {}
    for score in found.scores:
        numbers = {"comprehensiveness": score.value, **score.details, **(score.counts or {})}
        record[score.name] = {key: numbers[key] for key in HEADS}
        shown = [
            "-" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
            for value in record[score.name].values()
        ]
        judge = score.details["judge"]
        cells.append([name, score.name.removesuffix(f", {judge}"), judge, *shown])
    return cells, record


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN[=FILE]",
        help="runs, beside that on planted words, with their test data",
    )
    parser.add_argument("--limit", type=int, default=200, help="number of rows (200)")
    parser.add_argument("--threads", type=int, default=1, help="number of threads (1)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    table, record = [], {}
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder) / "run")
        test = planted(args.limit, 1, 0.0)
        log(f"planted words: accuracy {float(run.evaluate(data=test)['accuracy']):.3f}")
        measured = {"planted words": run.faithfulness(data=test)}
    for given in args.runs:
        path, _, file = given.partition("=")
        log(path)
        run = heedful.load(path, device="cpu")
        measured[run.folder.path.name] = run.faithfulness(data=file or None, limit=args.limit)
    for name, found in measured.items():
        cells, record[name] = rows(name, found)
        table += cells
    heads = ["run", "method", "judged by", *HEADS.values()]
    write("faithfulness", "Faithfulness of attribution", [grid(heads, table)], record, describe(), args.out)


if __name__ == "__main__":
    main()
