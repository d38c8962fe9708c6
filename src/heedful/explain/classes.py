"""Head classes of a census, their descriptions and symbols. Imports nothing heavy.

`heedful.explain.patterns` describes how a head is classified.
"""

from typing import Literal, get_args

Pattern = Literal[
    "next token",
    "previous token",
    "same token",
    "itself",
    "same word",
    "first token",
    "separator",
    "fixed position",
    "same segment",
    "broad",
    "none",
]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
"""Classes by priority: of classes with equal keys, the earlier names the head."""

MEANINGS: dict[Pattern, str] = {
    "next token": "attends to the next token",
    "previous token": "attends to the previous token",
    "same token": "attends to the same token or word, its own position too",
    "itself": "attends to its own position",
    "same word": "attends to the other subwords of its word",
    "first token": "attends to the first token",
    "separator": "attends to special tokens and punctuation",
    "fixed position": "attends to one position, whatever the token",
    "same segment": "attends uniformly to its own segment, between separators",
    "broad": "attends almost uniformly to all visible tokens",
    "none": "none of these",
}
"""What each query of a head of the class attends to."""

SIGNS: dict[Pattern, str] = {
    "next token": "N",
    "previous token": "P",
    "same token": "=",
    "itself": "I",
    "same word": "W",
    "first token": "1",
    "separator": "S",
    "fixed position": "@",
    "same segment": "G",
    "broad": "B",
    "none": "·",
}
"""Symbol of each class in a table of all heads, so that classes differ without colours."""
