"""What is exported gives heedful's own answers in transformers when it is called with its own defaults."""

import json

import pytest
import torch

from heedful.api.run import load
from heedful.config import merged
from heedful.interop.conversion import export_run, import_run

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

SOURCES = ["red dog runs", "the blue cat sleeps", "a bird", "green bird eats the cat"]
TARGETS = ["RUNS DOG RED", "SLEEPS CAT BLUE", "BIRD", "EATS BIRD GREEN"]
STACK = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 31}}
SIZES = {"d_model": 22, "n_layers": 2, "layer": STACK}


def limit(n):
    return {"ratio": 0.0, "extra": n, "cap": n}


def average(alpha):
    return {"kind": "average", "alpha": alpha}


# Random models write to the limit: 40 tokens, more than the 20 of transformers.
DECODINGS = {
    "greedy": {"kind": "greedy", "max_length": limit(40)},
    "greedy, short": {"kind": "greedy", "max_length": limit(7)},
    "beam": {
        "kind": "beam", "beam": 3, "max_length": limit(40), "length_penalty": average(0.7),
        "unfinished": "keep",
    },
    "beam, no penalty": {
        "kind": "beam", "beam": 2, "max_length": limit(40), "length_penalty": {"kind": "none"},
        "unfinished": "keep",
    },
    "sample, coldest": {"kind": "sample", "temperature": 0.0, "max_length": limit(40)},
}  # fmt: skip


@pytest.fixture
def translator(make_run, tmp_path):
    def make(decoding, **model):
        recipe = {
            "task": {"kind": "translation"},
            "tokenizer": {"subwords": {"kind": "word"}},
            "model": merged({"kind": "transformer", "max_length": 37, **SIZES}, model),
            "decoding": decoding,
        }
        rows = [{"source": s, "target": t} for s, t in zip(SOURCES, TARGETS, strict=True)]
        return make_run(tmp_path / "run", recipe, rows)

    return make


@pytest.mark.parametrize("decoding", DECODINGS.values(), ids=DECODINGS)
def test_a_translator_generates_the_same_texts(translator, decoding):
    folder = translator(decoding)
    run, out = load(folder), export_run(folder, "marian")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(out).eval()
    found = [prediction.text for prediction in run.predict(SOURCES)]
    one_by_one = [model.generate(**tokenizer(text, return_tensors="pt"))[0] for text in SOURCES]
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in one_by_one] == found
    together = model.generate(**tokenizer(SOURCES, padding=True, return_tensors="pt"))
    assert tokenizer.batch_decode(together, skip_special_tokens=True) == found
    assert all(found)
    if decoding["max_length"]["cap"] > 20:
        assert max(len(ids) for ids in one_by_one) > 21


def test_an_exported_decoding_comes_back_and_gives_way_to_one_that_was_changed(translator, tmp_path):
    decoding = {"kind": "beam", "beam": 3, "length_penalty": {"kind": "gnmt", "alpha": 0.9}}
    folder = translator(decoding)
    out = export_run(folder, "marian")
    again = load(import_run(out, tmp_path / "again").path)
    assert again.recipe.decoding == load(folder).recipe.decoding
    path = out / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"num_beams": 2}), "utf-8")
    other = load(import_run(out, tmp_path / "other").path).recipe.decoding
    assert (other.beam, other.length_penalty.kind) == (2, "average")


@pytest.mark.parametrize("n_new", [5, 30])
def test_a_language_model_continues_alike(make_run, tmp_path, n_new):
    recipe = {
        "task": {"kind": "language-modelling"},
        "tokenizer": {"subwords": {"kind": "byte-bpe", "merges": 50, "min_frequency": 1}},
        "model": {"kind": "language-model", "context": 64, **SIZES},
        "decoding": {"kind": "greedy"},
        "completion": {"max_new_tokens": n_new},
    }
    folder = make_run(tmp_path / "run", recipe, [{"text": text} for text in SOURCES])
    run, out = load(folder), export_run(folder, "gpt2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    found = [prediction.text for prediction in run.predict(SOURCES)]
    batch = tokenizer(SOURCES, padding=True, return_tensors="pt")
    ids = model.generate(**batch)[:, batch.input_ids.shape[1] :]
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == found
    generator = transformers.pipeline("text-generation", model=str(out))
    texts = [generator(text, return_full_text=False)[0]["generated_text"] for text in SOURCES]
    assert texts == found


CLEANING = {"clean": True, "chinese": True, "strip_accents": True, "lowercase": True}
WORDPIECE = {"kind": "wordpiece", "vocab_size": 90, "min_frequency": 1, "cleaning": CLEANING}
ENCODER = {"kind": "encoder", "max_length": 37, "pooling": "first", "pooler": True, **SIZES}
PLAIN = {"text": {"normalization": "none"}, "subwords": WORDPIECE}
TEXTS = ["The RED dog", "a  bïrd, and the cat!", "green"]


def test_a_classifier_gives_the_same_probabilities(make_run, tmp_path):
    recipe = {"task": {"kind": "classification"}, "tokenizer": PLAIN, "model": ENCODER}
    rows = [{"text": text, "label": label} for text, label in zip(SOURCES, "abca", strict=True)]
    folder = make_run(tmp_path / "run", recipe, rows)
    run, out = load(folder), export_run(folder, "bert")
    classify = transformers.pipeline("text-classification", model=str(out), top_k=None)
    for text, prediction in zip(TEXTS, run.predict(TEXTS), strict=True):
        wanted = {each["label"]: each["score"] for each in classify([text])[0]}
        assert prediction.label_probabilities() == pytest.approx(wanted, abs=1e-5)
        assert prediction.text == max(wanted, key=wanted.get)


def test_a_masked_model_fills_gaps_alike(make_run, tmp_path):
    recipe = {"task": {"kind": "masked-language-modelling"}, "tokenizer": PLAIN, "model": ENCODER}
    folder = make_run(tmp_path / "run", recipe, [{"text": text} for text in SOURCES])
    run, out = load(folder), export_run(folder, "bert")
    fill = transformers.pipeline("fill-mask", model=str(out))
    for text in ("the [MASK] dog", "[MASK] Bird"):
        (prediction,) = run.predict([text])
        best = fill(text)[0]["token_str"]
        assert prediction.text.lower() == text.lower().replace("[mask]", best.removeprefix("##"))


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_of_a_sentence_model_are_those_of_its_pooling(tmp_path, pooling):
    """The oracle pools the hidden states of transformers, as sentence-transformers does."""
    folder = tmp_path / "their"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    names += [
        "the",
        "dog",
        "cat",
        *(chr(97 + i) for i in range(26)),
        *(f"##{chr(97 + i)}" for i in range(26)),
    ]
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(names), hidden_size=22, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=31, max_position_embeddings=37,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(names) + "\n", "utf-8")
    kinds = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    steps = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    flags = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
    contents = {
        "modules.json": steps,
        "1_Pooling/config.json": {
            "word_embedding_dimension": 22,
            **{f"pooling_mode_{flag}": mode == pooling for mode, flag in flags.items()},
        },
        "sentence_bert_config.json": {"max_seq_length": 9, "do_lower_case": False},
        "config_sentence_transformers.json": {"__version__": {}, "default_prompt_name": None},
    }
    (folder / "1_Pooling").mkdir()
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    lines = []
    run = load(import_run(folder, tmp_path / "run", lines.append).path)
    assert run.recipe.task.kind == "sentence-embedding"
    assert not any("not read" in line for line in lines)
    assert any("vectors are not scaled to length 1" in line for line in lines)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["the dog", "cat", "the cat and a dog " * 5]
    with pytest.warns(UserWarning, match="1 of 3 inputs were truncated"):
        found = torch.from_numpy(run.embed(texts))
    for vector, text in zip(found, texts, strict=True):
        hidden = model(**tokenizer(text, truncation=True, max_length=9, return_tensors="pt"))[0][0]
        wanted = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.amax(0)}[pooling]
        torch.testing.assert_close(vector, wanted, rtol=0, atol=1e-5)
