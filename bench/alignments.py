"""Compare word alignments from attention, plain and guided, with a statistical aligner on the same data.

Trains four small translation models (two language pairs, with and without guided attention) and computes the
alignment error rate of every head on gold alignments. The statistical aligner is fast_align (Dyer et al.
2013) of the package systran-align, symmetrised by its own heuristic. It is trained on training and gold
sentences together, as is usual; its alignments of the training data supervise the guided models.

Gold sentences are three times as long as training sentences, beyond the positions that a model has learned.
So each training pair is used twice: by itself, and concatenated with others.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from harness.machine import describe
from harness.report import grid, write
from harness.turns import log
from heedful.data.lines import find, lines
from heedful.data.links import pharaoh
from heedful.tasks.metrics.alignment import Link, alignment_error_rate, read_gold
from heedful.text.configuration import PreprocessingConfig

# The tokenisation of the gold French: elided vowels restored, contracted articles split.
FRENCH = {
    **{f"{short}'": f"{short}e" for short in "cdjlmnst"},
    "qu'": "que",
    "au": "à le",
    "aux": "à les",
    "du": "de le",
    "des": "de les",
    "aujourd'hui": "aujourd' hui",
}


@dataclass(frozen=True)
class Corpus:
    """Training data and gold alignments of a language pair.

    Args:
        name: name in the table.
        source, target: languages.
        train: folder and stem of the training text files.
        gold: folder and stem of the gold alignments.
        dev: number of gold pairs that select the best head; the others are the test set.
    """

    name: str
    source: str
    target: str
    train: str
    gold: str
    dev: int


CORPORA = (
    Corpus("Hansards", "en", "fr", "tatoeba_en_fr/train", "align_enfr_hansards/dev", 50),
    Corpus("Smultron", "de", "en", "tatoeba_en_de/train", "align_deen_smultron/dev", 12),
)


MODELS = ("plain", "guided")
# At the step that reads a word its embedding is available to the head; few updates need a large weight.
GUIDED = {"weight": 1.0, "step": "input"}

Pair = tuple[str, str, frozenset[Link]]
"""Source, target and alignment links."""


def preprocess_lines(texts: Iterable[str], language: str) -> list[str]:
    """Lowercase and tokenise (Moses); French like the gold sentences."""
    preprocess = PreprocessingConfig(lowercase=True, moses=language).apply
    found = (preprocess(text).replace("’", "'").split() for text in texts)
    if language != "fr":
        return [" ".join(text) for text in found]
    return [" ".join(FRENCH.get(word, word) for word in text) for text in found]


def read_lines(name: str) -> list[str]:
    """Read the lines of a file in ``$HEEDFUL_DATA``."""
    return list(lines(find(f"$HEEDFUL_DATA/{name}", Path.cwd())))


def write_texts(corpus: Corpus, folder: Path, limit: int | None) -> dict[str, int]:
    """Write ``train.*``, ``valid.*``, ``gold.*`` and ``all.*`` (train and gold); return line counts."""
    counts = {}
    for language in (corpus.source, corpus.target):
        text = preprocess_lines(read_lines(f"{corpus.train}.{language}.gz")[:limit], language)
        gold = [text.lower() for text in read_lines(f"{corpus.gold}.{language}.gz")]
        parts = {"train": text[:-1000], "valid": text[-1000:], "gold": gold, "all": [*text[:-1000], *gold]}
        for name, part in parts.items():
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in part))
            counts[name] = len(part)
    (folder / "gold.links").write_text("\n".join(read_lines(f"{corpus.gold}.gold.gz")) + "\n")
    return counts


def run_fast_align(corpus: Corpus, folder: Path) -> tuple[list[frozenset[Link]], float] | None:
    """Return fast_align's links of all pairs and its seconds, or None if it is not installed."""
    try:
        import systran_align
    except ImportError:
        return None
    start = time.perf_counter()
    sides = [
        (folder / f"all.{language}").read_text().splitlines() for language in (corpus.source, corpus.target)
    ]
    joint, probabilities = folder / "all.joint", [str(folder / "forward"), str(folder / "backward")]
    joint.write_text("".join(f"{source} ||| {target}\n" for source, target in zip(*sides, strict=True)))
    systran_align.generate_alignment_probabilities(
        str(joint), *probabilities, favor_diagonal=True, optimize_tension=True, variational_bayes=True
    )
    aligner = systran_align.Aligner(*probabilities)
    pairs = zip(*([line.split() for line in side] for side in sides), strict=True)
    links = [frozenset(map(tuple, aligner.align(*pair)["alignments"])) for pair in pairs]
    return links, time.perf_counter() - start


def groups(n: int) -> Iterator[list[int]]:
    """Yield a random partition of 0 .. n - 1 into groups of 2 to 5."""
    rng = np.random.default_rng(1)
    order, start = rng.permutation(n).tolist(), 0
    while start < n:
        size = int(rng.integers(2, 6))
        yield order[start : start + size]
        start += size


def join_pairs(pairs: Sequence[Pair]) -> Pair:
    """Concatenate pairs into one, with their links shifted."""
    source, target = ([word for pair in pairs for word in pair[side].split()] for side in (0, 1))
    links, offsets = set(), (0, 0)
    for source_text, target_text, pair_links in pairs:
        links |= {(offsets[0] + i, offsets[1] + j) for i, j in pair_links}
        offsets = (offsets[0] + len(source_text.split()), offsets[1] + len(target_text.split()))
    return " ".join(source), " ".join(target), frozenset(links)


def add_joined_pairs(corpus: Corpus, folder: Path, links: Sequence[frozenset[Link]]) -> None:
    """Add concatenated pairs to the training texts, and write ``train.links``."""
    files = [folder / f"train.{language}" for language in (corpus.source, corpus.target)]
    texts = [path.read_text().splitlines() for path in files]
    pairs: list[Pair] = list(zip(*texts, links, strict=True))
    pairs += [join_pairs([pairs[n] for n in group]) for group in groups(len(pairs))]
    for path, side in zip(files, (0, 1), strict=True):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs))
    (folder / "train.links").write_text("".join(f"{pharaoh(pair[2])}\n" for pair in pairs))


def write_recipe(corpus: Corpus, folder: Path, updates: int, guided: bool) -> Path:
    """Write the recipe of a small translation model for this corpus; return its path."""
    columns = {"source": f"train.{corpus.source}", "target": f"train.{corpus.target}"}
    valid = {"source": f"valid.{corpus.source}", "target": f"valid.{corpus.target}"}
    if guided:
        columns["alignment"] = "train.links"
    settings: dict[str, Any] = {
        "task": {"kind": "translation"},
        "data": {
            "train": {"kind": "files", "columns": columns},
            "valid": {"kind": "files", "columns": valid},
            "filter": {"max_length": 100, "too_long": "drop"},
        },
        "tokenizer": {"subwords": {"kind": "bpe", "vocab_size": 8000, "split": "space"}, "shared": True},
        "model": {
            "preset": "transformer-tiny",
            "d_model": 256,
            "n_layers": 3,
            "dropout": 0.1,
            "layer": {"channels": {"d_ff": 512}},
        },
        "objective": {"label_smoothing": 0.1, **({"guided": GUIDED} if guided else {})},
        "optimizer": {"kind": "muon"},
        "schedule": {"kind": "cosine", "peak": 0.02, "warmup": min(50, updates // 2)},
        "training": {
            "tokens_per_update": 4096,
            "max_updates": updates,
            "validate_every": max(1, updates // 3),
            "save_every": updates,
        },
    }
    path = folder / ("guided.yaml" if guided else "plain.yaml")
    path.write_text(yaml.safe_dump(settings))
    return path


def train_and_evaluate(corpus: Corpus, folder: Path, updates: int, guided: bool) -> dict[str, Any]:
    """Train a model and evaluate every head."""
    path = write_recipe(corpus, folder, updates, guided)
    run, start = folder / path.stem, time.perf_counter()
    run_heedful("train", str(path), "--out", str(run))
    seconds = time.perf_counter() - start
    gold = [f"gold.{corpus.source}", f"gold.{corpus.target}"]
    options = ["--data", *gold, "--alignments", "gold.links", "--first-word", "1", "--dev", str(corpus.dev)]
    evaluations = {
        links: json.loads(
            run_heedful("evaluate", str(run), *options, "--links", links, "--json", cwd=folder)
        )["splits"][0]
        for links in ("target", "both")
    }
    return {"seconds": seconds, "evaluations": evaluations}


def run_heedful(*arguments: str, cwd: Path | None = None) -> str:
    """Run the command; return its standard output."""
    command = [sys.executable, "-m", "heedful", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout


def aligner_error_rate(links: list[frozenset[Link]], corpus: Corpus, folder: Path) -> float:
    """Return the alignment error rate of fast_align on the test pairs."""
    gold_lines = (folder / "gold.links").read_text().splitlines()
    gold = read_gold(gold_lines, "gold.links", first=1, n_pairs=len(gold_lines)).alignments
    return alignment_error_rate(links[-len(gold_lines) :][corpus.dev :], gold[corpus.dev :]).value


def options() -> argparse.Namespace:
    """Parse the command-line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two updates on 3,000 pairs: check that it runs")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="only these")
    names = [corpus.name for corpus in CORPORA]
    parser.add_argument("--corpora", nargs="+", choices=names, default=names, help="only these")
    parser.add_argument("--updates", type=int, default=300, help="updates of each training (300)")
    parser.add_argument("--work", type=Path, help="folder for texts and runs; a temporary one by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


def compare(corpus: Corpus, folder: Path, args: argparse.Namespace) -> tuple[dict[str, Any], list[list[str]]]:
    """Evaluate all aligners on one corpus; return the record and the rows of the table."""
    updates, limit = (2, 3000) if args.quick else (args.updates, None)
    folder.mkdir(parents=True, exist_ok=True)
    log(f"{corpus.name}: {write_texts(corpus, folder, limit)}")
    entry: dict[str, Any] = {"corpus": corpus.name, "updates": updates}
    rows = []
    statistical = run_fast_align(corpus, folder)
    n = len((folder / f"train.{corpus.source}").read_text().splitlines())
    add_joined_pairs(corpus, folder, [frozenset()] * n if statistical is None else statistical[0][:n])
    if statistical is not None:
        found, seconds = statistical
        entry["fast_align"] = {"seconds": seconds, "rate": aligner_error_rate(found, corpus, folder)}
        rows.append(
            [corpus.name, "fast_align", "", f"{entry['fast_align']['rate']:.3f}", f"{seconds / 60:.1f}"]
        )
    else:
        log("systran-align is not installed: skipping fast_align and the guided models")
    for name in args.models if statistical is not None else ["plain"]:
        entry[name] = train_and_evaluate(corpus, folder, updates, name == "guided")
        for links, evaluation in entry[name]["evaluations"].items():
            rows += _rows(corpus, name, links, evaluation["scores"], entry[name]["seconds"])
    return entry, rows


def main() -> None:
    """Compare on all corpora, and write the table."""
    args, record, rows = options(), [], []
    with tempfile.TemporaryDirectory() as temporary:
        for corpus in (each for each in CORPORA if each.name in args.corpora):
            work = args.work or Path(temporary)
            entry, corpus_rows = compare(corpus, work.resolve() / corpus.name, args)
            record.append(entry)
            rows += corpus_rows
            log("\n".join(" ".join(row) for row in corpus_rows))
    parts = [grid(["gold", "aligner", "head", "AER", "minutes"], rows), WORDS]
    write(
        "alignments",
        "Word alignment: attention and a statistical aligner",
        parts,
        record,
        describe(),
        args.out,
    )


WORDS = """AER: alignment error rate, 0 to 1, on gold pairs not used to select the head. Trained on Tatoeba
only, whose short everyday sentences differ much from the gold ones. Links: argmax per target word, or the
intersection of both directions. Heads: layer and head, and whether a target word is aligned at the decoder
step that outputs it or that reads it."""


def _rows(
    corpus: Corpus, name: str, links: str, scores: Sequence[dict[str, Any]], seconds: float
) -> list[list[str]]:
    """Return the rows of the best head, and of the guided head if there is one."""
    return [
        [
            corpus.name,
            f"heedful, {name}, links {links}",
            f"{score['details']['layer']}.{score['details']['head'] or 'mean'}, {score['details']['step']}"
            + (" (guided)" if score["name"].endswith("guided head") else ""),
            f"{score['value']:.3f}",
            f"{seconds / 60:.1f}",
        ]
        for score in scores
    ]


if __name__ == "__main__":
    main()
