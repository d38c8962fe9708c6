"""An input as explanations need it: the batch, its axes, the answer, and what the model predicts.

Each task prepares one (`heedful.tasks.base.Task.model_input`):

| task | axes | prediction targets |
|---|---|---|
| translation, summarisation | source, target, prefix | every target token, and the end token |
| the same with a language model | input: ``<s> x <sep> y </s>`` | every token of y, and the end token |
| language modelling | input: prompt and completion | every token but the first; the prompt's are given |
| masked language modelling, also of pairs | input: ``<cls> a <sep> b <sep>`` | the token at each mask |
| classification, also of pairs | input: ``<cls> a <sep> b <sep>`` | the class |
| the same with a language model | input: ``</s> a </s> b </s>`` | the class |
| regression | as in classification | the value (no probability) |
| sentence embedding | input: ``<cls> a <sep>`` | its similarity to the second text (no probability) |
| tagging | input: ``<cls> x <sep>`` | the tag of each word, at its first token |
| question answering | input: ``<cls> a <sep> b <sep>`` | the first and last token of the answer |
| image classification | input: patches | the class |
| segmentation | input: patches | the class of each patch |
| captioning | source: patches, target, prefix | every token of the caption, and the end token |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.data.images import MODES
from heedful.decoding.config import DecodingConfig
from heedful.errors import RequestError, type_name
from heedful.models.base import Model
from heedful.nn.layout import Tokens
from heedful.objectives.classification import class_logits
from heedful.tasks.generation.generator import CHUNK
from heedful.tasks.prediction import GIVEN, Prediction, TaskInput
from heedful.tasks.task_info import Columns
from heedful.text.scripts import NO_WORD
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import surface_words, with_original_words

SOURCE, TARGET, PREFIX, INPUT = "source", "target", "prefix", "input"
"""Names of axes. Encoder-decoder models: the encoder input, the decoder output, and the decoder input (the
output shifted by one). Other models: the input.
"""

INSERTED = frozenset(range(len(SPECIALS))) - {SPECIALS.unknown}
"""Special tokens that never occur in a text; they separate texts."""


@dataclass(frozen=True)
class Axis:
    """The tokens along one axis of an attention map.

    Args:
        tokens: as they are displayed, including special tokens.
        words: the index of the word that each token belongs to, from 0 without gaps; -1 for none. Special
            tokens inserted by heedful belong to no word; ``<unk>`` is part of the user's text and counts as
            a word.
        surface: the words.
        grid: rows and columns if the tokens are image patches, in row-major order.
        before: number of tokens before the patches (a class token).
        image: the image as a PNG, in the size that the model reads.
    """

    tokens: tuple[str, ...]
    words: tuple[int, ...] = ()
    surface: tuple[str, ...] = ()
    grid: tuple[int, int] | None = None
    before: int = 0
    image: bytes | None = None


@dataclass(frozen=True)
class AnswerOptions:
    """Options for the answer that is explained.

    Args:
        decoding: decoding settings that replace those of the recipe, or None.
        target: a given answer instead of a predicted one: a text for tasks that generate text, a label for
            classification; or None.
        alternative: index of the predicted answer; 0 is the best.
    """

    decoding: DecodingConfig | None = None
    target: str | None = None
    alternative: int = 0

    def check(self) -> None:
        """Check that not both a target and an alternative are requested.

        Raises:
            RequestError: they are.
        """
        if self.target is not None and self.alternative:
            raise RequestError(
                f"alternative={self.alternative} is not supported if a target is given (it selects a "
                "predicted answer); remove one of them"
            )

    def refuse_target(self, task: str, instead: str) -> None:
        """Check that no target is given, for tasks that do not support one.

        Raises:
            RequestError: a target is given; the message ends with ``instead``.
        """
        if self.target is not None:
            raise RequestError(f"task {task} does not support a target ({instead})")

    def given_answer(self, tokenizer: Tokenizer, ids: Sequence[int]) -> Prediction:
        """Return the target, whose ids are given, as a prediction without scores."""
        assert self.target is not None
        return Prediction(self.target, tokens=tokenizer.tokens(ids), notes=(GIVEN,))


@dataclass(frozen=True)
class PredictionTargets:
    """What a model predicts for an input: n targets with C possible answers each, and the answers.

    Args:
        axis: name of the axis.
        positions: the token of the axis that each target is about; ``()`` if they are about the whole input.
        answers: the index of each answer, ``[n]``.
        logits: maps hidden states ``[T, d]`` and their batch to the logits of all targets in order, in chunks
            ``[m, C]``. A batch of several variants of the input has the targets of the first variant, then
            those of the second, and so on.
        name: maps (question i, answer index c) to the text shown for the answer.
        n_given: number of targets, from the first, whose answers were given (a prompt) instead of predicted.
        are_tokens: whether the answers are tokens of the axis, or replace its mask tokens.
        are_positions: whether the answers are positions of the axis.
        numbers: maps hidden states and their batch to the answers ``[n]`` if they are numbers, which have no
            probability.
        labels: all possible answers, if there is one question with one answer: which class the input belongs
            to.
    """

    axis: str
    positions: tuple[int, ...]
    answers: Int[Tensor, " n"]
    logits: Callable[[Tensor, Batch], Iterator[Tensor]]
    name: Callable[[int, int], str]
    n_given: int = 0
    are_tokens: bool = False
    are_positions: bool = False
    numbers: Callable[[Tensor, Batch], Tensor] | None = None
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def names(self) -> list[str]:
        """Texts shown for the answers."""
        return [self.name(i, answer) for i, answer in enumerate(self.answers.tolist())]

    def scores(self, hidden: Float[Tensor, "T d"], batch: Batch) -> Float[Tensor, " n"]:
        """Return the natural log-probability of each answer, or the values if they are numbers."""
        if self.numbers is not None:
            return self.numbers(hidden, batch)
        scores, start = [], 0
        for logits in self.logits(hidden, batch):
            answers = self.answers[start : start + len(logits)].to(logits.device)
            scores.append(logits.float().log_softmax(-1).gather(1, answers[:, None])[:, 0])
            start += len(logits)
        return torch.cat(scores)

    @classmethod
    def of_tokens(
        cls,
        model: Model,
        tokenizer: Tokenizer,
        batch: Batch,
        axis: str,
        positions: Sequence[int],
        n_given: int = 0,
    ) -> "PredictionTargets":
        """Return one target for each of these positions: the target token of the batch there."""
        return cls(
            axis,
            tuple(positions),
            batch.targets,
            chunked_logits(model.heads["token"]),
            lambda i, token: tokenizer.tokens([token])[0],
            n_given,
            are_tokens=True,
        )

    @classmethod
    def of_class(cls, model: Model, labels: Sequence[str], label: str) -> "PredictionTargets":
        """Return the question which class the input belongs to, with ``label`` as the answer."""
        heads = model.heads
        return cls(
            INPUT,
            (),
            torch.tensor([labels.index(label)]),
            lambda hidden, batch: iter([class_logits(hidden, heads, batch.inputs.layout)]),
            lambda i, index: labels[index],
            labels=tuple(labels),
        )

    @classmethod
    def of_number(cls, predict_number: Callable[[Tensor, Batch], Tensor], text: str) -> "PredictionTargets":
        """Return the question for a number about the whole input.

        Args:
            predict_number: maps hidden states ``[T, d]`` and their batch to the number, ``[1]``.
            text: the number as it is shown.
        """
        answer = torch.zeros(1, dtype=torch.int64)
        return cls(
            INPUT, (), answer, lambda hidden, batch: iter(()), lambda i, n: text, numbers=predict_number
        )


def chunked_logits(head: nn.Module) -> Callable[[Tensor, Batch], Iterator[Tensor]]:
    """Return a function that yields the logits of the question positions in chunks, to limit memory."""
    return lambda hidden, batch: (head(part) for part in batch.picked(hidden).split(CHUNK))


@dataclass(frozen=True)
class ModelInput:
    """An input in the form the model reads, the answer of the run, and the targets that it answers.

    Args:
        batch: one sequence.
        axes: by name.
        answer: what is explained: the prediction, or the given target, as its notes state.
        targets: what the model predicts for the input, with the answers.
    """

    batch: Batch
    axes: Mapping[str, Axis]
    answer: Prediction
    targets: PredictionTargets


def running_text_input(
    model: Model,
    tokenizer: Tokenizer,
    text: Sequence[int],
    first: int,
    first_answer: int,
    answer: Prediction,
) -> ModelInput:
    """Prepare a text for a language model; the targets are its tokens from ``first`` on.

    Args:
        model: a language model.
        tokenizer: of the text.
        text: ids.
        first: the first token that is a question.
        first_answer: the first token of the answer; the answers before it are given.
        answer: the answer.
    """
    positions = range(first, len(text))
    batch = Batch(
        Tokens.of([text]),
        torch.tensor([text[position] for position in positions], dtype=torch.int64),
        rows=torch.tensor([position - 1 for position in positions], dtype=torch.int64),
    )
    targets = PredictionTargets.of_tokens(
        model, tokenizer, batch, INPUT, positions, n_given=first_answer - first
    )
    return ModelInput(batch, {INPUT: text_axis(tokenizer, text)}, answer, targets)


def ids_in(batch: Batch) -> list[int]:
    """Return the token ids of the one sequence in a batch."""
    assert isinstance(batch.inputs, Tokens)
    return batch.inputs.ids.tolist()


def refuse_empty(*ids: Sequence[int]) -> None:
    """Check that an input has at least one token.

    Raises:
        RequestError: all sequences are empty.
    """
    if not any(map(len, ids)):
        raise RequestError("the input must not be empty")


# Inputs -------------------------------------------------------------------------------------------------


def text_in(task_input: TaskInput, task: str) -> str:
    """Return an input if it is a text.

    Args:
        task_input: the input.
        task: name of the task, for the message.

    Raises:
        RequestError: if it is not.
    """
    if not isinstance(task_input, str):
        raise RequestError(f"the input of task {task} must be a text, got {_form_of(task_input)}")
    return task_input


def texts_in(task_input: TaskInput, columns: Columns, task: str) -> list[str]:
    """Return the text in an input, or the texts that are read together, as a list.

    Args:
        task_input: the input.
        columns: those of the task.
        task: its name, for the message.

    Raises:
        RequestError: if the input is not texts, or their number is different.
    """
    keys = columns.inputs
    if not isinstance(task_input, str):
        keys += columns.optional_inputs
    if len(keys) == 1:
        return [text_in(task_input, task)]
    texts: list[str] = []
    if isinstance(task_input, Sequence) and not isinstance(task_input, str | bytes):
        texts = list(task_input)
    if len(texts) != len(keys) or not all(isinstance(text, str) for text in texts):
        raise RequestError(
            f"the input of task {task} must be {len(keys)} texts ({', '.join(keys)}), got "
            f"{_form_of(task_input)}; separate them by a tab, or pass a pair"
        )
    return texts


def _form_of(task_input: TaskInput) -> str:
    """Describe an input in messages."""
    if isinstance(task_input, str):
        return "one text"
    if isinstance(task_input, Sequence) and all(isinstance(text, str) for text in task_input):
        return (
            "a list of one text; give the text itself" if len(task_input) == 1 else f"{len(task_input)} texts"
        )
    return type_name(task_input)


# Axes ---------------------------------------------------------------------------------------------------


def text_axis(tokenizer: Tokenizer, ids: Sequence[int], texts: Sequence[str] = ()) -> Axis:
    """Return the axis of one or more texts, with the special tokens around and between them.

    Args:
        tokenizer: tokenizer of the ids.
        ids: including special tokens.
        texts: the original texts, if known; unknown words are then shown in their original form.
    """
    words: list[int] = []
    surface: list[str] = []
    segments = [(is_special, list(group)) for is_special, group in groupby(ids, key=INSERTED.__contains__)]
    n_texts = sum(not is_special for is_special, _ in segments)
    remaining_texts = iter(texts if len(texts) == n_texts else [""] * n_texts)
    for is_special, segment in segments:
        if is_special:
            words += [NO_WORD] * len(segment)
            continue
        segment_words, word_indices = surface_words(tokenizer, segment)
        end = word_indices[-1]  # the end token, which `surface_words` appends to the words
        words += [NO_WORD if index == end else len(surface) + index for index in word_indices[:-1]]
        surface += with_original_words(segment_words[:end], next(remaining_texts))
    return Axis(tuple(tokenizer.tokens(ids)), tuple(words), tuple(surface))


def words_axis(
    tokenizer: Tokenizer, all_ids: Sequence[int], words: Sequence[str], ids: Sequence[Sequence[int]]
) -> Axis:
    """Return the axis of a list of words between two special tokens, given the ids of each word."""
    word_indices = [index for index, ids_of_word in enumerate(ids) for _ in ids_of_word]
    return Axis(tuple(tokenizer.tokens(all_ids)), (NO_WORD, *word_indices, NO_WORD), tuple(words))


def patches_axis(grid: tuple[int, int], before: int, pixels: UInt8[np.ndarray, "C H W"]) -> Axis:
    """Return the axis of an image: a class token if any, then patches named ``row,column`` from 1."""
    from PIL import Image

    rows, columns = grid
    patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
    tokens = (*SPECIALS.names[SPECIALS.classify : SPECIALS.classify + 1] * before, *patches)
    content, is_grey = BytesIO(), MODES[len(pixels)] == "L"
    Image.fromarray(pixels[0] if is_grey else np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(
        content, "png"
    )
    return Axis(tokens, (NO_WORD,) * len(tokens), grid=grid, before=before, image=content.getvalue())
