"""``heedful evaluate``."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import typer

from heedful.cli.output import json_result, json_text, result, say, whole_file


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("evaluate", short_help="Score a run on test data.")(evaluate)


def evaluate(
    run: Path = typer.Argument(..., metavar="RUN", help="A run's folder."),
    split: str = typer.Option("test", help="test (all test sets), valid, train, or one test set's name."),
    data: tuple[Path, Path] = typer.Option(
        None, metavar="SOURCE TARGET", help="Score on these two aligned files instead."
    ),
    text: list[Path] = typer.Option(
        None, metavar="FILE", help="Score a language model on this file instead; may be repeated."
    ),
    table: Path = typer.Option(
        None,
        metavar="FILE",
        help="Score a classifier (tagger, captioner …) on this table (with a header) or these JSON lines.",
    ),
    folder: Path = typer.Option(
        None, metavar="FOLDER", help="Score a classifier of pictures on this folder, with one for each label."
    ),
    stride: int = typer.Option(
        None, min=1, help="Also read a text in windows that move on by so many tokens (language models)."
    ),
    output: Path = typer.Option(
        None, help="Write every sentence or document with its own scores, as JSON lines."
    ),
    limit: int = typer.Option(None, min=1, help="Score only the first so many sentences or documents."),
    beam: int = typer.Option(None, min=1, help="Hypotheses kept in the search; 1 is greedy."),
    decoding: list[str] = typer.Option(
        None, metavar="KEY=VALUE", help="Change the decoding; may be repeated."
    ),
    precision: str = typer.Option("auto", help="Weights while decoding: auto (fp32), fp32, bf16 or int8."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Score a run on test data, with what is needed to compare the scores."""
    from heedful.cli.predict import changed_decoding
    from heedful.errors import RequestError
    from heedful.runs.evaluate import chosen_splits
    from heedful.runs.evaluate import evaluate as score
    from heedful.runs.run import load, with_beam

    own = {"--data": data, "--text": text, "--table": table and [table], "--folder": folder and [folder]}
    given: dict[str, Any] = {option: files for option, files in own.items() if files}
    if len(given) > 1:
        raise RequestError(f"{' and '.join(given)}: give one of them")

    loaded = load(run, device=device)
    settings = with_beam(changed_decoding(loaded.recipe.decoding, decoding or []), beam, None)
    if loaded.kind.scored_by_writing:
        say(f"heedful: decoding in {loaded.inference(precision).chosen}")
    evaluations = []
    with ExitStack() as stack:
        file = stack.enter_context(whole_file(output)) if output else None
        for name, source in chosen_splits(loaded, split, next(iter(given.values()), None)).items():
            say(f"{name}: {loaded.kind.scoring}")
            found = score(
                loaded, name, source, decoding=settings, limit=limit, stride=stride, precision=precision
            )
            evaluations.append(found)
            if not as_json:
                _show(name, loaded.kind.unit, found.scores)
            for row in found.rows() if file else ():
                assert file is not None
                file.write(json_text({"split": name, **row}) + "\n")
    if as_json:
        splits = [found.to_dict() for found in evaluations]
        json_result({"version": 1, "run": str(run), "splits": splits})


def _show(name: str, unit: str, scores: list[Any]) -> None:
    """A line for each score: its value and its signature."""
    result(f"{name}: {scores[0].counts.get(unit, 0):,} {unit}")
    for score in scores:
        digits = 2 if abs(score.value) >= 10 else 4
        result(f"  {score.name:<22} {score.value:>8.{digits}f}  {score.signature}")
