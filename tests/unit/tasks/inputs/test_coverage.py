"""Scripts with many characters: entries by coverage; what is spelled in bytes is counted and noted."""

import random
from collections import Counter
from itertools import product

import pytest
from tiers import sampled

from heedful.data.lines import LocatedRow
from heedful.data.report import Filter, keep
from heedful.tasks.inputs.coverage import new_report, spelling_notes
from heedful.text.configuration import (
    BpeConfig,
    ByteBpeConfig,
    ByteConfig,
    CharacterConfig,
    UnigramConfig,
    WordPieceConfig,
)
from heedful.text.training import train_tokenizer

STARTS = {"ideographs": 0x4E00, "Hangul": 0xAC00, "emoji": 0x1F300, "Ethiopic": 0x1200, "Latin": 0x61}
SIZES = {"ideographs": 2900, "Hangul": 2000, "emoji": 1200, "Ethiopic": 340, "Latin": 26}


def lines_of(script, n=400):
    """Zipf-like text; every character of the script occurs twice at least."""
    draw = random.Random(1)
    letters = [chr(STARTS[script] + i) for i in range(SIZES[script])]
    weights = [1 / (i + 1) for i in range(len(letters))]
    words = ["".join(draw.choices(letters, weights, k=draw.randint(1, 3))) for _ in range(6 * n)]
    lines = [" ".join(words[6 * i : 6 * i + 6]) for i in range(n)]
    return lines + ["".join(letters[i : i + 20]) for i in range(0, len(letters), 20)] * 2


def reported(tokenizer, lines):
    report = new_report({"text": tokenizer})
    rows = (LocatedRow({"text": ids}, f"f:{n}") for n, ids in enumerate(tokenizer.encode_batch(lines)))
    list(keep(rows, Filter(), report))
    return report


def share_without_entry(tokenizer, lines):
    """The oracle: characters that the vocabulary does not have, spaces not counted."""
    n_bytes = 256 + len(tokenizer.specials)
    entries = {piece.decode() for piece in tokenizer.model.pieces[n_bytes:]}
    counts = Counter("".join(lines).replace(" ", ""))
    return sum(n for letter, n in counts.items() if letter not in entries) / counts.total()


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    sampled(
        product(STARTS, ("bpe", "unigram", "character")),
        [("ideographs", "bpe"), ("Ethiopic", "unigram"), ("emoji", "character")],
    ),
    ids="-".join,
)
def test_every_script_is_covered_by_default_and_the_report_counts_the_rest(case):
    script, kind = case
    lines = lines_of(script)
    configs = {
        "bpe": BpeConfig(kind="bpe", vocab_size=4000),
        "unigram": UnigramConfig(kind="unigram", vocab_size=4000),
        "character": CharacterConfig(kind="character", byte_fallback=True),
    }
    tokenizer = train_tokenizer(configs[kind], lines)
    column = reported(tokenizer, lines).columns["text"]
    assert column.spelled_rate == pytest.approx(share_without_entry(tokenizer, lines), abs=1e-12)
    assert column.spelled_rate <= 0.0005
    fewer = lines[: len(lines) // 9]
    small = train_tokenizer(configs[kind], fewer)
    column = reported(small, lines).columns["text"]
    assert column.spelled_rate == pytest.approx(share_without_entry(small, lines), abs=1e-12)
    assert column.characters == len("".join(lines).replace(" ", ""))


LIMITS = {
    "alphabet": BpeConfig(kind="bpe", vocab_size=4000, alphabet=1000),
    "vocabulary": BpeConfig(kind="bpe", vocab_size=700),
    "coverage": UnigramConfig(kind="unigram", vocab_size=4000, coverage=0.6),
    "frequency": BpeConfig(kind="bpe", vocab_size=4000, min_frequency=5),
    "characters": CharacterConfig(kind="character", byte_fallback=True, vocab_size=700),
    "rare characters": CharacterConfig(kind="character", byte_fallback=True, min_frequency=5),
}


@pytest.mark.slow
@pytest.mark.parametrize("limit", sampled(LIMITS, ["alphabet", "characters"]))
def test_the_remedies_of_the_note_are_enough(limit):
    """Each is applied in turn, as long as there is a note; a larger vocabulary has 3,500 entries."""
    config, lines, remedies = LIMITS[limit], lines_of("ideographs"), []
    while True:
        tokenizer = train_tokenizer(config, lines)
        notes = [*spelling_notes(reported(tokenizer, lines), {"text": tokenizer}, is_trained=True)]
        if not notes:
            break
        (note,) = notes
        remedies.append(note.partition("; ")[2])
        assert len(remedies) < 4
        changes = {"alphabet": None} if "alphabet" in remedies[-1] else {}
        changes |= {"vocab_size": 3500} if "vocab_size" in remedies[-1] else {}
        changes |= {"min_frequency": 1} if "min_frequency" in remedies[-1] else {}
        changes |= {"coverage": 1.0} if "coverage" in remedies[-1] else {}
        config = config.model_copy(update=changes)
    share = share_without_entry(train_tokenizer(LIMITS[limit], lines), lines)
    assert (share >= 0.01) == bool(remedies)


def test_what_cannot_be_spelled_in_bytes_or_always_is_has_no_count():
    lines = ["ab cd", "ab ef"]
    for config in (
        ByteConfig(kind="byte"),
        ByteBpeConfig(kind="byte-bpe", merges=3),
        BpeConfig(kind="bpe", merges=3, byte_fallback=False),
        WordPieceConfig(kind="wordpiece", vocab_size=60),
    ):
        column = reported(train_tokenizer(config, lines), [*lines, "é"]).columns["text"]
        assert (column.characters, column.spelled_rate) == (0, 0.0)
        assert "spelled_in_bytes" not in column.to_dict()


def test_a_number_of_characters_is_a_maximum_and_coverage_is_not():
    lines = ["".join(chr(0x4E00 + i) for i in range(1500))] * 2
    for settings, n in (
        ({}, 1500), ({"alphabet": 7}, 7), ({"alphabet": 7, "coverage": 1.0}, 7), ({"coverage": 0.8}, 1201),
        ({"coverage": 0.1}, 1000),
    ):  # fmt: skip
        tokenizer = train_tokenizer(BpeConfig(kind="bpe", vocab_size=4000, **settings), lines)
        # The space before a text is a character, too: as frequent as the others.
        assert tokenizer.n_characters == pytest.approx(n, abs=1)
