"""Inputs of translation and summarisation, with encoder-decoder or language models."""

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
    """Prepare a source text and its target, as two sides or as one text."""
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
    """Return the answer and its ids, predicted or given.

    Raises:
        RequestError: the requested alternative does not exist, or the target is too long.
    """
    if asked.target is None:
        answer = predicted(run, given, asked)
        return answer, list(answer.ids)
    ids = tokenizer.encode(asked.target)
    room = run.recipe.pairing.room(n_source)
    if room is not None and len(ids) + 1 > room:
        raise RequestError(f"the target must have at most {room - 1} tokens, got {len(ids)}; shorten it")
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
    """Prepare a source and a target for an encoder-decoder model.

    Args:
        run: of an encoder-decoder model.
        source: source in the form of the sequence format: ids, or pixels in a row.
        target: ids without special tokens.
        answer: the answer with this target.
        asked: options for the answer.
        source_side: the axis of the source.
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
    """Prepare ``<s> x <sep> y </s>``; the end token is omitted if the rest fills the context.

    The tokens of x are questions only if the model was trained to predict them. Source and target are also
    sides, for the part of the attention between them (`heedful.explain.one_text`).
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
