import os
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.errors import DataError
from heedful.text.configuration import BpeConfig, PreprocessingConfig, TokenizerConfig, WordConfig
from heedful.text.scripts import NO_WORD
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

# Text that would have the trainers learn the spellings of specials and bytes, if they could.
LINES = [
    "A man in a blue shirt is standing on a ladder, cleaning a window.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "<s> <s> </s> <pad> <unk> <mask> <sep> <cls> <s><pad>",
    "<0x41> <0x41><0x00> <0xFF> x<0x41>",
    "  two  spaces   and\ttabs ▁ ▁▁Ġ ##s 日本語 日本語",
    "नमस्ते दुनिया नमस्ते 🙂🙂",
] * 3
KINDS = {
    "bpe": {"kind": "bpe", "merges": 120},
    "bpe-space": {"kind": "bpe", "vocab_size": 420, "split": "space", "min_frequency": 1},
    "byte-bpe": {"kind": "byte-bpe", "vocab_size": 350},
    "byte-bpe-space": {"kind": "byte-bpe", "merges": 200, "split": "space", "min_frequency": 1},
    "byte-bpe-gpt2": {"kind": "byte-bpe", "merges": 100, "split": "gpt2"},
    "unigram": {"kind": "unigram", "vocab_size": 400},
    "unigram-space": {"kind": "unigram", "vocab_size": 500, "split": "space"},
    "character-bytes": {"kind": "character", "byte_fallback": True},
    "byte": {"kind": "byte"},
    "bpe-unk": {"kind": "bpe", "merges": 120, "byte_fallback": False},
    "unigram-unk": {"kind": "unigram", "vocab_size": 150, "byte_fallback": False},
    "character": {"kind": "character"},
    "wordpiece": {"kind": "wordpiece", "vocab_size": 150},
    "word": {"kind": "word"},
    "word-space": {"kind": "word", "split": "space"},
}
FAITHFUL = list(KINDS)[:9]
LOSSY = list(KINDS)[9:]


@cache
def tokenizer(name):
    config = TypeAdapter(TokenizerConfig).validate_python(KINDS[name])
    return train_tokenizer(config, iter(LINES))


CHARACTERS = st.characters(exclude_categories=["Cs"])
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\0", "\u3000", "\u2028", "\x1c"]
MARKS = ["▁", "Ġ", "##", "@@", "<pad> ", "<0x41>", "<0x", "<0xC3><0xA4>", "<", "DOTMULTI"]
FRAGMENTS = st.sampled_from([*SPECIALS.names, *SPACES, *MARKS, "man", " man", "e\u0301", "🙂", "日本"])
TEXT = st.lists(FRAGMENTS | st.text(CHARACTERS, max_size=8), max_size=12).map("".join)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAITHFUL)
@settings(max_examples=100, deadline=None)
@given(text=TEXT)
@example(text=" ")
@example(text="  leading and trailing  ")
@example(text="<s> </s> <pad> <unk> <mask> <sep> <cls>")
@example(text="<<0x41>0x41>")
@example(text="\0\0 \0")
def test_decoding_restores_the_text(name, text):
    found = tokenizer(name)
    assert found.is_lossless_without_unknown
    ids = found.encode(text)
    assert found.decode(ids) == text
    assert min(ids, default=len(SPECIALS)) >= len(SPECIALS)
    assert max(ids, default=0) < found.vocab_size


@pytest.mark.parametrize("name", LOSSY)
@settings(max_examples=40, deadline=None)
@given(text=TEXT)
def test_no_text_is_encoded_to_a_special_token_but_unknown(name, text):
    found = tokenizer(name)
    ids = found.encode(text)
    assert all(i >= len(SPECIALS) or i == SPECIALS.unknown for i in ids)
    is_exact = found.decodes_exactly([text], [ids])
    assert found.decode(ids) == text or not is_exact


@pytest.mark.parametrize("name", ["bpe-unk", "unigram-unk", "character"])
@settings(max_examples=40, deadline=None)
@given(text=TEXT)
def test_text_without_unknown_tokens_is_restored(name, text):
    found = tokenizer(name)
    ids = found.encode(text)
    if SPECIALS.unknown not in ids:
        assert found.decode(ids) == text


@pytest.mark.parametrize("name", KINDS)
def test_empty_in_empty_out(name):
    found = tokenizer(name)
    assert found.encode("") == []
    assert found.encode_batch([]) == []
    assert found.encode_batch(["", "man", ""]) == [[], found.encode("man"), []]
    assert found.decode([]) == ""
    assert found.tokens([]) == found.split_words([])[1] == []


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_equals_single_texts(name):
    found = tokenizer(name)
    texts = ["A man", " spaces  ", "<s>", "日本語 x", "", "weiße Männer"]
    batch = found.encode_batch(texts)
    assert batch == [found.encode(text) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAITHFUL)
@pytest.mark.parametrize("text", ["ab" * 50_000, "man " * 25_000, " " * 100_000, "日" * 100_000])
def test_a_very_long_line(name, text):
    found = tokenizer(name)
    assert found.decode(found.encode(text)) == text


@pytest.mark.parametrize("name", KINDS)
def test_specials_add_nothing_to_the_text(name):
    found = tokenizer(name)
    ids = found.encode("A man")
    wrapped = [SPECIALS.start, *ids, SPECIALS.end, SPECIALS.pad, SPECIALS.pad]
    assert found.decode(wrapped) == found.decode(ids) == "A man"
    assert found.tokens(wrapped) == ["<s>", *found.tokens(ids), "</s>", "<pad>", "<pad>"]
    assert found.tokens([3, 4, 5, 6]) == ["<unk>", "<cls>", "<sep>", "<mask>"]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_an_id_outside_the_vocabulary_is_an_error(name, wrong):
    for read in (tokenizer(name).decode, tokenizer(name).tokens, tokenizer(name).split_words):
        with pytest.raises(ValueError, match=f"id {wrong} "):
            read([7, wrong])


@pytest.mark.parametrize("name", KINDS)
def test_a_lone_surrogate_is_refused(name):
    with pytest.raises(DataError, match=r"character 3 .*U\+D83D"):
        tokenizer(name).encode_batch(["fine", "ab\ud83d"])


def test_invalid_utf8_becomes_the_replacement_character():
    found = tokenizer("byte")
    offset = len(SPECIALS)
    assert found.decode([offset + 0x61, offset + 0xE2, offset + 0x62]) == "a\ufffdb"
    assert found.tokens([offset + 0xE2, offset + 0x0A, offset + 0x20]) == ["<0xE2>", "<0x0A>", "▁"]


def test_readable_pieces():
    bpe = tokenizer("bpe-space")
    assert "".join(bpe.tokens(bpe.encode("a Männer\n"))) == "▁a▁Männer<0x0A>"
    words = tokenizer("word")
    assert words.tokens(words.encode("A man, in")) == ["A", "man", ",", "in"]
    assert words.decode(words.encode("A man, in")) == "A man , in"
    letters = tokenizer("character")
    assert letters.tokens(letters.encode("A m~")) == ["A", "▁", "m", "<unk>"]


# Words


# The library takes U+001C to U+001F for signs, Python for white space; two words then share a piece.
PLAIN = st.lists(
    st.sampled_from(["man", "Männer", "🙂", "日本", "\u3000", " ", "  ", "\n", "<s>", ",", "x~"])
)


@pytest.mark.parametrize("name", FAITHFUL)
@settings(max_examples=40, deadline=None)
@given(text=PLAIN.map("".join))
def test_the_pieces_of_a_word_spell_it(name, text):
    found = tokenizer(name)
    ids = found.encode(text)
    numbers = found.split_words(ids)[1]
    assert len(numbers) == len(ids)
    spelled = {}
    for i, number in zip(ids, numbers):
        spelled[number] = spelled.get(number, b"") + found.model.pieces[i]
    nothing = spelled.pop(NO_WORD, b"")
    assert nothing.decode().strip() == ""
    words = [spelled[k].decode().strip() for k in range(len(spelled))]
    assert words == found.split_words(ids)[0]
    assert "".join(words) == "".join(text.split())
    if "日本" not in text:
        assert words == text.split()


@pytest.mark.parametrize("name", ["wordpiece", "word"])
def test_words_of_lossy_kinds(name):
    found = tokenizer(name)
    ids = found.encode("A man, in shirt")
    words = found.surface(ids).split()
    assert words == ["A", "man", ",", "in", "shirt"]
    assert sorted(set(found.split_words(ids)[1])) == list(range(5))


def test_words_by_hand():
    found = tokenizer("byte")
    ids = [SPECIALS.start, *found.encode(" ä b  cd"), SPECIALS.end]
    #                      space, ä = two bytes, space, b, two spaces, c, d
    assert found.split_words(ids)[1] == [-1, -1, 0, 0, -1, 1, -1, -1, 2, 2, -1]


def test_a_white_space_character_of_several_bytes_belongs_to_no_word():
    found = tokenizer("byte")
    assert found.split_words(found.encode("a\u3000b"))[1] == [0, -1, -1, -1, 1]


def test_words_are_numbered_before_moses_is_undone():
    found = tokenizer("bpe-space").with_preprocessing(PreprocessingConfig(moses="en"))
    ids = found.encode("A man, in")
    assert found.surface(ids).split() == ["A", "man", ",", "in"]
    assert max(found.split_words(ids)[1]) == 3
    assert found.decode(ids) == "A man, in"


# Two sides, one model


def test_preprocessing_is_per_side():
    plain = tokenizer("bpe")
    lower = plain.with_preprocessing(PreprocessingConfig(lowercase=True))
    assert lower.model is plain.model
    assert lower.same_pieces_as(plain)
    assert not lower.is_lossless_without_unknown
    assert plain.is_lossless_without_unknown
    assert lower.encode("A MAN") == plain.encode("a man")
    assert lower.fingerprint != plain.fingerprint
    assert not plain.same_pieces_as(tokenizer("byte"))


@settings(max_examples=40, deadline=None)
@given(text=TEXT)
def test_lowercasing_never_crashes(text):
    lower = tokenizer("bpe").with_preprocessing(PreprocessingConfig(lowercase=True))
    assert lower.decode(lower.encode(text)) == text.lower()


def test_lowering_the_dotted_capital_i():
    lower = tokenizer("bpe").with_preprocessing(PreprocessingConfig(lowercase=True))
    assert lower.decode(lower.encode("İstanbul IĞDIR")) == "i̇stanbul iğdir"


# Threads and forks

FORK = """
import os, signal, sys
from heedful.text.configuration import BpeConfig
from heedful.text.training import train_tokenizer
lines = ["a man in a blue shirt", "zwei junge Männer"] * 200
tokenizer = train_tokenizer(BpeConfig(kind="bpe", merges=20), lines)
expected = tokenizer.encode_batch(lines)
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if tokenizer.encode_batch(lines) == expected else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("inherited", [None, "true", "false"])
def test_a_forked_worker_encodes_without_warnings(inherited):
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    if inherited is not None:  # from a process that imported heedful too
        environment["TOKENIZERS_PARALLELISM"] = inherited
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", KINDS)
def test_the_bytes_that_ids_add_to_a_text_include_its_space(name):
    own = tokenizer(name)
    first, more = own.encode("A man"), own.encode("in a blue shirt")
    assert b"".join(own.token_bytes(first, is_continuation=False)).decode() == own.surface(first)
    both = own.token_bytes(first, is_continuation=False) + own.token_bytes(more, is_continuation=True)
    assert b"".join(both).decode() == own.surface([*first, *more])
    assert own.token_bytes([SPECIALS.end, SPECIALS.mask], is_continuation=True) == [b"", b""]
    assert len(own.token_bytes(more, is_continuation=True)) == len(more)


@pytest.mark.parametrize("case, spells", [(False, True), (True, False)])
def test_spells_is_true_if_ids_restore_the_texts(case, spells):
    config = BpeConfig(kind="bpe", vocab_size=300, byte_fallback=False)
    tokenizer = train_tokenizer(config, ["The old cat sat."] * 9, PreprocessingConfig(lowercase=case))
    texts = ["The cat.", "the old cat"]
    assert tokenizer.decodes_exactly(texts, tokenizer.encode_batch(texts)) == spells
    strange = [*texts, "Das \u00e4ltere"]  # with a letter that it never saw
    assert not tokenizer.decodes_exactly(strange, tokenizer.encode_batch(strange))
    words = train_tokenizer(WordConfig(kind="word"), texts)
    assert not words.decodes_exactly(texts, words.encode_batch(texts))


def test_text_that_is_composed_is_the_same_with_and_without_nfc():
    texts = ["A café.", "Cafe\u0301"]
    config = BpeConfig(kind="bpe", merges=20)
    plain, composing = (
        train_tokenizer(config, texts[:1] * 3, PreprocessingConfig(normalization=form))
        for form in ("none", "nfc")
    )
    assert composing.encode(texts[0]) == plain.encode(texts[0])
    assert composing.encode(texts[1]) == plain.encode("Café") != plain.encode(texts[1])
    assert composing.fingerprint == plain.fingerprint
    assert composing.content != plain.content
    other = plain.with_preprocessing(PreprocessingConfig(normalization="nfkc"))
    assert other.fingerprint != plain.fingerprint
    for text in texts:
        ids = [composing.encode(text)]
        assert composing.decodes_exactly([text], ids) == (composing.decode(ids[0]) == text)
