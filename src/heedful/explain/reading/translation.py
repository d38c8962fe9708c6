"""Translation and summarisation: on two sides, or one after the other in a language model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heedful.errors import RequestError
from heedful.explain.attention_sites import PREFIX, SOURCE, TARGET
from heedful.explain.reading.language_modelling import continued
from heedful.explain.reading.questions import AnswerOptions, ModelInput
from heedful.explain.reading.shared import given_answer, predicted, refuse_empty, text_of, tokens_of
from heedful.explain.sides import text_side
from heedful.explain.view import Axis
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import ConcatenatedFormat
from heedful.tasks.text_generation import source_note
from heedful.tasks.unknown import joined
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_pair(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Translation and summarisation, on two sides or one after the other."""
    whole = run.processor.source.encode(text_of(run, given))
    source = whole[: run.recipe.max_source]
    refuse_empty(source)
    answer, target = answered(run, given, asked, run.processor.target, len(source))
    if asked.target is not None:
        of_source = source_note(run.processor.source, text_of(run, given), whole, run.recipe.max_source)
        answer = replace(answer, note=joined(answer.note, of_source))
    if isinstance(run.recipe.pairing, ConcatenatedFormat):
        return _one_text(run, text_of(run, given), source, target, answer, asked)
    side = text_side(run.processor.source, [*source, SPECIALS.end], [text_of(run, given)])
    return two_sides(run, source, target, answer, asked, side, run.processor.target)


def answered(
    run: "Run", given: Any, asked: AnswerOptions, tokenizer: Tokenizer, n_source: int
) -> tuple[Prediction, list[int]]:
    """The answer and its ids: the run's own, or the one that was given.

    Raises:
        RequestError: there is no such alternative, or no room for the target.
    """
    if asked.target is None:
        answer = predicted(run, given, asked)
        return answer, list(answer.ids)
    ids = tokenizer.encode(asked.target)
    room = run.recipe.pairing.room(n_source)
    if room is not None and len(ids) + 1 > room:
        raise RequestError(f"the target has {len(ids)} tokens, and the model has room for {room - 1}")
    return given_answer(tokenizer, asked.target, ids, asked), ids


def two_sides(
    run: "Run",
    source: Any,
    target: Sequence[int],
    answer: Prediction,
    asked: AnswerOptions,
    source_side: Axis,
    tokenizer: Tokenizer,
) -> ModelInput:
    """A source and a target that a model with two sides reads.

    Args:
        run: of a model with two sides.
        source: what the pairing takes of one: ids, or pixels in a row.
        target: ids without special tokens.
        answer: to be told.
        asked: how it is answered.
        source_side: what stands along the axis of the source.
        tokenizer: of the target.
    """
    batch = run.recipe.pairing.scored([source], [target])
    sides = {
        SOURCE: source_side,
        TARGET: text_side(tokenizer, [*target, SPECIALS.end]),
        PREFIX: text_side(tokenizer, [SPECIALS.start, *target]),
    }
    questions = tokens_of(run, tokenizer, batch, TARGET, range(len(target) + 1))
    return ModelInput(batch, sides, answer, questions, asked.target is not None)


def _one_text(
    run: "Run",
    given: str,
    source: Sequence[int],
    target: Sequence[int],
    answer: Prediction,
    asked: AnswerOptions,
) -> ModelInput:
    """``<s> x <sep> y </s>``; where that fills the context, the end token, which is never read, is left out.

    What x is foretold by is asked only where the model was trained for it. Source and target are sides too,
    between which parts of the attention lie (`heedful.explain.one_text`).
    """
    text = [SPECIALS.start, *source, SPECIALS.separate, *target, SPECIALS.end][: run.recipe.model.context]
    first_answer = len(source) + 2
    first = first_answer if run.recipe.pairing.answers_only else 1
    reading = continued(run, run.processor.target, text, first, first_answer, answer, asked)
    sides = {
        **reading.sides,
        SOURCE: text_side(run.processor.source, [*source, SPECIALS.separate], [given]),
        TARGET: text_side(run.processor.target, [*target, SPECIALS.end]),
    }
    return replace(reading, sides=sides)
