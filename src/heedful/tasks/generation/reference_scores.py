"""Scores of given references: their likelihood, and what the model's own prefixes cost."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
import torch

from heedful.models.base import Model
from heedful.nn.layout import Ids
from heedful.tasks.generation.generator import Generator, TargetScores, score_free_running, score_targets
from heedful.tasks.generation.sequence_formats import SequenceFormat
from heedful.tasks.inputs.texts import group_by_length
from heedful.tasks.metrics.forcing_gap import forcing_gap
from heedful.tasks.metrics.likelihood import Likelihood
from heedful.tasks.metrics.score import Score
from heedful.tasks.prediction import BATCH_TOKENS
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import EncodedTexts

GetSources = Callable[[Sequence[int]], Sequence[Ids]]
"""Returns the sources of references, given indices, in the form of the sequence format."""

FORCED_BATCH = 64
"""References that are scored together, teacher forced."""


def reference_likelihood(
    model: Model,
    sequence_format: SequenceFormat,
    get_sources: GetSources,
    references: EncodedTexts,
    source_fingerprint: str = "",
) -> list[Score]:
    """Return the perplexity of the references, per token of the run's own vocabulary.

    A language model that was trained to predict the sources too (``loss_on: all``) also gets theirs: the
    difference between the two is what the source contributes.

    Bytes are counted if the ids of all references spell them; the likelihood of another text (shorter, or in
    lower case) is not one of these bytes.

    References for which the model has no positions are left out; the counts of the scores report how many
    were scored.

    Args:
        model: of the run.
        sequence_format: how a source and its reference are presented to it.
        get_sources: returns the sources of references.
        references: what is predicted.
        source_fingerprint: the fingerprint of the sources' tokenizer, if they are texts.
    """
    texts, tokenizer = references.texts, references.tokenizer
    spells = tokenizer.decodes_exactly(texts, references.ids)
    likelihoods: list[tuple[Likelihood, Likelihood | None]] = []
    for group in _groups(sequence_format, get_sources, references):
        n_bytes = [len(texts[i].encode()) if spells else 0 for i in group.indices]
        likelihoods += _likelihoods(model, sequence_format, group, n_bytes)
    scores = _total_scores([target for target, _ in likelihoods], tokenizer.fingerprint, "")
    sources_only = [source for _, source in likelihoods if source]
    return scores + _total_scores(sources_only, source_fingerprint, "source ")


def reference_forcing_gap(
    model: Model,
    sequence_format: SequenceFormat,
    get_sources: GetSources,
    references: EncodedTexts,
) -> list[Score]:
    """Return how well the references are predicted teacher forced and free-running, and the gap.

    `heedful.tasks.metrics.forcing_gap` defines the scores. The arguments, and which references are left
    out, are those of `reference_likelihood`.
    """
    device, generator = next(model.parameters()).device, Generator(model)
    forced: list[TargetScores] = []
    free: list[TargetScores] = []
    with torch.inference_mode():
        for group in _groups(sequence_format, get_sources, references):
            batch = sequence_format.collate_scored(group.sources, group.targets)
            forced += score_targets(model, batch.to(device))
            prefix_output, _ = sequence_format.prefill(generator, group.sources, device)
            ended = [[*ids, SPECIALS.end] for ids in group.targets]
            free += score_free_running(generator, prefix_output, ended, range(len(SPECIALS)))
    return forcing_gap(forced, free, references.tokenizer.fingerprint[:12])


def reference_log_probs(
    model: Model, sequence_format: SequenceFormat, get_sources: GetSources, references: EncodedTexts
) -> dict[int, list[float]]:
    """Return the log-probabilities of the tokens of each reference and of its end token, by its index.

    The arguments, and which references are left out, are those of `reference_likelihood`.
    """
    device, log_probs = next(model.parameters()).device, {}
    with torch.inference_mode():
        for group in _groups(sequence_format, get_sources, references):
            batch = sequence_format.collate_scored(group.sources, group.targets)
            for i, score in zip(group.indices, score_targets(model, batch.to(device)), strict=True):
                log_probs[i] = score.log_probs.double().tolist()
    return log_probs


class _Group(NamedTuple):
    """References that are scored in one pass, with their sources."""

    indices: Sequence[int]
    sources: Sequence[Ids]
    targets: Sequence[list[int]]


def _groups(
    sequence_format: SequenceFormat,
    get_sources: GetSources,
    references: EncodedTexts,
) -> Iterator[_Group]:
    """Yield the references that the model has positions for, neighbours in length together."""
    order = sorted(range(len(references.texts)), key=lambda i: len(references.texts[i]))
    for start in range(0, len(order), FORCED_BATCH):
        indices = order[start : start + FORCED_BATCH]
        sources, targets = get_sources(indices), [references.ids[i] for i in indices]
        limits = [sequence_format.max_target_length(len(source)) for source in sources]
        pairs = enumerate(zip(targets, limits, strict=True))
        fitting = [k for k, (ids, limit) in pairs if limit is None or len(ids) < limit]
        lengths = np.array([[len(sources[k]), len(targets[k])] for k in fitting]).reshape(-1, 2)
        n_tokens = sequence_format.lengths(lengths[:, 0], lengths[:, 1]).sum(axis=1).tolist()
        for group in group_by_length(dict(zip(fitting, n_tokens, strict=True)), BATCH_TOKENS):
            yield _Group(
                [indices[k] for k in group], [sources[k] for k in group], [targets[k] for k in group]
            )


def _likelihoods(
    model: Model, sequence_format: SequenceFormat, group: _Group, n_bytes: Sequence[int]
) -> Iterator[tuple[Likelihood, Likelihood | None]]:
    """Yield the likelihood of each target, and that of its source and separator, if predicted."""
    with torch.inference_mode():
        batch = sequence_format.collate(group.sources, group.targets)
        scores = score_targets(model, batch.to(next(model.parameters()).device))
    for score, ids, n in zip(scores, group.targets, n_bytes, strict=True):
        log_probs = score.log_probs.double()
        n_source = len(log_probs) - len(ids) - 1
        source_nll, target_nll = -float(log_probs[:n_source].sum()), -float(log_probs[n_source:].sum())
        target = Likelihood(target_nll, len(ids) + 1, n)
        yield target, Likelihood(source_nll, n_source, 0) if n_source else None


def _total_scores(likelihoods: Sequence[Likelihood], fingerprint: str, prefix: str) -> list[Score]:
    """Return the scores of the total likelihood, with a prefix before their names."""
    if not likelihoods:
        return []
    scores = reduce(add, likelihoods).scores(fingerprint[:12])
    return [
        replace(score, name=f"{prefix}{score.name}", counts={**score.counts, "sentences": len(likelihoods)})
        for score in scores
    ]


def left_out_notes(scores: Sequence[Score], n: int) -> list[str]:
    """Note how many of ``n`` references these likelihoods leave out, if any."""
    n_left_out = n - max((score.counts.get("sentences", 0) for score in scores), default=0)
    return (
        [f"not in the perplexity, longer than the model reads: {n_left_out:,} of {n:,}"] if n_left_out else []
    )
