"""Entities: the spans that tags encode, as parts of the text."""

from collections.abc import Sequence

from heedful.tasks.metrics.spans import UNTYPED, Span
from heedful.typing import JsonObject


def entities_of(text: str, words: Sequence[str], spans: Sequence[Span]) -> list[JsonObject]:
    """Return the text, label and place of each span.

    Args:
        text: has the words in order, with anything between them.
        words: the words.
        spans: of words.

    Returns:
        ``text``; ``label``, missing if the tags have no types; ``start`` and ``end``: its first character and
        the one after its last, from 0.
    """
    bounds, position = list[tuple[int, int]](), 0
    words = words if spans else ()
    for word in words:
        start = text.index(word, position)
        position = start + len(word)
        bounds.append((start, position))
    entities = list[JsonObject]()
    for label, first, last in spans:
        start, end = bounds[first][0], bounds[last - 1][1]
        named = {} if label == UNTYPED else {"label": label}
        entities.append({"text": text[start:end], **named, "start": start, "end": end})
    return entities
