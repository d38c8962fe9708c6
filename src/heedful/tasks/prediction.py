"""Predictions, their options, and the interface of predictors."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar

from heedful.errors import RequestError, WorkError, type_name
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from heedful.data.images import LazyImage
    from heedful.decoding.config import DecodingConfig
    from heedful.decoding.protocol import OnStep

BATCH_TOKENS = 8192
"""Maximum number of tokens of a batch outside training, with padding and all hypotheses."""

VERSION = 2
"""Version of the JSON object of a prediction; entries are only added to it."""

HELD_BACK = "less probable than"
"""The beginning of the note of an answer that is held back."""

BELOW_THRESHOLD, EMPTY_INPUT = "below threshold", "empty input"
"""Reasons for which an answer is held back (`heedful.tasks.abstaining`)."""

EMPTY = "the input is empty"
"""The beginning of the note of an input that has no answer for this reason."""

GIVEN = "given, not predicted by the model"
"""Note on an answer that was given as the target of an explanation."""

EMPTY_QUESTION = "the question is empty"
"""The note of an input whose passage is not empty."""


def content_of(text: str) -> str:
    """Return a text that is read whole; empty if it is white space alone, as an empty cell often is.

    Running text (of language models, and texts that are scored) is read as it is.
    """
    return "" if text.isspace() else text


ImageInput: TypeAlias = "str | Path | bytes | LazyImage | np.ndarray | Image"
"""An image: its path, the bytes of a file, pixels, or an image of Pillow (see `LazyImage.of`)."""

TaskInput: TypeAlias = "str | Sequence[str] | ImageInput"
"""An input of a task: a text, a tuple of texts that are read together, a list of words, or an image."""

Progress = Callable[[int], None]
"""Called with the number of inputs just done."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of a prediction. A task reads those that it supports (`TaskInfo.options`).

    Args:
        n_best: number of answers to an input, of tasks that have several without a search; None: one.
        max_new_tokens: the most tokens of a completion; None: as the recipe says.
        stop: texts at which a completion ends; None: as the recipe says.
        prefix: text before every prompt of a language model; None: no text.
        regex: regular expression that completions of a language model match; None: none.
        json_schema: JSON schema of completions of a language model; None: none.
        gap: text for a mask in the inputs of a masked language model; None: ``[MASK]``.
        words: how a tagger splits a text into words: at ``blanks``, or as ``raw`` text, at word boundaries
            (`heedful.tasks.inputs.words.split_text`); None: at blanks.
        decoding: of tasks that generate text; None: as the recipe says.
        attention: whether to return the attention over the source too, of models that have a source.
        progress: called with the number of inputs just done.
        on_step: of tasks that generate text, called after every step; returns the numbers of the inputs whose
            answer nobody waits for any more (`heedful.decoding.protocol.Request`).
    """

    n_best: int | None = None
    max_new_tokens: int | None = None
    stop: Sequence[str] | None = None
    prefix: str | None = None
    regex: str | None = None
    json_schema: JsonMapping | None = None
    gap: str | None = None
    words: Literal["blanks", "raw"] | None = None
    decoding: "DecodingConfig | None" = None
    attention: bool = False
    progress: Progress = lambda n: None
    on_step: "OnStep | None" = None


DEFAULT_OPTIONS = PredictOptions()


@dataclass(frozen=True, repr=False)
class Prediction:
    """One answer, with what is needed to recompute its score.

    Args:
        text: the answer.
        score: what hypotheses were ranked by: the sum of ``log_probs`` after length and coverage
            penalties (see `heedful.decoding.scoring`); of minimum Bayes risk decoding, the expected utility,
            0 to 100. None: the input is empty, so there is no answer.
        tokens: the pieces that were generated, the end token not among them.
        log_probs: natural log-probabilities, one for each generated token; one more than ``tokens``
            when the model ended by itself, for the end token.
        alternatives: the next best answers, best first; all texts differ.
        source_tokens: the pieces that the model read, if attention was requested.
        attention: weights over the source, ``[layer][head][target token][source token]``; the last
            target row belongs to the end token.
        notes: what is unusual, such as an input that was truncated or has unknown words.
        error: why there is no answer (the input could not be read); ``text`` is then empty.
        grid: rows and columns of patches, if attention over an image was requested: its tokens are the
            patches, row by row.
        follows: how probable it is that the second text of a pair follows the first, of a masked language
            model that learned it.
        finished: of a generated text, whether the model ended it; False: it was cut at its maximum length.
        alignment: pairs of a source word and an output word, from 0, if word alignments were requested
            (`heedful.explain.alignment.predictions`); alternatives have none.
        ids: the numbers of ``tokens`` in the vocabulary; equal pieces may have several. Not part of JSON.
        cut: how many tokens of the input were truncated. JSON has it in the notes.
        distribution: of a classifier, all labels and the log-probability of each, ``[C]``.
        answered: whether ``text`` is the answer of the model, not a text in place of it
            (`heedful.tasks.abstaining`).
        held_back: why the answer, or a part of it, is held back: ``below threshold`` or ``empty input``.
        suggestion: the answer that is held back because it is below a threshold, as ``output`` would have it.
    """

    text: str
    score: float | None = 0.0
    tokens: list[str] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    alternatives: list["Prediction"] = field(default_factory=list)
    source_tokens: list[str] | None = None
    attention: list[list[list[list[float]]]] | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None
    grid: tuple[int, int] | None = None
    follows: float | None = None
    finished: bool | None = None
    alignment: list[tuple[int, int]] | None = None
    ids: tuple[int, ...] = field(default=(), repr=False, compare=False)
    cut: int = 0
    distribution: "tuple[Sequence[str], NDArray[np.float32]] | None" = field(
        default=None, repr=False, compare=False
    )
    answered: bool = field(default=True, repr=False)
    held_back: str | None = None
    suggestion: object = None

    has_score: ClassVar[bool] = True
    """Whether ``score`` is used."""

    def __repr__(self) -> str:
        """Show what the answer has; of lists, only how long they are."""
        shown = []
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not entry.repr or value is None or (entry.name != "text" and not value):
                continue
            shown.append(f"{entry.name}=" + (f"<{len(value)}>" if isinstance(value, list) else repr(value)))
        return f"{type(self).__name__}({', '.join(shown)})"

    def label_probabilities(self) -> dict[str, float]:
        """Return the probability of every label; nothing if there is no answer.

        Raises:
            RequestError: the task predicts no labels.
        """
        if self.distribution is None:
            if self.error is not None or self.score is None:
                return {}
            raise RequestError(
                "label_probabilities: the task predicts no labels; of a generated text, log_probs has the "
                "log-probability of each token"
            )
        labels, log_probs = self.distribution
        return {label: math.exp(log_prob) for label, log_prob in zip(labels, log_probs.tolist(), strict=True)}

    def image_file(self) -> bytes | None:
        """Return the answer as an image file, if it is an image (`TaskInfo.predicts_images`)."""
        return None

    @property
    def is_empty(self) -> bool:
        """Whether there is no answer because the input is empty."""
        return any(note.startswith(EMPTY) for note in self.notes)

    @property
    def confidence(self) -> float | None:
        """The probability of the answer; None if it has none that could be compared with a threshold."""
        if self.distribution is None or self.score is None:
            return None
        return math.exp(min(self.score, 0.0))

    def without_answer(self, otherwise: str | None) -> Self:
        """Return the prediction of an empty input: its notes, and a text in place of the answer, if any."""
        return type(self)(
            otherwise or "",
            score=None,
            notes=self.notes,
            answered=False,
            held_back=EMPTY_INPUT,
            alignment=self.alignment,
        )

    def above(self, threshold: float, otherwise: str | None) -> Self:
        """Return the answer if its probability is not less than a threshold.

        Args:
            threshold: the least probability.
            otherwise: the text in place of a less probable answer; None: none.
        """
        if self.confidence is None or self.confidence >= threshold:
            return self
        note = f"{HELD_BACK} {threshold:g}: {self.text!r} ({self.confidence:.4g})"
        return replace(
            self,
            text=otherwise or "",
            answered=False,
            held_back=BELOW_THRESHOLD,
            suggestion=self.output,
            notes=(*self.notes, note),
        )

    def predicted_note(self) -> str:
        """Return the note of another answer, which is explained instead of this one."""
        name = self.text if self.answered and self.text else "nothing"
        return f"the run itself answers {name}" + (
            "" if self.confidence is None else f" (probability {self.confidence:.4g})"
        )

    @property
    def output(self) -> object:
        """The answer as a JSON value: a text, a label, a list of labels or tags, a number or a mask."""
        return self.text

    def details(self) -> JsonObject:
        """Return the entries of `to_dict` that only the predictions of this task have."""
        return {}

    def to_dict(self, input: JsonMapping | None = None) -> JsonObject:
        """Return the JSON object of ``docs/schemas/prediction.schema.json``; empty entries are left out.

        Args:
            input: the row that was read, with all its columns.
        """
        row = {} if input is None else {"input": dict(input)}
        if self.error is not None:
            return {"version": VERSION, **row, "error": self.error}
        return {"version": VERSION, **row, **self._answer()}

    def _answer(self) -> JsonObject:
        """Return the entries that an answer and its alternatives have."""
        output = self.output if self.answered else self.text or None
        alignment = None if self.alignment is None else [list(pair) for pair in self.alignment]
        if self.score is None and not self.answered:  # of an empty input
            aligned = {} if alignment is None else {"alignment": alignment}
            return {"output": output, "held_back": self.held_back, **aligned, "notes": list(self.notes)}
        probabilities = {} if self.distribution is None else self.label_probabilities()
        entries: JsonObject = {
            "held_back": self.held_back,
            "suggestion": self.suggestion,
            "score": self.score if self.has_score else None,
            "confidence": self.confidence,
            "probabilities": probabilities,
            "tokens": self.tokens,
            "log_probs": self.log_probs,
            "finished": self.finished,
            **self.details(),
            "follows": self.follows,
            "alignment": alignment,
            "source_tokens": self.source_tokens,
            "attention": self.attention,
            "grid": None if self.grid is None else list(self.grid),
            "alternatives": [each._answer() for each in self.alternatives],
            "notes": list(self.notes),
        }
        # An alignment without pairs is a result.
        kept = {
            key: value
            for key, value in entries.items()
            if value is not None and (key == "alignment" or value not in ([], {}))
        }
        return {"output": output, **kept}


PredictionT = TypeVar("PredictionT", bound=Prediction)


def answer_text(answer: JsonMapping) -> str:
    """Return the output of an answer, or of an alternative, as text; empty if there is none."""
    output = answer.get("output")
    if isinstance(output, list):
        return (" " if "words" in answer else ", ").join(output)
    if isinstance(output, Mapping):
        return ", ".join(f"{label} {share:.1%}" for label, share in answer["shares"].items())
    return f"{output:.6g}" if isinstance(output, float) else str(output or "")


def as_json(value: object) -> object:
    """Return a value of a row as JSON has it: an image is its path or description."""
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)


class Predictor(Protocol):
    """Maps inputs to predictions: one for each, in the same order. It is made with its `PredictOptions`."""

    def predict(self, inputs: Sequence[TaskInput], *, first: int = 0) -> list[Prediction]:
        """Predict; see `heedful.Run.predict`.

        Args:
            inputs: texts, tuples of texts, or images.
            first: index of the first input, so that samples do not depend on how inputs are split over calls.
        """
        ...


class TaskPredictor:
    """The predictor of a task that generates no text.

    Args:
        kind: name of the task.
        predict_inputs: maps inputs to predictions.
        options: those of ``predict_inputs``.
    """

    def __init__(
        self,
        kind: str,
        predict_inputs: Callable[[Sequence[TaskInput]], list[Prediction]],
        options: PredictOptions,
    ) -> None:
        self.kind, self.predict_inputs, self.options = kind, predict_inputs, options

    def predict(self, inputs: Sequence[TaskInput], *, first: int = 0) -> list[Prediction]:
        """See `Predictor`. Nothing is sampled, so ``first`` has no effect.

        Raises:
            RequestError: attention over a source is requested.
            WorkError: an answer is NaN.
        """
        check_inputs(inputs)
        if self.options.attention:
            raise RequestError(
                f"attention over a source is not available: task {self.kind} generates no text"
            )
        predictions = self.predict_inputs(inputs)
        for prediction in predictions:
            probabilities = getattr(prediction, "probabilities", {})
            value = getattr(prediction, "value", 0.0)
            numbers = (prediction.score or 0.0, prediction.follows or 0.0, value, *probabilities.values())
            if any(math.isnan(number) or number == math.inf for number in numbers):
                raise invalid_outputs()
        return predictions


def invalid_outputs() -> WorkError:
    """Return the error for a model that computes NaN, or plus infinity, instead of an answer."""
    return WorkError(
        "the model's outputs contain NaN or infinity; its weights or inputs are damaged, or its training "
        "diverged"
    )


def check_inputs(inputs: object) -> None:
    """Check that inputs are several, not one text, whose characters would be taken for texts.

    Raises:
        RequestError: they are one text.
    """
    if isinstance(inputs, str | bytes):
        raise RequestError(f"expected a list of inputs, got {type_name(inputs)}; pass a list: [input]")


def as_text(task_input: TaskInput) -> str:
    """Return an input that is a text.

    Raises:
        TypeError: it is not a text; `heedful.Run.predict` has checked it before.
    """
    if not isinstance(task_input, str):
        raise TypeError(f"expected a text, got {type_name(task_input)}")
    return task_input


def as_texts(task_input: TaskInput) -> tuple[str, ...]:
    """Return the texts of an input, as a tuple: one, or those that are read together.

    Raises:
        TypeError: it is neither; `heedful.Run.predict` has checked it before.
    """
    if isinstance(task_input, str):
        return (task_input,)
    if not isinstance(task_input, Sequence) or isinstance(task_input, bytes):
        raise TypeError(f"expected a text or several, got {type_name(task_input)}")
    return tuple(task_input)
