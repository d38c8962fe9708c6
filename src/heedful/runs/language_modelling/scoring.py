"""Scoring a language model: how well each token of a text is foretold from those before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.data.sources import LocatedRow, Row
from heedful.data.text import TEXT
from heedful.data.windows import Span, ring, spans
from heedful.errors import DataError, RequestError
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.tasks.forced import forced
from heedful.tasks.metrics.likelihood import Likelihood, count_words
from heedful.tasks.metrics.loads import counting
from heedful.tasks.metrics.score import Score
from heedful.tasks.unknown import counted_notes

TOKENS = 8192
"""Tokens that are read at once."""


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """Nats per token, perplexity (also of a word), bits per byte and per character; with every document.

    Args:
        places: where each document begins.
        ends: ``[documents]``, where in the stream each has its end token.
        log_probs: ``[tokens]``, in the last way of reading that was scored.
    """

    places: list[str]
    ends: NDArray[np.int64]
    log_probs: NDArray[np.float64]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a document: its tokens (with the end token) and their negative log-likelihood."""
        starts = np.concatenate([[0], self.ends[:-1] + 1])
        sums = -np.add.reduceat(self.log_probs, starts)
        for place, begin, end, nll in zip(self.places, starts, self.ends, sums, strict=True):
            yield {"version": 1, "document": place, "tokens": int(end + 1 - begin), "nll": float(nll)}


def scored(run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
    """Read a text in windows that do not overlap and, where asked for, in sliding ones too.

    Where the model has experts, their load in the last way of reading is told too.

    Every token of the text counts, and the end token of every document. Bits per byte and character
    and the perplexity of a word are left out where the tokens do not spell the very text: then they would say
    nothing.

    Raises:
        DataError: there is no text.
        RequestError: a stride that is longer than the context.
    """
    context = run.recipe.model.context
    stride = how.stride or run.recipe.evaluation.stride or context
    if stride > context:
        raise RequestError(f"--stride {stride}: is longer than the model's context of {context} tokens")
    documents = list(islice(rows, how.limit))
    report = run.kind.report(run.processor)
    pieces = [row.row[TEXT] for row in run.processor.encode(documents, report)]
    ids = np.concatenate([np.asarray(piece, dtype=np.int64) for piece in [[], *pieces]])
    if not documents or not report.columns[TEXT].tokens:
        raise DataError(f"{split}: there is nothing to score")
    texts = [row.row[TEXT] for row in documents] if run.processor.spells(report) else []
    sizes = [sum(map(count, texts)) for count in (lambda text: len(text.encode()), len, count_words)]
    scores: list[Score] = []
    for step in sorted({context, stride}, reverse=True):
        with counting(run.model) as loads:
            log_probs = read(run.model, ids, context, step)
        found = Likelihood(-float(log_probs.sum()), len(ids), *sizes)
        signature = f"context:{context}|stride:{step}"
        scores += found.scores(run.processor.fingerprint[:12], signature).values()
    scores += loads()
    ends = np.flatnonzero(ids == run.processor.text.specials.end)
    notes = counted_notes(run.processor.text, "", report.columns[TEXT], predicted=True)
    return Evaluation(split, scores, [str(row.where) for row in documents], ends, log_probs, notes=notes)


@torch.inference_mode()
def read(model: Any, ids: NDArray[np.int64], context: int, stride: int) -> NDArray[np.float64]:
    """The log-probability of each token of a stream, ``[tokens]`` (see `heedful.data.windows.spans`)."""
    device = next(model.parameters()).device
    found = np.zeros(len(ids))
    for batch, part in batches(ids, len(ids), context, stride, TOKENS):
        for span, result in zip(part, forced(model, batch.to(device)), strict=True):
            log_probs = result.log_probs[span.scored - span.begin :]
            found[span.scored : span.end] = log_probs.double().cpu().numpy()
    return found


def batches(
    ids: np.ndarray, n: int, context: int, stride: int, budget: int
) -> Iterator[tuple[Batch, Sequence[Span]]]:
    """The spans of the first ``n`` tokens of a stream, in batches of one length and about ``budget``."""
    waiting = spans(n, context, stride)
    held: list[Span] = []
    for span in waiting:
        if held and (_length(held[0]) != _length(span) or (len(held) + 1) * _length(span) > budget):
            yield _batch(ids, held), held
            held = []
        held.append(span)
    if held:
        yield _batch(ids, held), held


def _length(span: Span) -> int:
    return span.end - span.begin


def _batch(ids: np.ndarray, part: Sequence[Span]) -> Batch:
    begins = np.array([span.begin - 1 for span in part], dtype=np.int64)
    return Batch.windows(ring(ids, begins, _length(part[0]) + 1))
