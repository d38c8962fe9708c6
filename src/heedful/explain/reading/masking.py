"""Masked language modelling: what stands in the gaps."""

from typing import TYPE_CHECKING, Any

import torch

from heedful.data.batch import Batch
from heedful.explain.points import INPUT
from heedful.explain.reading.questions import Asked, Reading
from heedful.explain.reading.shared import predicted, refuse_empty, refuse_target, text_of, tokens_of
from heedful.explain.sides import text_side
from heedful.nn.layout import Tokens
from heedful.text.specials import SPECIALS

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_gaps(run: "Run", given: Any, asked: Asked) -> Reading:
    """Masked language modelling: what stands in the gaps; the side shows them as gaps."""
    refuse_target(run, asked, "write the words into the gaps instead")
    tokenizer = run.codec.text
    filler: Any = run.predictor()
    gapped = filler.gapped(text_of(run, given))
    refuse_empty(gapped.ids)
    answer = predicted(run, given, asked)
    ids = [SPECIALS.classify, *gapped.ids, SPECIALS.separate]
    places = [gap + 1 for gap in gapped.gaps]
    batch = Batch(
        Tokens.of([ids]),
        torch.tensor(answer.ids, dtype=torch.int64),
        rows=torch.tensor(places, dtype=torch.int64),
    )
    questions = tokens_of(run, tokenizer, batch, INPUT, places)
    return Reading(batch, {INPUT: text_side(tokenizer, ids)}, answer, questions)
