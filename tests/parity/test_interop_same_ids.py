"""heedful's own tokenizers beside an exported Marian: transformers gives the same ids and texts."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.api.run import load
from heedful.decoding.config import GreedyConfig, MaxLength
from heedful.interop.conversion import export_run, import_run
from heedful.interop.tokenizer_files import write_same_ids
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

transformers = pytest.importorskip("transformers")

LINES = [
    "the red dog runs, and the cat's asleep.",
    "Der Hund läuft 1234 mal!  Ὀδυσσεύς",
    "##dog a##b the dog # ##",
]
ODD = [
    "",
    " ",
    "  the  dog\n runs\t",
    "</s> and <s> and <unk> <pad> </s>",
    "<0x41><0x20>",
    "naïve façade, நாய் 🐈‍⬛ \u200d\0\x07\ufeff",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ.Σ Ǆ ﬁ e\u0301",
    "▁dog ##dog \u2028 a\u00a0b",
]
KINDS = {
    "bpe": {"kind": "bpe", "merges": 30, "min_frequency": 1},
    "bpe at spaces": {"kind": "bpe", "merges": 30, "min_frequency": 1, "split": "space"},
    "bpe, unknown": {"kind": "bpe", "merges": 30, "min_frequency": 1, "byte_fallback": False},
    "byte-bpe": {"kind": "byte-bpe", "merges": 30, "min_frequency": 1},
    "byte-bpe of gpt2": {"kind": "byte-bpe", "merges": 30, "min_frequency": 1, "split": "gpt2"},
    "unigram": {"kind": "unigram", "vocab_size": 320, "min_frequency": 1},
    "unigram at spaces": {"kind": "unigram", "vocab_size": 90, "byte_fallback": False, "split": "space"},
    "wordpiece": {"kind": "wordpiece", "vocab_size": 90, "min_frequency": 1},
    "wordpiece of bert": {
        "kind": "wordpiece",
        "vocab_size": 90,
        "cleaning": {"clean": True, "chinese": True, "strip_accents": True, "lowercase": True},
    },
    "word": {"kind": "word"},
    "word at spaces": {"kind": "word", "split": "space"},
    "character": {"kind": "character"},
    "character or byte": {"kind": "character", "byte_fallback": True},
    "byte": {"kind": "byte"},
}


def both(folder, subwords, **preprocessing):
    """A tokenizer, and what transformers reads in its place."""
    config = TypeAdapter(TokenizerConfig).validate_python(subwords)
    ours = train_tokenizer(config, LINES, PreprocessingConfig(**preprocessing))
    for name, content in write_same_ids(ours, 37, "tokenizer").items():
        (folder / name).write_text(content, "utf-8")
    return ours, transformers.AutoTokenizer.from_pretrained(folder)


def check_same(ours, theirs, text):
    ids = ours.encode(text)
    assert theirs(text).input_ids == [*ids, SPECIALS.end]
    assert theirs.decode([*ids, SPECIALS.end], skip_special_tokens=True) == ours.surface(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_any_text_has_the_same_ids_and_comes_back_the_same(tmp_path, kind):
    ours, theirs = both(tmp_path, KINDS[kind])
    assert len(theirs) == ours.vocab_size
    for text in (*ODD, *LINES):
        check_same(ours, theirs, text)

    @settings(max_examples=60)
    @given(st.text() | st.text(alphabet=sorted({*"".join(LINES), *"<0x>/"})))
    def same(text):
        check_same(ours, theirs, text)

    same()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_may_write_is_read_the_same(tmp_path, kind):
    ours, theirs = both(tmp_path, KINDS[kind])
    # Single bytes that are no UTF-8 are shown in as many signs as the library likes.
    whole = [i for i in range(ours.vocab_size) if not theirs.convert_ids_to_tokens(i).startswith("<0x")]

    @settings(max_examples=60)
    @given(st.lists(st.sampled_from(whole)))
    def same(ids):
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)

    same()


@pytest.mark.parametrize("form, lowercase", [("none", True), ("nfc", True), ("nfkc", True), ("nfc", "tr")])
def test_lower_case_and_forms_of_characters(tmp_path, form, lowercase):
    ours, theirs = both(tmp_path, {"kind": "byte"}, lowercase=lowercase, normalization=form)
    for text in ODD:
        check_same(ours, theirs, text)

    @settings(max_examples=200)
    @given(st.text(alphabet="ΑΣσaBI'.: \u0301\u0307·\u00ad\u0345ʰ1İ’e\u0323ﬁ"))
    @example("ΣΑΣ'Σ ʰΣ ΑʰΣ: ΑΣ\u0345")
    def same(text):
        check_same(ours, theirs, text)

    same()


# Whole runs

ROWS = [
    {"source": "red dog runs", "target": "RUNS DOG RED"},
    {"source": "the blue cat sleeps", "target": "SLEEPS CAT BLUE"},
    {"source": "ein Hund läuft", "target": "LÄUFT HUND EIN"},
]
TEXTS = ["red dog runs", "the  blue\tcat", "läuft</s> 🐈 <unk>", " \0", "Ünïcode “dog”"]
MODEL = {
    "kind": "transformer",
    "d_model": 22,
    "n_layers": 2,
    "max_length": 64,
    "layer": {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 31}},
}
GREEDY = GreedyConfig(max_length=MaxLength(ratio=0, extra=13))


def recipe(subwords, **tokenizer):
    return {
        "task": {"kind": "translation"},
        "tokenizer": {"subwords": subwords, **tokenizer},
        "model": {**MODEL, "tie": "three-way" if tokenizer.get("shared", True) else "none"},
    }


def written(model, source, target):
    """What transformers makes of each text, from text to text."""
    texts = []
    for text in TEXTS:
        with torch.no_grad():
            ids = model.generate(
                **source(text, return_tensors="pt"),
                num_beams=1,
                max_new_tokens=13,
                forced_eos_token_id=None,
            )
        texts.append(target.decode(ids[0], skip_special_tokens=True))
    return texts


@pytest.mark.parametrize("kind", ["bpe, unknown", "unigram at spaces", "byte-bpe", "word"])
def test_one_tokenizer_travels_along(make_run, tmp_path, kind):
    folder = make_run(tmp_path / "run", recipe(KINDS[kind]), ROWS)
    run, said = load(folder), []
    out = export_run(folder, "marian", log=said.append)
    assert any("AutoTokenizer encodes both sides with the same ids as heedful" in line for line in said)
    model = transformers.MarianMTModel.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert [tokenizer(text).input_ids[:-1] for text in TEXTS] == run.processor.source.encode_batch(TEXTS)
    labels = tokenizer(text_target=TEXTS).input_ids
    assert [ids[:-1] for ids in labels] == run.processor.target.encode_batch(TEXTS)
    found = [prediction.text for prediction in run.predict(TEXTS, decoding=GREEDY)]
    assert found == written(model, tokenizer, tokenizer)
    assert any(found)
    again = load(import_run(out, tmp_path / "again").path)
    assert again.processor.fingerprint == run.processor.fingerprint
    assert [prediction.text for prediction in again.predict(TEXTS, decoding=GREEDY)] == found


def test_two_tokenizers_lie_in_two_folders(make_run, tmp_path):
    folder = make_run(
        tmp_path / "run", recipe(KINDS["byte-bpe"], shared=False, source={"lowercase": True}), ROWS
    )
    said = []
    out = export_run(folder, "marian", log=said.append)
    assert any("load AutoTokenizer from the folders source and target" in line for line in said)
    model = transformers.MarianMTModel.from_pretrained(out).eval()
    source, target = (transformers.AutoTokenizer.from_pretrained(out / side) for side in ("source", "target"))
    found = [prediction.text for prediction in load(folder).predict(TEXTS, decoding=GREEDY)]
    assert found == written(model, source, target)
    import_run(out, tmp_path / "again")


def test_rules_of_moses_stay_behind_and_that_is_told(make_run, tmp_path):
    folder = make_run(tmp_path / "run", recipe(KINDS["bpe"], target={"moses": "de"}), ROWS)
    said = []
    out = export_run(folder, "marian", log=said.append)
    assert any(
        "needs ids as input (tokenizer.target.moses=de: the tokenizers library has no Moses rules)" in s
        for s in said
    )
    assert not (out / "tokenizer.json").exists()
