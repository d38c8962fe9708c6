"""Metrics of sentence embeddings: retrieval by cosine similarity, and correlation with given similarities."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from heedful.tasks.metrics.regression import correlation_scores
from heedful.tasks.metrics.score import Score, check_lengths
from heedful.tasks.metrics.statistics import mean

CHUNK = 1024
"""Number of queries whose similarities exist at one time."""

Vectors = Float[np.ndarray, "n d"]


def retrieval_ranks(
    texts: Sequence[str], vectors: Vectors, answers: Sequence[str], answer_vectors: Vectors
) -> NDArray[np.int64]:
    """Return the rank of the right answer to each text among all different answers, from 1.

    Answers are ranked by similarity, wrong ones first if they are equally similar. If a text occurs several
    times, all of its answers are right, and the first of them counts.

    Args:
        texts: the queries.
        vectors: of each, of length 1.
        answers: the right answer to each query.
        answer_vectors: of each, of length 1.
    """
    numbers = {answer: number for number, answer in enumerate(dict.fromkeys(answers))}
    first = {answer: row for row, answer in reversed(list(enumerate(answers)))}
    candidates = answer_vectors[[first[answer] for answer in numbers]].astype(np.float64)
    right: defaultdict[str, set[int]] = defaultdict(set)
    for text, answer in zip(texts, answers, strict=True):
        right[text].add(numbers[answer])
    ranks = np.zeros(len(texts), dtype=np.int64)
    for start in range(0, len(texts), CHUNK):
        similarities = vectors[start : start + CHUNK].astype(np.float64) @ candidates.T
        for i, row in enumerate(similarities, start):
            is_right = [*right[texts[i]]]
            wrong = np.delete(row, is_right)
            ranks[i] = 1 + np.count_nonzero(wrong >= row[is_right].max())
    return ranks


def retrieval_scores(
    texts: Sequence[str], vectors: Vectors, answers: Sequence[str], answer_vectors: Vectors
) -> list[Score]:
    """Return the accuracy at rank 1 and the mean reciprocal rank of `retrieval_ranks`.

    Raises:
        RequestError: there are no texts, or unequal numbers of texts and answers.
    """
    check_lengths(texts, answers, "texts", "pairs")
    ranks = retrieval_ranks(texts, vectors, answers, answer_vectors)
    n_candidates = len(set(answers))
    signature = f"retrieval:text-to-pair|similarity:cosine|ties:last|candidates:{n_candidates}"
    counts = {"queries": len(texts), "candidates": n_candidates}
    return [
        Score("accuracy@1", float((ranks == 1).mean()), signature, {}, counts, partial(mean, ranks == 1)),
        Score("MRR", float((1 / ranks).mean()), signature, {}, counts, partial(mean, 1 / ranks)),
    ]


def similarity_scores(similarities: Sequence[float], given: Sequence[float]) -> list[Score]:
    """Return the Pearson and Spearman correlation of cosine similarities with given ones; NaN for constants.

    Raises:
        RequestError: there are no numbers, or unequal numbers.
    """
    check_lengths(similarities, given, "pairs", "similarities")
    x, y = np.asarray(similarities, dtype=np.float64), np.asarray(given, dtype=np.float64)
    return correlation_scores(x, y, {"pairs": len(given)}, "|similarity:cosine")
