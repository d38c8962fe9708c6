"""Helpers for the inputs of several tasks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from heedful.data.batch import Batch
from heedful.errors import DataError, RequestError
from heedful.explain.reading.questions import AnswerOptions, Questions
from heedful.nn.layout import Tokens
from heedful.tasks.forced import CHUNK
from heedful.tasks.prediction import Prediction
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.runs.run import Run

GIVEN = "given, not predicted by the model"
"""Note on an answer that was given as the target."""


def text_of(run: "Run", given: Any) -> str:
    """Return the input if it is a text.

    Raises:
        RequestError: the input is not a text.
    """
    if not isinstance(given, str):
        raise RequestError(f"the input of task {run.recipe.task.kind} must be a text, got {_kind(given)}")
    return given


def texts_of(run: "Run", given: Any) -> list[str]:
    """Return the text, or the texts that the run reads together, as a list.

    Raises:
        RequestError: the input is not texts, or their number is different.
    """
    keys = run.task.columns.inputs
    if not isinstance(given, str):
        keys += run.task.columns.optional_inputs
    if len(keys) == 1:
        return [text_of(run, given)]
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if not is_list or len(given) != len(keys) or not all(isinstance(text, str) for text in given):
        raise RequestError(
            f"the input of task {run.recipe.task.kind} must be {len(keys)} texts ({', '.join(keys)}), got "
            f"{_kind(given)}; separate them by a tab, or pass a pair"
        )
    return list(given)


def _kind(given: Any) -> str:
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts):
        return "one text" if len(texts) == 1 else f"{len(texts)} texts"
    return f"a {type(given).__name__}"


def ids_in(batch: Batch) -> list[int]:
    """Return the token ids of the one sequence in a batch."""
    assert isinstance(batch.inputs, Tokens)
    return batch.inputs.ids.tolist()


def refuse_empty(*ids: Sequence[int]) -> None:
    """Check that there is at least one token.

    Raises:
        RequestError: all sequences are empty.
    """
    if not any(map(len, ids)):
        raise RequestError("the input is empty; give some text")


def refuse_target(run: "Run", asked: AnswerOptions, instead: str) -> None:
    """Check that no target is given, for tasks that do not support one.

    Raises:
        RequestError: a target is given; the message ends with ``instead``.
    """
    if asked.target is not None:
        raise RequestError(f"task {run.recipe.task.kind} does not support a target ({instead})")


def predicted(run: "Run", given: Any, asked: AnswerOptions, **options: Any) -> Prediction:
    """Return the answer predicted by `Run.predict`.

    Raises:
        DataError: the input cannot be read.
        RequestError: the requested alternative does not exist.
    """
    if asked.alternative and getattr(asked.decoding or run.recipe.decoding, "kind", None) == "greedy":
        raise RequestError(
            f"alternative {asked.alternative} does not exist: greedy decoding returns one answer; use a "
            f"beam: --decoding kind=beam --decoding beam={asked.alternative + 1}"
        )
    has_several = "n_best" in run.task.info.options or run.recipe.decoding is not None
    beam = getattr(asked.decoding or run.recipe.decoding, "beam", None)
    if beam is not None and asked.alternative >= beam:
        raise RequestError(
            f"alternative {asked.alternative} does not exist: a beam of {beam} returns alternatives 0 (the "
            f"best) to {beam - 1}; use a larger beam: --decoding beam={asked.alternative + 1}"
        )
    if asked.alternative and has_several:
        options["n_best"] = asked.alternative + 1
    (first,) = run.predict([given], decoding=asked.decoding, **options)
    if first.error:
        raise DataError(first.error)
    answers = [first, *first.alternatives]
    if asked.alternative >= len(answers):
        counted = "1 answer" if len(answers) == 1 else f"{len(answers)} answers"
        last = "0" if len(answers) == 1 else f"0 (the best) to {len(answers) - 1}"
        raise RequestError(
            f"alternative {asked.alternative} does not exist: the run returned {counted}; expected {last}"
        )
    return replace(
        answers[asked.alternative], note=first.note
    )  # notes on the input come with the best answer


def given_answer(tokenizer: Tokenizer, text: str, ids: Sequence[int], asked: AnswerOptions) -> Prediction:
    """Return the given answer as a prediction, without scores.

    Raises:
        RequestError: an alternative is requested too.
    """
    if asked.alternative:
        raise RequestError(f"alternative {asked.alternative} and a target are given; remove one of them")
    return Prediction(text, tokens=tokenizer.tokens(ids), note=GIVEN)


def in_chunks(head: Any, batch: Batch) -> Callable[[Tensor], Iterator[Tensor]]:
    """Return a function that yields the logits of the question positions in chunks, to limit memory."""
    return lambda hidden: (head(part) for part in batch.picked(hidden).split(CHUNK))


def tokens_of(
    run: "Run", tokenizer: Tokenizer, batch: Batch, side: str, places: Sequence[int], given: int = 0
) -> Questions:
    """Return the questions which token is at each of these positions."""
    return Questions(
        side,
        tuple(places),
        batch.targets,
        in_chunks(run.model.heads["token"], batch),
        lambda i, token: tokenizer.tokens([token])[0],
        given,
        are_tokens=True,
    )
