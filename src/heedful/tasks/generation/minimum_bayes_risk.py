"""Minimum Bayes risk decoding: of sampled texts, the one that is most like all of them.

The most probable text, which a search looks for, may be unlike all others that the model finds probable:
empty, say. Here the model's samples are both the candidates and the references (Eikema and Aziz 2022,
"Sampling-Based Approximations to Minimum Bayes Risk Decoding for Neural Machine Translation")::

    utility(y) = 1/n Σ_i u(y, y_i)        answer = argmax_y utility(y)

of samples y_1 … y_n, with chrF as u (`heedful.tasks.metrics.pairwise_chrf`). Equal texts are one candidate,
and count as often as they were drawn. Without rare tokens, samples are better candidates (Freitag et al.
2023, "Epsilon Sampling Rocks: Investigating Sampling Strategies for Minimum Bayes Risk Decoding").

It compares texts, so it is no decoder: those see tokens alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heedful.decoding.config import DecodingConfig, MbrConfig, n_answers
from heedful.decoding.protocol import Hypothesis
from heedful.tasks.generation.streaming import Detokenizer
from heedful.tasks.metrics.pairwise_chrf import pairwise_chrf
from heedful.tasks.prediction import Prediction


def answers(
    detokenizer: Detokenizer, hypotheses: Sequence[Hypothesis], decoding: DecodingConfig
) -> list[Prediction]:
    """Return the answers among the hypotheses of one input, all with different texts, best first.

    Args:
        detokenizer: converts hypotheses to texts.
        hypotheses: as the decoder returned them.
        decoding: its configuration.
    """
    if isinstance(decoding, MbrConfig):
        return by_expected_utility(detokenizer, hypotheses)[: decoding.n_best]
    return detokenizer.predictions(hypotheses, n_answers(decoding))


def by_expected_utility(detokenizer: Detokenizer, samples: Sequence[Hypothesis]) -> list[Prediction]:
    """Return the different texts of samples by descending utility; of equal utilities, the first one drawn.

    The ``score`` of each is its expected utility, 0 to 100, over all samples, itself included; all else is
    that of the first sample with the text. Texts that do not hold their constraints come last.
    """
    counts: Counter[str] = Counter()
    candidates: dict[str, tuple[Prediction, bool]] = {}
    for sample in samples:
        prediction = detokenizer.prediction(sample)
        counts[prediction.text] += 1
        _, is_held = candidates.get(prediction.text, (prediction, False))
        if not is_held:
            candidates[prediction.text] = prediction, not sample.violated
    weights = np.array([counts[text] for text in candidates], np.float64)
    utilities = (pairwise_chrf(list(candidates)) * weights).sum(axis=1) / weights.sum()
    pairs = zip(candidates.values(), utilities.tolist(), strict=True)
    scored = [(replace(prediction, score=utility), is_held) for (prediction, is_held), utility in pairs]
    scored.sort(key=lambda pair: (not pair[1], -(pair[0].score or 0.0)))
    return [prediction for prediction, _ in scored]
