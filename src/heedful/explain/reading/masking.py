"""Input of masked language modelling: the questions are the masked tokens."""

from typing import TYPE_CHECKING, Any

import torch

from heedful.data.batch import Batch
from heedful.explain.attention_sites import INPUT
from heedful.explain.reading.questions import AnswerOptions, ModelInput
from heedful.explain.reading.shared import (
    ids_in,
    predicted,
    refuse_empty,
    refuse_target,
    texts_of,
    tokens_of,
)
from heedful.explain.sides import text_side
from heedful.tasks.masking import framed
from heedful.text.specials import SPECIALS

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_gaps(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare a text or pair with masks; the side shows the mask tokens, not the predicted ones."""
    refuse_target(run, asked, "replace the masks in the input by words")
    tokenizer = run.processor.text
    filler: Any = run.predictor()
    gapped = filler.gapped(texts_of(run, given))
    refuse_empty(*gapped.texts)
    answer = predicted(run, given, asked)
    inputs = framed([gapped])
    places = (inputs.ids == SPECIALS.mask).nonzero().flatten()
    batch = Batch(inputs, torch.tensor(answer.ids, dtype=torch.int64), rows=places)
    questions = tokens_of(run, tokenizer, batch, INPUT, places.tolist())
    return ModelInput(batch, {INPUT: text_side(tokenizer, ids_in(batch))}, answer, questions)
