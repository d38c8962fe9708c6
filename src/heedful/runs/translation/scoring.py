"""Scoring a translator: the same decoding as ``predict``, detokenised text, metrics with signatures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from operator import add
from typing import Any

import numpy as np
import torch
from torch import nn

from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import cut_notes
from heedful.tasks.forced import forced
from heedful.tasks.grouping import longest_first
from heedful.tasks.metrics.likelihood import Likelihood
from heedful.tasks.metrics.loads import counting
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.translation import (
    Preparation,
    check_language,
    reference_notes,
    sentence_scores,
    tokenised_bleu,
    translation_scores,
)
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import SequenceFormat
from heedful.tasks.translation import SOURCE, TARGET
from heedful.tasks.unknown import unknown_notes
from heedful.text.encoded import Encoded
from heedful.text.normalisation import tokenise_for_bleu

FORCED_BATCH = 64

TOKENS = 8192
"""Of sources and targets that are read at one time, where one pair has not more."""


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """BLEU, chrF, TER, perplexity and, where the recipe asks for it, tokenised BLEU; with all sentences.

    Args:
        sources, references, predictions: sentence by sentence.
        lowercase: whether the scores are without regard to case.
        language: of the translations, where BLEU needs to know it.
    """

    sources: list[str]
    references: list[str]
    predictions: list[Prediction]
    lowercase: bool = False
    language: str | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a sentence, with its own scores."""
        texts = [p.text for p in self.predictions]
        own = sentence_scores(texts, self.references, language=self.language, lowercase=self.lowercase)
        for source, reference, prediction, scores in zip(
            self.sources, self.references, self.predictions, own, strict=True
        ):
            yield {
                "version": 1,
                "source": source,
                "reference": reference,
                **prediction.to_dict(),
                "scores": scores,
            }


def scored(run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
    """Translate a data set and score the translations; perplexity is of the references, teacher forced.

    A run that writes lower case is scored without regard to case, as the signatures then say.
    """
    language, moses = run.recipe.evaluation.language, run.recipe.evaluation.tokenised_bleu
    check_language(language)
    located = list(islice(rows, how.limit))
    kept = [row.row for row in located]
    if not kept:
        raise DataError(f"{split}: there is nothing to score")
    sources, references = [r[SOURCE] for r in kept], [r[TARGET] for r in kept]
    predictions = run.predict(sources, decoding=how.decoding, progress=how.progress, precision=how.precision)
    texts = [p.text for p in predictions]
    lowercase = run.recipe.tokenizer.target.lowercase
    scores = list(translation_scores(texts, references, language=language, lowercase=lowercase).values())
    if moses is not None:
        prepared = Preparation(f"moses-{moses}-lowercase", lambda text: tokenise_for_bleu(text, moses))
        scores.append(tokenised_bleu(texts, references, preparation=prepared))
    sides = encoded(run, sources, references)
    predicted = likelihood(run, *sides)
    scores += predicted
    notes = [*cut_notes(located, predictions), *left_out_notes(predicted, len(kept)), *unknown_of(*sides)]
    notes = [*reference_notes(references, language), *notes]
    return Evaluation(split, scores, sources, references, predictions, lowercase, language, notes=notes)


def encoded(run: Trained, sources: Sequence[str], references: Sequence[str]) -> tuple[Encoded, Encoded]:
    """Both sides, each by its own tokenizer."""
    return Encoded.by(run.processor.source, sources), Encoded.by(run.processor.target, references)


def unknown_of(sources: Encoded, references: Encoded) -> list[str]:
    """How many words of each side the run does not know, where there are some."""
    return unknown_notes(SOURCE, sources) + unknown_notes(TARGET, references, predicted=True)


def left_out_notes(scores: Sequence[Score], n: int) -> list[str]:
    """How many of ``n`` references these likelihoods leave out, if any."""
    left = n - max((score.counts.get("sentences", 0) for score in scores), default=0)
    return [f"not in the perplexity, longer than the model reads: {left:,} of {n:,}"] if left else []


def likelihood(run: Trained, sources: Encoded, references: Encoded) -> list[Score]:
    """Perplexity of the references, given their sources (`likelihood_of`); and the load of experts."""
    longest = run.recipe.max_source

    def read(part: Sequence[int]) -> list[Any]:
        return [sources.ids[i][:longest] for i in part]

    fingerprint = sources.tokenizer.fingerprint
    with counting(run.model) as loads:
        scores = likelihood_of(run.model, run.recipe.pairing, read, references, fingerprint)
    return scores + loads()


def likelihood_of(
    model: nn.Module,
    pairing: SequenceFormat,
    read: Callable[[Sequence[int]], list[Any]],
    references: Encoded,
    of_sources: str = "",
) -> list[Score]:
    """Perplexity of the references, per token of the run's own vocabulary.

    Of a language model that was trained to foretell the sources too (``loss_on: all``), theirs beside it:
    what is gained from one half to the other is what it takes from its context.

    Bytes are counted where the ids of all references spell them: likelihoods of other texts, shorter or in
    lower case, are no likelihoods of these bytes.

    References for which the model has no positions are left out; the counts of the scores say how many
    were scored.

    Args:
        model: of the run.
        pairing: how a source and its reference are laid before it.
        read: gives the sources of some references, by their numbers, as the pairing takes them.
        references: what is foretold.
        of_sources: the fingerprint of the sources' tokenizer, where they are texts.
    """
    texts, wanted, tokenizer = references.texts, references.ids, references.tokenizer
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found: list[tuple[Likelihood, Likelihood | None]] = []
    spells = tokenizer.spells(wanted)
    for start in range(0, len(order), FORCED_BATCH):
        part = order[start : start + FORCED_BATCH]
        lengths = [len(texts[i].encode()) if spells else 0 for i in part]
        found += _predicted(model, pairing, read(part), [wanted[i] for i in part], lengths)
    scores = _summed([target for target, _ in found], tokenizer.fingerprint, "")
    return scores + _summed([source for _, source in found if source], of_sources, "source ")


def _predicted(
    model: nn.Module,
    pairing: SequenceFormat,
    sources: Sequence[Any],
    wanted: Sequence[list[int]],
    n_bytes: Sequence[int],
) -> Iterator[tuple[Likelihood, Likelihood | None]]:
    """Of each target that there is room for; and of its source and the separator, where asked for."""
    rooms = [pairing.room(len(source)) for source in sources]
    fit = [
        k for k, (ids, room) in enumerate(zip(wanted, rooms, strict=True)) if room is None or len(ids) < room
    ]
    lengths = np.array([[len(sources[k]), len(wanted[k])] for k in fit]).reshape(-1, 2)
    tokens = pairing.lengths(lengths[:, 0], lengths[:, 1]).sum(axis=1).tolist()
    for group in longest_first(dict(zip(fit, tokens, strict=True)), TOKENS):
        with torch.inference_mode():
            batch = pairing.collate([sources[k] for k in group], [wanted[k] for k in group])
            results = forced(model, batch.to(next(model.parameters()).device))
        for k, result in zip(group, results, strict=True):
            log_probs = result.log_probs.double()
            cut = len(log_probs) - len(wanted[k]) - 1
            first, second = -float(log_probs[:cut].sum()), -float(log_probs[cut:].sum())
            target = Likelihood(second, len(wanted[k]) + 1, n_bytes[k])
            yield target, Likelihood(first, cut, 0) if cut else None


def _summed(parts: Sequence[Likelihood], fingerprint: str, name: str) -> list[Score]:
    """The scores of all together, under names that begin with ``name``."""
    if not parts:
        return []
    scores = reduce(add, parts).scores(fingerprint[:12]).values()
    return [
        replace(score, name=f"{name}{score.name}", counts={**score.counts, "sentences": len(parts)})
        for score in scores
    ]
