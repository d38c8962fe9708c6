"""Convert attention over the source from subwords to words, and words to alignment links.

Models read and generate subwords. The attention a of target subwords t over source subwords s is merged into
words as in Zenkel et al. 2019, section 5, and Garg et al. 2019, section 3.1:

    w[i, j] = mean over subwords t of target word i of the sum over subwords s of source word j of a[t, s]

so that rows still sum to 1. The end token is the last word of both sides.

A decoder reads y_t-1 and predicts y_t in the same step. So two rows belong to a target subword: the row of
the step that predicts it (``output``), and the row of the next step, which reads it (``input``); see
`rows_at_step`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites, part_sites, source_part
from heedful.models.base import Model
from heedful.nn.modes import evaluating
from heedful.nn.taps import capture
from heedful.objectives.guided import DecoderStep
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.generation.sequence_formats import (
    ENCODER_DECODER,
    ConcatenatedFormat,
    EncoderDecoderFormat,
)
from heedful.tasks.inputs.texts import group_by_length
from heedful.tasks.metrics.alignment import Link
from heedful.tasks.prediction import BATCH_TOKENS
from heedful.typing import JsonObject

INPUT_STEP_SUFFIX = ", at the input step"
"""Suffix of the name of a head whose rows are those of the steps that read the target words."""
Weights = NDArray[np.float64]
BATCH = 64
Direction = Literal["target", "source", "both"]
"""Side whose words are linked to words of the other side."""
STEPS: tuple[DecoderStep, ...] = ("output", "input")
"""Decoder steps whose row can be used for a target subword; see `rows_at_step`."""


@dataclass(frozen=True, order=True)
class HeadChoice:
    """One layer, and one of its heads or, with ``head=None``, the mean of its heads; counted from 0.

    ``step`` selects the rows (`rows_at_step`).
    """

    layer: int
    head: int | None = None
    step: DecoderStep = "output"

    @classmethod
    def parse(cls, text: str, option: str, step: DecoderStep = "output") -> "HeadChoice":
        """Parse a head, counted from 1: ``3.1`` is head 1 of layer 3, ``3`` the mean of the heads of layer 3.

        Raises:
            RequestError: the text has another form; the message starts with ``option``.
        """
        layer, dot, head = text.partition(".")
        numbers = [layer, head] if dot else [layer]
        if not all(n.isascii() and n.isdigit() and int(n) for n in numbers):
            raise RequestError(
                f"{option} must be LAYER.HEAD, or LAYER for the mean of its heads, from 1 (3.1), got {text}"
            )
        return cls(int(layer) - 1, int(head) - 1 if dot else None, step)

    def to_dict(self) -> JsonObject:
        """Return the JSON form, counted from 0; ``head`` is null for a mean of heads."""
        return {"layer": self.layer, "head": self.head, "step": self.step}

    def __str__(self) -> str:
        """Return the name, counted from 1: ``layer 3, head 1``."""
        name = "mean of heads" if self.head is None else f"head {self.head + 1}"
        return f"layer {self.layer + 1}, {name}" + (INPUT_STEP_SUFFIX if self.step == "input" else "")


@dataclass(frozen=True)
class WordAttention:
    """The attention of a sentence pair between words.

    Args:
        source: the source words; the last is the end token.
        target: the target words; the last is the end token.
        weights: ``[L, H, target words, source words]``; every row sums to 1.
        step: the decoder step of the rows (`rows_at_step`).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Weights
    step: DecoderStep = "output"

    def __post_init__(self) -> None:
        if self.weights.ndim != 4 or self.weights.shape[2:] != (len(self.target), len(self.source)):
            raise ValueError(
                f"weights must be of shape (layers, heads, {len(self.target)}, {len(self.source)}), got "
                f"{self.weights.shape}"
            )

    def choices(self) -> list[HeadChoice]:
        """Return all choices: for each layer the mean of its heads, if it has several, and its heads."""
        n_layers, n_heads = self.weights.shape[:2]
        head_options: list[int | None] = [None, *range(n_heads)] if n_heads > 1 else [0]
        return [HeadChoice(layer, head, self.step) for layer in range(n_layers) for head in head_options]

    def matrix(self, choice: HeadChoice) -> Weights:
        """Return the matrix ``[target words, source words]`` of a layer or head.

        Raises:
            RequestError: the model has no such layer or head.
        """
        n_layers, n_heads = self.weights.shape[:2]
        if not 0 <= choice.layer < n_layers:
            raise RequestError(
                f"layer must be between 1 and {n_layers} (layers with attention), got {choice.layer + 1}"
            )
        if choice.head is None:
            return self.weights[choice.layer].mean(axis=0)
        if not 0 <= choice.head < n_heads:
            raise RequestError(f"head must be between 1 and {n_heads}, got {choice.head + 1}")
        return self.weights[choice.layer, choice.head]


def attention_between_ids(
    model: Model,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    pairing: EncoderDecoderFormat | ConcatenatedFormat = ENCODER_DECODER,
) -> Iterator[Weights]:
    """Yield the attention of a model from targets to sources, given ids, with teacher forcing.

    Of a model that reads both as one text, these are the parts of its attention between them
    (`heedful.explain.attention_sites.source_part`).

    Returns:
        ``[L, H, T + 1, S + 1]`` for each pair.

    Raises:
        RequestError: the model has no attention over a source, or a layer of the one text has none.
    """
    attend = _self_attention_parts if isinstance(pairing, ConcatenatedFormat) else _cross_attention
    device = next(model.parameters()).device
    for start in range(0, len(sources), BATCH):
        pairs = sources[start : start + BATCH], targets[start : start + BATCH]
        with evaluating(model):
            weights = [*attend(model, pairing.collate_scored(*pairs).to(device), *pairs)]
        yield from weights


def _cross_attention(model: Model, batch: Batch, *_: object) -> Iterator[Weights]:
    if not getattr(model, "alignment_taps", None):
        raise RequestError("the model must have attention over a source; this one has none")
    for result in score_targets(model, batch, attention=True):
        assert result.attention is not None
        yield result.attention.double().cpu().numpy()


@torch.no_grad()
def _self_attention_parts(
    model: Model, batch: Batch, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[Weights]:
    sites = find_sites(model)
    taps = [site.tap for site in part_sites(sites)]
    if not taps or len(taps) < len(sites):
        raise RequestError("every layer must have attention between tokens; this model has layers without it")
    with capture(model, dict.fromkeys(taps)) as captured:
        model(batch.inputs)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        layers = [captured[tap][-1][i].float().cpu().numpy() for tap in taps]
        layer_parts = [source_part(weights, len(source), len(target)) for weights in layers]
        yield np.stack(layer_parts).astype(np.float64)


def attention_of_head(
    model: Model,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    pairing: EncoderDecoderFormat | ConcatenatedFormat,
    choice: HeadChoice,
) -> list[Weights]:
    """Return the attention of one head, or the mean of a layer's heads; as `attention_between_ids`.

    Only these weights are computed, in batches of pairs of similar length.

    Returns:
        ``[T + 1, S + 1]`` for each pair; a row for each decoder step.
    """
    is_one_text = isinstance(pairing, ConcatenatedFormat)
    taps = [site.tap for site in part_sites(find_sites(model))] if is_one_text else model.alignment_taps
    heads = None if choice.head is None else (choice.head,)
    device = next(model.parameters()).device
    results: list[Weights] = [np.zeros((0, 0))] * len(sources)
    lengths = {i: len(x) + len(y) for i, (x, y) in enumerate(zip(sources, targets, strict=True))}
    for group in group_by_length(lengths, BATCH_TOKENS, lambda n: n + 2):
        batch = pairing.collate_scored([sources[i] for i in group], [targets[i] for i in group]).to(device)
        tap = taps[choice.layer]
        with evaluating(model), torch.no_grad(), capture(model, {tap: heads}) as captured:
            model(batch.inputs, *(() if batch.source is None else (batch.source,)))
        for i, weights in zip(group, captured[tap][-1].float().cpu().numpy(), strict=True):
            n_source, n_target = len(sources[i]), len(targets[i])
            part = (
                source_part(weights, n_source, n_target)
                if is_one_text
                else weights[:, : n_target + 1, : n_source + 1]
            )
            results[i] = part.mean(axis=0, dtype=np.float64)
    return results


def rows_at_step(weights: Weights, step: DecoderStep) -> Weights:
    """Return the rows of the target subwords at a decoder step.

    At the step that reads a subword the model knows it; in well-trained translation models some heads align
    better there (Chen et al. 2020, "Shift-Att"). The end token is never read and keeps its row.

    Args:
        weights: ``[..., T + 1, S + 1]``, a row for each decoder step.
        step: ``output``: for subword t the step that predicts it, row t; ``input``: the step that reads it,
            row t + 1.
    """
    if step == "output":
        return weights
    return np.concatenate([weights[..., 1:, :], weights[..., -1:, :]], axis=-2)


def merge_subwords(weights: Weights, source_indices: Sequence[int], target_indices: Sequence[int]) -> Weights:
    """Sum over the source subwords of a word, and average over the target subwords of a word.

    Args:
        weights: ``[..., T, S]`` between subwords.
        source_indices: word index of each source subword, from 0 without gaps.
        target_indices: the same for the target.

    Returns:
        ``[..., target words, source words]``.
    """
    source, target = _membership(source_indices), _membership(target_indices)
    return (target / target.sum(axis=0)).T @ weights @ source


def _membership(indices: Sequence[int]) -> Weights:
    """Return ``[subwords, words]``: 1 if a subword belongs to a word, otherwise 0."""
    return np.eye(max(indices) + 1)[list(indices)]


def links(weights: Weights, by: Direction = "target") -> frozenset[Link]:
    """Link words by their largest weights; return pairs (source, target), from 0.

    The last row and the last column are the end tokens. A word whose largest weight is at the end token of
    the other side has no link, the NULL alignment. Of equal weights the first is used.

    Args:
        weights: ``[target words, source words]``.
        by: ``target``: link each target word to the source word with the largest weight in its row;
            ``source``: link each source word to the target word with the largest weight in its column;
            ``both``: the intersection.
    """
    if by == "both":
        return links(weights, "target") & links(weights, "source")
    if by == "source":
        return frozenset((source, target) for target, source in links(weights.T, "target"))
    strongest = weights[:-1].argmax(axis=1)
    end = weights.shape[1] - 1
    return frozenset((int(source), target) for target, source in enumerate(strongest) if source != end)
