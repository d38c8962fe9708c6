"""Question answering: the first and the last token of the answer."""

from typing import TYPE_CHECKING, Any

import torch

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.explain.attention_sites import INPUT
from heedful.explain.reading.questions import AnswerOptions, ModelInput, Questions
from heedful.explain.reading.shared import ids_in, predicted, refuse_empty, refuse_target, texts_of
from heedful.explain.sides import text_side
from heedful.objectives.answering import answer_log_probs
from heedful.text.specials import SPECIALS
from heedful.text.words import spelled

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_answer(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Question answering; no answer is the class token at both ends."""
    refuse_target(run, asked, "its answer is cut out of the passage")
    question, passage = texts_of(run, given)
    tokenizer, windows = run.processor.tokenizer, run.recipe.cutting
    asked_ids, read = spelled(tokenizer, question).ids, spelled(tokenizer, passage)
    refuse_empty(read.ids)
    n_windows = len(windows.of(len(asked_ids), len(read.ids)))
    if n_windows > 1:
        raise RequestError(
            f"the passage is read in {n_windows} windows, and one at a time can be looked at: give the part "
            "of the passage that the answer stands in"
        )
    answer: Any = predicted(run, given, asked)
    asked_ids = asked_ids[: windows.longest_question]
    batch = Batch.framed([(asked_ids, read.ids)], classify=SPECIALS.classify, separate=SPECIALS.separate)
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
