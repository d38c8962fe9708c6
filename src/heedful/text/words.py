"""The words of a text with their ids, and the characters that each id covers."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from heedful.text.normalisation import normalised
from heedful.text.scripts import NO_WORD, characters, has_script_without_spaces, segments
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

Span = tuple[int, int]
"""The start and end (exclusive) of a span of characters."""

END = "</s>"
"""Name of the end token among words."""

_WORD = re.compile(r"\S+")


def word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """Return the ids of every word, as encoded in ``" ".join(words)``.

    Concatenated, they are the ids of that text if the kind splits words at spaces, as all subword kinds but
    ``unigram`` always do. A word without ids (a lone control character, for example) becomes ``<unk>``.

    Raises:
        DataError: if a word contains a lone surrogate.
    """
    return word_ids_of_all(tokenizer, [words])[0]


def word_ids_of_all(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """Return the `word_ids` of several texts; each distinct word is encoded once."""
    # A kind that prepends a space to every text does so for every word that is encoded alone.
    separator = "" if tokenizer.model.space else " "
    first = list({words[0]: None for words in texts if words})
    later = list({word: None for words in texts for word in words[1:]})
    tables = (
        dict(zip(first, tokenizer.encode_batch(first), strict=True)),
        dict(zip(later, tokenizer.encode_parts(["", *later], separator)[1:], strict=True)),
    )
    unknown = [tokenizer.specials.unknown]
    return [[tables[i > 0][word] or unknown for i, word in enumerate(words)] for words in texts]


@dataclass(frozen=True)
class IdsWithSpans:
    """The ids of a text, with the span of characters that each covers.

    Args:
        ids: the ids of all words.
        spans: the characters of each id, in the text as it was given; its whole word if they cannot be
            determined.
    """

    ids: list[int]
    spans: list[Span]

    def covering(self, span: Span) -> Span | None:
        """Return the first and last index of the ids that overlap a span; None if none does."""
        overlapping = [i for i, (a, b) in enumerate(self.spans) if a < span[1] and b > span[0]]
        return (overlapping[0], overlapping[-1]) if overlapping else None


def encode_with_spans(tokenizer: Tokenizer, text: str) -> IdsWithSpans:
    """Encode a text word by word, split at white space."""
    encoded = IdsWithSpans([], [])
    word_spans = [match.span() for match in _WORD.finditer(text)]
    words = [text[first:last] for first, last in word_spans]
    for (first, _), word, ids in zip(word_spans, words, word_ids(tokenizer, words), strict=True):
        encoded.ids.extend(ids)
        encoded.spans.extend((first + a, first + b) for a, b in spans(tokenizer, word, ids))
    return encoded


def spans(tokenizer: Tokenizer, word: str, ids: Sequence[int]) -> list[Span]:
    """Return the span of characters of a word that each of its ids covers.

    If pre-processing changes the length of a word, an id covers all characters (with their marks) that its
    piece was made of. An unknown piece covers what lies between its neighbours. If the pieces do not spell
    the pre-processed word, or it is not that of its characters one by one, every id covers the whole word.
    """
    pieces = [tokenizer.model.pieces[i].strip() for i in ids]
    span_of_byte = [(index, index + 1) for index, character in enumerate(word) for _ in character.encode()]
    if sum(map(len, pieces)) == len(span_of_byte):
        bounds = list(accumulate(map(len, pieces), initial=0))
        byte_spans: list[Span] | None = list(pairwise(bounds))
    else:
        prepared, span_of_byte = _prepared_by_character(tokenizer, word)
        known = [None if i == tokenizer.specials.unknown else p for i, p in zip(ids, pieces, strict=True)]
        byte_spans = _byte_spans(known, prepared) if prepared else None
    if byte_spans is None:
        return [(0, len(word))] * len(ids)
    # A piece of spaces only covers no character of the word.
    return [(span_of_byte[a][0], span_of_byte[b - 1][1]) if b > a else (0, 0) for a, b in byte_spans]


def _prepared_by_character(tokenizer: Tokenizer, word: str) -> tuple[bytes, list[Span]]:
    """Return a pre-processed word in UTF-8, and for each byte the span of the characters it was made of.

    Returns:
        Nothing twice if pre-processing the characters one by one gives another text.
    """
    prepare = tokenizer.preprocessing.apply
    parts, span_of_byte, start = [], [], 0
    for character in characters(word):
        parts.append(prepare(character))
        span_of_byte += [(start, start + len(character))] * len(parts[-1].encode())
        start += len(character)
    prepared = "".join(parts)
    return (prepared.encode(), span_of_byte) if prepared == prepare(word) else (b"", [])


def _byte_spans(pieces: Sequence[bytes | None], text: bytes) -> list[Span] | None:
    """Return the bytes of a text that each of its pieces covers; None if the text does not consist of them.

    Pieces that are None cover the bytes up to the next piece that is not: together, or one character each if
    there are as many characters.
    """
    byte_spans: list[Span] = []
    start, n_unknown = 0, 0
    for piece in (*pieces, b""):
        if piece is None:
            n_unknown += 1
            continue
        is_last = len(byte_spans) + n_unknown == len(pieces)
        end = len(text) if is_last else text.find(piece, start + n_unknown)
        if end < 0 or (end > start) != (n_unknown > 0):
            return None
        byte_spans += _shared(text, start, end, n_unknown)
        if not is_last:
            byte_spans.append((end, end + len(piece)))
        start, n_unknown = end + len(piece), 0
    return byte_spans


def _shared(text: bytes, start: int, end: int, n: int) -> list[Span]:
    """Return the spans of n unknown pieces: a character each, or all bytes from start to end."""
    sizes = [len(character.encode()) for character in text[start:end].decode("utf-8", "replace")]
    if len(sizes) != n or sum(sizes) != end - start:
        return [(start, end)] * n
    return list(pairwise(accumulate(sizes, initial=start)))


def blank_words(text: str) -> list[str]:
    """Split a tokenised text into words at spaces and tabs only.

    Other white space does not separate words, so that words are numbered as by word alignment tools.
    """
    return [word for word in text.replace("\t", " ").split(" ") if word]


def word_indices_of_ids(
    tokenizer: Tokenizer, texts: Sequence[Sequence[str]], ids: Sequence[Sequence[int]]
) -> list[list[int] | None]:
    """Return the word index (from 0) of each id of each text.

    Args:
        tokenizer: the tokenizer that produced the ids.
        texts: the words of each text.
        ids: the ids of each text, encoded as a whole.

    Returns:
        The word indices of each text, or None if its ids differ from those of its words encoded one by one
        (`word_ids`): the tokenizer joined words, or pre-processing depends on neighbouring words (as
        sometimes with Moses).
    """
    indices_by_text: list[list[int] | None] = []
    for ids_by_word, text_ids in zip(word_ids_of_all(tokenizer, texts), ids, strict=True):
        is_same = [i for word in ids_by_word for i in word] == list(text_ids)
        indices_by_text.append(
            [index for index, word in enumerate(ids_by_word) for _ in word] if is_same else None
        )
    return indices_by_text


def word_of_each_id(
    tokenizer: Tokenizer, ids: Sequence[int], words: Sequence[str]
) -> list[int | None] | None:
    """Return the index (from 0) of the word that each id belongs to; None for an id that belongs to no word.

    If the ids are not those of the words encoded one by one, the characters of their pieces are compared with
    those of the pre-processed words, without white space. So it does not matter how words are separated, or
    which of several spellings in pieces a model has generated. A piece that spans several words belongs to
    the first, white space to the word after it. Special tokens belong to no word.

    Args:
        tokenizer: of the ids.
        ids: the ids of the text, or of its beginning.
        words: the words of the text as it was given, or as it was decoded.

    Returns:
        None if the ids do not spell the words (pre-processing depends on neighbouring words, for example), or
        there are unknown tokens and the ids are not those of the words one by one.
    """
    indices_by_word = ((i, index) for index, word in enumerate(word_ids(tokenizer, words)) for i in word)
    expected_ids, expected = zip(*indices_by_word, strict=True) if words else ((), ())
    if expected_ids[: len(ids)] == tuple(ids):
        return list(expected[: len(ids)])
    if tokenizer.specials.unknown in ids:  # its characters cannot be compared
        return None
    spelled = ["".join(tokenizer.preprocessing.apply(word).split()) for word in words]
    word_of_character = [index for index, word in enumerate(spelled) for _ in word]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts, starts, n = [], [], 0
    for i, piece in zip(ids, tokenizer.token_bytes(ids, is_continuation=False), strict=True):
        starts.append(len(word_of_character) if i < len(tokenizer.specials) else n)
        parts.append("".join(decoder.decode(piece).split()))
        n += len(parts[-1])
    if not "".join(spelled).startswith("".join(parts)):
        return None
    return [word_of_character[start] if start < len(word_of_character) else None for start in starts]


def surface_words(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the words of the ids and the end token, and the word index of each id and of the end token.

    In scripts without spaces, each piece is a word (`heedful.text.scripts`). White space belongs to the
    following word. An unknown token is a word ``<unk>``, unless it is inside a word.
    """
    words, word_indices = tokenizer.split_words(ids)
    keys: list[tuple[int, int]] = []
    next_key = (len(words), 0)
    for position in range(len(ids) - 1, -1, -1):
        if word_indices[position] != NO_WORD:
            next_key = (word_indices[position], 0)
        elif ids[position] == tokenizer.specials.unknown and not _inside(word_indices, position):
            next_key = (next_key[0], next_key[1] - 1)
        keys.insert(0, next_key)
    keys.append((len(words), 0))
    order = {key: position for position, key in enumerate(sorted(set(keys)))}
    labels = [*words, END]
    unknown = tokenizer.specials.names[tokenizer.specials.unknown]
    return [unknown if n_before else labels[index] for index, n_before in order], [order[key] for key in keys]


def with_original_words(words: Sequence[str], text: str) -> list[str]:
    """Return the words of a text with each ``<unk>`` replaced by what the text has there.

    If the other words do not match the text, or it is not clear which part of the text is unknown, return
    them unchanged.
    """
    unknown = SPECIALS.names[SPECIALS.unknown]
    if has_script_without_spaces(text):
        return _located_words(words, text, unknown)
    text_words = text.split()[: len(words)]
    pairs = list(zip(words, text_words, strict=False))
    if len(text_words) < len(words) or any(
        a != unknown and normalised(a, "nfkc").casefold() != normalised(b, "nfkc").casefold()
        for a, b in pairs
    ):
        return list(words)
    return [word if label == unknown else label for label, word in pairs]


def _located_words(words: Sequence[str], text: str, unknown: str) -> list[str]:
    """Return `with_original_words` by the positions of the known words in the text."""
    composed = normalised(text, "nfc")
    lowered = composed.lower() if len(composed.lower()) == len(composed) else composed
    located: list[str] = []
    start, n_unknown = 0, 0
    for position, word in enumerate((*words, "")):
        if word == unknown:
            n_unknown += 1
            continue
        is_last = position == len(words)
        end = len(composed) if is_last else lowered.find(word.lower(), start + n_unknown)
        between = segments(composed[start : max(end, start)])
        if end < 0 or (n_unknown == 0 and between and not is_last):
            return list(words)
        if n_unknown == 1 and not is_last:
            located.append("".join(between))
        else:
            located += between if len(between) == n_unknown else [unknown] * n_unknown
        start, n_unknown = end + len(word), 0
        located += [word] * (not is_last)
    return located


def _inside(word_indices: Sequence[int], position: int) -> bool:
    """Whether the subwords before and after a position belong to the same word."""
    return (
        0 < position < len(word_indices) - 1
        and word_indices[position - 1] == word_indices[position + 1] != NO_WORD
    )
