"""What the readings of several tasks have in common."""

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

GIVEN = "given, not written by the model"
"""The note of an answer that was given as the target."""


def text_of(run: "Run", given: Any) -> str:
    """The text; a refusal of anything else.

    Raises:
        RequestError: it is none.
    """
    if not isinstance(given, str):
        raise RequestError(f"a run of the task {run.recipe.task.kind} reads a text, not {_kind(given)}")
    return given


def texts_of(run: "Run", given: Any) -> list[str]:
    """The text, or the texts that are read together.

    Raises:
        RequestError: other things, or another number of texts.
    """
    keys = run.task.columns.inputs
    if not isinstance(given, str):
        keys += run.task.columns.optional_inputs
    if len(keys) == 1:
        return [text_of(run, given)]
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if not is_list or len(given) != len(keys) or not all(isinstance(text, str) for text in given):
        raise RequestError(
            f"a run of the task {run.recipe.task.kind} reads {len(keys)} texts together here "
            f"({', '.join(keys)}), not {_kind(given)}: give them with a tab between, or as a pair"
        )
    return list(given)


def _kind(given: Any) -> str:
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts):
        return "one text" if len(texts) == 1 else f"{len(texts)} texts"
    return f"a {type(given).__name__}"


def ids_in(batch: Batch) -> list[int]:
    """The ids of the one sequence that the model reads."""
    assert isinstance(batch.inputs, Tokens)
    return batch.inputs.ids.tolist()


def refuse_empty(*ids: Sequence[int]) -> None:
    """Refuse what has not one token.

    Raises:
        RequestError: it has none.
    """
    if not any(map(len, ids)):
        raise RequestError("the input is empty: there is nothing to look at; give some text")


def refuse_target(run: "Run", asked: AnswerOptions, instead: str) -> None:
    """Refuse a target where the run writes no text; ``instead`` says what there is.

    Raises:
        RequestError: one was given.
    """
    if asked.target is not None:
        raise RequestError(
            f"a run of the task {run.recipe.task.kind} writes no text that could be given: {instead}"
        )


def predicted(run: "Run", given: Any, asked: AnswerOptions, **options: Any) -> Prediction:
    """The run's own answer, as `Run.predict` gives it.

    Raises:
        DataError: the input cannot be read.
        RequestError: there is no such alternative.
    """
    if asked.alternative and getattr(asked.decoding or run.recipe.decoding, "kind", None) == "greedy":
        raise RequestError(
            f"there is no alternative {asked.alternative}: greedy decoding finds one answer; take a beam: "
            f"--decoding kind=beam --decoding beam={asked.alternative + 1}"
        )
    has_several = "n_best" in run.task.info.options or run.recipe.decoding is not None
    beam = getattr(asked.decoding or run.recipe.decoding, "beam", None)
    if beam is not None and asked.alternative >= beam:
        raise RequestError(
            f"there is no alternative {asked.alternative}: with a beam of {beam} there are 0 (the best) to "
            f"{beam - 1}; take one of them, or a wider beam: --decoding beam={asked.alternative + 1}"
        )
    if asked.alternative and has_several:
        options["n_best"] = asked.alternative + 1
    (first,) = run.predict([given], decoding=asked.decoding, **options)
    if first.error:
        raise DataError(first.error)
    answers = [first, *first.alternatives]
    if asked.alternative >= len(answers):
        counted = "1 answer" if len(answers) == 1 else f"{len(answers)} answers"
        last = "0, the only one" if len(answers) == 1 else f"0 (the best) to {len(answers) - 1}"
        raise RequestError(f"there is no alternative {asked.alternative}: the run has {counted}: take {last}")
    return replace(answers[asked.alternative], note=first.note)  # what is told of the input, with the best


def given_answer(tokenizer: Tokenizer, text: str, ids: Sequence[int], asked: AnswerOptions) -> Prediction:
    """The answer that was given; what the model says of it is not known yet.

    Raises:
        RequestError: another of the run's own answers is asked for too.
    """
    if asked.alternative:
        raise RequestError(
            "a target is given, so the run writes none itself: leave out alternative "
            f"{asked.alternative}, or the target"
        )
    return Prediction(text, tokens=tokenizer.tokens(ids), note=GIVEN)


def in_chunks(head: Any, batch: Batch) -> Callable[[Tensor], Iterator[Tensor]]:
    """The logits of the places at which an answer is wanted, so that few exist at one time."""
    return lambda hidden: (head(part) for part in batch.picked(hidden).split(CHUNK))


def tokens_of(
    run: "Run", tokenizer: Tokenizer, batch: Batch, side: str, places: Sequence[int], given: int = 0
) -> Questions:
    """Which token stands at each of these places."""
    return Questions(
        side,
        tuple(places),
        batch.targets,
        in_chunks(run.model.heads["token"], batch),
        lambda i, token: tokenizer.tokens([token])[0],
        given,
        are_tokens=True,
    )
