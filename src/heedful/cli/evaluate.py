"""``heedful evaluate``."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedful.cli.output import json_result, json_text, result, say, whole_file

if TYPE_CHECKING:
    from heedful.data.sources import SourceConfig
    from heedful.explain import error_rates
    from heedful.runs.kind import Evaluation
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
        None,
        metavar="FILE",
        help="Score a language model, masked or not, on this file instead; may be repeated.",
    ),
    table: Path = typer.Option(
        None,
        metavar="FILE",
        help="Score a classifier (tagger, captioner …) on a table like the recipe's, on one whose first line "
        "names the columns, or on JSON lines.",
    ),
    folder: Path = typer.Option(
        None,
        metavar="FOLDER",
        help="Score a classifier of pictures on this folder, with a folder for each label; or a captioner.",
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
        Links.target,
        help="target: each target word with the source word that it looks at most; source: each source word "
        "with the target word that looks at it most; both: what is linked both ways.",
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
    from heedful.runs.asking import with_beam
    from heedful.runs.run import load

    tables, folders = [table] if table else None, [folder] if folder else None
    files = _own_files({"--data": data, "--text": text, "--table": tables, "--folder": folders})
    judging = _Judging(alignments, first_word, dev, head, links)
    given = precision if precision != "auto" else None
    judging.refuse_mixed({"--beam": beam, "--decoding": decoding, "--stride": stride, "--precision": given})
    loaded = load(run, device=device)
    if judging.gold is None:
        settings = with_beam(changed_decoding(loaded.recipe.decoding, decoding or []), beam, None)
        how = {"decoding": settings, "limit": limit, "stride": stride, "precision": precision}
        if loaded.kind.scored_by_writing:
            say(f"heedful: decoding in {loaded.inference(precision).chosen}")
        found = _scored(loaded, split, files, output, shown=not as_json, **how)
    else:
        found = [_judged(loaded, split, files, output, judging, limit, shown=not as_json)]
    if as_json:
        json_result({"version": 1, "run": str(run), "splits": [each.to_dict() for each in found]})


def _own_files(given: Mapping[str, Sequence[Path] | None]) -> Sequence[Path] | None:
    """The files to score on instead of the recipe's, from the options that can name them; None without."""
    from heedful.errors import RequestError

    named = {option: files for option, files in given.items() if files}
    if len(named) > 1:
        raise RequestError(f"{' and '.join(named)}: give one of them")
    return next(iter(named.values()), None)


@dataclass(frozen=True)
class _Judging:
    """Whether and how attention is held against gold alignments: the options that say so."""

    gold: str | None
    first_word: int
    dev: int
    head: str | None
    links: Links

    def refuse_mixed(self, decoded: Mapping[str, Any]) -> None:
        """Refuse options that say nothing about what is to be scored.

        Args:
            decoded: those without meaning for alignments: nothing is decoded, and there are no windows.
        """
        from heedful.errors import RequestError

        own = {
            "--first-word": self.first_word,
            "--dev": self.dev,
            "--head": self.head,
            "--links": self.links != Links.target,
        }
        for option, value in (own if self.gold is None else decoded).items():
            if value:
                why = "is for --alignments GOLD" if self.gold is None else "has no meaning with --alignments"
                raise RequestError(f"{option} {why}")

    def evaluation(
        self, run: "Run", split: str, source: "SourceConfig", limit: int | None
    ) -> "error_rates.Evaluation":
        """See `heedful.explain.error_rates.evaluate_alignments`."""
        from heedful.explain.alignment import Choice
        from heedful.explain.error_rates import evaluate_alignments

        assert self.gold is not None
        return evaluate_alignments(
            run,
            split,
            source,
            self.gold,
            first=self.first_word,
            development=self.dev,
            choice=None if self.head is None else Choice.parse(self.head, "--head"),
            by=self.links.value,
            limit=limit,
        )

    def remember(self, run: "Run", found: "error_rates.Evaluation") -> None:
        """Keep the head that was chosen with the run: ``explain`` shows it first."""
        from heedful.explain.best_head import keep

        pairs = found.development or len(found.found)
        if keep(run, found.chosen.choice, rate=found.chosen.rate, pairs=pairs):
            say(f"{found.chosen.choice} is now the one that heedful explain shows first")


def _judged(
    run: "Run",
    split: str,
    files: Sequence[Path] | None,
    output: Path | None,
    judging: _Judging,
    limit: int | None,
    *,
    shown: bool,
) -> "Evaluation":
    """Score the attention of one data set, show the table of all heads, and write the links of the chosen."""
    from heedful.errors import RequestError
    from heedful.runs.evaluate import chosen_splits

    sources = chosen_splits(run, split, files)
    if len(sources) > 1:
        known = ", ".join(sources)
        raise RequestError(f"--alignments are of one data set: give --data, or --split with one of {known}")
    ((name, source),) = sources.items()
    with _to(output) as write:
        say(f"{name}: reading the attention")
        found = judging.evaluation(run, name, source, limit)
        write(found.pharaoh())
    if judging.head is None:
        judging.remember(run, found)
    if shown:
        for line in found.lines():
            result(line)
        result(f"the head marked *: {found.chosen.choice}")
        _show(name, "sentences", found.scores)
    return found


def _scored(
    run: "Run", split: str, files: Sequence[Path] | None, output: Path | None, *, shown: bool, **how: Any
) -> "list[Evaluation]":
    """Score one data set after the other, show each, and write what was scored in it."""
    from heedful.runs.evaluate import chosen_splits
    from heedful.runs.evaluate import evaluate as score

    evaluations = []
    with _to(output) as write:
        for name, source in chosen_splits(run, split, files).items():
            say(f"{name}: {run.kind.scoring}")
            found = score(run, name, source, **how)
            evaluations.append(found)
            for note in found.notes:
                say(f"heedful: {name}: {note}")
            if shown:
                _show(name, run.kind.unit, found.scores)
            write(json_text({"split": name, **row}) for row in found.rows())
    return evaluations


@contextmanager
def _to(output: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """What writes lines to a file (`whole_file`); where there is none, they are not even made."""
    if output is None:
        yield lambda lines: None
        return
    with whole_file(output) as file:
        yield lambda lines: file.writelines(line + "\n" for line in lines)


def _show(name: str, unit: str, scores: list[Any]) -> None:
    """A line for each score: its value and its signature; and the shares that it has, below it."""
    result(f"{name}: {scores[0].counts.get(unit, 0):,} {unit}")
    for score in scores:
        digits = 2 if abs(score.value) >= 10 else 4
        result(f"  {score.name:<22} {score.value:>8.{digits}f}  {score.signature}")
        if shares := score.details.get("shares"):
            told = "tokens of each: " + " ".join(f"{share:.1%}" for share in shares)
            for line in textwrap.wrap(told, 76):
                result(f"    {line}")
