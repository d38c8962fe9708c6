"""The words of a text, each with its ids, and which of its characters every id stands for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from heedful.text.tokenizer import Tokenizer

Span = tuple[int, int]
"""The first character of a stretch of text, and the first one after it."""

_WORD = re.compile(r"\S+")


def word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of every word of a text, as they stand in ``" ".join(words)``.

    Joined, they are the ids of that text, if the kind cuts words at blanks, as all but ``unigram`` of the
    subword kinds surely do. A word that leaves no id behind (a lone control character, say) is ``<unk>``.

    Raises:
        DataError: a word holds a lone surrogate.
    """
    return word_ids_of_all(tokenizer, [words])[0]


def word_ids_of_all(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """`word_ids` of several texts; what occurs often is encoded once."""
    # A kind that puts a space before every text does so before every word by itself.
    blank = "" if tokenizer.model.space else " "
    first = list({words[0]: None for words in texts if words})
    later = list({word: None for words in texts for word in words[1:]})
    tables = (
        dict(zip(first, tokenizer.encode_batch(first), strict=True)),
        dict(zip(later, tokenizer.encode_parts(["", *later], blank)[1:], strict=True)),
    )
    unknown = [tokenizer.specials.unknown]
    return [[tables[i > 0][word] or unknown for i, word in enumerate(words)] for words in texts]


@dataclass(frozen=True)
class Spelled:
    """The ids of a text, with the stretch of the text that each stands for.

    Args:
        ids: of all words.
        spans: of each id, its characters; all of its word where the ids do not tell.
    """

    ids: list[int]
    spans: list[Span]

    def covering(self, span: Span) -> Span | None:
        """The first and the last id that have characters of a stretch of text; None if none has."""
        touched = [i for i, (a, b) in enumerate(self.spans) if a < span[1] and b > span[0]]
        return (touched[0], touched[-1]) if touched else None


def spelled(tokenizer: Tokenizer, text: str) -> Spelled:
    """Read a text word by word, as white space parts them."""
    found = Spelled([], [])
    places = [match.span() for match in _WORD.finditer(text)]
    words = [text[first:last] for first, last in places]
    for (first, _), word, ids in zip(places, words, word_ids(tokenizer, words), strict=True):
        found.ids.extend(ids)
        found.spans.extend((first + a, first + b) for a, b in spans(tokenizer, word, ids))
    return found


def spans(tokenizer: Tokenizer, word: str, ids: Sequence[int]) -> list[Span]:
    """The characters of a word that each of its ids stands for.

    Pre-processing, unknown pieces and normalisation may change how long a word is; then every id stands for
    the whole of it.
    """
    sizes = [len(tokenizer.model.pieces[i].strip()) for i in ids]
    owners = [number for number, sign in enumerate(word) for _ in sign.encode()]
    if sum(sizes) != len(owners):
        return [(0, len(word))] * len(ids)
    bounds = list(accumulate(sizes, initial=0))
    # A piece of blanks alone has no character of the word.
    return [(owners[a], owners[b - 1] + 1) if b > a else (0, 0) for a, b in pairwise(bounds)]


def blank_words(text: str) -> list[str]:
    """The words of a text that was tokenised before: what lies between blanks and tabs, and only those.

    No other white space parts words, so that they are numbered as by the tools that align them.
    """
    return [word for word in text.replace("\t", " ").split(" ") if word]


def word_places(
    tokenizer: Tokenizer, texts: Sequence[Sequence[str]], ids: Sequence[Sequence[int]]
) -> list[list[int] | None]:
    """For each id of each text the number of its word, from 0.

    Args:
        tokenizer: made the ids.
        texts: the words of each text.
        ids: of each text as a whole.

    Returns:
        None for a text whose ids are not those of its words one by one (`word_ids`). So it is where the
        tokenizer joins words, or where pre-processing looks at the words around (Moses does at times).
    """
    found: list[list[int] | None] = []
    for own, whole in zip(word_ids_of_all(tokenizer, texts), ids, strict=True):
        same = [i for word in own for i in word] == list(whole)
        found.append([number for number, word in enumerate(own) for _ in word] if same else None)
    return found
