"""The command ``heedful demo``."""

import shlex
import shutil
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Literal, NamedTuple

import typer

from heedful.cli.options import Device, Json
from heedful.cli.output import json_result, log, result, terminal_width
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.api.run import Run
    from heedful.data.corpora.grammar import Pair
    from heedful.data.corpora.phrasebook import Language
    from heedful.explain.alignment.error_rates import HeadErrorRate
    from heedful.explain.alignment.word_alignment import Weights, WordAttention
    from heedful.runs.demo import Comparison, RunState
    from heedful.tasks.prediction import Prediction

SHOWN = 5
JUDGED = 200
JUDGED_QUICK = 20
IMAGE = "alignment.png"


def demo(
    language: Literal["ta", "de"] = typer.Option(
        "ta", help="Translate English to Tamil (ta) or German (de)."
    ),
    out: Path = typer.Option(None, help="Run folder. [default: runs/demo-LANGUAGE]"),
    quick: bool = typer.Option(False, "--quick", help="Train for a few seconds, as a smoke test."),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a small translator offline, then translate, score and show its attention."""
    from heedful.api.run import load
    from heedful.runs.demo import QUICK_SENTENCES, compare

    folder = out or Path("runs") / f"demo-{language}{'-quick' if quick else ''}"
    start = _train(folder, language, quick, device)
    run = load(folder, device=device)
    log("translating the test sentences (they contain word pairs that never occur together in training)")
    comparison = compare(run, language, QUICK_SENTENCES if quick else None)
    example = _aligned_example(run, language, JUDGED_QUICK if quick else JUDGED)
    _draw(example, folder / IMAGE)
    if as_json:
        json_result(_plain(folder, language, quick, start, comparison, example))
        return
    _show_translations(comparison)
    _show_scores(comparison, quick)
    _show_alignment(example, folder / IMAGE)
    _show_next(folder, comparison)


def _train(folder: Path, language: "Language", quick: bool, device: str) -> "RunState":
    """Train or resume the demo run unless it is finished; return the state it was in."""
    from heedful.api.training import ignore, train_into
    from heedful.artifacts.run_folder import RunFolder
    from heedful.runs.demo import NAMES, recipe_of, state_of
    from heedful.runs.reading import saved_recipe

    recipe = recipe_of(language, quick)
    start = state_of(folder, recipe)
    if start == "finished":
        log(f"{folder}: already trained; reusing it")
        return start
    minutes = f" (about {recipe.expected.minutes:g} minutes on 2 cores)" if recipe.expected.minutes else ""
    if start == "interrupted":
        log(f"resuming the interrupted training in {folder}")
        recipe = saved_recipe(RunFolder(folder))
    else:
        name = NAMES[language]
        log(f"training a translator from English to {name} in {folder}{'' if quick else minutes}")
    trained = train_into(recipe, folder, resume=start == "interrupted", device=device, log=ignore)
    if trained.result.stop_reason == "signal":
        log("stopped; run the same command again to resume")
        raise typer.Exit(130)
    return start


class _AlignedExample(NamedTuple):
    """A translated sentence with its attention, and the layer or head that aligns `judged` pairs best."""

    pair: "Pair"
    prediction: "Prediction"
    attention: "WordAttention"
    best: "HeadErrorRate"
    judged: int

    def heat_map(self) -> tuple[tuple[str, ...], tuple[str, ...], "Weights"]:
        """Return source words, target words and weights."""
        return self.attention.source, self.attention.target, self.attention.matrix(self.best.choice)


def _aligned_example(run: "Run", language: "Language", judged: int) -> _AlignedExample:
    """Translate one sentence and align it by the layer or head that aligns validation data best."""
    from heedful.explain.alignment.best_head import store_best_head
    from heedful.explain.alignment.error_rates import (
        attention_between_words,
        links_of,
        most_accurate,
        rate_heads,
    )
    from heedful.runs.demo import drawn_pair, judged_pairs
    from heedful.tasks.inputs.processor import Tokenizers
    from heedful.tasks.metrics.alignment import Alignment

    processor = run.processor
    assert isinstance(processor, Tokenizers)
    pairs = judged_pairs(language, judged)
    seen = attention_between_words(
        run.model, processor, [p.source.split() for p in pairs], [p.target.split() for p in pairs]
    )
    gold = [Alignment(frozenset(p.alignment), frozenset()) for p in pairs]
    table = rate_heads(links_of(seen), gold)
    store_best_head(run, table, len(pairs))  # `heedful explain` shows this head first
    pair = drawn_pair(language)
    prediction = run.predict([pair.source])[0]
    words = [pair.source.split()], [prediction.text.split()]
    (attention,) = attention_between_words(run.model, processor, *words)
    return _AlignedExample(pair, prediction, attention, most_accurate(table), len(pairs))


def _draw(example: _AlignedExample, path: Path) -> None:
    """Save the alignment heat map."""
    from heedful.explain.drawing.heat_map import heat_map, save

    title = f"{example.pair.source}\n{example.prediction.text}"
    save(heat_map(*example.heat_map(), title=title, note=f"attention of {example.best.choice}"), path)


def _show_translations(comparison: "Comparison") -> None:
    rows = comparison.rows
    n, n_exact = len(rows), round(comparison.exact * len(rows))
    step = max(1, n // SHOWN)
    result("Held-out sentences\n")
    for row in rows[: SHOWN * step : step]:
        _show_pair(row["input"]["source"], row["target"], row["output"])
    result(f"{n_exact:,} of {n:,} test sentences are translated exactly as in the reference.\n")


def _show_pair(source: str, reference: str, translation: str) -> None:
    """Print source, reference and translation, wrapped to the terminal width."""
    for label, text in (("English", source), ("reference", reference), ("translation", translation)):
        result(fill(text, terminal_width(), initial_indent=f"  {label:<13}", subsequent_indent=" " * 15))
    result("")


def _show_scores(comparison: "Comparison", quick: bool) -> None:
    """Print one line per system, then the signatures of the metrics."""
    from heedful.runs.demo import MODEL

    metrics = next(iter(comparison.scores.values()))
    result(f"{'Test scores':<22}" + "".join(f"{score.name:>7}" for score in metrics))
    for name, scores in comparison.scores.items():
        label = "this model" if name == MODEL else name
        result(f"  {label:<20}" + "".join(f"{score.value:>7.1f}" for score in scores))
    result("")
    for score in metrics:
        result(f"  {score.name}: {score.signature}")
    result("  Baselines: word-by-word dictionary translation in English word order.")
    if quick:
        result("  The model's scores are not meaningful after --quick training.")
    result("")


def _show_alignment(example: _AlignedExample, image: Path) -> None:
    from heedful.explain.drawing.terminal import choose_style, heat_map

    result("Attention of each target word over the source words")
    result("")
    _show_pair(example.pair.source, example.pair.target, example.prediction.text)
    result(heat_map(*example.heat_map(), style=choose_style(sys.stdout), width=terminal_width()))
    result(f"\n  Shown: attention of {example.best.choice}, which aligns words best")
    error_rate = example.best.score.value
    result(f"  (alignment error rate {error_rate:.2f} on {example.judged} validation sentences).")
    result(f"  Saved as an image: {image}\n")


def _show_next(folder: Path, comparison: "Comparison") -> None:
    """Print follow-up commands, quoted for the shell."""
    run = shlex.quote(str(folder))
    sentence = shlex.quote(min((row["input"]["source"] for row in comparison.rows[:20]), key=len))
    commands = {
        f"echo {sentence} | heedful predict {run}": "translate",
        f"heedful evaluate {run}": "compute all scores",
        f"heedful describe {run}": "count parameters",
        "heedful recipes my-own-files > mine.yaml": "write a recipe for your own text",
        "heedful train mine.yaml": "train after adding your files to it",
    }
    width = max(map(len, commands))
    result("Next steps\n")
    for command, purpose in commands.items():
        result(f"  {command:<{width}}  # {purpose}")
    if shutil.which("heedful") is None:
        scripts = shlex.quote(str(Path(sys.executable).parent))
        result(f"\nfirst add the command to your PATH:  export PATH={scripts}:$PATH")


def _plain(
    folder: Path,
    language: "Language",
    quick: bool,
    start: "RunState",
    comparison: "Comparison",
    example: _AlignedExample,
) -> JsonObject:
    """Return the result as described by ``docs/schemas/demo.schema.json``."""
    source_words, target_words, weights = example.heat_map()
    choice = example.best.choice
    return {
        "version": 2,
        "run": str(folder),
        "language": language,
        "quick": quick,
        "beginning": start,
        "sentences": [
            {
                "source": row["input"]["source"],
                "reference": row["target"],
                "translation": row["output"],
            }
            for row in comparison.rows
        ],
        "exact": comparison.exact,
        "scores": {name: [s.to_dict() for s in scores] for name, scores in comparison.scores.items()},
        "alignment": {
            "source": example.pair.source,
            "reference": example.pair.target,
            "translation": example.prediction.text,
            "source_words": list(source_words),
            "target_words": list(target_words),
            "weights": weights.tolist(),
            "layer": choice.layer,
            "head": choice.head,
            "error_rate": example.best.score.value,
            "image": str(folder / IMAGE),
        },
    }
