"""Character error rate of generated texts, for transcriptions, transliterations and spelling correction.

In a recipe:

    evaluation:
      metrics: [{kind: "heedful.tasks.metrics.error_rates:CharacterErrorRate", column: target}]
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from heedful.errors import RequestError
from heedful.tasks.metrics.score import Score, check_lengths
from heedful.tasks.metrics.statistics import ratio
from heedful.tasks.prediction import Prediction
from heedful.text.normalisation import normalised
from heedful.typing import JsonMapping


class CharacterErrorRate:
    """Character edits from the references to the predictions, per character of the references::

        CER = sum_i distance(prediction_i, reference_i) / sum_i length(reference_i)

    0 is best; more than 1 is possible. Characters are Unicode code points in normal form NFC. Of several
    references, the one with the fewest edits per character counts.

    Args:
        column: column of the reference, a text or a list of texts.
        lowercase: whether case is ignored.
    """

    def __init__(self, column: str = "target", *, lowercase: bool = False) -> None:
        self.column, self.lowercase = column, lowercase

    def __call__(self, rows: Sequence[JsonMapping], predictions: Sequence[Prediction]) -> Score:
        """Compute the score of a data set.

        Raises:
            RequestError: if a row lacks the column or has no reference, there are no rows, or all references
                are empty.
        """
        check_lengths(predictions, rows, "predictions", "rows")
        totals: list[tuple[int, int]] = []
        for number, (row, prediction) in enumerate(zip(rows, predictions, strict=True), 1):
            if self.column not in row:
                raise RequestError(
                    f"CharacterErrorRate: column={self.column} is not in the data, which have {sorted(row)}"
                )
            value, hypothesis = row[self.column], self._normalised(prediction.text)
            references = [self._normalised(text) for text in ([value] if isinstance(value, str) else value)]
            if not references:
                raise RequestError(
                    f"CharacterErrorRate: row {number} has no reference in column={self.column}; add one, or "
                    "name another column"
                )
            distances = [(edit_distance(hypothesis, reference), len(reference)) for reference in references]
            n_edits, n_characters = min(distances, key=lambda pair: pair[0] / max(pair[1], 1))
            totals.append((n_edits, n_characters))
        all_edits, all_lengths = zip(*totals, strict=True)
        edits, length = sum(all_edits), sum(all_lengths)
        if not length:
            raise RequestError(f"CharacterErrorRate: all references in column={self.column} are empty")
        signature = f"column:{self.column}|case:{'lc' if self.lowercase else 'mixed'}|norm:nfc"
        counts = {"texts": len(rows), "characters": length, "edits": edits}
        statistics = partial(ratio, all_edits, all_lengths)
        return Score("CER", edits / length, signature, counts=counts, statistics=statistics)

    def _normalised(self, text: str) -> str:
        text = normalised(text, "nfc")
        return text.lower() if self.lowercase else text


def edit_distance(first: str, second: str) -> int:
    """Return the fewest insertions, deletions and substitutions of characters between two texts.

    Source: Levenshtein 1966. Row i of the table has the distances of the first i characters to every prefix
    of the other text; O(len(first) * len(second)).
    """
    codes = np.array([ord(character) for character in second], dtype=np.int64)
    columns = np.arange(len(second) + 1)
    row = columns
    for i, character in enumerate(first, 1):
        substituted = row[:-1] + (codes != ord(character))
        row = np.concatenate([[i], np.minimum(substituted, row[1:] + 1)])
        # An insertion costs 1 per column: min over k <= j of row[k] + j - k.
        row = np.minimum.accumulate(row - columns) + columns
    return int(row[-1])
