"""The alignment error rate of every layer and head over given sentence pairs, and the best of them.

The words are those of the files, as blanks and tabs part them, for these are what gold alignments count. Each
is encoded by itself, as it stands in its sentence (`heedful.text.words.word_ids`), so every id belongs to one
word of the file, whatever pre-processing makes of it: it may be in lower case, and what Moses cuts in two
("don't") is one word here. Ids are merged into words as in `heedful.explain.alignment`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

from heedful.data.lines import find, lines
from heedful.data.sources import SourceConfig
from heedful.errors import RequestError
from heedful.explain import one_text
from heedful.explain.alignment import (
    END,
    STEPS,
    Attention,
    Choice,
    Direction,
    at_step,
    between_ids,
    links,
    merge,
    pharaoh,
)
from heedful.explain.one_text import is_one_text
from heedful.objectives.guided import DecoderStep
from heedful.runs.prepare import rows_of
from heedful.runs.run import Run
from heedful.tasks import base
from heedful.tasks.metrics.alignment import (
    Alignment,
    Gold,
    Link,
    alignment_error_rate,
    check_alignments,
    read_gold,
)
from heedful.tasks.metrics.score import Score
from heedful.tasks.sequence_formats import TWO_SIDES, ConcatenatedFormat, EncoderDecoderFormat
from heedful.tasks.source_target import SOURCE, TARGET, Tokenizers
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import blank_words, word_ids_of_all

Words = Sequence[str]
Found = dict[Choice, list[frozenset[Link]]]
"""For each layer and head, the links of every pair."""


@dataclass(frozen=True)
class Rated:
    """A layer (the mean of its heads) or a head, with the error rates of its links.

    Args:
        choice: which.
        development: on the pairs to choose by, where there are some.
        score: on the other pairs, or on all.
    """

    choice: Choice
    development: Score | None
    score: Score

    @property
    def rate(self) -> float:
        """What is chosen by; less is better."""
        return (self.development or self.score).value

    def to_dict(self) -> dict[str, Any]:
        """For JSON: layers and heads from 1; ``head`` is null for the mean of a layer's heads."""
        return {
            **named(self.choice),
            "development": None if self.development is None else _finite(self.development.value),
            "value": _finite(self.score.value),
            **self.score.details,
        }


@dataclass(frozen=True)
class Evaluation(base.Evaluation):
    """The error rate of one head, with those of all others.

    Args:
        table: of every layer and head.
        chosen: the head that is reported.
        development: how many pairs, the first ones, it was chosen by; 0: it was chosen by all, or given.
        judged: how many of the pairs that it was chosen by have gold links.
        found: its links of every pair.
    """

    table: Sequence[Rated]
    chosen: Rated
    development: int
    judged: int
    found: Sequence[frozenset[Link]]

    def pharaoh(self) -> Iterator[str]:
        """The links of each pair, words counted from 0."""
        return map(pharaoh, self.found)

    def lines(self) -> Iterator[str]:
        """The table, for reading."""
        first = f"first {self.development:,}"
        yield f"  layer  head    step  {first if self.development else '':>12}       AER  precision  recall"
        for rated in self.table:
            layer, head = rated.choice.layer + 1, rated.choice.head
            before = "" if rated.development is None else _shown(rated.development.value)
            precision, recall = (rated.score.details[name] for name in ("precision", "recall"))
            name, mark = "mean" if head is None else head + 1, "  *" if rated is self.chosen else ""
            rate = _shown(rated.score.value)
            rates = f"{before:>12}  {rate:>8}  {_shown(precision):>9}  {_shown(recall):>6}"
            yield f"  {layer:>5}  {name:>4}  {rated.choice.step:>6}  {rates}{mark}"


@dataclass(frozen=True)
class AlignmentScoring:
    """How attention is to be held against gold alignments.

    Args:
        gold: the file of these (`heedful.tasks.metrics.alignment.read_gold`), plain or ``.gz``.
        first: what the file calls the first word, 0 or 1.
        development: choose the head by the first so many pairs, and report it on the others.
        choice: report this head, instead of the one with the lowest rate.
        by: how words are linked (`heedful.explain.alignment.links`).
        steps: at which steps the rows of target words are read (`heedful.explain.alignment.at_step`).
        limit: only so many pairs.
    """

    gold: str
    first: int = 0
    development: int = 0
    choice: Choice | None = None
    by: Direction = "target"
    steps: Sequence[DecoderStep] = STEPS
    limit: int | None = None

    @property
    def chosen_by(self) -> str:
        """How the head that is reported is chosen, for the signature."""
        if self.choice is not None:
            return "given"
        return f"first-{self.development}" if self.development else "these-pairs"


def evaluate_alignments(run: Run, split: str, source: SourceConfig, how: AlignmentScoring) -> Evaluation:
    """Hold a run's attention, teacher forced, against gold alignments.

    Args:
        run: the run.
        split: what to call the data set.
        source: where its rows are: sources and targets, in words that blanks part.
        how: against which, and by which head.

    Raises:
        RequestError: the run has no attention between texts, or there are too few pairs.
        DataError: the gold alignments cannot be read, or are not of these pairs.
    """
    has_source = getattr(run.model, "alignment_taps", ()) or is_one_text(run)
    if not isinstance(run.processor, Tokenizers) or not has_source:
        raise RequestError("--alignments: this run's model has no attention from one text to another")
    if how.development and how.choice is not None:
        raise RequestError("--dev chooses a head, and --head names one: give one of them")
    rows = [row.row for row in rows_of(run.recipe, source)]
    sources, targets = ([blank_words(row[column]) for row in rows] for column in (SOURCE, TARGET))
    gold = gold_of(how.gold, sources, targets, how.first).alignments[: how.limit]
    kept, development = len(gold), how.development
    if development >= kept:
        raise RequestError(f"--dev {development}: leaves no sentence pair to report on; there are {kept:,}")
    words = sources[:kept], targets[:kept]
    found = links_of(between_words(run.model, run.processor, *words, run.recipe.pairing, how.steps), how.by)
    table = rated(found, gold, development)
    chosen = most_accurate(table) if how.choice is None else _named(table, how.choice)
    scores = [_score(chosen, how.by, how.chosen_by, table), *_of_the_guided(run, how, table)]
    judged = sum(bool(each.possible) for each in gold[: development or kept])
    return Evaluation(split, scores, table, chosen, development, judged, found[chosen.choice])


def _of_the_guided(run: Run, how: AlignmentScoring, table: Sequence[Rated]) -> Iterator[Score]:
    """The score of the head that was taught alignments, if one was."""
    guided = getattr(run.recipe.objective, "guided", None)
    if guided is None:
        return
    layers = 1 + max(each.choice.layer for each in table)
    step = guided.step if guided.step in how.steps else how.steps[0]
    head = _named(table, Choice(guided.place(layers), guided.head - 1, step))
    yield replace(_score(head, how.by, "guided"), name=f"{head.score.name} of the guided head")


def gold_of(gold: str, sources: Sequence[Words], targets: Sequence[Words], first: int) -> Gold:
    """Read gold alignments, and hold them against the words that they are of.

    Raises:
        DataError: they cannot be read, or are not of these pairs.
    """
    file = find(gold, Path())
    read = read_gold(lines(file), file.name, first=first, n_pairs=len(sources))
    words = [(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
    check_alignments(read, words, file.name)
    return read


def links_of(attentions: Iterable[Attention], by: Direction = "target") -> Found:
    """The links of every layer and head, of each pair (`heedful.explain.alignment.links`)."""
    found: Found = {}
    for attention in attentions:
        for choice in attention.choices():
            found.setdefault(choice, []).append(links(attention.chosen(choice), by))
    return found


def between_words(
    model: Any,
    tokenizers: Tokenizers,
    sources: Sequence[Words],
    targets: Sequence[Words],
    pairing: EncoderDecoderFormat | ConcatenatedFormat = TWO_SIDES,
    steps: Sequence[DecoderStep] = ("output",),
) -> Iterator[Attention]:
    """The attention of a model over given sentence pairs, teacher forced, between their own words.

    Of each pair there is one for each of ``steps``.

    Args:
        model: has attention over a source, or reads it before the target (`heedful.explain.one_text`).
        tokenizers: of both sides.
        sources: the words of each sentence.
        targets: of its translation.
        pairing: how they are laid before the model.
        steps: at which steps the rows of target words are read.

    Raises:
        RequestError: a sentence is longer.
    """
    source, source_places = _encoded(tokenizers.source, sources)
    target, target_places = _encoded(tokenizers.target, targets)
    for number, (read, written) in enumerate(zip(source, target, strict=True), 1):
        _refuse_longer(pairing, number, len(read), len(written))
    if isinstance(pairing, ConcatenatedFormat):
        found = one_text.between_ids(model, pairing, source, target)
    else:
        found = between_ids(model, source, target)
    pairs = zip(sources, targets, source_places, target_places, strict=True)
    for weights, (s, t, *places) in zip(found, pairs, strict=True):
        for step in steps:
            yield Attention((*s, END), (*t, END), merge(at_step(weights, step), *places), step)


def _refuse_longer(
    pairing: EncoderDecoderFormat | ConcatenatedFormat, number: int, source: int, target: int
) -> None:
    """Refuse a pair that the model has no room for, without special tokens.

    Raises:
        RequestError: it is longer.
    """
    if isinstance(pairing, ConcatenatedFormat):
        length, room, where = source + target, pairing.context - 2, "on both sides"
    elif pairing.longest is not None:
        length, room, where = max(source, target), pairing.longest - 1, "on one side"
    else:
        return
    if length > room:
        raise RequestError(
            f"sentence pair {number} has {length} tokens {where}, and the model has positions for {room}; "
            "leave it out"
        )


def _encoded(tokenizer: Tokenizer, texts: Sequence[Words]) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of each text, and of each id and the end the number of its word."""
    ids = word_ids_of_all(tokenizer, texts)
    flat = [[i for word in text for i in word] for text in ids]
    places = [[*(n for n, word in enumerate(text) for _ in word), len(text)] for text in ids]
    return flat, places


def rated(found: Found, gold: Sequence[Alignment], development: int = 0) -> list[Rated]:
    """Every layer and head with its error rates.

    Args:
        found: their links.
        gold: of each pair.
        development: how many pairs, the first ones, are to choose by.

    Raises:
        RequestError: there are no pairs, or no rate to choose by is defined (`most_accurate`).
    """
    if not found:
        raise RequestError("there is no sentence pair to judge heads by")
    own, rest = slice(0, development), slice(development, None)
    table = [
        Rated(
            choice,
            alignment_error_rate(each[own], gold[own]) if development else None,
            alignment_error_rate(each[rest], gold[rest]),
        )
        for choice, each in found.items()
    ]
    most_accurate(table)  # refuses what has no rate at all
    return table


def most_accurate(table: Sequence[Rated]) -> Rated:
    """The layer (mean of its heads) or head with the lowest rate; of equals, the first.

    Report its rate on other sentences than those that it was chosen on. One that finds no link where none is
    sure has no rate, and is not chosen.

    Raises:
        RequestError: none has a rate.
    """
    defined = [each for each in table if not isnan(each.rate)]
    if not defined:
        raise RequestError("there is nothing to score: no head finds a link, and no gold link is sure")
    return min(defined, key=lambda each: each.rate)


def _finite(rate: float) -> float | None:
    return None if isnan(rate) else rate


def _shown(rate: float | None) -> str:
    """A rate for reading; a dash where it is undefined."""
    return "-" if rate is None or isnan(rate) else f"{rate:.4f}"


def named(choice: Choice) -> dict[str, int | str | None]:
    """For JSON: counted from 1."""
    head = None if choice.head is None else choice.head + 1
    return {"layer": choice.layer + 1, "head": head, "step": choice.step}


def _named(table: Sequence[Rated], choice: Choice) -> Rated:
    """The row of a head; of a layer with one head, that is also the mean."""
    own = [each for each in table if (each.choice.layer, each.choice.step) == (choice.layer, choice.step)]
    if not own:
        layers = 1 + max(each.choice.layer for each in table)
        raise RequestError(f"--head: there is no layer {choice.layer + 1}: {layers} look at the source")
    if len(own) == 1 and choice.head is None:
        return own[0]
    for each in own:
        if each.choice == choice:
            return each
    heads = sum(each.choice.head is not None for each in own)
    raise RequestError(f"--head: there is no head {(choice.head or 0) + 1}: a layer has {heads}")


def _score(one: Rated, by: Direction, how: str, table: Sequence[Rated] = ()) -> Score:
    """The score of a head, with all that it hangs on, and the table."""
    details = {**one.score.details, **named(one.choice)}
    if table:
        details["table"] = [each.to_dict() for each in table]
    signature = f"{one.score.signature}|links:{by}|step:{one.choice.step}|head:{how}"
    return replace(one.score, signature=signature, details=details)
