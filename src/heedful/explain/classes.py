"""The classes of heads that a census tells apart, in words. Nothing heavy is imported here.

How a head comes to its class, and what counts as a class's tokens, stands in `heedful.explain.patterns`.
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
"""Where two explain the same (a class token is the first and special), the earlier one names the head."""

MEANINGS: dict[Pattern, str] = {
    "next token": "looks at the token after",
    "previous token": "looks at the token before",
    "same token": "looks at all places with the same token or word, its own too",
    "itself": "looks at its own place",
    "same word": "looks at the other pieces of its word",
    "first token": "looks at the first token",
    "separator": "looks at special tokens and punctuation, where nothing is to be read",
    "fixed position": "looks at one and the same place, whatever stands there",
    "same segment": "looks evenly at its own segment, between separators",
    "broad": "looks nearly evenly at all it sees",
    "none": "none of these",
}
"""What a head of each class does, from a token's point of view."""

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
"""What stands for each in a table of all heads, which tells them apart without colours."""
