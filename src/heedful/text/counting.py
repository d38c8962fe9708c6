"""Count words and characters in one pass over a stream, with bounded memory."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

MAX_WORDS = 4_000_000
"""Maximum number of distinct words in memory; about 150 bytes each, so at most 600 MB."""


def count_words(
    lines: Iterable[str], cut: Callable[[str], Iterable[str]], max_words: int = MAX_WORDS
) -> Counter[str]:
    """Count the words of all lines.

    When there are more than ``max_words`` distinct words, the rarest are dropped (first those with count
    1, the next time those with count 2, and so on). The same lines in the same order give the same
    counts.
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
    """Count characters, weighted by the counts of their words."""
    counts: Counter[str] = Counter()
    for word, n in words.items():
        for letter in word:
            counts[letter] += n
    return counts


def most_frequent(counts: Counter[str], at_most: int | None, min_frequency: int) -> list[str]:
    """Return the keys counted at least ``min_frequency`` times, by frequency, ties in code-point order."""
    frequent = [key for key, n in counts.items() if n >= min_frequency]
    return sorted(frequent, key=lambda key: (-counts[key], key))[:at_most]


def restricted(words: Counter[str], alphabet: Iterable[str]) -> Counter[str]:
    """Split the words at every character outside the alphabet."""
    letters = frozenset(alphabet)
    counts: Counter[str] = Counter()
    for word, n in words.items():
        for run in [word] if letters.issuperset(word) else _runs(word, letters):
            counts[run] += n
    return counts


def _runs(word: str, letters: frozenset[str]) -> list[str]:
    return "".join(letter if letter in letters else "\0" for letter in word).split("\0")


def repeated(words: Counter[str], chunk: int = 1000) -> Iterator[list[str]]:
    """Yield every word as often as it was counted, in code-point order, for trainers that count again."""
    for word in sorted(words):
        whole, rest = divmod(words[word] if word else 0, chunk)
        yield from ([word] * chunk for _ in range(whole))
        yield [word] * rest
