"""Compute the alignment error rate of every layer and head on sentence pairs, and select the best.

Words are those of the files, separated by spaces and tabs, because gold alignments count these. Each word is
encoded on its own, as it stands in its sentence (`heedful.text.words.word_ids`), so every id belongs to one
word of the file, whatever the pre-processing does: the word may be lower-cased, and what Moses splits
("don't") is one word here. Weights are merged into words as in `heedful.explain.alignment.word_alignment`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path

from heedful.data.lines import Source, find, lines
from heedful.data.links import pharaoh
from heedful.errors import RequestError
from heedful.explain.alignment.word_alignment import (
    STEPS,
    Direction,
    HeadChoice,
    WordAttention,
    attention_between_ids,
    links,
    merge_subwords,
    rows_at_step,
)
from heedful.explain.attention_sites import is_one_text
from heedful.models.base import Model
from heedful.objectives.guided import DecoderStep
from heedful.runs.loading import LoadedRun
from heedful.runs.prepare import rows_of
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.generation.sequence_formats import (
    ENCODER_DECODER,
    ConcatenatedFormat,
    EncoderDecoderFormat,
)
from heedful.tasks.inputs.processor import SOURCE, TARGET, Tokenizers
from heedful.tasks.metrics.alignment import Alignment, Link, alignment_error_rate, check_alignments, read_gold
from heedful.tasks.metrics.score import Score
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import END, blank_words, word_ids_of_all
from heedful.typing import JsonObject

Words = Sequence[str]
LinksByHead = dict[HeadChoice, list[frozenset[Link]]]
"""Links of every pair, by layer and head."""


@dataclass(frozen=True)
class HeadErrorRate:
    """Error rates of a head, or of the mean of a layer's heads.

    Args:
        choice: the layer or head.
        development: on the pairs used for selection, if there are any.
        score: on the other pairs, or on all.
    """

    choice: HeadChoice
    development: Score | None
    score: Score

    @property
    def rate(self) -> float:
        """Error rate used for selection; lower is better."""
        return (self.development or self.score).value

    def to_dict(self) -> JsonObject:
        """Return the JSON form, with layers and heads from 0; ``head`` is null for a mean of heads."""
        return {
            **self.choice.to_dict(),
            "development": None if self.development is None else _none_if_nan(self.development.value),
            "value": _none_if_nan(self.score.value),
            **self.score.details,
        }


@dataclass(frozen=True)
class AlignmentEvaluation(Evaluation):
    """The error rate of the selected head, with those of all others.

    Args:
        table: error rates of every layer and head.
        reported: the reported head.
        development: number of pairs, from the first, the head was selected on; 0: on all, or the head was
            given.
        judged: number of these pairs with gold links.
        links: links of every pair for the reported head.
    """

    table: Sequence[HeadErrorRate]
    reported: HeadErrorRate
    development: int
    judged: int
    links: Sequence[frozenset[Link]]

    def pharaoh(self) -> Iterator[str]:
        """Return the links of each pair in Pharaoh format, words counted from 0."""
        return map(pharaoh, self.links)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table."""
        heading = f"first {self.development:,}"
        yield f"  layer  head    step  {heading if self.development else '':>12}       AER  precision  recall"
        for row in self.table:
            layer, head = row.choice.layer + 1, row.choice.head
            development = "" if row.development is None else _format_rate(row.development.value)
            precision, recall = (row.score.details[name] for name in ("precision", "recall"))
            name, mark = "mean" if head is None else head + 1, "  *" if row is self.reported else ""
            rate = _format_rate(row.score.value)
            rates = f"{development:>12}  {rate:>8}  {_format_rate(precision):>9}  {_format_rate(recall):>6}"
            yield f"  {layer:>5}  {name:>4}  {row.choice.step:>6}  {rates}{mark}"


def evaluate_alignments(
    run: LoadedRun,
    split: str,
    source: Source,
    gold: str,
    *,
    first: int = 0,
    development: int = 0,
    choice: HeadChoice | None = None,
    by: Direction = "target",
    steps: Sequence[DecoderStep] = STEPS,
    limit: int | None = None,
) -> AlignmentEvaluation:
    """Evaluate the attention of a run, with teacher forcing, on gold alignments.

    Args:
        run: the run.
        split: name of the data set.
        source: location of the sources and targets, with words separated by spaces.
        gold: file of gold alignments (`heedful.tasks.metrics.alignment.read_gold`), plain or ``.gz``.
        first: index of the first word in this file, 0 or 1.
        development: number of pairs, from the first, to select the head on; the others are reported.
        choice: report this head, instead of the one with the lowest error rate.
        by: how words are linked (`links`).
        steps: decoder steps whose rows are used for target words (`rows_at_step`).
        limit: maximum number of pairs.

    Raises:
        RequestError: the run has no attention between texts, or there are too few pairs.
        DataError: the gold alignments cannot be read, or do not match the pairs.
    """
    has_source = getattr(run.model, "alignment_taps", ()) or is_one_text(run)
    if not isinstance(run.processor, Tokenizers) or not has_source:
        raise RequestError("--alignments: the model has no attention between source and target")
    if development and choice is not None:
        raise RequestError("--dev and --head exclude each other; remove one of them")
    rows = [row.row for row in rows_of(run.recipe, source)]
    sources, targets = ([blank_words(row[column]) for row in rows] for column in (SOURCE, TARGET))
    alignments = _read_gold(gold, sources, targets, first)[:limit]
    n_pairs = len(alignments)
    if development >= n_pairs:
        raise RequestError(
            f"--dev must be less than the number of sentence pairs ({n_pairs:,}), got {development}"
        )
    words = sources[:n_pairs], targets[:n_pairs]
    pairing = getattr(run.recipe, "sequence_format", None)
    assert isinstance(pairing, EncoderDecoderFormat | ConcatenatedFormat)
    links_by_head = links_of(attention_between_words(run.model, run.processor, *words, pairing, steps), by)
    table = rate_heads(links_by_head, alignments, development)
    if choice is not None:
        reported, selection = _head_row(table, choice), "given"
    else:
        reported, selection = most_accurate(table), f"first-{development}" if development else "these-pairs"
    scores = [_head_score(reported, by, selection, table)]
    if (guided := _guided_row(run, table, steps)) is not None:
        score = _head_score(guided, by, "guided")
        scores.append(replace(score, name=f"{score.name} of the guided head"))
    judged = sum(bool(alignment.possible) for alignment in alignments[: development or n_pairs])
    return AlignmentEvaluation(
        split, scores, table, reported, development, judged, links_by_head[reported.choice]
    )


def _read_gold(
    path: str, sources: Sequence[Words], targets: Sequence[Words], first: int
) -> Sequence[Alignment]:
    """Read gold alignments and check that they match the words.

    Raises:
        DataError: they cannot be read, or do not match.
    """
    file = find(path, Path())
    gold = read_gold(lines(file), file.name, first=first, n_pairs=len(sources))
    lengths = [(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
    check_alignments(gold, lengths, file.name)
    return gold.alignments


def links_of(attentions: Iterable[WordAttention], by: Direction = "target") -> LinksByHead:
    """Return the links of every layer and head, for each pair (see `links`)."""
    links_by_head: LinksByHead = {}
    for attention in attentions:
        for choice in attention.choices():
            links_by_head.setdefault(choice, []).append(links(attention.matrix(choice), by))
    return links_by_head


def attention_between_words(
    model: Model,
    tokenizers: Tokenizers,
    sources: Sequence[Words],
    targets: Sequence[Words],
    pairing: EncoderDecoderFormat | ConcatenatedFormat = ENCODER_DECODER,
    steps: Sequence[DecoderStep] = ("output",),
) -> Iterator[WordAttention]:
    """Yield the attention between the words of sentence pairs, with teacher forcing.

    For each pair, there is one result per step.

    Args:
        model: has attention to a source, or reads source and target as one text.
        tokenizers: of both sides.
        sources: the words of each source sentence.
        targets: the words of each target sentence.
        pairing: sequence format of the model.
        steps: decoder steps whose rows are used for target words.

    Raises:
        RequestError: a sentence is too long for the model.
    """
    source, source_indices = _encode_words(tokenizers.source, sources)
    target, target_indices = _encode_words(tokenizers.target, targets)
    for number, (source_ids, target_ids) in enumerate(zip(source, target, strict=True), 1):
        _check_length(pairing, number, len(source_ids), len(target_ids))
    weights_of_pairs = attention_between_ids(model, source, target, pairing)
    pairs = zip(sources, targets, source_indices, target_indices, strict=True)
    for weights, (s, t, *indices) in zip(weights_of_pairs, pairs, strict=True):
        for step in steps:
            yield WordAttention(
                (*s, END), (*t, END), merge_subwords(rows_at_step(weights, step), *indices), step
            )


def fits(pairing: EncoderDecoderFormat | ConcatenatedFormat, n_source: int, n_target: int) -> bool:
    """Return whether a pair of so many tokens, without special tokens, fits into the model."""
    length, limit, _ = _length_and_limit(pairing, n_source, n_target)
    return limit is None or length <= limit


def _length_and_limit(
    pairing: EncoderDecoderFormat | ConcatenatedFormat, n_source: int, n_target: int
) -> tuple[int, int | None, str]:
    """Return the length of a pair that is limited, its limit, and what it counts."""
    if isinstance(pairing, ConcatenatedFormat):
        return n_source + n_target, pairing.context - 2, "on both sides"
    limit = None if pairing.longest is None else pairing.longest - 1
    return max(n_source, n_target), limit, "on one side"


def _check_length(
    pairing: EncoderDecoderFormat | ConcatenatedFormat, number: int, n_source: int, n_target: int
) -> None:
    """Check that a pair, without special tokens, fits into the model.

    Raises:
        RequestError: it is too long.
    """
    if not fits(pairing, n_source, n_target):
        length, limit, side = _length_and_limit(pairing, n_source, n_target)
        raise RequestError(
            f"sentence pair {number} must have at most {limit} tokens {side}, got {length}; remove it"
        )


def _encode_words(tokenizer: Tokenizer, texts: Sequence[Words]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of each text, and the word index of each id and of the end token."""
    ids = word_ids_of_all(tokenizer, texts)
    flat = [[i for word in text for i in word] for text in ids]
    indices = [[*(n for n, word in enumerate(text) for _ in word), len(text)] for text in ids]
    return flat, indices


def rate_heads(
    links_by_head: LinksByHead, gold: Sequence[Alignment], development: int = 0
) -> list[HeadErrorRate]:
    """Return the error rates of every layer and head.

    Args:
        links_by_head: links of every layer and head.
        gold: gold alignments of each pair.
        development: number of pairs, from the first, to select on.

    Raises:
        RequestError: there are no pairs, or no error rate for the selection is defined (`most_accurate`).
    """
    if not links_by_head:
        raise RequestError("the evaluation of heads needs at least one sentence pair")
    selection, reported = slice(0, development), slice(development, None)
    table = [
        HeadErrorRate(
            choice,
            alignment_error_rate(head_links[selection], gold[selection]) if development else None,
            alignment_error_rate(head_links[reported], gold[reported]),
        )
        for choice, head_links in links_by_head.items()
    ]
    most_accurate(table)  # raises if no rate is defined
    return table


def most_accurate(table: Sequence[HeadErrorRate]) -> HeadErrorRate:
    """Return the head, or mean of a layer's heads, with the lowest error rate; of equals, the first.

    Report its rate on other sentences than those used for the selection. The rate is undefined for a head
    without links if there are no sure gold links; such a head is not selected.

    Raises:
        RequestError: no rate is defined.
    """
    defined = [row for row in table if not isnan(row.rate)]
    if not defined:
        raise RequestError("error rates are undefined: no head has links, and there are no sure gold links")
    return min(defined, key=lambda row: row.rate)


def _none_if_nan(rate: float) -> float | None:
    return None if isnan(rate) else rate


def _format_rate(rate: float | None) -> str:
    """Format a rate; a dash if it is undefined."""
    return "-" if rate is None or isnan(rate) else f"{rate:.4f}"


def _guided_row(
    run: LoadedRun, table: Sequence[HeadErrorRate], steps: Sequence[DecoderStep]
) -> HeadErrorRate | None:
    """Return the row of the head that training guided, if it did."""
    guided = getattr(run.recipe.objective, "guided", None)
    if guided is None:
        return None
    n_layers = 1 + max(row.choice.layer for row in table)
    step = guided.step if guided.step in steps else steps[0]
    return _head_row(table, HeadChoice(guided.layer_index(n_layers), guided.head - 1, step))


def _head_row(table: Sequence[HeadErrorRate], choice: HeadChoice) -> HeadErrorRate:
    """Return the row of a head; for a layer with one head, the head is also the mean."""
    layer_rows = [row for row in table if (row.choice.layer, row.choice.step) == (choice.layer, choice.step)]
    if not layer_rows:
        n_layers = 1 + max(row.choice.layer for row in table)
        raise RequestError(
            f"--head: layer must be at most {n_layers} (layers with source attention), got {choice.layer + 1}"
        )
    if len(layer_rows) == 1 and choice.head is None:
        return layer_rows[0]
    for row in layer_rows:
        if row.choice == choice:
            return row
    n_heads = sum(row.choice.head is not None for row in layer_rows)
    raise RequestError(f"--head: head must be at most {n_heads}, got {(choice.head or 0) + 1}")


def _head_score(
    row: HeadErrorRate, by: Direction, selection: str, table: Sequence[HeadErrorRate] = ()
) -> Score:
    """Return the score of a head, with its settings in the signature, and the table in the details."""
    details = {**row.score.details, **row.choice.to_dict()}
    if table:
        details["table"] = [each.to_dict() for each in table]
    signature = f"{row.score.signature}|links:{by}|step:{row.choice.step}|head:{selection}"
    return replace(row.score, signature=signature, details=details)
