"""``heedful evaluate``."""

from collections.abc import Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedful.cli.output import json_result, json_text, result, say, whole_file

if TYPE_CHECKING:
    from heedful.data.sources import SourceConfig
    from heedful.runs.run import Run


class Links(StrEnum):
    """See `heedful.explain.alignment.links`."""

    target = "target"
    source = "source"
    both = "both"


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
    alignments: str = typer.Option(
        None,
        metavar="GOLD",
        help="Score the attention instead: word alignments, a line for each sentence pair (1-1 2p3).",
    ),
    first_word: int = typer.Option(0, min=0, max=1, help="What GOLD calls the first word: 0 or 1."),
    dev: int = typer.Option(
        0, min=0, help="Choose the head by the first so many pairs, and report it on the others."
    ),
    head: str = typer.Option(
        None, metavar="LAYER.HEAD", help="Report this head, from 1; LAYER alone: the mean of its heads."
    ),
    links: Links = typer.Option(
        Links.target, help="Link target words to where they look most, source words to who does, or both."
    ),
    stride: int = typer.Option(
        None, min=1, help="Also read a text in windows that move on by so many tokens (language models)."
    ),
    output: Path = typer.Option(
        None, help="Write every sentence or document with its scores, as JSON lines; or the links found."
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

    judging = {"--first-word": first_word, "--dev": dev, "--head": head, "--links": links != Links.target}
    decoded = {"--beam": beam, "--decoding": decoding, "--stride": stride}
    _refuse_mixed(alignments, judging, decoded)
    loaded = load(run, device=device)
    if alignments is not None:
        sources = chosen_splits(loaded, split, next(iter(given.values()), None))
        asked: dict[str, Any] = {
            "first": first_word,
            "development": dev,
            "head": head,
            "by": links.value,
            "limit": limit,
        }
        _aligned(loaded, sources, alignments, output, as_json=as_json, **asked)
        return
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


def _refuse_mixed(alignments: str | None, judging: Mapping[str, Any], decoded: Mapping[str, Any]) -> None:
    """Refuse options that say nothing about what is to be scored.

    Args:
        alignments: given, or None.
        judging: options that only alignments take.
        decoded: options that they do not take: nothing is decoded, and there are no windows.
    """
    from heedful.errors import RequestError

    for option, value in (judging if alignments is None else decoded).items():
        if value:
            why = "is for --alignments GOLD" if alignments is None else "has no meaning with --alignments"
            raise RequestError(f"{option} {why}")


def _aligned(
    run: "Run",
    sources: "Mapping[str, SourceConfig]",
    gold: str,
    output: Path | None,
    *,
    as_json: bool,
    head: str | None,
    **asked: Any,
) -> None:
    """Score the attention of one data set, show the table of all heads, and write the links of the chosen."""
    from heedful.errors import RequestError
    from heedful.explain.error_rates import evaluate_alignments, parse_choice

    if len(sources) > 1:
        known = ", ".join(sources)
        raise RequestError(f"--alignments are of one data set: give --data, or --split with one of {known}")
    ((name, source),) = sources.items()
    with ExitStack() as stack:
        file = stack.enter_context(whole_file(output)) if output else None
        say(f"{name}: reading the attention")
        choice = None if head is None else parse_choice(head)
        found = evaluate_alignments(run, name, source, gold, choice=choice, **asked)
        for line in found.pharaoh() if file else ():
            assert file is not None
            file.write(line + "\n")
    if as_json:
        json_result({"version": 1, "run": str(run.folder.path), "splits": [found.to_dict()]})
        return
    for line in found.lines():
        result(line)
    result(f"the head marked *: {found.chosen.choice}")
    _show(name, "sentences", found.scores)


def _show(name: str, unit: str, scores: list[Any]) -> None:
    """A line for each score: its value and its signature."""
    result(f"{name}: {scores[0].counts.get(unit, 0):,} {unit}")
    for score in scores:
        digits = 2 if abs(score.value) >= 10 else 4
        result(f"  {score.name:<22} {score.value:>8.{digits}f}  {score.signature}")
