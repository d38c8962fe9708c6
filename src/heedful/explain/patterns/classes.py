"""Head classes of a census. Imports nothing heavy, because the help of the command lists them.

`heedful.explain.patterns.census` describes how a head is classified.
"""

from typing import NamedTuple


class HeadClass(NamedTuple):
    """A class of attention heads.

    Args:
        sign: symbol in a table of all heads, so that classes differ without colours.
        colour: colour in such a table.
        meaning: what each query of a head of the class attends to.
    """

    sign: str
    colour: str
    meaning: str


CLASSES = {
    "next token": HeadClass("N", "#1f77b4", "attends to the next token"),
    "previous token": HeadClass("P", "#9ecae1", "attends to the previous token"),
    "same token": HeadClass("=", "#31a354", "attends to the same token or word, its own position too"),
    "itself": HeadClass("I", "#a1d99b", "attends to its own position"),
    "same word": HeadClass("W", "#006d2c", "attends to the other subwords of its word"),
    "first token": HeadClass("1", "#e6550d", "attends to the first token"),
    "separator": HeadClass("S", "#fdae6b", "attends to special tokens and punctuation"),
    "fixed position": HeadClass("@", "#a63603", "attends to one position, whatever the token"),
    "same segment": HeadClass("G", "#756bb1", "attends uniformly to its own segment, between separators"),
    "broad": HeadClass("B", "#d9d9d9", "attends almost uniformly to all visible tokens"),
    "none": HeadClass("·", "#ffffff", "none of these"),
}
"""Classes by priority: of classes with equal keys, the earlier names the head."""
