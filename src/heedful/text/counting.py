"""Counting words and characters in one pass over a stream, with bounded memory."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

MAX_WORDS = 4_000_000
"""Different words held at once; at some 150 bytes each, 600 MB at most."""


def count_words(
    lines: Iterable[str], cut: Callable[[str], Iterable[str]], max_words: int = MAX_WORDS
) -> Counter[str]:
    """Count the words of all lines.

    When more than ``max_words`` different ones are held, those seen least are forgotten (first those
    seen once, the next time twice, and so on), which loses only what is rare. The same lines in the
    same order give the same counts.
    """
    counts: Counter[str] = Counter()
    floor = 0
    for line in lines:
        counts.update(cut(line))
        while len(counts) > max_words:
            floor += 1
            counts = Counter({word: n for word, n in counts.items() if n > floor})
    return counts


def count_characters(words: Counter[str]) -> Counter[str]:
    """Count the characters of counted words."""
    counts: Counter[str] = Counter()
    for word, n in words.items():
        for letter in word:
            counts[letter] += n
    return counts


def most_frequent(counts: Counter[str], at_most: int | None, min_frequency: int) -> list[str]:
    """The keys that occur ``min_frequency`` times, the most frequent first, ties in code-point order."""
    frequent = [key for key, n in counts.items() if n >= min_frequency]
    return sorted(frequent, key=lambda key: (-counts[key], key))[:at_most]


def restricted(words: Counter[str], alphabet: Iterable[str]) -> Counter[str]:
    """The words cut at every character outside the alphabet."""
    letters = frozenset(alphabet)
    counts: Counter[str] = Counter()
    for word, n in words.items():
        for run in [word] if letters.issuperset(word) else _runs(word, letters):
            counts[run] += n
    return counts


def _runs(word: str, letters: frozenset[str]) -> list[str]:
    return "".join(letter if letter in letters else "\0" for letter in word).split("\0")


def repeated(words: Counter[str], chunk: int = 1000) -> Iterator[list[str]]:
    """Every word as often as it was counted, in code-point order, for trainers that count again."""
    for word in sorted(words):
        whole, rest = divmod(words[word] if word else 0, chunk)
        yield from ([word] * chunk for _ in range(whole))
        yield [word] * rest
