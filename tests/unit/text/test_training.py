import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from heedful.errors import DataError, RequestError
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_shared, train_tokenizer

CONFIG = TypeAdapter(TokenizerConfig)
LINES = [
    "A man in a blue shirt is standing on a ladder, cleaning a window.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Several men in hard hats are operating a giant pulley system.",
    "Mehrere Männer mit Schutzhelmen bedienen ein Antriebsradsystem.",
    "日本語の文 と <s> </s> <0x41>",
] * 3


N_RESERVED = len(SPECIALS) + 256


def config(**settings):
    return CONFIG.validate_python(settings)


def train(lines=LINES, **settings):
    return train_tokenizer(config(**settings), iter(lines))


# Byte-pair encoding, learned and applied by plain loops.


def learn_merges(words, n_merges, min_frequency):
    """Sennrich 2016, algorithm 1; ties go to the pair whose parts were numbered first."""
    numbers = {letter: i for i, letter in enumerate(sorted({c for word in words for c in word}))}
    cut = {word: list(word) for word in words}
    merges = []
    while len(merges) < n_merges:
        pairs = Counter()
        for word, parts in cut.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], numbers[p[0]], numbers[p[1]]))
        if pairs[best] < min_frequency:
            break
        merges.append(best)
        numbers.setdefault("".join(best), len(numbers))
        cut = {word: apply_merge(parts, best) for word, parts in cut.items()}
    return merges


def apply_merge(parts, pair):
    out = []
    for part in parts:
        if out and (out[-1], part) == pair:
            out[-1] = "".join(pair)
        else:
            out.append(part)
    return out


# Different letters side by side: the library and the loop count the overlapping pairs of "aaa" alike
# only until the first of them is merged.
WORD = st.lists(st.sampled_from("abcde"), min_size=1, max_size=7).filter(
    lambda w: all(a != b for a, b in pairwise(w))
)


@settings(max_examples=50, deadline=None)
@given(st.lists(WORD.map("".join), min_size=1, max_size=12), st.integers(1, 9))
def test_merges_equal_those_of_the_reference_algorithm(words, n_merges):
    tokenizer = train([" ".join(words)], kind="bpe", merges=n_merges, min_frequency=1)
    counts = Counter(f" {word}" for word in words)
    expected = learn_merges(counts, n_merges, 1)
    found = [tuple(pair) for pair in tokenizer.model.data["model"]["merges"]]
    assert found == expected
    for word, ids in zip(words, tokenizer.encode_batch(words)):
        parts = list(f" {word}")
        for pair in expected:
            parts = apply_merge(parts, pair)
        assert [tokenizer.model.pieces[i].decode() for i in ids] == parts


def test_the_published_example():
    # Sennrich 2016, section 3.2: low 5, lower 2, newest 6, widest 3; the first merge is "es".
    lines = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    tokenizer = train(lines, kind="bpe", merges=4)
    merges = [tuple(pair) for pair in tokenizer.model.data["model"]["merges"]]
    # Our words begin with their space, which is numbered before every letter.
    assert merges == [("e", "s"), ("es", "t"), (" ", "l"), ("o", "w")]
    assert tokenizer.tokens(tokenizer.encode("lowest")) == ["▁l", "ow", "est"]


def test_unigram_takes_the_most_probable_segmentation():
    tokenizer = train(kind="unigram", vocab_size=400)
    scores = dict(tokenizer.model.data["model"]["vocab"])
    for word in ["shirt", "Männer", "operating", "system", "Antriebsrad"]:
        text = f" {word}"
        best = [0.0] + [float("-inf")] * len(text)
        for end in range(1, len(text) + 1):
            for start in range(end):
                if text[start:end] in scores:
                    best[end] = max(best[end], best[start] + scores[text[start:end]])
        pieces = [tokenizer.model.pieces[i].decode() for i in tokenizer.encode(word)]
        assert "".join(pieces) == text
        assert sum(scores[piece] for piece in pieces) == pytest.approx(best[-1], abs=1e-9)


def test_wordpiece_takes_the_longest_match_from_the_left():
    tokenizer = train(kind="wordpiece", vocab_size=120)
    known = set(tokenizer.model.labels[len(SPECIALS) :])
    assert any(len(piece.removeprefix("##")) > 2 for piece in known)
    for word in ["shirt", "cleaning", "Männer", "operating", "window"]:
        expected, rest = [], word
        while rest:
            mark = "##" if expected else ""
            piece = next(mark + rest[:n] for n in range(len(rest), 0, -1) if mark + rest[:n] in known)
            expected.append(piece)
            rest = rest[len(piece) - len(mark) :]
        assert tokenizer.tokens(tokenizer.encode(word)) == expected


def test_wordpiece_learns_and_reads_cleaned_text():
    cleaning = {"clean": True, "chinese": True, "strip_accents": True, "lowercase": True}
    lines = ["ÉÉN\u200bÉÉN eenéén", "猫犬\x00猫"] * 3
    tokenizer = train(lines, kind="wordpiece", vocab_size=40, cleaning=cleaning)
    assert set("".join(tokenizer.model.labels[len(SPECIALS) :]).replace("##", "")) == set("en猫犬")
    assert tokenizer.decode(tokenizer.encode("Eénéén\t猫犬")) == "eeneen 猫 犬"
    plain = train(lines, kind="wordpiece", vocab_size=40)
    assert plain.decode(plain.encode("ÉÉN")) == plain.decode(plain.encode("ÉÉN")).upper()


def test_words_are_numbered_by_frequency():
    tokenizer = train(["b b b a c c", "a d"], kind="word", vocab_size=len(SPECIALS) + 3)
    assert tokenizer.model.labels[len(SPECIALS) :] == ("b", "a", "c")
    assert tokenizer.tokens(tokenizer.encode("a d b")) == ["a", "<unk>", "b"]
    assert tokenizer.decode(tokenizer.encode("a d b")) == "a b"


def test_characters_are_numbered_by_frequency():
    tokenizer = train(["bbba", "cc"], kind="character", min_frequency=2)
    assert tokenizer.model.labels[len(SPECIALS) :] == ("b", "c")
    assert tokenizer.tokens(tokenizer.encode("abc")) == ["<unk>", "b", "c"]


@pytest.mark.parametrize("size", [264, 270, 300, 350, 5000])
@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece"])
def test_the_vocabulary_is_never_larger_than_requested(kind, size):
    assert train(kind=kind, vocab_size=size).vocab_size <= size


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
def test_the_vocabulary_has_the_requested_size_if_the_text_is_rich_enough(kind):
    assert train(kind=kind, vocab_size=370).vocab_size == 370


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
def test_the_requested_number_of_merges_is_learned(kind):
    tokenizer = train(kind=kind, merges=37)
    assert len(tokenizer.model.data["model"]["merges"]) == 37


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "bpe", "vocab_size": 263},
        {"kind": "byte-bpe", "vocab_size": 262},
        {"kind": "unigram", "vocab_size": 7, "byte_fallback": False},
        {"kind": "wordpiece", "vocab_size": 8},
        {"kind": "word", "vocab_size": 7},
        {"kind": "character", "vocab_size": 7},
    ],
    ids=lambda s: s["kind"],
)
def test_too_small_a_vocabulary_is_refused_and_the_next_size_is_not(settings):
    with pytest.raises(RequestError, match=rf"tokenizer\.subwords\.vocab_size={settings['vocab_size']}: "):
        train(**settings)
    larger = {**settings, "vocab_size": settings["vocab_size"] + 1}
    assert train(**larger).vocab_size <= larger["vocab_size"]


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece", "word", "character"])
def test_no_text_is_refused(kind):
    with pytest.raises(DataError, match="no text"):
        train(["", "\n", ""], kind=kind, **({} if kind in ("word", "character") else {"vocab_size": 300}))


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece", "word", "character"])
def test_a_line_that_is_not_valid_unicode_is_named(kind):
    sizes = {} if kind in ("word", "character") else {"vocab_size": 300}
    with pytest.raises(DataError, match=r"line 2 .*character 3 .*U\+DE00"):
        train(["fine", "ab\ude00"], kind=kind, **sizes)


def test_a_byte_tokenizer_needs_no_text():
    assert train([], kind="byte").vocab_size == len(SPECIALS) + 256


def test_rare_characters_become_bytes_or_unknown():
    lines = ["aaa bbb ä aaa bbb"]
    fallback = train(lines, kind="bpe", merges=5)
    assert fallback.tokens(fallback.encode("ä")) == ["▁", "<0xC3>", "<0xA4>"]
    without = train(lines, kind="bpe", merges=5, byte_fallback=False)
    assert without.tokens(without.encode("ä")) == ["▁", "<unk>"]


def test_the_alphabet_is_the_most_frequent_characters():
    tokenizer = train(["aaaa bbb cc"], kind="bpe", merges=1, alphabet=3, min_frequency=1)
    assert tokenizer.model.labels[N_RESERVED:] == ("▁", "a", "b", "aa")
    # A byte that is a printable sign is shown as that sign.
    assert tokenizer.encode("c")[1:] == [len(SPECIALS) + ord("c")]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_nul_is_encoded_as_its_byte_however_frequent(kind):
    tokenizer = train(["a\0b a\0b ab\0\0", *LINES], kind=kind, vocab_size=400, min_frequency=1)
    assert tokenizer.encode("a\0")[-1] == len(SPECIALS)
    assert [piece for piece in tokenizer.model.pieces[N_RESERVED:] if b"\0" in piece] == []
    assert tokenizer.decode(tokenizer.encode("a\0b\0\0")) == "a\0b\0\0"


def test_a_pair_too_rare_is_not_merged():
    tokenizer = train(["ab ab ab cd cd"], kind="bpe", merges=50, min_frequency=3)
    pieces = set(tokenizer.model.labels)
    assert {"▁ab"} <= pieces
    assert not {"cd", "▁cd", "▁c"} & pieces


def test_line_breaks_at_line_ends_are_left_out():
    bare = train(LINES, kind="bpe", merges=50)
    broken = train([f"{line}\r\n" for line in LINES], kind="bpe", merges=50)
    assert bare.fingerprint == broken.fingerprint


def test_words_may_contain_any_character_with_split_space():
    lines = ["can't-stop can't-stop can't-stop"]
    spaced = train(lines, kind="bpe", merges=100, split="space")
    assert spaced.tokens(spaced.encode("can't-stop")) == ["▁can't-stop"]
    classed = train(lines, kind="bpe", merges=100)
    assert classed.tokens(classed.encode("can't-stop")) == ["▁can", "'", "t", "-", "stop"]


def test_words_are_cut_as_gpt2_cuts_them():
    own = train(["it's it's x1 x1 dog  dog"] * 9, kind="byte-bpe", merges=60, split="gpt2")
    labels = own.tokens(own.encode("it's x1 dog  dog"))
    assert labels == ["it", "'s", "▁x", "1", "▁dog", "▁", "▁dog"]
    assert own.decode(own.encode(" dog")) == " dog"
    assert own.tokens(own.encode("dog")) != own.tokens(own.encode(" dog"))


def test_joint_training_shares_the_model_and_keeps_each_sides_preprocessing():
    german = PreprocessingConfig(lowercase=True, moses="de")
    english = PreprocessingConfig(lowercase=True, moses="en")
    source, target = train_shared(
        config(kind="bpe", merges=60, split="space"), [(LINES[1::2], german), (LINES[::2], english)]
    )
    assert source.model is target.model
    assert source.same_pieces_as(target)
    assert source.fingerprint != target.fingerprint
    assert source.preprocessing == german
    assert target.decode(target.encode("The Man's window, isn't it?")) == "the man's window, isn't it?"
    assert source.decode(source.encode("Die Männer (zwei).")) == "die männer (zwei)."
    # Nothing upper-case and no unsplit comma was ever seen by the model.
    learned = source.model.labels[N_RESERVED:]
    assert "▁männer" in learned
    assert [label for label in learned if label != label.lower()] == []
    assert [label for label in learned if "," in label and label.strip("▁") != ","] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "bpe"},
        {"kind": "bpe", "vocab_size": 300, "merges": 10},
        {"kind": "byte-bpe"},
        {"kind": "unigram"},
        {"kind": "bpe", "vocab_size": 0},
        {"kind": "byte", "vocab_size": 300},
        {"kind": "sentences"},
        {"vocab_size": 300},
    ],
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        config(**settings)


# The library's expectation maximisation is not reproducible, so "unigram" is not among them.
REPRODUCIBLE = [
    {"kind": "bpe", "merges": 150, "alphabet": 20, "min_frequency": 1},
    {"kind": "byte-bpe", "vocab_size": 350},
    {"kind": "wordpiece", "vocab_size": 150},
    {"kind": "word"},
    {"kind": "character", "vocab_size": 30},
    {"kind": "byte"},
]
SCRIPT = """
import json, sys
from pydantic import TypeAdapter
from heedful.text.configuration import TokenizerConfig
from heedful.text.training import train_tokenizer
every, lines = json.load(sys.stdin)
configs = TypeAdapter(list[TokenizerConfig]).validate_python(every)
print(json.dumps([train_tokenizer(config, lines).fingerprint for config in configs]))
"""


def test_the_same_lines_give_the_same_tokenizer_in_any_process():
    here = [train(**settings).fingerprint for settings in REPRODUCIBLE]
    assert len(set(here)) == len(here)
    assert here == [train(**settings).fingerprint for settings in REPRODUCIBLE]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([REPRODUCIBLE, LINES]),
        env={**os.environ, "PYTHONHASHSEED": "11", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == here
    assert done.stderr == ""  # No progress bars.


def test_other_lines_give_another_tokenizer():
    assert train(kind="word").fingerprint != train(LINES[1:], kind="word", min_frequency=3).fingerprint
