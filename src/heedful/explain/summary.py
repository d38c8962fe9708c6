"""Summarise an explanation: one matrix, between words, and the largest weights of each row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from heedful.data.links import pharaoh
from heedful.errors import RequestError
from heedful.explain.alignment.word_alignment import (
    INPUT_STEP_SUFFIX,
    links,
    merge_subwords,
    rows_at_step,
)
from heedful.explain.attention_map import AttentionMap, BestHead
from heedful.explain.attention_sites import KINDS
from heedful.explain.drawing.matrix import N_STRONGEST, Links, Numbers, marked, on_grid, strongest_links
from heedful.explain.provenance import model_line
from heedful.tasks.model_input import SOURCE, TARGET, Axis
from heedful.text.scripts import NO_WORD, has_script_without_spaces
from heedful.text.specials import SPECIALS
from heedful.typing import JsonMapping

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

LABELLING = ("classification", "image-classification", "question-answering")
"""Tasks whose answer has its log-probability as the score."""

DIGITS = 6
"""Significant digits of a probability."""

ABOUT_ATTENTION = "Attention weights show what heads attend to; they do not explain why this is the answer."

UNKNOWN = SPECIALS.names[SPECIALS.unknown]

PIECES_ARE_WORDS = "; a script without spaces: each piece is a word"
"""What is added to the title of a matrix between words of such a script."""


@dataclass(frozen=True)
class AttentionMatrix:
    """One matrix of an explanation.

    Args:
        queries, keys: the axes of its rows and columns.
        weights: ``[rows, columns]``; each row sums to 1.
        title: description of the attention.
    """

    queries: Axis
    keys: Axis
    weights: Numbers
    title: str

    def to_words(self) -> "AttentionMatrix":
        """Return the matrix between words (`heedful.explain.alignment.word_alignment`).

        Tokens that belong to no word remain separate. The title says so if words are pieces
        (`heedful.text.scripts`).
        """
        rows, columns = words_of(self.queries)[1], words_of(self.keys)[1]
        weights = merge_subwords(self.weights, columns, rows)
        surface = "".join((*self.queries.surface, *self.keys.surface))
        note = PIECES_ARE_WORDS if has_script_without_spaces(surface) else ""
        return AttentionMatrix(word_axis(self.queries), word_axis(self.keys), weights, self.title + note)

    def strongest(self, n: int = N_STRONGEST) -> Links:
        """Return, for each row, its token and the tokens with the largest weights."""
        return strongest_links(self.queries.tokens, self.keys.tokens, self.weights, n)


def words_of(axis: Axis) -> tuple[list[str], list[int]]:
    """Return the words of an axis in order, and the word index of each token.

    A token that belongs to no word is treated as a word of its own. Words that the model reads as ``<unk>``,
    or a part of them, are marked.
    """
    labels: list[str] = []
    indices: list[int] = []
    label_index: dict[int, int] = {}
    for token, word in zip(axis.tokens, axis.words or (NO_WORD,) * len(axis.tokens), strict=True):
        if word == NO_WORD or word not in label_index:
            label_index[word] = len(labels)
            labels.append(token if word == NO_WORD else axis.surface[word])
        indices.append(label_index[word])
        if token == UNKNOWN != labels[indices[-1]] and word != NO_WORD:
            labels[indices[-1]] = marked(axis.surface[word])
    return labels, indices


def word_axis(axis: Axis) -> Axis:
    """Return the axis with words instead of tokens (`words_of`); an image is returned unchanged."""
    words, _ = words_of(axis)
    return axis if axis.grid else replace(axis, tokens=tuple(words), words=(), surface=())


def answer_probability(answer: JsonMapping, task: str) -> float | None:
    """Return the probability of a generated text or a label; None if the score is not a probability."""
    if answer.get("log_probs"):
        return rounded_probability(math.fsum(answer["log_probs"]))
    return rounded_probability(answer.get("score", 0.0)) if task in LABELLING else None


def probability_of_answer(answer: JsonMapping, task: str) -> str:
    """Return the probability of an answer as text, of a written one with its mean by token; empty if none."""
    probability = answer_probability(answer, task)
    if probability is None:
        return ""
    text = f"probability {probability_text(probability)}"
    if (n := len(answer.get("log_probs") or ())) < 2:
        return text
    mean = math.exp(min(math.fsum(answer["log_probs"]) / n, 0.0))
    return f"{text} (product of {n} probabilities; geometric mean {probability_text(mean)})"


def rounded_probability(log_prob: float) -> float | None:
    """Return a probability rounded for JSON; None for NaN."""
    return None if math.isnan(log_prob) else float(f"{math.exp(min(log_prob, 0.0)):.{DIGITS}g}")


def probabilities(values: JsonMapping) -> list[float | None]:
    """Return the probability of each part of an answer, given the values of a view of attribution.

    None of a number, and of a part whose value is infinite.
    """
    if values["unit"] == "number":
        return [None] * len(values["values"])
    return [None if value is None else _probability(value, values["unit"]) for value in values["values"]]


def _probability(value: float, unit: str) -> float:
    """Return the probability with these log-odds or this log-probability, rounded for JSON."""
    log_prob = -math.log1p(math.exp(-value)) if unit == "log-odds" and value > -700 else value
    return float(f"{math.exp(min(log_prob, 0.0)):.{DIGITS}g}")


def probability_text(probability: float) -> str:
    """Format a probability with four decimal places, or in scientific notation if it is smaller."""
    return f"{probability:.4f}" if probability >= 1e-4 or probability == 0 else f"{probability:.1e}"


def facts_of(explanation: "Explanation") -> str:
    """Return a line with the model, the probability of the answer if it has one, and the notes on it."""
    probability = probability_of_answer(explanation.answer, explanation.task)
    facts = [f"run {explanation.run} ({explanation.task})"]
    if explanation.provenance:
        facts = [f"{model_line(explanation.run, explanation.provenance)} ({explanation.task})"]
    if probability:
        facts.append(probability.replace("probability", "probability of the answer:", 1))
    return "; ".join([*facts, *explanation.answer.get("notes", ())])


def summary_matrix(explanation: "Explanation", kind: str | None = None) -> AttentionMatrix:
    """Return the mean over all heads and layers of a kind of attention, or the best known alignment.

    Without ``kind``, this is cross-attention if there is some, and of it the head with the best known
    alignment (`heedful.explain.alignment.best_head`) if there is one; otherwise attention within a side. Maps
    whose sides differ from those of the last map of the kind are ignored.

    Raises:
        RequestError: there are no maps, or none of that kind.
    """
    kinds = {attention_map.kind for attention_map in explanation.maps}
    available = [kind for kind in reversed(KINDS) if kind in kinds]
    if not available or (kind is not None and kind not in available):
        missing = f"no {kind} attention" if available else "no attention"
        raise RequestError(f"the explanation contains {missing}")
    selected_kind = kind or available[0]
    if kind is None and selected_kind == "cross" and explanation.best is not None:
        return _best_head_matrix(explanation, explanation.best)
    last = [attention_map for attention_map in explanation.maps if attention_map.kind == selected_kind][-1]
    maps = [
        attention_map
        for attention_map in explanation.maps
        if (attention_map.kind, attention_map.queries, attention_map.keys)
        == (selected_kind, last.queries, last.keys)
    ]
    return AttentionMatrix(
        explanation.axes[last.queries], explanation.axes[last.keys], _mean_weights(maps), _title(maps)
    )


def _mean_weights(maps: Sequence[AttentionMap]) -> Numbers:
    """Return the mean over all heads, accumulated head by head to save memory."""
    total = np.zeros(maps[0].weights.shape[1:])
    for attention_map in maps:
        for weights in attention_map.weights:
            total += weights
    return total / sum(len(attention_map.heads) for attention_map in maps)


def _best_head_matrix(explanation: "Explanation", best: BestHead) -> AttentionMatrix:
    """Return the matrix of the head, or of the mean of a layer, with the best known alignment."""
    (attention_map,) = (each for each in explanation.maps if each.tap == best.tap)
    if best.head is None:
        weights, name = attention_map.weights.mean(axis=0, dtype=np.float64), "mean of its heads"
    else:
        weights, name = attention_map.head(best.head).astype(np.float64), f"head {best.head + 1}"
    if best.step == "input":
        name += INPUT_STEP_SUFFIX
    title = f"{kind_name(attention_map)}: layer {attention_map.layer + 1}, {name} (best known alignment)"
    axes = explanation.axes[attention_map.queries], explanation.axes[attention_map.keys]
    return AttentionMatrix(*axes, rows_at_step(weights, best.step), title)


NAMES = {"self": "self-attention", "causal": "causal self-attention", "cross": "cross-attention"}
PART = "causal self-attention from target to source, rows rescaled to sum 1"


def kind_name(attention_map: AttentionMap) -> str:
    """Return the kind of attention of a map, for titles."""
    return PART if attention_map.is_part else NAMES[attention_map.kind]


def _title(maps: Sequence[AttentionMap]) -> str:
    name = kind_name(maps[0])
    layers = ", ".join(str(attention_map.layer + 1) for attention_map in maps)
    heads = sorted({head + 1 for attention_map in maps for head in attention_map.heads})
    if len(maps) == 1 and len(heads) == 1:
        return f"{name}: layer {layers}, head {heads[0]}"
    head_text = f"head {heads[0]}" if len(heads) == 1 else f"{len(heads)} heads"
    layer_text = f"layer {layers}" if len(maps) == 1 else f"{len(maps)} layers"
    return f"{name}: mean of {layer_text}, {head_text}"


def word_alignment(matrix: AttentionMatrix) -> str:
    """Return the word links of cross-attention in Pharaoh format: ``0-0 1-2``, source word first.

    Both sides end with their end token. End tokens, and white space before them, are not words; a target word
    whose largest weight is at the end of the source has no link (see `links`).

    Args:
        matrix: a matrix between tokens.
    """
    return pharaoh(
        links(merge_subwords(matrix.weights, _word_places(matrix.keys), _word_places(matrix.queries)))
    )


def _word_places(axis: Axis) -> list[int]:
    """Return the word index of each token; tokens that belong to no word get the index of the end."""
    indices = axis.words or range(len(axis.tokens))
    return [len(axis.surface) if index == NO_WORD else index for index in indices]


def alignment_of(explanation: "Explanation") -> tuple[str, str] | None:
    """Return what a word alignment is by, and `word_alignment` of `summary_matrix`.

    None without a source text and a target text. Example:
    ``("word alignment by attention, layer 3, head 1 (best known alignment)", "0-0 1-2")``
    """
    axes = explanation.axes
    if not {SOURCE, TARGET} <= axes.keys() or axes[SOURCE].grid is not None:
        return None
    if not any(each.kind == "cross" and each.queries == TARGET for each in explanation.maps):
        return None
    matrix = summary_matrix(explanation)
    return f"word alignment by attention, {matrix.title.partition(': ')[2]}", word_alignment(matrix)


def patch_attention(matrix: AttentionMatrix, row: int | None = None) -> Numbers:
    """Return attention to image patches, ``[rows, columns]``.

    Args:
        matrix: a matrix with patches as columns.
        row: index of the query; None: the class token if there is one, otherwise the mean of all rows.

    Raises:
        ValueError: the keys are not image patches.
    """
    if row is None and matrix.queries.before:
        row = 0
    return on_grid(matrix.weights.mean(axis=0) if row is None else matrix.weights[row], matrix.keys)
