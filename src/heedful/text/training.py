"""Train a tokenizer: count words once, choose the alphabet, let the library learn the rest.

Training is deterministic for every kind but ``unigram``: the library's expectation maximisation sums floats
in an order that changes between runs. Train such a tokenizer once, save it, and compare tokenizers by
fingerprint.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import assert_never

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import models, trainers

from heedful.errors import DataError, RequestError
from heedful.text.configuration import (
    BpeConfig,
    ByteBpeConfig,
    ByteConfig,
    CharacterConfig,
    PreprocessingConfig,
    SentencePieceConfig,
    TokenizerConfig,
    UnigramConfig,
    WordConfig,
    WordPieceConfig,
)
from heedful.text.normalisation import refuse_surrogates
from heedful.text.specials import SPECIALS
from heedful.text.subwords import (
    CONTINUES,
    UNKNOWN,
    as_vocabulary,
    build,
    byte_letters,
    first_space,
    library_data,
    normalizer,
    pre_tokenizer,
    reserved,
)
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

Words = Counter[str]

FEWEST_CHARACTERS = 1000
"""Number of characters that get an entry even if fewer suffice for the coverage."""

MAX_WORDS = 4_000_000
"""Maximum number of distinct words in memory; about 150 bytes each, so at most 600 MB."""


def train_tokenizer(
    config: TokenizerConfig, lines: Iterable[str], preprocessing: PreprocessingConfig | None = None
) -> Tokenizer:
    """Train a tokenizer on a stream of lines, read once.

    Args:
        config: the kind and its settings.
        lines: raw text; a line break at the end of a line is dropped.
        preprocessing: the pre-processing of every line, in training and in use.

    Raises:
        RequestError: if ``vocab_size`` is too small for the text's characters.
        DataError: if there is no text, or a line cannot be encoded as UTF-8.
    """
    return train_shared(config, [(lines, preprocessing or PreprocessingConfig())])[0]


def train_shared(
    config: TokenizerConfig, sides: Sequence[tuple[Iterable[str], PreprocessingConfig]]
) -> list[Tokenizer]:
    """Train one subword model on several sides, each with its own pre-processing (joint BPE).

    Returns:
        A tokenizer for each side, in order; all share the same model.
    """
    model = build(config, _learn(config, _prepared(sides)))
    return [Tokenizer(model, preprocessing) for _, preprocessing in sides]


def _prepared(sides: Iterable[tuple[Iterable[str], PreprocessingConfig]]) -> Iterator[str]:
    line_number = 0
    for lines, preprocessing in sides:
        for line in lines:
            line_number += 1
            prepared = preprocessing.apply(line.rstrip("\r\n"))
            refuse_surrogates(prepared, f"line {line_number} of the training text")
            yield prepared


def _learn(config: TokenizerConfig, lines: Iterable[str]) -> JsonObject:
    """Learn the parameters of a subword model from text that is already pre-processed."""
    if isinstance(config, ByteConfig):
        return {}
    if isinstance(config, SentencePieceConfig):
        raise RequestError(
            "tokenizer.subwords.kind=sentencepiece cannot be trained, only imported (heedful import); "
            "use kind=unigram to train a similar model"
        )
    words = count_words(lines, list if isinstance(config, CharacterConfig) else _word_splitter(config))
    if not words:
        raise DataError("there is no text to train a tokenizer on: every line is empty")
    match config:
        case CharacterConfig():
            return _learn_characters(config, words)
        case BpeConfig():
            return _learn_bpe(config, words)
        case ByteBpeConfig():
            return _learn_byte_bpe(config, words)
        case UnigramConfig():
            return _learn_unigram(config, words)
        case WordPieceConfig():
            return _learn_wordpiece(config, words)
        case WordConfig():
            return _learn_words(config, words)
        case _:
            assert_never(config)


def _word_splitter(config: TokenizerConfig) -> Callable[[str], list[str]]:
    """Return a function that splits lines into words exactly as the trained model will."""
    split, space, text_normalizer = (
        pre_tokenizer(config).pre_tokenize_str,
        first_space(config),
        normalizer(config),
    )
    clean = text_normalizer.normalize_str if text_normalizer else str
    return lambda line: [word for word, _ in split(space + clean(line))] if line else []


def _free_entries(vocab_size: int | None, reserved_size: int) -> int | None:
    """Return how many entries may be learned; None means no limit."""
    if vocab_size is not None and vocab_size <= reserved_size:
        raise RequestError(
            f"tokenizer.subwords.vocab_size={vocab_size}: must be greater than {reserved_size}, the number "
            "of entries reserved for special tokens and bytes"
        )
    return None if vocab_size is None else vocab_size - reserved_size


def _alphabet(
    config: BpeConfig | UnigramConfig | WordPieceConfig, words: Words, n_free: int | None
) -> list[str]:
    """Return the characters that get an entry, in code-point order. NUL never does: trainers use it."""
    counts = count_characters(words)
    del counts["\0"]
    limits = [config.alphabet or max(FEWEST_CHARACTERS, _n_covering(counts, config.coverage))]
    limit = min(limits if n_free is None else [*limits, n_free])
    return sorted(most_frequent(counts, limit, config.min_frequency))


def _n_covering(counts: Words, coverage: float) -> int:
    """Return how many of the most frequent characters, the space among them, make up this share of all.

    Spaces are not counted in the share.
    """
    sums = np.cumsum(sorted((n for letter, n in counts.items() if letter != " "), reverse=True))
    return 2 + int(np.searchsorted(sums, coverage * sums[-1])) if len(sums) else 1


def _learn_characters(config: CharacterConfig, letters: Words) -> JsonObject:
    n_free = _free_entries(config.vocab_size, len(SPECIALS) + 256 * config.byte_fallback)
    return {"characters": "".join(most_frequent(letters, n_free, config.min_frequency))}


def _learn_words(config: WordConfig, words: Words) -> JsonObject:
    n_free = _free_entries(config.vocab_size, len(SPECIALS))
    names = [*reserved(False), *most_frequent(words, n_free, config.min_frequency)]
    return library_data(config, models.WordLevel(as_vocabulary(names), UNKNOWN))


def _learn_bpe(config: BpeConfig, words: Words) -> JsonObject:
    reserved_names = reserved(config.byte_fallback)
    n_free = _free_entries(config.vocab_size, len(reserved_names))
    alphabet = _alphabet(config, words, n_free)
    merges = _merges(config, restricted(words, alphabet), alphabet, n_free)
    vocabulary = as_vocabulary([*reserved_names, *alphabet, *(left + right for left, right in merges)])
    unknown = None if config.byte_fallback else UNKNOWN
    model = models.BPE(vocabulary, merges, unk_token=unknown, byte_fallback=config.byte_fallback)
    return library_data(config, model)


def _learn_byte_bpe(config: ByteBpeConfig, words: Words) -> JsonObject:
    letters = byte_letters()
    n_free = _free_entries(config.vocab_size, len(SPECIALS) + 255)
    # The pre-tokenizer of this kind has already mapped bytes to characters.
    merges = _merges(config, words, sorted(letters), n_free and n_free + 255)
    vocabulary = as_vocabulary([*reserved(False), *letters, *(left + right for left, right in merges)])
    return library_data(config, models.BPE(vocabulary, merges))


def _merges(
    config: BpeConfig | ByteBpeConfig, words: Words, alphabet: list[str], n_free: int | None
) -> list[tuple[str, str]]:
    """Learn the merges, in order: ``config.merges`` of them, or as many as fill ``n_free``."""
    size = n_free if config.merges is None else len(alphabet) + config.merges
    assert size is not None
    trainer = trainers.BpeTrainer(
        vocab_size=min(size, _most_entries(words, alphabet)),
        min_frequency=config.min_frequency,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    merges = _train(Library(models.BPE()), trainer, words)["merges"]
    # Two merges may produce the same entry, so the library can return more merges than requested.
    return [(left, right) for left, right in merges[: config.merges]]


def _learn_unigram(config: UnigramConfig, words: Words) -> JsonObject:
    reserved_names = reserved(config.byte_fallback)
    n_free = _free_entries(config.vocab_size, len(reserved_names))
    assert n_free is not None
    alphabet = _alphabet(config, words, n_free)
    trainer = trainers.UnigramTrainer(
        vocab_size=n_free + 1, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    learned = _train(Library(models.Unigram()), trainer, restricted(words, alphabet))["vocab"]
    pieces = [
        *((name, 0.0) for name in reserved_names),
        *_most_probable(map(tuple, learned), set(alphabet), n_free),
    ]
    model = models.Unigram(pieces, SPECIALS.unknown, config.byte_fallback)
    return library_data(config, model)


def _most_probable(
    scored: Iterable[tuple[str, float]], letters: set[str], n_free: int
) -> list[tuple[str, float]]:
    """Select all single characters and fill the remaining entries with the highest-scoring pieces.

    The library returns more pieces than requested if the characters alone fill the vocabulary.
    """
    ranked = sorted(
        (piece for piece in scored if piece[0] != UNKNOWN), key=lambda entry: (-entry[1], entry[0])
    )
    longer = [name for name, _ in ranked if name not in letters]
    selected = letters.union(longer[: n_free - len(letters)])
    return [(name, score) for name, score in ranked if name in selected]


def _learn_wordpiece(config: WordPieceConfig, words: Words) -> JsonObject:
    n_free = _free_entries(config.vocab_size, len(SPECIALS) + 1)
    assert n_free is not None
    # Every character may need one entry at the start of a word and one within a word.
    alphabet = _alphabet(config, words, (n_free + 1) // 2)
    restricted_words = restricted(words, alphabet)
    starts = {word[0] for word in restricted_words if word}
    inner = {CONTINUES + letter for word in restricted_words for letter in word[1:]}
    # Passed in sorted order, because the library's own numbering differs between runs.
    trainer = trainers.BpeTrainer(
        vocab_size=min(n_free, _most_entries(restricted_words, [*starts, *inner])) + 1,
        min_frequency=config.min_frequency,
        continuing_subword_prefix=CONTINUES,
        special_tokens=[*sorted(starts), *sorted(inner)],
        show_progress=False,
    )
    vocabulary = _train(Library(models.BPE()), trainer, restricted_words)["vocab"]
    names = [*reserved(False), *sorted(vocabulary, key=vocabulary.__getitem__)]
    # "##" is also the library's own prefix.
    return library_data(config, models.WordPiece(as_vocabulary(names), unk_token=UNKNOWN))


def _most_entries(words: Words, alphabet: Sequence[str]) -> int:
    """Return the most entries that merges can give; the library allocates all that are requested."""
    return len(alphabet) + sum(map(len, words))


def _train(library: Library, trainer: trainers.Trainer, words: Words) -> JsonObject:
    """Run the library's trainer on counted words, without a pre-tokenizer, so that words stay whole."""
    library.train_from_iterator(repeated(words), trainer)
    model: JsonObject = json.loads(library.to_str())["model"]
    return model


def count_words(
    lines: Iterable[str], split: Callable[[str], Iterable[str]], max_words: int = MAX_WORDS
) -> Words:
    """Count the words of all lines.

    When there are more than ``max_words`` distinct words, the rarest are dropped (first those with count
    1, the next time those with count 2, and so on). The same lines in the same order give the same
    counts.
    """
    counts: Words = Counter()
    floor = 0
    for line in lines:
        counts.update(split(line))
        while len(counts) > max_words:
            floor += 1
            counts = Counter({word: n for word, n in counts.items() if n > floor})
    return counts


def count_characters(words: Words) -> Words:
    """Count characters, weighted by the counts of their words."""
    counts: Words = Counter()
    for word, n in words.items():
        for letter in word:
            counts[letter] += n
    return counts


def most_frequent(counts: Words, limit: int | None, min_frequency: int) -> list[str]:
    """Return the keys counted at least ``min_frequency`` times, by frequency, ties in code-point order."""
    frequent = [key for key, n in counts.items() if n >= min_frequency]
    return sorted(frequent, key=lambda key: (-counts[key], key))[:limit]


def restricted(words: Words, alphabet: Iterable[str]) -> Words:
    """Split the words at every character outside the alphabet."""
    letters = frozenset(alphabet)
    counts: Words = Counter()
    for word, n in words.items():
        if letters.issuperset(word):
            counts[word] += n
            continue
        for run in "".join(letter if letter in letters else "\0" for letter in word).split("\0"):
            counts[run] += n
    return counts


def repeated(words: Words, chunk: int = 1000) -> Iterator[list[str]]:
    """Yield every word as often as it was counted, in code-point order, for trainers that count again."""
    for word in sorted(words):
        n_chunks, remainder = divmod(words[word] if word else 0, chunk)
        yield from ([word] * chunk for _ in range(n_chunks))
        yield [word] * remainder
