"""Scoring a masked language model: how well hidden tokens of a text are found.

From their own hidden states (perplexity and accuracy) and, where the model was taught that, from those beside
their span (boundary perplexity); and how often a text that follows another is told from a stranger.
"""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from heedful.data.plan import in_order
from heedful.data.sources import LocatedRow, Row
from heedful.data.text import TEXT
from heedful.errors import DataError
from heedful.objectives.classification import class_logits
from heedful.objectives.masked import SpanBoundary
from heedful.runs.kind import Evaluation, Scoring, Trained
from heedful.runs.masked_language_modelling.recipe import MaskedLanguageModellingRecipe
from heedful.tasks.masking import Maskings
from heedful.tasks.metrics.score import Score
from heedful.tasks.unknown import counted_notes

TOKENS = 8192
"""Tokens that are read at once."""


@torch.inference_mode()
def scored(run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring, make: Any) -> Evaluation:
    """Hide tokens as in training, always the same ones, and count how many are found.

    Raises:
        DataError: there is no text.
    """
    report = run.kind.report(run.processor)
    pieces = [row.row[TEXT] for row in run.processor.encode(islice(rows, how.limit), report)]
    ids = np.concatenate([np.asarray(piece, dtype=np.int64) for piece in [[], *pieces]])
    if not report.columns.get(TEXT) or not report.columns[TEXT].tokens:
        raise DataError(f"{split}: there is nothing to score")
    maskings: Maskings = make(run.recipe, run.processor, ids, seed=0)
    found: Counter[str] = Counter()
    nats = {"token": 0.0, "boundary": 0.0}
    model: Any = run.model
    device = next(model.parameters()).device
    for samples in in_order(maskings.lengths, TOKENS):
        batch = maskings(samples.tolist(), 0).to(device)
        hidden = model(batch.inputs)
        log_probs = model.heads["token"](batch.picked(hidden)).float().log_softmax(-1)
        nats["token"] -= log_probs.gather(1, batch.targets[:, None]).double().sum().item()
        found["right"] += int((log_probs.argmax(-1) == batch.targets).sum())
        found["tokens"] += len(batch.targets)
        if "boundary" in model.heads:
            (boundary,) = SpanBoundary(run.recipe.objective.chunk)(hidden, model.heads, batch)
            nats["boundary"] += boundary.sum.double().item()
            found["boundary tokens"] += boundary.count
        if batch.classes is not None:
            logits = class_logits(hidden, model.heads, batch.inputs.layout, "next")
            found["next right"] += int((logits.argmax(-1) == batch.classes).sum())
            found["pairs"] += len(batch.classes)
        how.progress(len(samples))
    if not found["tokens"]:
        raise DataError(f"{split}: no token can be hidden: all are unknown to the tokenizer")
    signature = _signature(run.recipe, maskings)
    of_tokenizer = f"{signature}|tok:{run.processor.fingerprint[:12]}"
    counts = {"tokens": found["tokens"]}
    scores = [
        Score("masked perplexity", _perplexity(nats["token"], found["tokens"]), of_tokenizer, {}, counts),
        Score("masked accuracy", found["right"] / found["tokens"], signature, {}, counts),
    ]
    if n := found["boundary tokens"]:
        perplexity = _perplexity(nats["boundary"], n)
        scores.append(Score("boundary perplexity", perplexity, of_tokenizer, {}, {"tokens": n}))
    if found["pairs"]:
        accuracy = found["next right"] / found["pairs"]
        scores.append(Score("next-sentence accuracy", accuracy, signature, {}, {"pairs": found["pairs"]}))
    return Evaluation(split, scores, notes=counted_notes(run.processor.text, "", report.columns[TEXT]))


def _perplexity(nll: float, n: int) -> float:
    return math.exp(min(nll / n, 700.0))


def _signature(recipe: MaskedLanguageModellingRecipe, maskings: Maskings) -> str:
    """What was hidden, and of which texts."""
    settings = recipe.objective
    hidden = f"hide:{settings.hide}"
    if settings.spans is not None:
        hidden += f"|span_p:{settings.span_p}|longest_span:{settings.longest_span}"
    return f"{hidden}|rate:{settings.rate}|length:{recipe.model.max_length}|seed:0{_pairing(maskings)}"


def _pairing(maskings: Maskings) -> str:
    """How pairs were made, for the signature: nothing where there are none."""
    if maskings.sentences is None:
        return ""
    one = len(maskings.sentences.documents) == 1
    return f"|pairs:sentences|strangers:{'same-document' if one else 'other-documents'}"
