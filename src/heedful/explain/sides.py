"""Build the sides of an explanation: tokens with their words, image patches, memory slots.

Special tokens inserted by heedful belong to no word. ``<unk>`` is part of the user's text and counts as a
word.
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
"""Special tokens that never occur in a text; they separate texts."""


def text_side(tokenizer: Tokenizer, ids: Sequence[int], texts: Sequence[str] = ()) -> Axis:
    """Return the side of one or more texts, with the special tokens around and between them.

    Args:
        tokenizer: tokenizer of the ids.
        ids: including special tokens.
        texts: the original texts, if known; unknown words are then shown in their original form.
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
        end = places[-1]  # the end token, which `words_of` appends to the words
        words += [NO_WORD if place == end else len(surface) + place for place in places[:-1]]
        surface += _named(labels[:end], next(given))
    return Axis(tuple(tokenizer.tokens(ids)), tuple(words), tuple(surface))


def _named(labels: Sequence[str], text: str) -> list[str]:
    """Return the words with each ``<unk>`` replaced by the original word.

    If the other words do not match the text, return them unchanged.
    """
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
    """Return the side of a list of words between two special tokens, given the ids of each word."""
    numbers = [number for number, own in enumerate(ids) for _ in own]
    return Axis(tuple(tokenizer.tokens(flat)), (NO_WORD, *numbers, NO_WORD), tuple(words))


def patches_side(grid: tuple[int, int], before: int, pixels: UInt8[np.ndarray, "C H W"]) -> Axis:
    """Return the side of an image: a class token if any, then patches named ``row,column`` from 1."""
    rows, columns = grid
    patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
    tokens = (*SPECIALS.names[SPECIALS.classify : SPECIALS.classify + 1] * before, *patches)
    return Axis(tokens, (NO_WORD,) * len(tokens), grid=grid, before=before, image=_png(pixels))


def slots_side(side: Axis, factor: int) -> Axis:
    """Return the side of a compressed memory (`heedful.nn.attention.compressed`).

    Its slots are the first token and one per block of ``factor`` tokens.
    """
    whole = len(side.tokens) - len(side.tokens) % factor
    blocks = [" ".join(side.tokens[i : i + factor]) for i in range(0, whole, factor)]
    tokens = (*side.tokens[:1], *blocks)
    return Axis(tokens, (NO_WORD,) * len(tokens))


def by_words(side: Axis) -> tuple[list[str], list[int]]:
    """Return the words of a side in order, and the word index of each token.

    A token that belongs to no word is treated as a word of its own.
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
    """Return the side with words instead of tokens (`by_words`); an image is returned unchanged."""
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
