"""``heedful demo``."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any

import typer

from heedful.cli.options import Device, Json
from heedful.cli.output import json_result, log, result

if TYPE_CHECKING:
    from heedful.data.corpora.phrasebook import Language
    from heedful.explain.alignment import Choice, Weights
    from heedful.runs.demo import Beginning, Comparison
    from heedful.runs.run import Run
    from heedful.tasks.prediction import Prediction

SHOWN = 5
JUDGED = 200
JUDGED_QUICK = 20
PICTURE = "alignment.png"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("demo", short_help="Train a small translator, and see where it looks.")(demo)


def demo(
    language: str = typer.Option("ta", help="Translate English to ta (Tamil) or de (German)."),
    out: Path = typer.Option(None, help="The run's folder. [default: runs/demo-LANGUAGE]"),
    quick: bool = typer.Option(False, "--quick", help="Train for seconds, only to see that all works."),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a small translator, offline; translate, score it, and see where it looks."""
    from heedful.runs.demo import QUICK_SENTENCES, compare, language_of
    from heedful.runs.run import load

    to = language_of(language)
    folder = out or Path("runs") / f"demo-{to}{'-quick' if quick else ''}"
    beginning = _train(folder, to, quick, device)
    run = load(folder, device=device)
    log("translating the test sentences, which hold pairs of words that no training sentence has together")
    comparison = compare(run, to, QUICK_SENTENCES if quick else None)
    look = _look(run, to, JUDGED_QUICK if quick else JUDGED)
    _draw(look, folder / PICTURE)
    if as_json:
        json_result(_plain(folder, to, quick, beginning, run, comparison, look))
        return
    _show_translations(comparison)
    _show_scores(comparison, quick)
    _show_look(look, folder / PICTURE)
    _show_next(folder, comparison)


def _train(folder: Path, language: "Language", quick: bool, device: str) -> "Beginning":
    """Train the demo's run, or finish it, or find it finished; says which."""
    from heedful.runs import demo as work
    from heedful.training.callbacks import JsonLines, Progress

    recipe = work.recipe_of(language, quick)
    beginning = work.beginning(folder, recipe)
    if beginning == "finished":
        log(f"{folder} is trained already, and is used as it is")
        return beginning
    minutes = f" (about {recipe.expected.minutes:g} minutes on 2 cores)" if recipe.expected.minutes else ""
    if beginning == "interrupted":
        log(f"going on with the training in {folder}, which was interrupted")
    else:
        name = work.NAMES[language]
        log(f"training a translator from English to {name}, in {folder}{'' if quick else minutes}")
    trained = work.train(
        folder,
        recipe,
        beginning,
        device=device,
        callbacks=lambda made: [
            JsonLines(made.metrics, recipe.training.log_every),
            Progress(),
        ],
    )
    if trained.result.stopped == "signal":
        log("stopped; the same command goes on from here")
        raise typer.Exit(130)
    return beginning


@dataclass(frozen=True)
class _Look:
    """One sentence, its translation, and the part of the attention that aligns best."""

    source: str
    reference: str
    prediction: "Prediction"
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    weights: "Weights"
    choice: "Choice"
    error_rate: float
    judged: int

    @property
    def note(self) -> str:
        """Which part of the attention it is."""
        return f"attention of {self.choice}"


def _look(run: "Run", language: "Language", judged: int) -> _Look:
    """Translate one sentence with its alignment, by the layer or head that aligns validation data best."""
    from heedful.explain.alignment import from_prediction, teacher_forced
    from heedful.explain.best_head import keep
    from heedful.explain.error_rates import links_of, most_accurate, rated
    from heedful.runs.demo import drawn_pair, judged_pairs
    from heedful.tasks.metrics.alignment import Alignment

    pairs = judged_pairs(language, judged)
    seen = teacher_forced(run.model, run.processor, [p.source for p in pairs], [p.target for p in pairs])
    gold = [Alignment(frozenset(p.alignment), frozenset()) for p in pairs]
    table = rated(links_of(seen), gold)
    best = most_accurate(table)
    keep(run, table, len(pairs))  # heedful explain shows it first
    pair = drawn_pair(language)
    prediction = run.predict([pair.source], alignment=True)[0]
    own = from_prediction(prediction, run.processor)
    return _Look(
        pair.source,
        pair.target,
        prediction,
        own.source,
        own.target,
        own.chosen(best.choice),
        best.choice,
        best.score.value,
        len(pairs),
    )


def _draw(look: _Look, path: Path) -> None:
    """The picture in the run's folder."""
    from heedful.explain.picture import heat_map, save

    title = f"{look.source}\n{look.prediction.text}"
    save(heat_map(look.source_words, look.target_words, look.weights, title=title, note=look.note), path)


def _show_translations(comparison: "Comparison") -> None:
    own = comparison.evaluation
    step = max(1, len(own.sources) // SHOWN)
    result("Sentences that were held out\n")
    for i in range(0, min(len(own.sources), SHOWN * step), step):
        _show_pair(own.sources[i], own.references[i], own.predictions[i].text)
    n, n_exact = len(own.sources), round(comparison.exact * len(own.sources))
    result(f"Of {n:,} such sentences, {n_exact:,} are translated word for word as in the reference.\n")


def _show_pair(source: str, reference: str, translation: str) -> None:
    """Three lines, or more where the terminal is too narrow."""
    for label, text in (("English", source), ("reference", reference), ("translation", translation)):
        result(fill(text, _width(), initial_indent=f"  {label:<13}", subsequent_indent=" " * 15))
    result("")


def _width() -> int:
    """Of the terminal; 80 where there is none."""
    return max(40, get_terminal_size((80, 24)).columns)


def _show_scores(comparison: "Comparison", quick: bool) -> None:
    """A line for each translator, then the signatures."""
    from heedful.runs.demo import MODEL

    first = next(iter(comparison.scores.values()))
    result(f"{'Test scores':<22}" + "".join(f"{score.name:>7}" for score in first))
    for name, scores in comparison.scores.items():
        shown = "this model" if name == MODEL else name
        result(f"  {shown:<20}" + "".join(f"{score.value:>7.1f}" for score in scores))
    result("")
    for score in first:
        result(f"  {score.name}: {score.signature}")
    result("  The other two know the dictionary, and keep the order of the English words.")
    if quick:
        result("  After a quick training, the model's scores mean nothing.")
    result("")


def _show_look(look: _Look, picture: Path) -> None:
    from heedful.explain.terminal import choose_style, heat_map

    result("Where the model looks while it writes")
    result("")
    _show_pair(look.source, look.reference, look.prediction.text)
    style = choose_style(sys.stdout)
    result(heat_map(look.source_words, look.target_words, look.weights, style=style, width=_width()))
    result(f"\n  This is the {look.note}: it aligns words best")
    result(f"  (alignment error rate {look.error_rate:.2f} on {look.judged} validation sentences).")
    result(f"  The same as a picture: {picture}\n")


def _show_next(folder: Path, comparison: "Comparison") -> None:
    """Commands to go on with, each ready to be pasted."""
    run = shlex.quote(str(folder))
    sentence = shlex.quote(min(comparison.evaluation.sources[:20], key=len))
    commands = {
        f"echo {sentence} | heedful predict {run}": "translate",
        f"heedful evaluate {run}": "all scores",
        f"heedful describe {run}": "count its parameters",
        "heedful recipes my-own-files > mine.yaml": "a recipe for your own text",
        "heedful train mine.yaml": "once it names your files",
    }
    width = max(map(len, commands))
    result("What to try next\n")
    for command, purpose in commands.items():
        result(f"  {command:<{width}}  # {purpose}")
    if shutil.which("heedful") is None:
        scripts = shlex.quote(str(Path(sys.executable).parent))
        result(f"\nfirst, so that your shell finds the command:  export PATH={scripts}:$PATH")


def _plain(
    folder: Path,
    language: "Language",
    quick: bool,
    beginning: "Beginning",
    run: "Run",
    comparison: "Comparison",
    look: _Look,
) -> dict[str, Any]:
    """All of it, as ``docs/schemas/demo.schema.json`` has it."""
    own = comparison.evaluation
    rows = zip(own.sources, own.references, own.predictions, strict=True)
    return {
        "version": 1,
        "run": str(folder),
        "language": language,
        "quick": quick,
        "beginning": beginning,
        "sentences": [{"source": s, "reference": r, "translation": p.text} for s, r, p in rows],
        "exact": comparison.exact,
        "scores": {name: [s.to_dict() for s in scores] for name, scores in comparison.scores.items()},
        "alignment": {
            "source": look.source,
            "reference": look.reference,
            "translation": look.prediction.text,
            "source_words": list(look.source_words),
            "target_words": list(look.target_words),
            "weights": look.weights.tolist(),
            "layer": look.choice.layer + 1,
            "head": None if look.choice.head is None else look.choice.head + 1,
            "error_rate": look.error_rate,
            "picture": str(folder / PICTURE),
        },
    }
