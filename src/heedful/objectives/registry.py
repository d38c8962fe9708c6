"""The losses that recipes may name (``objective.loss``): one line here makes one known.

Each is made of the recipe's section ``objective``, and gives the terms that are told of its kind: ``token``
and ``nll`` for the next token, ``class`` and ``correct`` for the class of a sequence,
``tag`` and ``correct`` for the tag of a word.
"""

from collections.abc import Callable, Mapping
from typing import Any

from heedful.objectives.classification import SequenceClass
from heedful.objectives.cross_entropy import NextToken
from heedful.objectives.tagging import TokenClass
from heedful.objectives.terms import Objective

Losses = Mapping[str, Callable[[Any], Objective]]

NEXT_TOKEN: Losses = {
    "cross-entropy": lambda c: NextToken(c.label_smoothing, c.chunk),
}

CLASS: Losses = {
    "cross-entropy": lambda c: SequenceClass(c.label_smoothing),
}

TAG: Losses = {
    "cross-entropy": lambda c: TokenClass(c.label_smoothing),
}
