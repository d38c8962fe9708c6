"""Translation baselines without attention, built from the gold alignments of the training pairs.

Both keep the order of the source, so the gap between them and a model is due to reordering and context.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from heedful.data.corpora.grammar import Pair

Translate = Callable[[str], str]
Words = tuple[str, ...]


def word_by_word(pairs: Iterable[Pair]) -> Translate:
    """Return a translator that replaces every source word by its most frequent aligned translation.

    A word that is mostly unaligned is dropped; several target words aligned to one word count as a unit.
    Unknown words are copied.
    """
    counts: dict[str, Counter[Words]] = defaultdict(Counter)
    for pair in pairs:
        target = pair.target.split()
        aligned: dict[int, list[str]] = defaultdict(list)
        for i, j in pair.alignment:
            aligned[i].append(target[j])
        for i, word in enumerate(pair.source.split()):
            counts[word][tuple(aligned[i])] += 1
    table: dict[Words, Words] = {(word,): _most_frequent(counter) for word, counter in counts.items()}
    return lambda source: " ".join(_cover(tuple(source.split()), table, 1))


def monotone(pairs: Iterable[Pair], longest: int = 3) -> Translate:
    """Return a monotone phrase-based translator: the longest known source phrase first, from left to right.

    Phrases of up to ``longest`` source words are those consistent with the alignment (Koehn, Och and Marcu
    2003): no word of either side is aligned to a word outside the phrase. Each gets its most frequent
    translation in training.
    """
    counts: dict[Words, Counter[Words]] = defaultdict(Counter)
    for pair in pairs:
        for phrase, translation in phrases(pair, longest):
            counts[phrase][translation] += 1
    table = {phrase: _most_frequent(counter) for phrase, counter in counts.items()}
    return lambda source: " ".join(_cover(tuple(source.split()), table, longest))


def phrases(pair: Pair, longest: int) -> Iterable[tuple[Words, Words]]:
    """Yield the phrase pairs of a sentence pair that are consistent with its alignment.

    The target side is as short as possible: unaligned target words at its edges are dropped.
    """
    source, target = tuple(pair.source.split()), tuple(pair.target.split())
    forward: dict[int, list[int]] = defaultdict(list)
    backward: dict[int, list[int]] = defaultdict(list)
    for i, j in pair.alignment:
        forward[i].append(j)
        backward[j].append(i)
    for begin in range(len(source)):
        for end in range(begin + 1, min(begin + longest, len(source)) + 1):
            inside = [j for i in range(begin, end) for j in forward[i]]
            if not inside:
                continue
            first, last = min(inside), max(inside) + 1
            if all(begin <= i < end for j in range(first, last) for i in backward[j]):
                yield source[begin:end], target[first:last]


def _most_frequent(counter: Counter[Words]) -> Words:
    return min(counter, key=lambda words: (-counter[words], words))


def _cover(source: Words, table: dict[Words, Words], longest: int) -> list[str]:
    translated: list[str] = []
    position = 0
    while position < len(source):
        for length in range(min(longest, len(source) - position), 0, -1):
            phrase = source[position : position + length]
            if phrase in table:
                translated += table[phrase]
                break
        else:
            length = 1
            translated += _unknown(source[position], longest)
        position += length
    return translated


def _unknown(word: str, longest: int) -> Words:
    """Copy an unknown word; drop a word without its own phrase ("the" in Tamil)."""
    return (word,) if longest == 1 else ()
