"""GPT-2 without transformers: configurations, runs that were imported, round trips, refusals."""

import json
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from jsonschema import Draft202012Validator
from safetensors.torch import load_file, save_file

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder
from heedful.config import merged
from heedful.errors import DamagedError, RequestError
from heedful.files import sha256
from heedful.interop.conversion import export_run, import_run
from heedful.interop.gpt2 import table
from heedful.interop.names import Numbering, write_weights
from heedful.models.language_model import PRESETS, LanguageModelConfig
from heedful.models.registry import build_model
from heedful.text.specials import SPECIALS

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "run.schema.json"
TEXT = ["the cat sat on the mat, and it's the cat's mat.", "  We'll see 1234 dogs!\n\nÜber façade, நாய் 🐈"]


def test_a_run_is_made_of_a_folder(gpt2, tmp_path):
    lines = []
    folder = import_run(gpt2, tmp_path / "runs" / "own", lines.append)
    card = folder.read_card()
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(card)
    names = ("config.json", "tokenizer.json", "model.safetensors")
    assert card["imported"] == {
        "format": "gpt2",
        "name": "their-gpt2",
        "files": {name: sha256(gpt2 / name) for name in names},
    }
    assert set(card["files"]) == {"recipe.yaml", "text.tokenizer.json", "weights.safetensors"}
    assert folder.environment.is_file()
    run = load(folder.path)
    assert run.processor.sizes == (317,)
    wanted = LanguageModelConfig(
        d_model=22,
        n_layers=3,
        context=13,
        dropout=0.0,
        layer={
            "mixer": {"n_heads": 2},
            "channels": {"d_ff": 31, "activation": "gelu-tanh"},
            "norm": {"eps": 1e-3},
        },
    )
    assert run.recipe.model == wanted
    assert any("gpt2, " in line and "317 tokens" in line for line in lines)
    assert any(line.startswith("note: <pad>, <s>, <unk>, <cls>, <sep>, <mask> have no row") for line in lines)
    prediction, empty = run.predict(["the cat", ""], max_new_tokens=20)
    assert prediction.text
    assert empty.tokens


def test_what_was_imported_is_exported_bit_for_bit(gpt2, tmp_path):
    run = import_run(gpt2, tmp_path / "run").path
    out = export_run(run, "gpt2", tmp_path / "back")
    theirs, ours = load_file(gpt2 / "model.safetensors"), load_file(out / "model.safetensors")
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    before, after = (json.loads((f / "config.json").read_text("utf-8")) for f in (gpt2, out))
    assert {key: after[key] for key in before} == before
    before, after = (json.loads((f / "tokenizer.json").read_text("utf-8")) for f in (gpt2, out))
    assert after["model"]["vocab"] == {**before["model"]["vocab"], "<|endoftext|>": 310}
    assert after["model"]["merges"] == before["model"]["merges"]
    again = import_run(out, tmp_path / "again")
    assert sha256(again.weights) == sha256(RunFolder(run).weights)
    assert load(again.path).processor.fingerprint == load(run).processor.fingerprint


def test_an_end_token_that_came_first_goes_last(make_tokenizer, make_gpt2, tmp_path):
    gpt2 = make_gpt2(tmp_path / "their", make_tokenizer("first"))
    out = export_run(import_run(gpt2, tmp_path / "run").path, "gpt2", tmp_path / "back")
    theirs, ours = load_file(gpt2 / "model.safetensors"), load_file(out / "model.safetensors")
    name = "transformer.wte.weight"
    assert torch.equal(ours[name], torch.cat([theirs[name][1:], theirs[name][:1]]))
    assert all(torch.equal(theirs[n], ours[n]) for n in theirs if n != name)
    assert json.loads((out / "config.json").read_text("utf-8"))["eos_token_id"] == 310


def test_an_output_layer_of_its_own_travels_too(make_tokenizer, make_gpt2, tmp_path):
    gpt2 = make_gpt2(tmp_path / "their", make_tokenizer(), tie_word_embeddings=False)
    run = import_run(gpt2, tmp_path / "run").path
    assert load(run).recipe.model.tie is False
    theirs = load_file(gpt2 / "model.safetensors")
    ours = load_file(export_run(run, "gpt2", tmp_path / "back") / "model.safetensors")
    assert "lm_head.weight" in ours
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_old_files_have_masks_and_no_prefix(gpt2, tmp_path):
    import_run(gpt2, tmp_path / "new")
    path = gpt2 / "model.safetensors"
    held = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    held["h.0.attn.bias"] = torch.ones(1, 1, 13, 13).tril()
    held["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(held, path)
    import_run(gpt2, tmp_path / "old")
    assert sha256(RunFolder(tmp_path / "old").weights) == sha256(RunFolder(tmp_path / "new").weights)


@pytest.mark.parametrize(
    "values, key, value",
    [
        ({"activation_function": "gelu"}, "layer.channels.activation", "gelu"),
        ({"activation_function": "gelu_pytorch_tanh"}, "layer.channels.activation", "gelu-tanh"),
        ({"activation_function": "relu"}, "layer.channels.activation", "relu"),
        ({"scale_attn_weights": False}, "layer.mixer.score.kind", "dot"),
        ({"layer_norm_epsilon": 1e-12}, "layer.norm.eps", 1e-12),
        ({"attn_pdrop": 0.25}, "layer.mixer.dropout", 0.25),
        ({"resid_pdrop": 0.2, "embd_pdrop": 0.2}, "dropout", 0.2),
        ({"reorder_and_upcast_attn": True}, "layer.mixer.score.kind", "scaled-dot"),
        ({"n_ctx": 13}, "context", 13),
    ],
)
def test_a_configuration_becomes_a_model_and_back(changed, tmp_path, values, key, value):
    run = import_run(changed(**values), tmp_path / "run").path
    assert attrgetter(key)(load(run).recipe.model) == value
    written = json.loads((export_run(run, "gpt2", tmp_path / "back") / "config.json").read_text("utf-8"))
    same = {"gelu_pytorch_tanh": "gelu_new"}
    for name in values.keys() & written.keys():
        assert written[name] == same.get(values[name], values[name])


def test_what_is_not_kept_is_told(changed, tmp_path):
    lines = []
    import_run(changed(embd_pdrop=0.3, my_own_key=1), tmp_path / "run", lines.append)
    assert any("embd_pdrop=0.3 is not resid_pdrop=0" in line for line in lines)
    assert any("not read: config.json: my_own_key" in line for line in lines)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: True: heedful scales"),
        (
            {"add_cross_attention": True},
            "add_cross_attention: True: language models with cross-attention are not supported",
        ),
        ({"quantization_config": {"bits": 8}}, "quantised weights are not read"),
        (
            {"activation_function": "mish"},
            "gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, gelu_python, got 'mish'",
        ),
        ({"n_head": 3}, "n_head: 3 does not divide n_embd=22"),
        ({"n_ctx": 12}, "n_ctx: is not n_positions=13"),
        ({"n_layer": 0}, "n_layer: must be at least 1, got 0"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon: must be between 0 and 1, got 0"),
        ({"vocab_size": 300}, "vocab_size: 300, and tokenizer.json has 311 entries"),
        ({"eos_token_id": [1, 2]}, "eos_token_id: expected an integer, got [1, 2]"),
    ],
)
def test_what_heedful_cannot_express_is_refused_by_its_key(changed, tmp_path, values, message):
    with pytest.raises(RequestError) as error:
        import_run(changed(**values), tmp_path / "runs" / "own")
    assert message in str(error.value)
    assert "config.json: " in str(error.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "values, message",
    [
        ({"n_layer": 2}, "unknown: transformer.h.2.attn.c_attn.bias"),
        ({"n_layer": 4}, "missing: transformer.h.3.attn.c_attn.bias"),
        (
            {"n_inner": 30},
            "transformer.h.0.mlp.c_fc.weight has shape [22, 31] in the file, expected [22, 30]",
        ),
        ({"n_positions": 14}, "transformer.wpe.weight has shape [13, 22] in the file, expected [14, 22]"),
        ({"tie_word_embeddings": False}, "missing: lm_head.weight"),
    ],
)
def test_weights_of_another_configuration_are_refused(changed, tmp_path, values, message):
    with pytest.raises(RequestError) as error:
        import_run(changed(**values), tmp_path / "run")
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


def test_nothing_is_left_half_made(gpt2, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("heedful.artifacts.weights.write_tensors", full)
    with pytest.raises(Exception, match="cannot be written"):
        import_run(gpt2, tmp_path / "runs" / "own")
    assert not (tmp_path / "runs").exists()


def test_a_folder_with_something_in_it_is_left_alone(gpt2, tmp_path):
    run = import_run(gpt2, tmp_path / "run").path
    with pytest.raises(RequestError, match=r"run: must be empty, but contains 'environment.json'"):
        import_run(gpt2, run)
    with pytest.raises(RequestError, match=r"must be empty"):
        export_run(run, "gpt2", gpt2)
    with pytest.raises(RequestError, match=r"config.json: expected a folder, got a file"):
        import_run(gpt2, gpt2 / "config.json")


def test_a_damaged_run_is_not_exported(gpt2, tmp_path):
    run = import_run(gpt2, tmp_path / "run").path
    weights = RunFolder(run).weights
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(DamagedError, match=r"weights.safetensors: damaged"):
        export_run(run, "gpt2", tmp_path / "back")
    assert not (tmp_path / "back").exists()


# Runs that were trained here


SIZES = {
    "kind": "language-model",
    "d_model": 14,
    "n_layers": 2,
    "context": 11,
    "layer": {"mixer": {"kind": "attention", "n_heads": 2}},
}


@pytest.fixture
def own_run(make_run, tmp_path):
    """Makes a run of heedful's with such a tokenizer and model."""

    def make(tokenizer, **model):
        recipe = {
            "task": {"kind": "language-modelling"},
            "tokenizer": {"subwords": tokenizer},
            "model": merged(SIZES, model),
        }
        return make_run(tmp_path / "run", recipe, [{"text": text} for text in TEXT])

    return make


COMPRESSED = {"mixer": {"kind": "compressed-attention", "n_heads": 2}}
BYTES = {"kind": "byte-bpe", "merges": 50, "min_frequency": 1}


@pytest.mark.parametrize("split", ["class", "gpt2"])
def test_all_but_the_rows_that_are_never_used_come_back(own_run, tmp_path, split):
    run = own_run({**BYTES, "split": split})
    lines = []
    out = export_run(run, "gpt2", log=lines.append)
    assert out == tmp_path / "run-gpt2"
    note, limit, hint = lines
    assert limit == (
        "note: completion.max_new_tokens=200: exported as 5, half of the context, beyond which transformers "
        "cannot continue a text"
    )
    assert note.startswith(
        "note: the embeddings of <pad>, <s>, <unk>, <cls>, <sep>, <mask> are not exported: "
    )
    assert hint == f'load with:   transformers.AutoModelForCausalLM.from_pretrained("{out}")'
    before, after = load(run), load(import_run(out, tmp_path / "again").path)
    assert after.processor.text.model.pieces == before.processor.text.model.pieces
    kept = [i for i in range(before.processor.sizes[0]) if i not in SPECIALS.never_generated]
    for name, tensor in before.model.state_dict().items():
        other = after.model.state_dict()[name]
        rows = kept if name in ("embedding.weight", "heads.token.weight") else slice(None)
        assert torch.equal(tensor[rows], other[rows]), name
    prompts = ["the cat", "", " We'll"]
    greedy = {"decoding": type(before.recipe.decoding)(temperature=0.0), "max_new_tokens": 30}
    first, second = ([p.text for p in run.predict(prompts, **greedy)] for run in (before, after))
    assert first == second


@pytest.mark.parametrize(
    "model, message",
    [
        (
            {"layer": {"norm_placement": "post"}},
            "model.layer.norm_placement=post: not supported by GPT-2: its norms",
        ),
        ({"layer": {"norm": "batch"}}, "model.layer.norm.kind=batch: "),
        ({"positions": "none"}, "model.positions.kind=none: "),
        ({"scale_embedding": True}, "model.scale_embedding=true: not supported by GPT-2"),
        ({"layer": {"norm": {"bias": False}}}, "model.layer.norm.bias=false: "),
        ({"layer": {"mixer": {"bias": False}}}, "model.layer.mixer.bias=false: "),
        ({"layer": {"mixer": {"n_kv_heads": 1}}}, "model.layer.mixer.n_kv_heads=1: "),
        ({"layer": {"mixer": {"d_k": 5}}}, "model.layer.mixer.d_k=5: "),
        ({"layer": {"mixer": {"score": "cosine"}}}, "model.layer.mixer.score.kind=cosine: "),
        (
            {"layer": {"mixer": {"visible": {"kind": "blocks", "size": 4}}}},
            "model.layer.mixer.visible.kind=blocks: not supported by GPT-2: its tokens see all",
        ),
        (
            {"layer": {"mixer": {"visible": {"kind": "window", "size": 4}}}},
            "model.layer.mixer.visible.kind=window: not supported by GPT-2: its tokens see all",
        ),
        ({"pattern": [COMPRESSED, {}]}, "model.pattern=[…]: not supported by GPT-2: its layers are alike"),
        ({"layer": COMPRESSED}, "model.layer.mixer.kind=compressed-attention: "),
        ({"layer": {"channels": {"kind": "experts", "n": 3}}}, "model.layer.channels.kind=experts: "),
        ({"layer": {"channels": "gated"}}, "model.layer.channels.kind=gated: "),
        ({"layer": {"channels": {"bias": False}}}, "model.layer.channels.bias=false: "),
    ],
)
def test_what_gpt2_has_not_is_refused_by_the_recipes_key(own_run, tmp_path, model, message):
    run = own_run(BYTES, **model)
    with pytest.raises(RequestError) as error:
        export_run(run, "gpt2")
    assert message in str(error.value)
    assert not (tmp_path / "run-gpt2").exists()


def test_a_run_of_another_task_is_told_its_format(own_run):
    run = own_run(BYTES)
    with pytest.raises(RequestError, match=r"format marian: expected a run of task translation, .* use gpt2"):
        export_run(run, "marian")


@pytest.mark.parametrize("name", ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"])
def test_the_table_knows_every_name_of_the_published_sizes(name):
    config = PRESETS[name]
    layer = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 3}}
    own = config.changed(d_model=4, layer=layer, context=3)
    written = write_weights(table(own, Numbering(tuple(range(5)))), build_model(own, 5))
    assert len(written) == 2 + 12 * config.n_layers + 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 10**9}, "n_layers=1000000000"),
        ({"n_layer": 30, "n_embd": 2 * 10**4}, "declares a model of .* parameters, but .* holds"),
        ({"n_embd": 2 * 10**7}, "d_model=20000000: Input should be less than or equal to 65536"),
        ({"n_positions": 10**10}, "declares a model of .* parameters, but .* holds"),
        ({"n_inner": 10**12}, "d_ff=1000000000000: Input should be less than or equal to 65536"),
    ],
    ids=str,
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_they_take_memory(
    gpt2, tmp_path, changes, message
):
    config = gpt2 / "config.json"
    values = json.loads(config.read_text("utf-8"))
    (own := tmp_path / "own").mkdir()
    for path in gpt2.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    (own / "config.json").write_text(json.dumps(values | changes), "utf-8")
    with pytest.raises(RequestError, match=message) as caught:
        import_run(own, tmp_path / "run")
    assert "config.json" in str(caught.value)
    assert not (tmp_path / "run").exists()
