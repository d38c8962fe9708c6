"""Word alignment: a translator's attention, plain and guided, beside a statistical aligner on the same data.

Trains four small translators (two language pairs, with and without guidance) and asks every head of each for
its alignment error rate on hand-made alignments. The statistical aligner is fast_align (Dyer et al. 2013), as
the package systran-align has it, both directions joined by its own heuristic. It learns from the training and
the gold sentences together, as is usual; its links of the training data guide the guided models.

Gold sentences are three times as long as those of the training data, and what a translator has learned of
places does not reach that far. So the translators read each pair twice: as it is, and joined with others.
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
from heedful.explain.alignment.word_alignment import pharaoh
from heedful.tasks.metrics.alignment import Link, alignment_error_rate, read_gold
from heedful.text.configuration import PreprocessingConfig

# What the gold French has apart: elided vowels written out, articles beside their prepositions.
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
    """Data to train on and to judge by.

    Args:
        name: of the table's rows.
        source, target: their languages.
        train: folder and stem of the training text.
        gold: folder and stem of the hand-made alignments.
        dev: of how many of its pairs the best head is chosen; the others judge.
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
# Where a word is read the head knows what to look for; so few updates want a large weight.
GUIDED = {"weight": 1.0, "step": "input"}

Pair = tuple[str, str, frozenset[Link]]
"""A source, its target, and their links."""


def words(texts: Iterable[str], language: str) -> list[str]:
    """Lower case, Moses tokens; French as the gold sentences have it."""
    apply = PreprocessingConfig(lowercase=True, moses=language).apply
    found = (apply(text).replace("’", "'").split() for text in texts)
    if language != "fr":
        return [" ".join(text) for text in found]
    return [" ".join(FRENCH.get(word, word) for word in text) for text in found]


def texts_of(name: str) -> list[str]:
    """The lines of a file in ``$HEEDFUL_DATA``."""
    return list(lines(find(f"$HEEDFUL_DATA/{name}", Path.cwd())))


def prepared(corpus: Corpus, folder: Path, limit: int | None) -> dict[str, int]:
    """Write ``train.*``, ``valid.*``, ``gold.*``, and for the aligner train and gold in ``all.*``."""
    counts = {}
    for language in (corpus.source, corpus.target):
        text = words(texts_of(f"{corpus.train}.{language}.gz")[:limit], language)
        gold = [text.lower() for text in texts_of(f"{corpus.gold}.{language}.gz")]
        parts = {"train": text[:-1000], "valid": text[-1000:], "gold": gold, "all": [*text[:-1000], *gold]}
        for name, part in parts.items():
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in part))
            counts[name] = len(part)
    (folder / "gold.links").write_text("\n".join(texts_of(f"{corpus.gold}.gold.gz")) + "\n")
    return counts


def aligned(corpus: Corpus, folder: Path) -> tuple[list[frozenset[Link]], float] | None:
    """The statistical aligner's links of all pairs, and its seconds; None where it is not installed."""
    try:
        import systran_align
    except ImportError:
        return None
    begin = time.perf_counter()
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
    found = [frozenset(map(tuple, aligner.align(*pair)["alignments"])) for pair in pairs]
    return found, time.perf_counter() - begin


def groups(n: int) -> Iterator[list[int]]:
    """The numbers 0 .. n - 1, each once: 2 to 5 of them at a time, drawn at random."""
    draw = np.random.default_rng(1)
    order, begin = draw.permutation(n).tolist(), 0
    while begin < n:
        size = int(draw.integers(2, 6))
        yield order[begin : begin + size]
        begin += size


def joined(pairs: Sequence[Pair]) -> Pair:
    """Pairs one after the other, as one."""
    source, target = ([word for pair in pairs for word in pair[side].split()] for side in (0, 1))
    links, before = set(), (0, 0)
    for own_source, own_target, own in pairs:
        links |= {(before[0] + i, before[1] + j) for i, j in own}
        before = (before[0] + len(own_source.split()), before[1] + len(own_target.split()))
    return " ".join(source), " ".join(target), frozenset(links)


def lengthen(corpus: Corpus, folder: Path, links: Sequence[frozenset[Link]]) -> None:
    """Add joined pairs to the training texts, and write ``train.links``."""
    files = [folder / f"train.{language}" for language in (corpus.source, corpus.target)]
    texts = [path.read_text().splitlines() for path in files]
    pairs: list[Pair] = list(zip(*texts, links, strict=True))
    pairs += [joined([pairs[n] for n in group]) for group in groups(len(pairs))]
    for path, side in zip(files, (0, 1), strict=True):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs))
    (folder / "train.links").write_text("".join(f"{pharaoh(pair[2])}\n" for pair in pairs))


def recipe(corpus: Corpus, folder: Path, updates: int, guided: bool) -> Path:
    """A small translator of this corpus."""
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


def judged(corpus: Corpus, folder: Path, updates: int, guided: bool) -> dict[str, Any]:
    """Train, and ask every head."""
    path = recipe(corpus, folder, updates, guided)
    run, begin = folder / path.stem, time.perf_counter()
    heedful("train", str(path), "--out", str(run))
    seconds = time.perf_counter() - begin
    gold = [f"gold.{corpus.source}", f"gold.{corpus.target}"]
    asked = ["--data", *gold, "--alignments", "gold.links", "--first-word", "1", "--dev", str(corpus.dev)]
    found = {
        links: json.loads(heedful("evaluate", str(run), *asked, "--links", links, "--json", cwd=folder))[
            "splits"
        ][0]
        for links in ("target", "both")
    }
    return {"seconds": seconds, "evaluations": found}


def heedful(*arguments: str, cwd: Path | None = None) -> str:
    """Run the command; its standard output."""
    command = [sys.executable, "-m", "heedful", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout


def rate(found: list[frozenset[Link]], corpus: Corpus, folder: Path) -> float:
    """Of the aligner, on the pairs that judge the models too."""
    written = (folder / "gold.links").read_text().splitlines()
    gold = read_gold(written, "gold.links", first=1, n_pairs=len(written)).alignments
    return alignment_error_rate(found[-len(written) :][corpus.dev :], gold[corpus.dev :]).value


def options() -> argparse.Namespace:
    """Of this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="two updates on 3,000 pairs: does it run at all?"
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="only these")
    names = [corpus.name for corpus in CORPORA]
    parser.add_argument("--corpora", nargs="+", choices=names, default=names, help="only these")
    parser.add_argument("--updates", type=int, default=300, help="of each training (300)")
    parser.add_argument("--work", type=Path, help="folder for texts and runs; a temporary one by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


def compared(
    corpus: Corpus, folder: Path, chosen: argparse.Namespace
) -> tuple[dict[str, Any], list[list[str]]]:
    """Everybody on one corpus: the record, and the rows of the table."""
    updates, limit = (2, 3000) if chosen.quick else (chosen.updates, None)
    folder.mkdir(parents=True, exist_ok=True)
    log(f"{corpus.name}: {prepared(corpus, folder, limit)}")
    entry: dict[str, Any] = {"corpus": corpus.name, "updates": updates}
    rows = []
    statistical = aligned(corpus, folder)
    n = len((folder / f"train.{corpus.source}").read_text().splitlines())
    lengthen(corpus, folder, [frozenset()] * n if statistical is None else statistical[0][:n])
    if statistical is not None:
        found, seconds = statistical
        entry["fast_align"] = {"seconds": seconds, "rate": rate(found, corpus, folder)}
        rows.append(
            [corpus.name, "fast_align", "", f"{entry['fast_align']['rate']:.3f}", f"{seconds / 60:.1f}"]
        )
    else:
        log("systran-align is not installed: no statistical aligner, and nobody is guided")
    for name in chosen.models if statistical is not None else ["plain"]:
        entry[name] = judged(corpus, folder, updates, name == "guided")
        for links, evaluation in entry[name]["evaluations"].items():
            rows += _rows(corpus, name, links, evaluation["scores"], entry[name]["seconds"])
    return entry, rows


def main() -> None:
    """All corpora, one after the other."""
    chosen, record, rows = options(), [], []
    with tempfile.TemporaryDirectory() as temporary:
        for corpus in (each for each in CORPORA if each.name in chosen.corpora):
            work = chosen.work or Path(temporary)
            entry, own = compared(corpus, work.resolve() / corpus.name, chosen)
            record.append(entry)
            rows += own
            log("\n".join(" ".join(row) for row in own))
    parts = [grid(["gold", "aligner", "head", "AER", "minutes"], rows), WORDS]
    write(
        "alignments",
        "Word alignment: attention and a statistical aligner",
        parts,
        record,
        describe(),
        chosen.out,
    )


WORDS = """AER: alignment error rate, 0 to 1, on the gold pairs that chose no head. Trained on Tatoeba alone,
whose short everyday sentences are far from the gold ones. Links: of target words, or those that both ways
share. Heads: layer and head, and whether a target word is looked for at the decoder's step of which it is the
output or the input."""


def _rows(
    corpus: Corpus, name: str, links: str, scores: Sequence[dict[str, Any]], seconds: float
) -> list[list[str]]:
    """Of the best head, and of the guided one where there is one."""
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
