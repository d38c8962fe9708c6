"""Word alignments of predictions: pairs of a source word and an output word, by the attention of one head.

Words are separated by white space, in the source as it was given and in the output as it is returned, so
that word i is ``text.split()[i]``. The model reads source and output once more, teacher forced, and each
output word is linked to the source word with the largest weight (`heedful.explain.alignment.word_alignment`),
unless that is the end token or its attention is near uniform (`NEAR_UNIFORM`).

If the tokens of a text cannot be assigned to its words (`heedful.text.words.word_of_each_id`), this pass
reads the words encoded one by one instead.

| head | if |
|---|---|
| the requested one | ``alignment_head`` |
| the stored or the supervised one | `heedful.explain.alignment.best_head` |
| the one that agrees best with occlusion | otherwise: `heedful.explain.alignment.occlusion_agreement` |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from heedful.checks import whole_number
from heedful.errors import RequestError
from heedful.explain.alignment.best_head import ShownHead, known_head, n_heads_by_layer
from heedful.explain.alignment.occlusion_agreement import has_validation_pairs, select_by_occlusion
from heedful.explain.alignment.word_alignment import (
    STEPS,
    HeadChoice,
    Weights,
    attention_of_head,
    links,
    merge_subwords,
    rows_at_step,
)
from heedful.models.base import Model
from heedful.runs.loading import LoadedRun
from heedful.tasks.generation.output_constraints import OutputConstraints
from heedful.tasks.generation.sequence_formats import ConcatenatedFormat, EncoderDecoderFormat
from heedful.tasks.generation.text_generation import Captioner, Translator
from heedful.tasks.inputs.texts import join_notes
from heedful.tasks.metrics.alignment import Link
from heedful.tasks.prediction import Prediction, Predictor, Progress, TaskInput, as_text
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import word_ids, word_of_each_id

NEAR_UNIFORM = 0.9
"""Entropy of the attention of an output word over the source tokens, divided by its maximum (the logarithm of
their number), from which the word gets no pair.

Of the heads of ``phrasebook-de``, on its test set with gold links: words below 0.1 are linked correctly in
60 to 100 % of cases, from 0.5 to 0.8 in 20 to 60 %; from 0.9 in less than 10 % for single heads, which is
chance for sentences of eight words. The best head has no word above 0.9."""

Head: TypeAlias = HeadChoice | Sequence[int | str | None]
"""A head as Python gives it: a `HeadChoice`, or its layer, its head (None: the mean of the layer's heads) and
its step, if that is not ``output``; counted from 0."""

_selected: WeakKeyDictionary[Model, ShownHead] = WeakKeyDictionary()
"""The heads that were selected by occlusion, by model: each is selected once per process."""


class AligningPredictor:
    """Predicts as another predictor does, and adds the word alignment of each prediction.

    Args:
        predictor: generates the texts.
        head: the head whose attention is used, and why.
    """

    def __init__(self, predictor: Translator, head: ShownHead) -> None:
        self.predictor, self.head = predictor, head

    def predict(
        self,
        inputs: Sequence[TaskInput],
        *,
        first: int = 0,
        constraints: Sequence[OutputConstraints] = (),
    ) -> list[Prediction]:
        """See `Predictor`; a text without words, on either side, has no pairs."""
        predictor, choice = self.predictor, self.head.choice
        predictions = predictor.predict(inputs, first=first, constraints=constraints)
        results = [replace(prediction, alignment=[]) for prediction in predictions]
        pairs: dict[int, tuple[_Side, _Side]] = {}
        for i, (task_input, prediction) in enumerate(zip(inputs, predictions, strict=True)):
            pair = self._pair(as_text(task_input), prediction)
            if all(side.has_words for side in pair):
                pairs[i] = pair
        sequence_format = predictor.sequence_format
        assert isinstance(sequence_format, EncoderDecoderFormat | ConcatenatedFormat)
        sources, targets = ([pair[side].ids for pair in pairs.values()] for side in (0, 1))
        attentions = attention_of_head(predictor.model, sources, targets, sequence_format, choice)
        for (i, pair), weights in zip(pairs.items(), attentions, strict=True):
            word_links, uniform, n_words = word_links_of(rows_at_step(weights, choice.step), *pair)
            note = None
            if 2 * uniform > n_words:
                word_links = []
                of_words = f"{uniform} of {n_words} word{'s' * (n_words > 1)}"
                note = f"attention of {choice} is near uniform for {of_words}; no alignment"
            results[i] = replace(
                predictions[i], alignment=word_links, notes=join_notes(predictions[i].notes, note)
            )
        return results

    def _pair(self, text: str, prediction: Prediction) -> "tuple[_Side, _Side]":
        """Return both sides of a prediction as the model reads them."""
        predictor = self.predictor
        longest, tokenizer = predictor.max_source, predictor.source_tokenizer
        source = _Side.of(tokenizer, tokenizer.encode(text)[:longest], text.split(), longest)
        limit = predictor.sequence_format.max_target_length(len(source.ids))
        # The end token is generated, but not read.
        n_read = None if limit is None else max(0, limit - 1)
        target = _Side.of(predictor.tokenizer, prediction.ids, prediction.text.split(), n_read)
        return source, target


@dataclass(frozen=True)
class _Side:
    """The tokens of a text, and the index of the word of each, if it has one."""

    ids: Sequence[int]
    words: Sequence[int | None]

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, ids: Sequence[int], words: Sequence[str], longest: int | None
    ) -> "_Side":
        """Return the side, with at most ``longest`` tokens."""
        indices = word_of_each_id(tokenizer, ids, words)
        if indices is None:
            by_word = word_ids(tokenizer, words)
            ids = [i for word in by_word for i in word]
            indices = [index for index, word in enumerate(by_word) for _ in word]
        return cls(ids[:longest], indices[:longest])

    @property
    def has_words(self) -> bool:
        """Whether a token belongs to a word."""
        return any(index is not None for index in self.words)

    def positions(self) -> tuple[list[int], list[int], list[int]]:
        """Return the tokens that belong to words, the word of each among those that have tokens, and these.

        The end token is the last token, and the last word.
        """
        positions = [position for position, index in enumerate(self.words) if index is not None]
        present = sorted({index for index in self.words if index is not None})
        number = {index: n for n, index in enumerate(present)}
        numbers = [number[index] for index in self.words if index is not None]
        return [*positions, len(self.ids)], [*numbers, len(present)], present


def word_links_of(weights: Weights, source: _Side, target: _Side) -> tuple[list[Link], int, int]:
    """Return the pairs of a source word and an output word, without words whose attention is near uniform.

    Args:
        weights: ``[T + 1, S + 1]`` between tokens.
        source: the source.
        target: the output.

    Returns:
        The pairs, sorted; the number of output words whose attention is near uniform; and of all.
    """
    rows, target_numbers, target_words = target.positions()
    columns, source_numbers, source_words = source.positions()
    # Over tokens, not words: a word of many tokens would seem to be attended to by uniform attention.
    over_tokens = merge_subwords(weights[rows], range(weights.shape[1]), target_numbers)[:-1]
    is_uniform = normalised_entropy(over_tokens) >= NEAR_UNIFORM
    between_words = merge_subwords(weights[rows][:, columns], source_numbers, target_numbers)
    kept = sorted((s, t) for s, t in links(between_words) if not is_uniform[t])
    pairs = [(source_words[s], target_words[t]) for s, t in kept]
    return pairs, int(is_uniform.sum()), len(target_words)


def normalised_entropy(rows: Weights) -> NDArray[np.float64]:
    """Return ``- sum_s w_s ln w_s / ln S`` of each row: 1 if it is uniform, 0 if it has one weight."""
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return -(shares * logarithms).sum(axis=1) / np.log(rows.shape[1])


def aligning(
    run: LoadedRun, predictor: Predictor, head: Head | None = None, progress: Progress = lambda n: None
) -> AligningPredictor:
    """Return a predictor that adds word alignments.

    Args:
        run: the run.
        predictor: its predictor.
        head: the head to use; None: the best known one, or the one that agrees best with occlusion.
        progress: called with the number of validation rows just read, to select that one.

    Raises:
        RequestError: the task has no source text, the model has no attention over it or no such head, or no
            head can be selected.
    """
    if isinstance(predictor, Captioner):
        raise RequestError(
            "alignment: the source is an image, which has no words; use attention for the weights over its "
            "patches"
        )
    if not isinstance(predictor, Translator):
        raise RequestError(f"alignment: task {run.recipe.task.kind} does not generate a text for a text")
    n_heads = n_heads_by_layer(run)
    if not n_heads:
        raise RequestError("alignment: this model has no attention from target to source")
    if head is not None:
        choice = _checked(head)
        _check_exists(choice, n_heads)
        return AligningPredictor(predictor, ShownHead(choice, "requested"))
    selected = known_head(run) or _selected.get(run.model)
    if selected is None:
        selected = _selected[run.model] = select_by_occlusion(run, progress)
    return AligningPredictor(predictor, selected)


def can_align(run: LoadedRun, predictor: Predictor) -> bool:
    """Return whether `aligning` finds a head: one is known, or the data that select one are here."""
    if not isinstance(predictor, Translator) or not n_heads_by_layer(run):
        return False
    return known_head(run) is not None or has_validation_pairs(run)


def _checked(head: Head) -> HeadChoice:
    """Return a head that was given in Python.

    Raises:
        RequestError: it has another form.
    """
    if isinstance(head, HeadChoice):
        return head
    parts = [*head] if isinstance(head, list | tuple) else []
    step = parts[2] if len(parts) == 3 else "output"
    if len(parts) not in (2, 3) or step not in STEPS:
        raise RequestError(
            f"alignment_head: expected (layer, head) or (layer, head, step), counted from 0, with step "
            f"{' or '.join(STEPS)}, got {head!r}"
        )
    layer = whole_number("alignment_head", parts[0], least=0)
    number = None if parts[1] is None else whole_number("alignment_head", parts[1], least=0)
    return HeadChoice(layer, number, "input" if step == "input" else "output")


def _check_exists(choice: HeadChoice, n_heads: Sequence[int]) -> None:
    """Check that the model has a head.

    Raises:
        RequestError: it does not.
    """
    if not 0 <= choice.layer < len(n_heads):
        raise RequestError(
            f"alignment head: layer must be between 1 and {len(n_heads)} (layers with attention over the "
            f"source, counted from 1), got {choice.layer + 1}"
        )
    n = n_heads[choice.layer]
    if choice.head is not None and not 0 <= choice.head < n:
        raise RequestError(
            f"alignment head: head must be between 1 and {n} (counted from 1), got {choice.head + 1}"
        )
