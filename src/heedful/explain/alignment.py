"""Who looks at whom, in words: attention over the source, from pieces to words, heads and links.

A model reads and writes pieces of words. The attention of target piece t over source pieces is merged
into words as usual (Zenkel et al. 2019, section 5; Garg et al. 2019, section 3.1):

    w[i, j] = mean over pieces t of target word i of the sum over pieces s of source word j of a[t, s]

so that a row still sums to 1. The end token is the last word of both sides.

A decoder reads y_t-1 and foretells y_t at the same step. So a target piece has two rows: that of the step of
which it is the *output*, where the model looks for what to write, and that of the next step, of which it is
the *input*, where the model knows it (`at_step`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.objectives.guided import DecoderStep
from heedful.tasks.forced import forced
from heedful.tasks.metrics.alignment import Link
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import TWO_SIDES
from heedful.tasks.source_target import Tokenizers
from heedful.text.tokenizer import NO_WORD, Tokenizer

END = "</s>"
READ_AS_INPUT = ", where words are read"
"""Behind the name of a head whose rows are those of the steps that read the words."""
Weights = NDArray[np.float64]
BATCH = 64
Direction = Literal["target", "source", "both"]
"""From which side words are linked to those of the other side."""
STEPS: tuple[DecoderStep, ...] = ("output", "input")
"""Where the row of a target piece can be read; see `at_step`."""


@dataclass(frozen=True, order=True)
class Choice:
    """One layer, and one of its heads or, with ``head=None``, the mean of them; counted from 0.

    ``step`` is where their rows are read (`at_step`).
    """

    layer: int
    head: int | None = None
    step: DecoderStep = "output"

    @classmethod
    def parse(cls, text: str, option: str, step: DecoderStep = "output") -> "Choice":
        """A head as people write it: ``3.1`` is head 1 of layer 3, ``3`` the mean of its heads, from 1.

        Raises:
            RequestError: it is written in another way; ``option`` is where.
        """
        layer, dot, head = text.partition(".")
        numbers = [layer, head] if dot else [layer]
        if not all(n.isascii() and n.isdigit() and int(n) for n in numbers):
            raise RequestError(
                f"{option} {text}: write LAYER.HEAD, or LAYER for the mean of its heads, from 1: 3.1"
            )
        return cls(int(layer) - 1, int(head) - 1 if dot else None, step)

    def __str__(self) -> str:
        """For people, who count from 1: ``layer 3, head 1``."""
        which = "mean of heads" if self.head is None else f"head {self.head + 1}"
        return f"layer {self.layer + 1}, {which}" + (READ_AS_INPUT if self.step == "input" else "")


@dataclass(frozen=True)
class Attention:
    """The attention of a sentence pair between words.

    Args:
        source: the words that were read; the last is the end token.
        target: the words that were written; the last is the end token.
        weights: ``[L, H, target words, source words]``; every row sums to 1.
        step: which rows they are (`at_step`).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Weights
    step: DecoderStep = "output"

    def __post_init__(self) -> None:
        if self.weights.ndim != 4 or self.weights.shape[2:] != (len(self.target), len(self.source)):
            raise ValueError(
                f"weights of shape {self.weights.shape} for {len(self.target)} target "
                f"and {len(self.source)} source words"
            )

    def choices(self) -> list[Choice]:
        """All there is: the mean of each layer, then its heads."""
        layers, heads = self.weights.shape[:2]
        own: list[int | None] = [None, *range(heads)] if heads > 1 else [0]
        return [Choice(layer, head, self.step) for layer in range(layers) for head in own]

    def chosen(self, choice: Choice) -> Weights:
        """The matrix ``[target words, source words]`` of a layer or head.

        Raises:
            RequestError: the model has no such layer or head.
        """
        layers, heads = self.weights.shape[:2]
        if not 0 <= choice.layer < layers:
            raise RequestError(f"there is no layer {choice.layer + 1}: the model has {layers} with attention")
        if choice.head is None:
            return self.weights[choice.layer].mean(axis=0)
        if not 0 <= choice.head < heads:
            raise RequestError(f"there is no head {choice.head + 1}: a layer has {heads}")
        return self.weights[choice.layer, choice.head]


def from_prediction(prediction: Prediction, tokenizers: Tokenizers) -> Attention:
    """The attention of a prediction that was asked for with ``alignment=True``.

    Raises:
        RequestError: the prediction carries no alignment.
    """
    if prediction.alignment is None or prediction.source_tokens is None:
        raise RequestError(
            "the prediction has no alignment: ask for it with alignment=True, of a model that has "
            "attention over a source, and for a text that is not empty"
        )
    source = ids_of(prediction.source_tokens[:-1], tokenizers.source)
    target = ids_of(prediction.tokens, tokenizers.target)
    return in_words(np.asarray(prediction.alignment, dtype=float), source, target, tokenizers)


def teacher_forced(
    model: Any, tokenizers: Tokenizers, sources: Sequence[str], targets: Sequence[str]
) -> list[Attention]:
    """The attention of a model over given sentence pairs, as many and in their order.

    Raises:
        RequestError: the model has no attention over a source.
    """
    source, target = tokenizers.source.encode_batch(sources), tokenizers.target.encode_batch(targets)
    found = zip(between_ids(model, source, target), source, target, strict=True)
    return [in_words(weights, read, written, tokenizers) for weights, read, written in found]


def between_ids(
    model: Any, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[Weights]:
    """The attention of a model over given pairs of ids, teacher forced: ``[L, H, T + 1, S + 1]`` for each.

    Raises:
        RequestError: the model has no attention over a source.
    """
    if not getattr(model, "alignment_taps", None):
        raise RequestError("this model has no attention over a source")
    device = next(model.parameters()).device
    for start in range(0, len(sources), BATCH):
        part = slice(start, start + BATCH)
        batch = TWO_SIDES.collate(sources[part], targets[part]).to(device)
        for result in forced(model.eval(), batch, alignment=True):
            assert result.alignment is not None
            yield result.alignment.double().cpu().numpy()


def in_words(
    weights: Weights, source: Sequence[int], target: Sequence[int], tokenizers: Tokenizers
) -> Attention:
    """Merge ``weights [L, H, T + 1, S + 1]`` of ids without their end tokens into words."""
    source_words, source_places = words_of(tokenizers.source, source)
    target_words, target_places = words_of(tokenizers.target, target)
    merged = merge(weights, source_places, target_places)
    return Attention(tuple(source_words), tuple(target_words), merged)


def at_step(weights: Weights, step: DecoderStep) -> Weights:
    """The rows that are read as those of the target pieces.

    Where a piece is the decoder's input the model need not guess it, and in well-trained translators some
    heads align better there (Chen et al. 2020, "Shift-Att"). The end is no input; it keeps its row.

    Args:
        weights: ``[..., T + 1, S + 1]`` as the decoder made them, a row for each of its steps.
        step: ``output``: of piece t the step that foretells it, which is row t; ``input``: the step that
            reads it, which is row t + 1.
    """
    if step == "output":
        return weights
    return np.concatenate([weights[..., 1:, :], weights[..., -1:, :]], axis=-2)


def merge(weights: Weights, source_places: Sequence[int], target_places: Sequence[int]) -> Weights:
    """Sum over the source pieces of a word and average over the target pieces of a word.

    Args:
        weights: ``[..., T, S]`` between pieces.
        source_places: for each source piece the number of its word.
        target_places: the same for the target; numbers run from 0 without gaps.

    Returns:
        ``[..., target words, source words]``.
    """
    source, target = _membership(source_places), _membership(target_places)
    return (target / target.sum(axis=0)).T @ weights @ source


def _membership(places: Sequence[int]) -> Weights:
    """``[pieces, words]``: 1 where a piece belongs to a word."""
    return np.eye(max(places) + 1)[list(places)]


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[list[str], list[int]]:
    """The words that ids spell, the end token as the last, and for each id and the end its word's place.

    White space alone belongs to what comes after it. What the vocabulary cannot spell is a word
    ``<unk>``, unless it stands inside a word.
    """
    spelled, numbers = tokenizer.surface(ids).split(), tokenizer.words(ids)
    keys: list[tuple[int, int]] = []
    coming = (len(spelled), 0)
    for place in range(len(ids) - 1, -1, -1):
        if numbers[place] != NO_WORD:
            coming = (numbers[place], 0)
        elif ids[place] == tokenizer.specials.unknown and not _inside(numbers, place):
            coming = (coming[0], coming[1] - 1)
        keys.insert(0, coming)
    keys.append((len(spelled), 0))
    order = {key: place for place, key in enumerate(sorted(set(keys)))}
    labels = [*spelled, END]
    unknown = tokenizer.specials.names[tokenizer.specials.unknown]
    return [unknown if before else labels[number] for number, before in order], [order[key] for key in keys]


def _inside(numbers: Sequence[int], place: int) -> bool:
    """Whether the pieces on both sides of a place belong to one word."""
    return 0 < place < len(numbers) - 1 and numbers[place - 1] == numbers[place + 1] != NO_WORD


def ids_of(tokens: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    """Ids that are shown as ``tokens``. Ids that look alike spell alike, so the first one will do."""
    places: dict[str, int] = {}
    for i, label in enumerate(tokenizer.model.labels):
        places.setdefault(label, i)
    return [places[token] for token in tokens]


def links(weights: Weights, by: Direction = "target") -> frozenset[Link]:
    """Link words by their greatest weights, as (source, target) from 0.

    The last row and the last column are the end tokens. A word whose greatest weight is that of the other
    side's end has no link, which is how such models say NULL. Of equal weights the first wins.

    Args:
        weights: ``[target words, source words]``.
        by: ``target``: each target word is linked to the source word that it looks at most; ``source``: each
            source word to the target word that looks at it most; ``both``: the links that both give.
    """
    if by == "both":
        return links(weights, "target") & links(weights, "source")
    if by == "source":
        return frozenset((source, target) for target, source in links(weights.T, "target"))
    best = weights[:-1].argmax(axis=1)
    end = weights.shape[1] - 1
    return frozenset((int(source), target) for target, source in enumerate(best) if source != end)


def pharaoh(found: frozenset[Link]) -> str:
    """Links as text, ``0-0 1-2``, in order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(found))


def confidence(attentions: Sequence[Attention]) -> Weights:
    """How sure each head is, ``[L, H]``: the mean over target words of its greatest weight.

    The end token of the target is left out (Voita et al. 2019, section 4.1 "confidence").

    Raises:
        RequestError: there is not one target word.
    """
    rows = [a.weights[:, :, :-1].max(axis=3) for a in attentions]
    together = np.concatenate(rows, axis=2) if rows else np.zeros((0, 0, 0))
    if together.shape[2] == 0:
        raise RequestError("there is no target word to judge heads by")
    return together.mean(axis=2)


def most_confident(attentions: Sequence[Attention]) -> Choice:
    """The head with the greatest `confidence`. It need not align (`heedful.explain.error_rates`)."""
    sure = confidence(attentions)
    layer, head = np.unravel_index(int(sure.argmax()), sure.shape)
    return Choice(int(layer), int(head))
