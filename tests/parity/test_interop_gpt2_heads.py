"""GPT2ForSequenceClassification: what transformers saves is imported, what is exported it loads."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_interop_gpt2 import END, PROMPTS, TEXT, tokenizer_of

from heedful.api.run import load
from heedful.errors import RequestError
from heedful.interop.conversion import export_run, import_run
from heedful.interop.gpt2 import without_bias
from heedful.objectives.classification import class_logits
from heedful.objectives.regression import values
from heedful.tasks.inputs.texts import truncate

transformers = pytest.importorskip("transformers")

TEXTS = [*PROMPTS, *TEXT, "</s> 🐈 dogs!!", "the cat's mat. " * 9]
LABELS = {0: "praise", 1: "blame", 2: "none"}
ONE = {"num_labels": 1, "problem_type": "regression"}
CONTEXT = 29


def their_head(folder, **options):
    """A folder that transformers saved: the model and the tokenizer, which pads with the end token."""
    tokenizer = tokenizer_of("last")
    tokenizer.pad_token = END
    torch.manual_seed(1)
    sizes = {"n_positions": CONTEXT, "n_embd": 22, "n_layer": 2, "n_head": 2}
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), tokenizer.eos_token_id)
    config = transformers.GPT2Config(vocab_size=len(tokenizer), **sizes, **{**ids, **options})
    model = transformers.GPT2ForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def their_logits(model, tokenizer, inputs):
    """Of all inputs at once, padded."""
    pairs = [(text,) if isinstance(text, str) else text for text in inputs]
    read = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, truncation=True, max_length=CONTEXT,
                     return_tensors="pt")  # fmt: skip
    with torch.no_grad():
        return model.eval()(**read).logits


def our_logits(run, inputs):
    """Of all inputs at once, packed."""
    parts = [(text,) if isinstance(text, str) else text for text in inputs]
    frame, processor = run.recipe.template, run.processor
    batch = frame([truncate(processor.text.encode_batch(part), CONTEXT, frame) for part in parts])
    with torch.no_grad():
        hidden = run.model.eval()(batch.inputs)
        if run.recipe.task.kind == "regression":
            scale = processor.scale
            found = scale.mean + scale.deviation * values(hidden, run.model.heads, batch.inputs.layout)
            return found[:, None]
        return class_logits(hidden, run.model.heads, batch.inputs.layout)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("options", [{"id2label": LABELS}, ONE], ids=["labels", "number"])
def test_what_transformers_saved_answers_the_same_here_and_when_it_comes_back(tmp_path, options):
    model, tokenizer = their_head(tmp_path / "their", **options)
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    wanted = their_logits(model, tokenizer, TEXTS)
    close(our_logits(run, TEXTS), wanted)
    # A text of white space alone is empty, and has no answer.
    read = [i for i, text in enumerate(TEXTS) if text.strip()]
    found = run.predict([TEXTS[i] for i in read])
    if options is ONE:
        assert [p.value for p in found] == pytest.approx(wanted[read, 0].tolist(), abs=1e-4)
    else:
        assert [p.text for p in found] == [LABELS[i] for i in wanted[read].argmax(-1).tolist()]
        assert run.processor.labels == tuple(LABELS.values())
    back = export_run(tmp_path / "run", "gpt2", tmp_path / "back")
    first, second = (load_file(path / "model.safetensors") for path in (tmp_path / "their", back))
    assert first.keys() == second.keys()
    # A row for a token that pads, which is another than the one that ends.
    assert len(second["transformer.wte.weight"]) == len(first["transformer.wte.weight"]) + 1
    second["transformer.wte.weight"] = second["transformer.wte.weight"][:-1]
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    again, told = transformers.AutoModelForSequenceClassification.from_pretrained(
        back, output_loading_info=True
    )
    assert not any(told.values()), told
    close(their_logits(again, transformers.AutoTokenizer.from_pretrained(back), TEXTS), wanted)


ROWS = [
    {"text": text, "pair": "the cat", "label": label}
    for text, label in zip([*TEXT, "on"], ("3", "-1", "2.5"), strict=True)
]


@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_run_that_was_trained_here_answers_the_same_there(make_run, tmp_path, kind, pairs, framed):
    if pairs and not framed:
        pytest.skip("refused")
    recipe = {
        "task": {"kind": kind, "pairs": pairs, "add_special_tokens": framed},
        "tokenizer": {"subwords": {"kind": "byte-bpe", "merges": 40, "min_frequency": 1}},
        "model": {
            "kind": "language-model",
            "d_model": 22,
            "n_layers": 2,
            "context": CONTEXT,
            "layer": {"mixer": {"kind": "attention", "n_heads": 2}},
        },
    }
    rows = [{name: row[name] for name in ("text", *["pair"] * pairs, "label")} for row in ROWS]
    folder, said = make_run(tmp_path / "run", recipe, rows), []
    run = load(folder)
    inputs = [(text, "a mat") for text in PROMPTS] if pairs else TEXTS
    wanted = our_logits(run, inputs)
    out = export_run(folder, "gpt2", log=said.append)
    assert any("the head's bias was added to the bias of the last norm" in line for line in said)
    model, told = transformers.GPT2ForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert not any(told.values()), told
    close(their_logits(model, transformers.AutoTokenizer.from_pretrained(out), inputs), wanted)
    again = load(import_run(out, tmp_path / "again").path)
    assert (again.recipe.task.pairs, again.recipe.task.add_special_tokens) == (pairs, framed)
    close(our_logits(again, inputs), wanted)


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


@pytest.mark.parametrize(
    "values, message",
    [
        ({"pad_token_id": 5}, "pad_token_id: 5: texts may end in this token"),
        ({"problem_type": "multi_label_classification"}, "problem_type: 'multi_label_classification'"),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "id2label"),
        ({"architectures": ["GPT2ForTokenClassification"]}, "architectures: GPT2ForTokenClassification"),
        ({"id2label": {"0": "a", "1": "b"}}, "score.weight has shape [3, 22] in the file, expected [2, 22]"),
        ({"task_specific_params": {"heedful": {"pairs": True}}}, "adds no token between two texts"),
    ],
)
def test_what_heedful_cannot_express_is_refused_by_its_key(tmp_path, values, message):
    their_head(tmp_path / "their", id2label=LABELS)
    change(tmp_path / "their", **values)
    with pytest.raises(RequestError) as error:
        import_run(tmp_path / "their", tmp_path / "run")
    assert message in str(error.value)


def test_names_that_are_unknown_or_missing_are_listed(tmp_path):
    their_head(tmp_path / "their", id2label=LABELS)
    path = tmp_path / "their" / "model.safetensors"
    held = load_file(path)
    save_file({**held, "score.bias": torch.zeros(3)}, path)
    with pytest.raises(RequestError, match=r"unknown: score.bias"):
        import_run(tmp_path / "their", tmp_path / "run")
    gone = {
        name: tensor for name, tensor in held.items() if name not in ("score.weight", "transformer.ln_f.bias")
    }
    save_file({**gone, "lm_head.weight": held["transformer.wte.weight"].clone()}, path)
    with pytest.raises(RequestError) as error:
        import_run(tmp_path / "their", tmp_path / "run")
    for line in ("unknown: lm_head.weight", "missing: score.weight", "missing: transformer.ln_f.bias"):
        assert line in str(error.value)


def test_a_bias_that_no_norm_can_hold_is_refused():
    weight, bias = torch.ones(2, 5), torch.tensor([0.0, 1.0])
    tensors = {"score.weight": weight, "score.bias": bias, "transformer.ln_f.bias": torch.ones(5)}
    with pytest.raises(RequestError, match="the rows of its 2 answers depend on each other"):
        without_bias(tensors)
