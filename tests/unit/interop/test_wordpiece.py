"""Tokenizers of BERT's kind: what the files may say, and what is refused. (The same tokens: tests/parity.)"""

import json

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, processors

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.wordpiece import read_wordpiece, write_wordpiece
from heedful.text.configuration import CleaningConfig, WordPieceConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

NAMES = ["[PAD]", "the", "cat", "[UNK]", "##s", "[MASK]", "é", "e", "É", "[SEP]", "[CLS]", "猫", "##e"]
UNCASED = CleaningConfig(clean=True, chinese=True, strip_accents=True, lowercase=True)


def library(**cleaning):
    made = Library(models.WordPiece({name: i for i, name in enumerate(NAMES)}, unk_token="[UNK]"))
    if cleaning:
        made.normalizer = normalizers.BertNormalizer(**cleaning)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return made


def read(folder, content, settings=None, **config):
    """What becomes of such files; ``content`` is a tokenizer, or the text of vocab.txt."""
    folder.mkdir(exist_ok=True)
    if isinstance(content, str):
        (folder / "vocab.txt").write_text(content, "utf-8")
    else:
        (folder / "tokenizer.json").write_text(
            json.dumps(content) if isinstance(content, dict) else content.to_str(), "utf-8"
        )
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    (folder / "config.json").write_text(json.dumps({"vocab_size": len(NAMES), **config}), "utf-8")
    checkpoint = Checkpoint(folder)
    return read_wordpiece(checkpoint)


def test_the_entries_move_behind_heedfuls_specials(tmp_path):
    tokenizer, numbering = read(tmp_path, "\n".join(NAMES) + "\n")
    assert numbering.theirs == (0, None, None, 3, 10, 9, 5, 1, 2, 4, 6, 7, 8, 11, 12)
    assert tokenizer.vocab_size == 15
    assert tokenizer.model.config.cleaning == UNCASED
    ids = tokenizer.encode("The CATS É\x00 猫猫 [SEP]")
    assert tokenizer.tokens(ids) == ["the", "cat", "##s", "e", "猫", "猫", *["<unk>"] * 3]
    assert tokenizer.decode(ids[:3]) == "the cats"


GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


@pytest.mark.parametrize(
    "cleaning, settings, wanted",
    [
        ({"lowercase": True}, None, UNCASED),
        ({"lowercase": False}, {"do_lower_case": False}, CleaningConfig(clean=True, chinese=True)),
        ({"lowercase": False}, GENERIC, CleaningConfig(clean=True, chinese=True)),
        (
            {"lowercase": True, "strip_accents": False},
            {"strip_accents": False, "tokenizer_class": "BertTokenizerFast"},
            UNCASED.model_copy(update={"strip_accents": False}),
        ),
        ({"lowercase": True, "strip_accents": True}, {"strip_accents": None}, UNCASED),
        ({"lowercase": True, "clean_text": False}, GENERIC, UNCASED.model_copy(update={"clean": False})),
        (
            {"lowercase": True, "handle_chinese_chars": False},
            {"tokenize_chinese_chars": False},
            UNCASED.model_copy(update={"chinese": False}),
        ),
        ({}, GENERIC, CleaningConfig()),
    ],
)
def test_both_files_say_how_text_is_cleaned(tmp_path, cleaning, settings, wanted):
    tokenizer, _ = read(tmp_path, library(**cleaning), settings)
    assert tokenizer.model.config.cleaning == wanted


@pytest.mark.parametrize(
    "cleaning, settings, message",
    [
        ({"lowercase": False}, None, "do_lower_case: true (the default), but the normalizer"),
        ({"lowercase": False}, {"do_lower_case": None}, "do_lower_case: true (the default), but"),
        ({"lowercase": True}, {"do_lower_case": False}, "do_lower_case: false, but"),
        ({"lowercase": True}, {"do_lower_case": False, **GENERIC}, "do_lower_case: false, but"),
        ({"lowercase": True}, {"strip_accents": False}, "strip_accents: false, but"),
        ({"lowercase": True}, {"tokenize_chinese_chars": False, **GENERIC}, "tokenize_chinese_chars: false"),
        ({"lowercase": True, "clean_text": False}, {}, "clean_text: true (the default), but"),
        ({}, {}, "do_lower_case: true (the default), but the normalizer of tokenizer.json has false; set"),
    ],
)
def test_files_that_contradict_each_other_are_refused(tmp_path, cleaning, settings, message):
    with pytest.raises(RequestError) as error:
        read(tmp_path, library(**cleaning), settings)
    assert message in str(error.value)
    assert "tokenizer_config.json" in str(error.value)


def test_special_tokens_may_be_spelt_otherwise(tmp_path):
    names = [name.replace("[UNK]", "<huh>") for name in NAMES]
    settings = {"unk_token": {"content": "<huh>"}, "mask_token": "[MASK]"}
    assert read(tmp_path, "\n".join(names), settings)[1].theirs[SPECIALS.unknown] == 3


@pytest.mark.parametrize(
    "content", ["\r\n".join(NAMES) + "\r\n", library(lowercase=True)], ids=["text", "json"]
)
def test_files_saved_by_editors_on_windows_are_read_as_before(tmp_path, content):
    """With a byte order mark at the beginning of every file, and carriage returns at the ends of lines."""
    settings = {"do_lower_case": True}
    tokenizer, numbering = read(tmp_path, content, settings)
    for path in [*tmp_path.glob("*.json"), *tmp_path.glob("*.txt")]:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    again, same = read_wordpiece(Checkpoint(tmp_path))
    assert (again.fingerprint, same) == (tokenizer.fingerprint, numbering)


def changed(key, **values):
    """A tokenizer.json with other values: those of a section, or, without their names, a section."""
    whole = json.loads(library(lowercase=True).to_str())
    whole[key] = {**(whole[key] if key == "model" else {}), **values}
    return whole


def entries(**others):
    return "\n".join(others.get(name.strip("[]"), name) for name in NAMES)


FRAME = library(lowercase=True)
FRAME.post_processor = processors.TemplateProcessing("[CLS] $A", "[CLS] $A $B", [("[CLS]", 10)])
FRAME = json.loads(FRAME.to_str())["post_processor"]


@pytest.mark.parametrize(
    "content, settings, message",
    [
        (entries() + "\ncat", None, "vocab.txt:14: duplicate entry 'cat'; it is also in line 3"),
        (entries() + "\ndog", None, "vocab_size: 13, and vocab.txt has 14 entries"),
        (entries(SEP="x"), None, "the special token '[SEP]' is missing"),
        (entries(), {"do_basic_tokenize": False}, "tokenizer_config.json: do_basic_tokenize: False"),
        (entries(), {"do_lower_case": "no"}, "do_lower_case: expected a boolean, got 'no'"),
        (changed("model", max_input_chars_per_word=7), None, "model.max_input_chars_per_word: 7"),
        (changed("model", continuing_subword_prefix="@"), None, "model.continuing_subword_prefix: '@'"),
        (changed("pre_tokenizer", type="WhitespaceSplit"), None, "pre_tokenizer: 'WhitespaceSplit'"),
        (changed("normalizer", type="NFC"), None, "normalizer: 'NFC'"),
        (changed("post_processor", **FRAME), None, "post_processor: expected [CLS] … [SEP]"),
    ],
)
def test_what_heedful_cannot_do_is_refused(tmp_path, content, settings, message):
    with pytest.raises(RequestError) as error:
        read(tmp_path / "x", content, settings)
    assert message in str(error.value)


def test_words_that_were_added_are_refused(tmp_path):
    more = library(lowercase=True)
    more.add_tokens(["heed"])
    with pytest.raises(
        RequestError, match=r"the token 'heed' \(id 13\) is matched in text before words are split"
    ):
        read(tmp_path, more, vocab_size=14)


def test_a_folder_without_a_tokenizer_is_told(tmp_path):
    (tmp_path / "config.json").write_text("{}", "utf-8")
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(RequestError, match=r"has no tokenizer: neither tokenizer.json nor vocab.txt"):
        read_wordpiece(checkpoint)


def test_an_entry_that_is_spelt_as_a_special_is_refused(tmp_path):
    names = [name.replace("[UNK]", "<huh>") for name in NAMES] + ["[UNK]"]
    tokenizer, _ = read(tmp_path, "\n".join(names), {"unk_token": "<huh>"}, vocab_size=14)
    with pytest.raises(RequestError, match=r"has an entry '\[UNK\]', which is a special token of BERT"):
        write_wordpiece(tokenizer, 7)


def test_what_is_written_says_all(tmp_path):
    config = WordPieceConfig(kind="wordpiece", vocab_size=60, min_frequency=1, cleaning=UNCASED)
    tokenizer = train_tokenizer(config, ["The cat sat on the mat, and it's ÜBER."])
    files, numbering = write_wordpiece(tokenizer, 17)
    settings = json.loads(files["tokenizer_config.json"])
    assert settings["model_max_length"] == 17
    assert all(settings[key] for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"))
    written = Library.from_str(files["tokenizer.json"])
    assert written.encode("the cat", "sat").type_ids[-1] == 1
    ids = tokenizer.encode("The cát")
    assert [numbering.theirs[i] for i in ids] == written.encode("The cát", add_special_tokens=False).ids
    assert numbering.theirs[: len(SPECIALS)] == (0, None, None, 1, 2, 3, 4)


@pytest.mark.parametrize("nested", [False, True])
def test_a_template_with_a_token_that_it_does_not_define_is_damaged(tmp_path, nested):
    """The library panics when it is used."""
    template = {**FRAME, "special_tokens": {}}
    sequence = {"type": "Sequence", "processors": [template]}
    whole = {
        **json.loads(library(lowercase=True).to_str()),
        "post_processor": sequence if nested else template,
    }
    with pytest.raises(DamagedError, match=r"tokenizer\.json: post_processor: special_tokens has no entry"):
        read(tmp_path, whole)
