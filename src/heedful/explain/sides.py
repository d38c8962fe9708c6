"""What stands along the axes of an explanation: tokens with their words, patches of an image, slots.

Special tokens that heedful inserts belong to no word. ``<unk>`` is what the user wrote, and is a word.
"""

import io
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from jaxtyping import UInt8

from heedful.data.images import MODES
from heedful.explain.alignment import words_of
from heedful.explain.view import Axis
from heedful.text.normalisation import normalised
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import NO_WORD, Tokenizer

INSERTED = frozenset(range(len(SPECIALS))) - {SPECIALS.unknown}
"""Special tokens that no text has: what lies between them is read as a text of its own."""


def text_side(tokenizer: Tokenizer, ids: Sequence[int], texts: Sequence[str] = ()) -> Axis:
    """Tokens of one or several texts, with the special tokens between and around them.

    Args:
        tokenizer: of the ids.
        ids: special tokens included.
        texts: as they were given, if they were: a word that the vocabulary lacks is named as it stands there.
    """
    words: list[int] = []
    surface: list[str] = []
    parts = [(inserted, list(group)) for inserted, group in groupby(ids, key=INSERTED.__contains__)]
    n_texts = sum(not inserted for inserted, _ in parts)
    given = iter(texts if len(texts) == n_texts else [""] * n_texts)
    for inserted, own in parts:
        if inserted:
            words += [NO_WORD] * len(own)
            continue
        labels, places = words_of(tokenizer, own)
        end = places[-1]  # the end token, which `words_of` puts behind the words
        words += [NO_WORD if place == end else len(surface) + place for place in places[:-1]]
        surface += _named(labels[:end], next(given))
    return Axis(tuple(tokenizer.tokens(ids)), tuple(words), tuple(surface))


def _named(labels: Sequence[str], text: str) -> list[str]:
    """Words, with the text's own for ``<unk>``; as they are where the others do not stand in its places."""
    unknown, own = SPECIALS.names[SPECIALS.unknown], text.split()[: len(labels)]
    pairs = list(zip(labels, own, strict=False))
    if len(own) < len(labels) or any(
        a != unknown and normalised(a, "nfkc").casefold() != normalised(b, "nfkc").casefold()
        for a, b in pairs
    ):
        return list(labels)
    return [mine if label == unknown else label for label, mine in pairs]


def words_side(
    tokenizer: Tokenizer, flat: Sequence[int], words: Sequence[str], ids: Sequence[Sequence[int]]
) -> Axis:
    """Words between two special tokens: all ids, and of each word that is given its own."""
    numbers = [number for number, own in enumerate(ids) for _ in own]
    return Axis(tuple(tokenizer.tokens(flat)), (NO_WORD, *numbers, NO_WORD), tuple(words))


def patches_side(grid: tuple[int, int], before: int, pixels: UInt8[np.ndarray, "C H W"]) -> Axis:
    """Patches of an image as ``row,column``, counted from 1, and the class token before them."""
    rows, columns = grid
    patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
    tokens = (*SPECIALS.names[SPECIALS.classify : SPECIALS.classify + 1] * before, *patches)
    return Axis(tokens, (NO_WORD,) * len(tokens), grid=grid, before=before, image=_png(pixels))


def slots_side(side: Axis, factor: int) -> Axis:
    """Slots of a compressed memory (`heedful.nn.attention.compressed`): the first token, then each block."""
    whole = len(side.tokens) - len(side.tokens) % factor
    blocks = [" ".join(side.tokens[i : i + factor]) for i in range(0, whole, factor)]
    tokens = (*side.tokens[:1], *blocks)
    return Axis(tokens, (NO_WORD,) * len(tokens))


def by_words(side: Axis) -> tuple[list[str], list[int]]:
    """The words of a side in its order, and for each token its word's place.

    A token that belongs to no word is one by itself.
    """
    labels: list[str] = []
    places: list[int] = []
    known: dict[int, int] = {}
    for token, word in zip(side.tokens, side.words or (NO_WORD,) * len(side.tokens), strict=True):
        if word == NO_WORD or word not in known:
            known[word] = len(labels)
            labels.append(token if word == NO_WORD else side.surface[word])
        places.append(known[word])
    return labels, places


def merged(side: Axis) -> Axis:
    """The side with words for tokens (`by_words`); patches stay as they are."""
    labels, _ = by_words(side)
    return side if side.grid else replace(side, tokens=tuple(labels), words=(), surface=())


def _png(pixels: UInt8[np.ndarray, "C H W"]) -> bytes:
    from PIL import Image

    mode = MODES[len(pixels)]
    content = io.BytesIO()
    Image.fromarray(pixels[0] if mode == "L" else np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(
        content, "png"
    )
    return content.getvalue()
