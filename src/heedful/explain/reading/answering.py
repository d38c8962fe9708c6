"""Input of question answering: the questions are the first and the last token of the answer."""

from typing import TYPE_CHECKING, Any

import torch

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.explain.attention_sites import INPUT
from heedful.explain.reading.questions import AnswerOptions, ModelInput, Questions
from heedful.explain.reading.shared import ids_in, predicted, refuse_empty, refuse_target, texts_of
from heedful.explain.sides import text_side
from heedful.objectives.classification import answer_log_probs
from heedful.text.specials import SPECIALS
from heedful.text.words import spelled

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_answer(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare a question and a passage; "no answer" starts and ends at the class token."""
    refuse_target(run, asked, "answers are spans of the passage")
    question, passage = texts_of(run, given)
    tokenizer, windows = run.processor.tokenizer, run.recipe.cutting
    asked_ids, read = spelled(tokenizer, question).ids, spelled(tokenizer, passage)
    refuse_empty(read.ids)
    n_windows = len(windows.of(len(asked_ids), len(read.ids)))
    if n_windows > 1:
        raise RequestError(
            f"the passage must fit into one window, got {n_windows} windows; shorten it to the part that "
            "contains the answer"
        )
    answer: Any = predicted(run, given, asked)
    asked_ids = asked_ids[: windows.longest_question]
    batch = Batch.with_special_tokens(
        [(asked_ids, read.ids)], classify=SPECIALS.classify, separate=SPECIALS.separate
    )
    ids = ids_in(batch)
    covering = None if answer.start is None else read.covering((answer.start, answer.end))
    ends = (0, 0) if covering is None else tuple(len(asked_ids) + 2 + place for place in covering)
    heads, layout = run.model.heads, batch.inputs.layout
    labels = tokenizer.tokens(ids)
    questions = Questions(
        INPUT,
        ends,
        torch.tensor(ends),
        lambda hidden: iter([answer_log_probs(hidden, heads, layout.to(hidden.device))[0].mT]),
        lambda i, place: labels[place],
    )
    return ModelInput(batch, {INPUT: text_side(tokenizer, ids)}, answer, questions)
