"""BERT without transformers: configurations, round trips, what may differ in a folder, refusals."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.api.run import load
from heedful.config import merged
from heedful.errors import RequestError
from heedful.interop.bert import BERT, table
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.conversion import export_run, import_run
from heedful.interop.names import Numbering, write_weights
from heedful.models.encoder import PRESETS, EncoderConfig
from heedful.models.registry import build_model
from heedful.runs.reading import read_recipe
from heedful.runs.train import train_run
from heedful.text.specials import SPECIALS

TEXT = ["The Cat sat on the mat, and it's the cat's mat.", "We'll see 1234 dogs! ÜBER façade, 猫が好き"]
LABELS = ["bad", "good", "so so"]
SIZES = {
    "kind": "encoder",
    "d_model": 14,
    "n_layers": 2,
    "max_length": 19,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "channels": {"kind": "feed-forward", "d_ff": 17},
        "norm": {"eps": 1e-12},
    },
}
CLEANING = {"clean": True, "chinese": True, "strip_accents": True, "lowercase": True}
WORDS = {"kind": "wordpiece", "vocab_size": 101, "min_frequency": 1, "cleaning": CLEANING}


ROWS = {
    "masked-language-modelling": [{"text": text} for text in TEXT],
    "classification": [{"text": TEXT[i % 2], "pair": TEXT[0], "label": x} for i, x in enumerate(LABELS)],
    "regression": [{"text": TEXT[i % 2], "label": f"{x}"} for i, x in enumerate((1.5, -7, 4))],
    "tagging": [{"words": "the cat sat", "tags": "D N V"}, {"words": TEXT[1], "tags": "D N V D N D V"}],
    "question-answering": [{"question": "who sat ?", "passage": TEXT[0], "answer": "the mat"}],
}


@pytest.fixture
def own_run(make_run, tmp_path):
    """Makes a run of heedful's with such a task, tokenizer and model."""

    def make(task="masked-language-modelling", subwords=WORDS, text=None, **model):
        recipe = {
            "task": {"kind": task} if isinstance(task, str) else task,
            "tokenizer": {"subwords": subwords, **({"text": text} if text else {})},
            "model": merged(SIZES, model),
        }
        if recipe["task"]["kind"] == "question-answering":
            recipe["windows"] = {"longest_question": 6}
        return make_run(tmp_path / "run", recipe, ROWS[recipe["task"]["kind"]])

    return make


CLASSES = {"kind": "classification", "pairs": True, "labels": LABELS}
NEXT = {"kind": "masked-language-modelling", "next_sentence": True}
NUMBERS = {"kind": "regression", "pairs": False}
PASSAGES = {"kind": "question-answering", "unanswerable": True}

# What goes in, by the task; gaps by default.
INPUTS = {
    "classification": (TEXT[1], TEXT[0]),
    "question-answering": ("who sat ?", TEXT[0]),
    "tagging": "the dogs sat on 1234 mats",
    "regression": TEXT[1],
}


@pytest.fixture
def bert(own_run, tmp_path):
    """A folder that can be imported, with both heads of the published models."""
    return export_run(own_run(NEXT), "bert", tmp_path / "their-bert")


@pytest.fixture
def changed(bert):
    """The same with other values in its configuration; None takes a key away."""

    def change(**values):
        path = bert / "config.json"
        config = {**json.loads(path.read_text("utf-8")), **values}
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}), "utf-8")
        return bert

    return change


@pytest.mark.parametrize(
    "task, architecture",
    [
        ("masked-language-modelling", "BertForMaskedLM"),
        (NEXT, "BertForPreTraining"),
        (CLASSES, "BertForSequenceClassification"),
        (NUMBERS, "BertForSequenceClassification"),
        (PASSAGES, "BertForQuestionAnswering"),
        ("tagging", "BertForTokenClassification"),
    ],
)
def test_a_run_comes_back_but_for_two_rows_that_bert_has_not(own_run, tmp_path, task, architecture):
    run, lines = own_run(task), []
    out = export_run(run, "bert", log=lines.append)
    assert json.loads((out / "config.json").read_text("utf-8"))["architectures"] == [architecture]
    assert lines[0] == "note: the embeddings of <s> and </s> are not exported: BERT has no such tokens"
    before, after = load(run), load(import_run(out, tmp_path / "again").path)
    assert after.recipe.task == before.recipe.task
    assert after.recipe.model == before.recipe.model
    tokenizers = [getattr(r.processor, "tokenizer", None) or r.processor.text for r in (before, after)]
    assert tokenizers[0].model.pieces == tokenizers[1].model.pieces
    kept = [i for i in range(tokenizers[0].vocab_size) if i not in (SPECIALS.start, SPECIALS.end)]
    for name, tensor in before.model.state_dict().items():
        rows = (
            kept
            if name in ("embedding.weight", "heads.token.out.weight", "heads.token.out.bias")
            else slice(None)
        )
        # Numbers come back in their own unit.
        if not name.startswith("heads.value"):
            assert torch.equal(tensor[rows], after.model.state_dict()[name][rows]), name
    inputs = [INPUTS.get(before.recipe.task.kind, "the [MASK] sat on the [MASK]")]
    first, second = (r.predict(inputs) for r in (before, after))
    assert [p.text for p in first] == [p.text for p in second]
    # The two rows have their part in the probabilities of hidden tokens.
    if before.recipe.task.kind != "masked-language-modelling":
        assert [p.score for p in first] == pytest.approx([p.score for p in second], abs=1e-5)


def test_what_was_imported_is_exported_bit_for_bit(bert, tmp_path):
    out = export_run(import_run(bert, tmp_path / "again").path, "bert", tmp_path / "back")
    assert {path.name for path in out.iterdir()} == {path.name for path in bert.iterdir()}
    for path in bert.iterdir():
        assert path.read_bytes() == (out / path.name).read_bytes(), path.name


def test_a_configuration_becomes_a_model(changed, tmp_path):
    folder = changed(
        hidden_act="gelu_new", layer_norm_eps=1e-3, hidden_dropout_prob=0.25,
        attention_probs_dropout_prob=0.5, classifier_dropout=0.125, my_own_key=1,
    )  # fmt: skip
    lines = []
    run = load(import_run(folder, tmp_path / "again", lines.append).path)
    assert run.recipe.model == EncoderConfig.model_validate(
        merged(
            SIZES,
            {
                "dropout": 0.25,
                "layer": {
                    "mixer": {"dropout": 0.5},
                    "channels": {"activation": "gelu-tanh"},
                    "norm": {"eps": 1e-3},
                },
            },
        )
    )
    # Activation and ε of the head for hidden tokens are the model's.
    head = run.model.heads["token"].transform
    assert (head[1].approximate, head[2].eps) == ("tanh", 1e-3)
    assert any("classifier_dropout=0.125 differs from hidden_dropout_prob=0.25" in line for line in lines)
    assert any("not read: config.json: my_own_key" in line for line in lines)


def without(folder, *begins):
    """Leave tensors out of a folder."""
    path = folder / "model.safetensors"
    held = {name: tensor for name, tensor in load_file(path).items() if not name.startswith(begins)}
    save_file(held, path)
    return folder


def test_heads_that_are_not_there_are_told_or_begin_afresh(bert, tmp_path):
    lines = []
    run = load(import_run(without(bert, "cls."), tmp_path / "bare", lines.append).path)
    assert any("the source has no head" in line for line in lines)
    assert not run.recipe.task.next_sentence
    assert run.recipe.model.pooler
    again = load(import_run(bert, tmp_path / "bare again").path)
    # What begins afresh is the same every time.
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert not load(import_run(without(bert, "bert.pooler."), tmp_path / "barer").path).recipe.model.pooler


@pytest.mark.parametrize(
    "begins, message",
    [
        (("bert.pooler.",), "missing: bert.pooler.dense.bias"),
        (("cls.predictions.bias",), "missing: cls.predictions.bias"),
        (("bert.encoder.layer.1.output.dense.w",), "missing: bert.encoder.layer.1.output.dense.weight"),
    ],
)
def test_what_is_missing_is_listed(bert, tmp_path, begins, message):
    with pytest.raises(RequestError) as error:
        import_run(without(bert, *begins), tmp_path / "again")
    assert message in str(error.value)
    assert not (tmp_path / "again").exists()


def test_unknown_tensors_are_listed(bert, tmp_path):
    path = bert / "model.safetensors"
    save_file({**load_file(path), "cls.other.weight": torch.ones(2, 14)}, path)
    with pytest.raises(RequestError, match=r"unknown: cls.other.weight"):
        import_run(bert, tmp_path / "again")


@pytest.mark.parametrize(
    "values, message",
    [
        ({"is_decoder": True}, "is_decoder: True: decoders are not supported"),
        ({"add_cross_attention": True}, "add_cross_attention: True: "),
        ({"quantization_config": {"bits": 8}}, "quantised weights are not supported"),
        ({"tie_word_embeddings": False}, "missing: cls.predictions.decoder.weight"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: 'relative_key': "),
        (
            {"architectures": ["BertForMultipleChoice"]},
            "architectures: BertForMultipleChoice: this head is not supported",
        ),
        (
            {"hidden_act": "mish"},
            "hidden_act: expected one of swish, silu, relu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, "
            "gelu_python, got 'mish'",
        ),
        ({"num_attention_heads": 3}, "num_attention_heads: 3 does not divide hidden_size=14"),
        ({"layer_norm_eps": 0}, "layer_norm_eps: must be between 0 and 1, got 0"),
        ({"vocab_size": 90}, "vocab_size: 90, and tokenizer.json has"),
        ({"num_hidden_layers": 1}, "unknown: bert.encoder.layer.1."),
        ({"max_position_embeddings": 18}, "position_embeddings.weight has shape [19, 14] in the file"),
    ],
)
def test_what_heedful_cannot_express_is_refused_by_its_key(changed, tmp_path, values, message):
    with pytest.raises(RequestError) as error:
        import_run(changed(**values), tmp_path / "again")
    assert message in str(error.value)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "kind, message",
    [
        ("multi_label_classification", "config.json: problem_type: 'multi_label_classification': "),
        ("regression", "classifier.weight has shape [3, 14] in the file, expected [1, 14]"),
    ],
)
def test_another_kind_of_labels_is_refused(own_run, tmp_path, kind, message):
    out = export_run(own_run(CLASSES), "bert")
    config = json.loads((out / "config.json").read_text("utf-8"))
    (out / "config.json").write_text(json.dumps({**config, "problem_type": kind}), "utf-8")
    with pytest.raises(RequestError) as error:
        import_run(out, tmp_path / "again")
    assert message in str(error.value)


def test_a_head_is_known_by_its_tensors_where_no_architecture_is_told(own_run, tmp_path):
    out = export_run(own_run("tagging", pooler=False), "bert")
    config = json.loads((out / "config.json").read_text("utf-8"))
    del config["architectures"]
    (out / "config.json").write_text(json.dumps(config), "utf-8")
    again = load(import_run(out, tmp_path / "again").path)
    assert again.recipe.task.kind == "tagging"
    assert again.processor.labels == ("D", "N", "V")
    assert not again.recipe.model.pooler


@pytest.mark.parametrize("labels", [{"0": "good", "1": "good"}, {"1": "good", "2": "bad"}, {"0": 1, "1": 2}])
def test_labels_that_are_none_are_refused(own_run, tmp_path, labels):
    out = export_run(own_run(CLASSES), "bert")
    config = json.loads((out / "config.json").read_text("utf-8"))
    (out / "config.json").write_text(json.dumps({**config, "id2label": labels}), "utf-8")
    with pytest.raises(
        RequestError, match=r"config.json: id2label: expected at least two different labels .*, got"
    ):
        import_run(out, tmp_path / "again")


@pytest.mark.parametrize(
    "model, message",
    [
        (
            {"layer": {"norm_placement": "pre"}},
            "model.layer.norm_placement=pre: not supported by BERT: its norms follow",
        ),
        ({"layer": {"mixer": "fourier"}}, "model.layer.mixer.kind=fourier: "),
        (
            {"layer": {"mixer": {"visible": {"kind": "window", "size": 4}}}},
            "model.layer.mixer.visible.kind=window: ",
        ),
        ({"pattern": [{"mixer": "fourier"}, {}]}, "model.pattern=[…]: not supported by BERT: its layers are"),
        ({"layer": {"norm": "rms"}}, "model.layer.norm.kind=rms: "),
        ({"positions": "none"}, "model.positions.kind=none: "),
        ({"scale_embedding": True}, "model.scale_embedding=true: not supported by BERT"),
        ({"embedding_norm": False}, "model.embedding_norm=false: "),
        ({"pooling": "mean"}, "model.pooling=mean: "),
        ({"layer": {"channels": "gated"}}, "model.layer.channels.kind=gated: "),
        ({"layer": {"channels": {"bias": False}}}, "model.layer.channels.bias=false: "),
        ({"layer": {"mixer": {"bias": False}}}, "model.layer.mixer.bias=false: "),
        ({"layer": {"mixer": {"n_kv_heads": 1}}}, "model.layer.mixer.n_kv_heads=1: "),
        ({"segments": 0}, "model.segments=0: "),
        ({"subwords": {"kind": "word"}}, "tokenizer.subwords.kind=word: BERT's tokenizer is a WordPiece"),
        ({"text": {"lowercase": True}}, "tokenizer.text: changes of the text are not supported by BERT"),
    ],
)
def test_what_bert_has_not_is_refused_by_the_recipes_key(own_run, tmp_path, model, message):
    run = own_run(**model)
    with pytest.raises(RequestError) as error:
        export_run(run, "bert")
    assert message in str(error.value)
    assert not (tmp_path / "run-bert").exists()


@pytest.mark.parametrize("task", [CLASSES, NEXT, NUMBERS])
def test_a_classifier_without_berts_layer_is_refused(own_run, task):
    with pytest.raises(RequestError, match=r"model.pooler=false: not supported by BERT: it classifies"):
        export_run(own_run(task, pooler=False), "bert")


def test_an_imported_run_is_the_start_of_another(bert, tmp_path):
    """One update with little of a rate: the weights are nearly those that were imported."""
    source = import_run(bert, tmp_path / "imported")
    rows = [{"text": TEXT[i % 2], "label": LABELS[i % 3]} for i in range(6)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    recipe = {
        "start": {"run": "imported"},
        "task": {"kind": "classification"},
        "data": {
            part: {
                "kind": "jsonl",
                "paths": str(tmp_path / "rows.jsonl"),
                "columns": {"text": "text", "label": "label"},
            }
            for part in ("train", "valid")
        },
        "schedule": {"kind": "constant", "peak": 1e-5},
        "training": {"max_updates": 1, "precision": "fp32"},
    }
    (tmp_path / "fine.yaml").write_text(json.dumps(recipe), "utf-8")
    train_run(read_recipe(str(tmp_path / "fine.yaml"))[0], tmp_path / "fine", device="cpu")
    run = load(tmp_path / "fine")
    assert run.processor.labels == tuple(sorted(LABELS))
    first = load(source.path)
    assert run.processor.text.fingerprint == first.processor.text.fingerprint
    moved = 0.0
    for name, tensor in first.model.state_dict().items():
        if not name.startswith(("heads.token", "heads.next")):
            difference = (run.model.state_dict()[name] - tensor).abs().max().item()
            assert difference < 1e-4, name
            moved = max(moved, difference)
    assert moved > 1e-6


@pytest.mark.parametrize("name, n", [("bert-base", 12), ("bert-large", 24)])
def test_the_table_knows_every_name_of_the_published_sizes(name, n):
    layer = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 3}}
    own = PRESETS[name].changed(d_model=4, layer=layer, max_length=3)
    written = write_weights(table(own, Numbering(tuple(range(5))), {"pooled"}), build_model(own, 5))
    assert len(written) == 5 + 16 * n + 2


def test_what_is_read_is_remembered(bert):
    checkpoint = Checkpoint(bert)
    BERT().read(checkpoint)
    assert set(checkpoint.hashes()) == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
