"""Input of tagging: the questions are the tags of the words."""

from typing import TYPE_CHECKING, Any

import torch

from heedful.errors import RequestError
from heedful.explain.attention_sites import INPUT
from heedful.explain.reading.questions import AnswerOptions, ModelInput, Questions
from heedful.explain.reading.shared import ids_in, in_chunks, predicted, refuse_empty, refuse_target, text_of
from heedful.explain.sides import words_side
from heedful.objectives.classification import TAG
from heedful.tasks.texts import N_SPECIALS
from heedful.tasks.words import split, stretches
from heedful.text.words import word_ids

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_tags(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare a list of words, or a line of words separated by spaces."""
    refuse_target(run, asked, "the answer is a tag for each word")
    processor, room = run.processor, run.recipe.model.longest - N_SPECIALS
    words = split(given) if isinstance(given, str) else [text_of(run, word) for word in given]
    ids = [own[:room] for own in word_ids(processor.tokenizer, words)]
    refuse_empty(*ids)
    parts = stretches([len(own) for own in ids], room)
    if len(parts) > 1:
        raise RequestError(
            f"the input must fit into one part of {room} tokens, got {len(parts)} parts; shorten it, for "
            f"example to the first {parts[0][1]} words"
        )
    answer: Any = predicted(run, given, asked)
    flat = [token for own in ids for token in own]
    marks = [int(i == 0) for own in ids for i in range(len(own))]
    batch = run.recipe.words([flat], [marks])
    assert batch.rows is not None
    questions = Questions(
        INPUT,
        tuple(batch.rows.tolist()),
        torch.tensor([processor.tags.index(tag) for tag in answer.tags]),
        in_chunks(run.model.heads[TAG], batch),
        lambda i, number: processor.tags[number],
    )
    return ModelInput(
        batch, {INPUT: words_side(processor.tokenizer, ids_in(batch), words, ids)}, answer, questions
    )
