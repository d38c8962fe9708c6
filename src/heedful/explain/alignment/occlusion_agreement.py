"""Select the head that agrees best with occlusion, for a run whose best head is not known.

Occlusion measures which source word a target word depends on, without attention. For the words of a pair of
the validation data, teacher forced, with p the probability of target word j (the product over its subwords):

    e[j, i] = ln p(j | x) - ln p(j | x without word i)        i*[j] = argmax_i e[j, i]

A head (or the mean of a layer's heads) at a decoder step agrees on word j if its largest weight is on i*[j].
Its agreement is the weighted share of words on which it does:

    sum_j c[j] [argmax_i w[j, i] = i*[j]] / sum_j c[j]        c[j] = max(0, 1 - exp(-e[j, i*[j]]))

c[j] is the share of the probability that is lost without word i*[j]. Words that the model predicts from the
target alone (the second of two words that always occur together, many function words) lose nothing without
any source word; there i* is arbitrary, and a plain share would count it like the others. The logarithm itself
is no good weight: a few words with very small probabilities would decide.

Occlusion: Li et al. 2016, "Understanding neural networks through representation erasure". That it links words
better than attention does: Li et al. 2019, "On the word alignment from neural machine translation".
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from heedful.errors import DataError, RequestError
from heedful.explain.alignment.best_head import ShownHead
from heedful.explain.alignment.error_rates import Words, attention_between_words, fits
from heedful.explain.alignment.word_alignment import STEPS, HeadChoice, Weights
from heedful.nn.modes import evaluating
from heedful.runs.evaluate import chosen_splits
from heedful.runs.loading import LoadedRun
from heedful.runs.prepare import rows_of
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.generation.sequence_formats import ConcatenatedFormat, EncoderDecoderFormat
from heedful.tasks.inputs.processor import SOURCE, TARGET, Tokenizers
from heedful.tasks.prediction import BATCH_TOKENS, Progress
from heedful.text.words import word_ids

N_ROWS = 50
"""Number of validation rows; there is a pass for each of their source words."""

MAX_WORDS = 100
"""Maximum number of source words of these rows; longer ones are not used."""

REMEDY = (
    "give a head with --alignment-head LAYER.HEAD (in Python, alignment_head=(layer, head), from 0), or find "
    "the best one with `heedful evaluate RUN --alignments GOLD`"
)


def select_by_occlusion(run: LoadedRun, progress: Progress = lambda n: None) -> ShownHead:
    """Return the head that agrees best with occlusion on the first validation rows.

    Args:
        run: a run that generates a text for a text.
        progress: called with the number of rows just read.

    Raises:
        DataError: the rows cannot be read, or there is nothing to compare in them.
    """
    pairs = [*islice(_validation_pairs(run), N_ROWS)]
    agreements = agreement_by_head(run, pairs, progress) if pairs else {}
    if not agreements:
        raise DataError(
            "alignment: no head is known to align, and the validation data has no rows to select one with; "
            f"{REMEDY}"
        )
    choice = max(agreements, key=lambda choice: agreements[choice])
    rows = "1 validation row" if len(pairs) == 1 else f"{len(pairs)} validation rows"
    return ShownHead(choice, f"agrees best with occlusion on {rows}: {agreements[choice]:.0%}")


def has_validation_pairs(run: LoadedRun) -> bool:
    """Return whether there are rows to select a head with; only the first ones are read."""
    try:
        return next(_validation_pairs(run), None) is not None
    except DataError:
        return False


def _validation_pairs(run: LoadedRun) -> Iterator[tuple[Words, Words]]:
    """Yield the words of the validation rows that the model reads whole.

    Raises:
        RequestError: they cannot be read.
    """
    tokenizers, pairing = run.processor, _sequence_format(run)
    try:
        for row in rows_of(run.recipe, chosen_splits(run, "valid", None)["valid"]):
            words = row.row[SOURCE].split(), row.row[TARGET].split()
            if not (1 < len(words[0]) <= MAX_WORDS and words[1]):
                continue
            n_source, n_target = (
                sum(map(len, word_ids(tokenizer, side)))
                for tokenizer, side in zip((tokenizers.source, tokenizers.target), words, strict=True)
            )
            if fits(pairing, n_source, n_target):
                yield words
    except (DataError, RequestError, OSError) as error:
        raise DataError(
            f"alignment: no head is known to align, and the validation data to select one with cannot be "
            f"read ({error}); {REMEDY}"
        ) from error


def _sequence_format(run: LoadedRun) -> EncoderDecoderFormat | ConcatenatedFormat:
    """Return how the model of a run that generates a text for a text reads both."""
    sequence_format = getattr(run.recipe, "sequence_format", None)
    assert isinstance(sequence_format, EncoderDecoderFormat | ConcatenatedFormat)
    return sequence_format


def agreement_by_head(
    run: LoadedRun, pairs: Sequence[tuple[Words, Words]], progress: Progress = lambda n: None
) -> dict[HeadChoice, float]:
    """Return the agreement of every layer and head at both decoder steps with occlusion.

    Args:
        run: a run that generates a text for a text.
        pairs: the words of sentence pairs; sources have at least two words.
        progress: called with the number of pairs just read.

    Returns:
        The agreements; empty if no target word depends on a source word.
    """
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    tokenizers, pairing = run.processor, _sequence_format(run)
    attentions = attention_between_words(run.model, tokenizers, sources, targets, pairing, STEPS)
    agreed: Counter[HeadChoice] = Counter()
    total = 0.0
    for source, target in pairs:
        effects = occlusion_of_words(run, tokenizers, source, target, pairing)
        strongest = effects.argmax(axis=1)
        lost = np.maximum(0.0, -np.expm1(-effects.max(axis=1)))
        total += float(lost.sum())
        for attention in islice(attentions, len(STEPS)):
            for choice in attention.choices():
                matches = attention.matrix(choice)[:-1].argmax(axis=1) == strongest
                agreed[choice] += float(lost[matches].sum())  # type: ignore[assignment]
        progress(1)
    return {choice: value / total for choice, value in agreed.items()} if total > 0 else {}


def occlusion_of_words(
    run: LoadedRun,
    tokenizers: Tokenizers,
    source: Words,
    target: Words,
    pairing: EncoderDecoderFormat | ConcatenatedFormat,
) -> Weights:
    """Return e of the formula above, ``[target words, source words]``."""
    source_ids, target_ids = word_ids(tokenizers.source, source), word_ids(tokenizers.target, target)
    flat_target = [i for word in target_ids for i in word]
    left_out = [None, *range(len(source_ids))]
    texts = [[i for n, word in enumerate(source_ids) if n != out for i in word] for out in left_out]
    size = max(1, BATCH_TOKENS // (len(texts[0]) + len(flat_target) + 2))
    device = next(run.model.parameters()).device
    log_probs = []
    with evaluating(run.model):
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            batch = pairing.collate_scored(part, [flat_target] * len(part)).to(device)
            log_probs += [score.log_probs.double().cpu().numpy() for score in score_targets(run.model, batch)]
    starts = np.cumsum([0, *map(len, target_ids[:-1])])
    of_words = np.add.reduceat(np.stack(log_probs)[:, : len(flat_target)], starts, axis=1)
    effects: Weights = (of_words[0] - of_words[1:]).T
    return effects
