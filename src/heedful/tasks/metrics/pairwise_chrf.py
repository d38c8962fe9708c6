"""chrF of each text of a list compared with each other one: the utility of minimum Bayes risk decoding.

The same numbers as sacrebleu's ``sentence_chrf`` (Popović 2015), which counts n-grams again for each pair.
Here they are counted once per text: the k-th occurrence of an n-gram in a text is a feature of it, so the
matches of two texts, ``Σ_g min(count_i(g), count_j(g))``, are the features that they share, and those of all
pairs one matrix product. Axes: M texts, F features.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

ORDER = 6
"""Length of the longest n-grams, in characters without white space."""

_BETA2 = 4.0
"""Recall counts twice as much as precision."""

_BLOCK = 1 << 22
"""Entries of the matrix ``[M, F]`` that exist at one time."""


def pairwise_chrf(texts: Sequence[str]) -> Float[np.ndarray, "M M"]:
    """Return chrF, 0 to 100, of hypothesis i compared with reference j in row i and column j.

    Of the orders 1 to `ORDER` that both texts have n-grams of, precision and recall are averaged::

        chrF = 100 · 5 P R / (4 P + R)
    """
    squeezed = ["".join(text.split()) for text in texts]
    shape = (len(texts), len(texts))
    precision, recall, n_orders = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for order in range(1, ORDER + 1):
        matches = _matches(squeezed, order)
        n_grams = matches.diagonal()
        is_counted = (n_grams[:, None] > 0) & (n_grams > 0)
        precision += np.where(is_counted, matches / n_grams.clip(min=1)[:, None], 0.0)
        recall += np.where(is_counted, matches / n_grams.clip(min=1), 0.0)
        n_orders += is_counted
    precision, recall = precision / n_orders.clip(min=1), recall / n_orders.clip(min=1)
    denominator = _BETA2 * precision + recall
    score = (1 + _BETA2) * precision * recall / np.where(denominator > 0, denominator, 1.0)
    return 100 * score


def _matches(texts: Sequence[str], order: int) -> Int[np.ndarray, "M M"]:
    """Return how many n-grams of some order each pair of texts shares; on the diagonal, all of a text."""
    numbers: dict[tuple[str, int], int] = {}
    rows, columns = [], []
    for row, text in enumerate(texts):
        n_seen: dict[str, int] = {}
        for start in range(len(text) - order + 1):
            gram = text[start : start + order]
            k = n_seen[gram] = n_seen.get(gram, 0) + 1
            rows.append(row)
            columns.append(numbers.setdefault((gram, k), len(numbers)))
    of_row, of_column = np.array(rows, np.int64), np.array(columns, np.int64)
    is_shared = np.bincount(of_column, minlength=1) > 1
    shared = is_shared[of_column]
    new_numbers = is_shared.cumsum() - 1
    matches = np.zeros((len(texts), len(texts)))
    n_columns, size = int(is_shared.sum()), max(1, _BLOCK // max(1, len(texts)))
    shared_rows, shared_columns = of_row[shared], new_numbers[of_column[shared]]
    for start in range(0, n_columns, size):
        block = np.zeros((len(texts), min(size, n_columns - start)), np.float32)
        inside = (shared_columns >= start) & (shared_columns < start + size)
        block[shared_rows[inside], shared_columns[inside] - start] = 1
        matches += block @ block.T
    np.fill_diagonal(matches, np.bincount(of_row, minlength=len(texts)))
    return matches.round().astype(np.int64)
