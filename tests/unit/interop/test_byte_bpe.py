"""Tokenizers of GPT-2's kind: the same tokens for any text, in both directions; and what is refused."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, processors

from heedful.errors import DamagedError, RequestError
from heedful.interop.byte_bpe import read_byte_bpe, write_byte_bpe
from heedful.interop.checkpoint import Checkpoint
from heedful.text.configuration import ByteBpeConfig, ByteConfig, CharacterConfig, PreprocessingConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

TEXT = ["the cat sat on the mat, and it's the cat's mat.", "  We'll see 1234 dogs!\n\nÜber façade, நாய் 🐈"]
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LIKELY = st.lists(
    st.sampled_from(
        ["the", "cat", "'s", "it's", "'ll", "'LL", " ", "  ", "\n", "\t", "\u00a0", "12", "நாய்", "é", "!"]
    )
).map("".join)
TEXTS = st.one_of(ANY, LIKELY)
SPLITS = ["gpt2", "class", "space"]

_BEGINS = Library(models.BPE())
_BEGINS.post_processor = processors.TemplateProcessing("[B] $A", None, [("[B]", 3)])
TEMPLATE = json.loads(_BEGINS.to_str())["post_processor"]


def read(folder, library, **config):
    """What becomes of a tokenizer that lies in a folder with this configuration."""
    folder.mkdir(exist_ok=True)
    content = library if isinstance(library, str) else library.to_str()
    (folder / "tokenizer.json").write_text(content, "utf-8")
    settings = {"vocab_size": Library.from_str(content).get_vocab_size(), **config}
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    checkpoint = Checkpoint(folder)
    return read_byte_bpe(checkpoint)[:2]


def changed(library, change):
    whole = json.loads(library.to_str())
    change(whole)
    return json.dumps(whole)


@pytest.fixture(scope="module", params=["first", "last"])
def both(request, make_tokenizer, tmp_path_factory):
    """A tokenizer of theirs whose end token comes first or last, what it became here, and the numbers."""
    library = make_tokenizer(request.param)
    end = library.token_to_id("<|endoftext|>")
    tokenizer, numbering = read(tmp_path_factory.mktemp("their"), library, eos_token_id=end)
    library.encode_special_tokens = True  # text that spells the end token is text, as it is here
    return library, tokenizer, numbering


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
@example(text=" it's  the\n cat's \u00a0 MAT's'll ")
@example(text="<|endoftext|> x")
@example(text="e\u0301\u0301 \u2028 x\u0085y")
def test_any_text_has_the_same_tokens(both, text):
    library, tokenizer, numbering = both
    ours = tokenizer.encode(text)
    assert [numbering.theirs[i] for i in ours] == library.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ours) == text


def test_the_end_token_becomes_the_end_and_all_others_follow_in_their_order(both):
    library, tokenizer, numbering = both
    end = library.token_to_id("<|endoftext|>")
    assert tokenizer.vocab_size == library.get_vocab_size() - 1 + len(SPECIALS)
    assert numbering.theirs[SPECIALS.end] == end
    assert [numbering.theirs[i] for i in SPECIALS.never_generated] == [None] * 6
    others = list(numbering.theirs[len(SPECIALS) :])
    assert others == [i for i in range(library.get_vocab_size()) if i != end]
    assert [numbering.theirs[our] for our in numbering.ours] == list(range(library.get_vocab_size()))


def test_a_tokenizer_that_was_read_is_saved_and_loaded(both, tmp_path):
    _, tokenizer, _ = both
    tokenizer.save(tmp_path / "t.json")
    again = type(tokenizer).load(tmp_path / "t.json")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode("it's the cat's") == tokenizer.encode("it's the cat's")
    assert tokenizer.is_lossless_without_unknown


def test_vocab_and_merges_are_the_same_tokenizer(make_tokenizer, tmp_path):
    library = make_tokenizer()
    end = library.token_to_id("<|endoftext|>")
    whole, numbering = read(tmp_path / "whole", library, eos_token_id=end)
    folder = tmp_path / "parts"
    folder.mkdir()
    library.model.save(str(folder))
    # The model has not the added token, which GPT-2's own vocab.json lists.
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, "<|endoftext|>": end}), "utf-8")
    (folder / "config.json").write_text(json.dumps({"vocab_size": end + 1}), "utf-8")
    checkpoint = Checkpoint(folder)
    parts, same, framed = read_byte_bpe(checkpoint)
    assert parts.content == whole.content
    assert not framed
    assert same == numbering


def test_an_eos_outside_the_vocabulary_is_a_default_that_was_left(make_tokenizer, tmp_path):
    _, numbering = read(tmp_path / "x", make_tokenizer(), eos_token_id=50256)
    assert numbering.theirs[SPECIALS.end] == 310


def test_tokens_that_fill_and_begin_are_taken_over(make_tokenizer, tmp_path):
    library = make_tokenizer()
    library.add_special_tokens(["<|fill|>", "<|begin|>"])
    tokenizer, numbering = read(tmp_path / "x", library, eos_token_id=310, pad_token_id=311, bos_token_id=312)
    assert [numbering.theirs[i] for i in (SPECIALS.end, SPECIALS.pad, SPECIALS.start)] == [310, 311, 312]
    assert tokenizer.vocab_size == 310 + len(SPECIALS)


def test_a_start_token_of_its_own_is_taken_over_where_the_configuration_has_the_default(
    make_tokenizer, tmp_path
):
    library = make_tokenizer("last")
    library.add_special_tokens(["<|start|>", "<|sep|>"])
    tmp_path.joinpath("tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<|start|>", "sep_token": "<|sep|>"}), "utf-8"
    )
    end = library.token_to_id("<|endoftext|>")
    _, numbering = read(tmp_path, library, bos_token_id=end, eos_token_id=end)
    assert numbering.theirs[SPECIALS.start] == library.token_to_id("<|start|>")
    assert numbering.theirs[SPECIALS.separate] == library.token_to_id("<|sep|>")
    assert numbering.theirs[SPECIALS.end] == end


def test_tokens_that_fill_may_be_told_beside_the_tokenizer(make_tokenizer, tmp_path):
    library = make_tokenizer()
    library.add_special_tokens(["[PAD]", "[UNK]"])
    (tmp_path / "x").mkdir()
    told = {"pad_token": {"content": "[PAD]"}, "unk_token": "[UNK]", "bos_token": "<|endoftext|>"}
    (tmp_path / "x" / "tokenizer_config.json").write_text(json.dumps(told), "utf-8")
    _, numbering = read(tmp_path / "x", library, eos_token_id=310)
    assert numbering.theirs[: len(SPECIALS)] == (311, None, 310, 312, None, None, None)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: w.update(normalizer={"type": "Lowercase"}), "normalizer and pre_tokenizer are not"),
        (lambda w: w["pre_tokenizer"].update(add_prefix_space=True), "normalizer and pre_tokenizer are not"),
        (lambda w: w["pre_tokenizer"].update(use_regex=False), "normalizer and pre_tokenizer are not"),
        (lambda w: w["model"].update(ignore_merges=True), "model.ignore_merges: True"),
        (lambda w: w["model"].update(dropout=0.5), "model.dropout: 0.5"),
        (lambda w: w["model"]["vocab"].update({"☃": 310}), "'☃' (id 310) is not spelled in bytes"),
        (lambda w: w["model"]["vocab"].update({"zz": 312}), "the ids have gaps"),
        (lambda w: w.update(post_processor=TEMPLATE), "post_processor: 'TemplateProcessing' adds tokens"),
    ],
)
def test_another_tokenizer_is_refused(make_tokenizer, tmp_path, change, message):
    with pytest.raises(RequestError) as error:
        read(tmp_path / "x", changed(make_tokenizer(), change), vocab_size=312)
    assert message in str(error.value)
    assert str(tmp_path / "x" / "tokenizer.json") in str(error.value)


def test_other_special_tokens_are_refused_by_name(make_tokenizer, tmp_path):
    library = make_tokenizer()
    library.add_special_tokens(["<|say|>"])
    with pytest.raises(
        RequestError, match=r"the token '<\|say\|>' \(id 311\).*of special tokens, only those"
    ):
        read(tmp_path / "x", library, eos_token_id=310)


def test_another_kind_of_model_is_refused(tmp_path):
    library = Library(models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    with pytest.raises(RequestError, match="model: 'WordLevel': GPT-2's is 'BPE'"):
        read(tmp_path / "x", library)


def test_bytes_without_an_entry_are_refused(tmp_path):
    library = Library(models.BPE({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}, [("a", "b")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with pytest.raises(RequestError, match="254 of the 256 bytes have no entry"):
        read(tmp_path / "x", library)


def test_tokenizer_and_weights_of_different_models_are_refused(make_tokenizer, tmp_path):
    with pytest.raises(RequestError) as error:
        read(tmp_path / "x", make_tokenizer(), vocab_size=321)
    assert "config.json: vocab_size: 321, and tokenizer.json has 311 entries" in str(error.value)


def test_an_end_token_that_is_a_piece_of_text_is_refused(make_tokenizer, tmp_path):
    library = make_tokenizer()
    number = library.token_to_id("a")
    with pytest.raises(
        RequestError, match=rf"eos_token_id: {number} is 'a', which is a piece of ordinary text"
    ):
        read(tmp_path / "x", library, eos_token_id=number)


def test_damage_is_told_from_what_is_strange(make_tokenizer, tmp_path):
    folder = tmp_path / "x"
    read(folder, make_tokenizer())
    (folder / "tokenizer.json").write_text('{"version": "1.0", "mod', "utf-8")
    checkpoint = Checkpoint(folder)
    with pytest.raises(DamagedError, match=r"tokenizer.json: cannot be read as a tokenizer"):
        read_byte_bpe(checkpoint)


@pytest.mark.parametrize("line", ["a", "a b c"])
def test_a_broken_line_of_merges_is_named(make_tokenizer, tmp_path, line):
    library = make_tokenizer()
    library.model.save(str(tmp_path))
    (tmp_path / "config.json").write_text("{}", "utf-8")
    path = tmp_path / "merges.txt"
    lines = path.read_text("utf-8").split("\n")
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]), "utf-8")
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(DamagedError, match=r"merges.txt:4: expected two pieces"):
        read_byte_bpe(checkpoint)


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path):
    (tmp_path / "config.json").write_text("{}", "utf-8")
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(
        RequestError, match=r"has no tokenizer: neither tokenizer.json, nor vocab.json with merges"
    ):
        read_byte_bpe(checkpoint)


# Writing


@pytest.fixture(scope="module", params=[*SPLITS, "byte"])
def own(request):
    """A tokenizer of heedful's, and what is written of it."""
    if request.param == "byte":
        config = ByteConfig(kind="byte")
    else:
        config = ByteBpeConfig(kind="byte-bpe", merges=60, min_frequency=1, split=request.param)
    tokenizer = train_tokenizer(config, TEXT)
    content, spelled, numbering = write_byte_bpe(tokenizer)
    return tokenizer, content, spelled["eos_token"], numbering


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
@example(text=" it's  the\n cat's \u00a0 MAT's'll ")
@example(text="  two spaces first")
@example(text="")
def test_any_text_has_the_same_tokens_in_what_is_written(own, text):
    tokenizer, content, _, numbering = own
    library = Library.from_str(content)
    library.encode_special_tokens = True
    theirs = library.encode(text, add_special_tokens=False).ids
    assert theirs == [numbering.theirs[i] for i in tokenizer.encode(text)]
    assert library.decode(theirs) == text


def test_the_entries_come_first_and_the_end_token_last(own):
    tokenizer, content, end, numbering = own
    library = Library.from_str(content)
    n = tokenizer.vocab_size - len(SPECIALS)
    assert numbering.theirs == (None, None, n, None, None, None, None, *range(n))
    assert (end, library.token_to_id(end), library.get_vocab_size()) == ("<|endoftext|>", n, n + 1)


def test_what_is_written_is_read_again(own, tmp_path):
    tokenizer, content, _, numbering = own
    again, same = read(tmp_path / "x", content, eos_token_id=numbering.theirs[SPECIALS.end])
    assert same == numbering
    assert again.model.pieces == tokenizer.model.pieces
    assert again.encode(" it's the  cat") == tokenizer.encode(" it's the  cat")


def test_an_end_token_that_a_piece_spells_gets_another_name():
    config = ByteBpeConfig(kind="byte-bpe", merges=60, min_frequency=1, split="space")
    tokenizer = train_tokenizer(config, ["x\n" + "<|endoftext|>"] * 9)
    content, spelled, _ = write_byte_bpe(tokenizer)
    assert spelled["eos_token"] == "<|end of text|>"
    library = Library.from_str(content)
    library.encode_special_tokens = True
    assert library.decode(library.encode("x <|endoftext|>").ids) == "x <|endoftext|>"


def test_other_kinds_are_refused_by_their_key():
    tokenizer = train_tokenizer(CharacterConfig(kind="character"), TEXT)
    with pytest.raises(RequestError, match=r"tokenizer.subwords.kind=character: not supported by GPT-2"):
        write_byte_bpe(tokenizer)
    composing = train_tokenizer(ByteConfig(kind="byte"), TEXT, PreprocessingConfig(normalization="nfc"))
    assert write_byte_bpe(composing) == write_byte_bpe(train_tokenizer(ByteConfig(kind="byte"), TEXT))
    lower = train_tokenizer(ByteConfig(kind="byte"), TEXT, PreprocessingConfig(lowercase=True))
    with pytest.raises(RequestError, match=r"tokenizer.text: GPT-2 does not support changes"):
        write_byte_bpe(lower)
