"""Metrics of probabilities: whether they are right as often as they say, and what they are good for.

With n answers, the probability p_i that the model gave to answer i, and c_i whether it is right (0 or 1):

| score | definition |
|---|---|
| calibration error | sum over 15 bins B of p of (size of B) / n * abs(mean of c in B - mean of p in B) |
| Brier score | mean over i of sum_c (p_i(c) - y_i(c))^2; y_i(c) is 1 for the right class, otherwise 0 |
| AURC | mean over k of the share of errors among the k answers of the highest p_i |

Even a perfectly calibrated model has a calibration error in a finite sample: ``perfect`` in the details is
the 95th percentile of 1,000 samples of c_i with the probabilities p_i.

Sources: Naeini et al. 2015 and Guo et al. 2017, equation 3 (calibration error); Brier 1950; Geifman et al.
2019, "Bias-reduced uncertainty estimation for deep neural classifiers", equation 4 (AURC).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heedful.tasks.metrics.accuracy_thresholds import Thresholds
from heedful.tasks.metrics.score import Score, check_lengths
from heedful.typing import JsonObject

BINS, SAMPLES, POINTS = 15, 1000, 100
SEED = 1

Numbers = NDArray[np.float64]


def calibration_scores(
    confidences: ArrayLike,
    correct: ArrayLike,
    *,
    unit: str,
    temperature: float | None = None,
    is_independent: bool = True,
) -> list[Score]:
    """Compute the calibration error and the AURC of answers.

    Args:
        confidences: the probability of each answer.
        correct: whether each is right.
        unit: what an answer belongs to, for the counts.
        temperature: by which the logits were divided; None: not calibrated.
        is_independent: whether the answers are independent of each other, as those to different texts are.
    """
    p, c = np.asarray(confidences, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    check_lengths(p, c, "probabilities", "answers")
    counts = {unit: len(p)}
    details: JsonObject = {"temperature": temperature, "perfect": _perfect(p), "bins": _bins(p, c)}
    error = Score("calibration error", _error(p, c), f"bins:{BINS}|width:equal", details, counts)
    order = np.argsort(-p, kind="stable")
    curve = {"coverage": _coverage(p[order], c[order])}
    aurc = Score("AURC", _aurc(p[order], c[order]), "risk:error", curve, counts)
    thresholds = Thresholds.of(p[order], c[order], is_independent=is_independent)
    return [error, replace(aurc, threshold_for=thresholds)]


def brier_score(probabilities: ArrayLike, targets: Sequence[int | None], *, unit: str) -> Score:
    """Compute the Brier score.

    Args:
        probabilities: ``[n, C]``, of every class.
        targets: the right class of each item; None: it is none of them.
        unit: what an item is, for the counts.
    """
    p = np.array(probabilities, dtype=np.float64)
    check_lengths(p, targets, "probabilities", "answers")
    known = np.array([i for i, target in enumerate(targets) if target is not None], dtype=np.int64)
    missing = len(targets) - len(known)
    p[known, [target for target in targets if target is not None]] -= 1
    # An unknown class has probability 0, which adds 1 to the sum of its item.
    value = float((np.square(p).sum() + missing) / len(targets))
    return Score("Brier score", value, f"classes:{p.shape[1]}", {}, {unit: len(targets)})


def _indices(p: Numbers) -> NDArray[np.int64]:
    """Return the bin of each probability; a bin has its upper end."""
    return np.clip(np.ceil(p * BINS).astype(np.int64) - 1, 0, BINS - 1)


def _error(p: Numbers, c: Numbers) -> float:
    gaps = np.bincount(_indices(p), weights=c - p, minlength=BINS)
    return float(np.abs(gaps).sum() / len(p))


def _perfect(p: Numbers) -> float:
    """Return the 95th percentile of the error of perfectly calibrated answers."""
    generator, index = np.random.default_rng(SEED), _indices(p)
    errors = [
        np.abs(np.bincount(index, weights=(generator.random(len(p)) < p) - p, minlength=BINS)).sum() / len(p)
        for _ in range(SAMPLES)
    ]
    return float(np.percentile(errors, 95))


def _bins(p: Numbers, c: Numbers) -> list[JsonObject]:
    """Return count, mean probability and accuracy of each bin that has answers."""
    index, bins = _indices(p), list[JsonObject]()
    for i in np.unique(index).tolist():
        inside = index == i
        mean, accuracy = float(p[inside].mean()), float(c[inside].mean())
        bounds = {"low": i / BINS, "high": (i + 1) / BINS, "count": int(inside.sum())}
        bins.append({**bounds, "confidence": mean, "accuracy": accuracy})
    return bins


def _aurc(p: Numbers, c: Numbers) -> float:
    """Return the mean error of the first k answers, in expectation over the order of equal probabilities."""
    _, group = np.unique(p, return_inverse=True)
    means = np.bincount(group, weights=c) / np.bincount(group)
    errors = np.cumsum(1 - means[group])
    return float((errors / np.arange(1, len(p) + 1)).mean())


def _coverage(p: Numbers, c: Numbers) -> list[JsonObject]:
    """Return points of the curve of coverage and accuracy, for probabilities in descending order.

    A threshold never divides equal probabilities.
    """
    ends = np.append(np.flatnonzero(np.diff(p)), len(p) - 1)
    wanted = np.ceil(np.arange(1, POINTS + 1) / POINTS * len(p)).astype(np.int64) - 1
    chosen = np.unique(ends[np.searchsorted(ends, wanted)])
    right = np.cumsum(c)
    return [
        {
            "threshold": float(p[end]),
            "coverage": (end + 1) / len(p),
            "accuracy": float(right[end] / (end + 1)),
        }
        for end in chosen.tolist()
    ]
