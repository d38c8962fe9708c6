"""Marian without transformers: the table, the order of features, what is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder
from heedful.config import merged
from heedful.errors import RequestError
from heedful.interop.conversion import export_run, import_run
from heedful.interop.marian import in_halves, load_weights
from heedful.models.positions import SinusoidalConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.layout import Tokens

ROWS = [
    {"source": "red dog runs", "target": "RUNS DOG RED"},
    {"source": "the blue cat sleeps", "target": "SLEEPS CAT BLUE"},
]
SIZES = {
    "kind": "transformer",
    "d_model": 22,
    "n_layers": 2,
    "layer": {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 31}},
}
HALF_SPLIT = {"kind": "sinusoidal", "interleaved": False}
RECIPE = {
    "task": {"kind": "translation"},
    "tokenizer": {"subwords": {"kind": "bpe", "merges": 20, "min_frequency": 1}},
    "model": {**SIZES, "positions": HALF_SPLIT, "head_bias": True, "max_length": 37},
}


@pytest.fixture
def run(make_run, tmp_path):
    return make_run(tmp_path / "run", RECIPE, ROWS)


@pytest.fixture
def folder(run):
    return export_run(run, "marian")


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")
    return folder


def test_an_exported_run_comes_back_bit_for_bit(run, folder, tmp_path):
    again = import_run(folder, tmp_path / "again").path
    before, after = load(run), load(again)
    # The tables of positions are long enough for all that heedful reads and writes.
    longest = before.recipe.decoding.max_length.of(before.recipe.max_source)
    changed = {"n_decoder_layers": 2, "max_length": longest + 1}
    assert after.recipe.model == before.recipe.model.model_copy(update=changed)
    assert after.processor.fingerprint == before.processor.fingerprint
    state = before.model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in after.model.state_dict().items())
    back = load_file(export_run(again, "marian") / "model.safetensors")
    first = load_file(folder / "model.safetensors")
    assert back.keys() == first.keys()
    assert all(torch.equal(tensor, first[name]) for name, tensor in back.items())
    assert RunFolder(again).read_card()["imported"]["format"] == "marian"


def test_copies_and_tables_of_sines_may_lie_in_the_file(folder, tmp_path):
    path = folder / "model.safetensors"
    held = load_file(path)
    for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
        held[name] = held["model.shared.weight"].clone()
    held["model.encoder.embed_positions.weight"] = torch.zeros(7, 22)
    save_file(held, path)
    import_run(folder, tmp_path / "again")
    held["lm_head.weight"] += 1
    save_file(held, path)
    with pytest.raises(RequestError, match=r"lm_head.weight should be a copy of model.shared.weight"):
        import_run(folder, tmp_path / "more")


def test_an_output_without_a_bias_is_one_of_zeros(make_run, tmp_path):
    model = {**SIZES, "positions": HALF_SPLIT}
    out = export_run(make_run(tmp_path / "run", {**RECIPE, "model": model}, ROWS), "marian")
    assert not load_file(out / "model.safetensors")["final_logits_bias"].any()
    assert load(import_run(out, tmp_path / "again").path).recipe.model.head_bias is False


@pytest.mark.parametrize("tie", ["three-way", "target", "none"])
def test_the_order_of_features_changes_nothing_but_rounding(tie):
    torch.manual_seed(1)
    config = TransformerConfig(
        d_model=22,
        n_layers=2,
        tie=tie,
        head_bias=True,
        layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 31}},
    )
    model = build_model(config, 37, 37)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    turned, other = in_halves(config, model, (37, 37))
    assert turned.positions == SinusoidalConfig(interleaved=False)
    sources, targets = Tokens.of([[3, 4, 5], [6]]), Tokens.of([[1, 7, 8], [1, 9]])
    with torch.no_grad():
        logits, others = (m.heads["token"](m.eval()(targets, sources)) for m in (model, other))
    torch.testing.assert_close(others, logits, rtol=0.0, atol=1e-5 * float(logits.abs().max()))


def test_the_features_order_is_told(make_run, tmp_path):
    lines = []
    export_run(make_run(tmp_path / "run", {**RECIPE, "model": SIZES}, ROWS), "marian", log=lines.append)
    assert any("the features are in another order" in line for line in lines)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"scale_embedding": False}, "scale_embedding: False: must be true"),
        ({"normalize_before": True}, "normalize_before: True: Marian is a post-norm model"),
        ({"add_final_layer_norm": True}, "add_final_layer_norm: True"),
        ({"static_position_embeddings": False}, "static_position_embeddings: False"),
        ({"decoder_ffn_dim": 30}, "decoder_ffn_dim: must equal encoder_ffn_dim=31, got 30"),
        (
            {"decoder_attention_heads": 1},
            "decoder_attention_heads: must equal encoder_attention_heads=2, got 1",
        ),
        ({"d_model": 21}, "d_model: 21: must be even"),
        (
            {"activation_function": "tanh"},
            "gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, gelu_python, got 'tanh'",
        ),
        ({"tie_word_embeddings": False}, "tie_word_embeddings: false, and share_encoder_decoder_embeddings"),
        ({"decoder_start_token_id": 0}, "decoder_start_token_id: must be 1"),
        ({"vocab_size": 999}, "vocab_size: 999 and "),
        ({"encoder_layers": 3}, "missing: model.encoder.layers.2.fc1.bias"),
    ],
)
def test_what_heedful_cannot_express_is_refused_by_its_key(folder, tmp_path, values, message):
    with pytest.raises(RequestError) as error:
        import_run(change(folder, **values), tmp_path / "again")
    assert message in str(error.value)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "model, message",
    [
        (
            {"layer": {"norm_placement": "pre"}},
            "model.layer.norm_placement=pre: not supported by Marian: it is a post-norm",
        ),
        ({"layer": {"norm": {"eps": 1e-6}}}, "model.layer.norm.eps=1e-06: "),
        ({"layer": {"mixer": {"bias": False}}}, "model.layer.mixer.bias=false: "),
        ({"layer": {"channels": "gated"}}, "model.layer.channels.kind=gated: "),
        ({"layer": {"channels": {"bias": False}}}, "model.layer.channels.bias=false: "),
        ({"layer": {"mixer": {"score": "dot"}}}, "model.layer.mixer.score.kind=dot: "),
        ({"positions": "none"}, "model.positions.kind=none: "),
        ({"positions": {"kind": "sinusoidal", "base": 500.0}}, "model.positions.base=500.0: "),
        ({"positions": {"kind": "sinusoidal", "offset": 1}}, "model.positions.offset=1: "),
        ({"layer": {"mixer": {"n_kv_heads": 1}}}, "model.layer.mixer.n_kv_heads=1: "),
        (
            {"pattern": [{"norm": {"eps": 1e-6}}, {}]},
            "model.pattern=[…]: not supported by Marian: its la",
        ),
        ({"decoder_layer": {"norm": "rms"}}, "model.decoder_layer: not supported by Marian: its layers are"),
        ({"cross_attention": {"n_heads": 1}}, "model.cross_attention={…}: not supported by Marian: its cr"),
        ({"combine": "concat", "d_positions": 4, "tie": "none"}, "model.combine=concat: "),
    ],
)
def test_what_marian_has_not_is_refused_by_the_recipes_key(make_run, tmp_path, model, message):
    run = make_run(tmp_path / "run", {**RECIPE, "model": merged(SIZES, model)}, ROWS)
    with pytest.raises(RequestError) as error:
        export_run(run, "marian")
    assert message in str(error.value)
    assert not (tmp_path / "run-marian").exists()


def test_a_recurrent_model_is_refused(make_run, tmp_path):
    model = {"kind": "recurrent", "d_embedding": 8, "d_hidden": 8, "tie": "none"}
    run = make_run(tmp_path / "run", {**RECIPE, "model": model}, ROWS)
    with pytest.raises(RequestError, match=r"model.kind=recurrent: Marian's model is a transformer"):
        export_run(run, "marian")


# Folders with tokenizers of Marian's own


@pytest.fixture
def foreign(folder):
    """The same weights, as if the tokens had Marian's numbers: end 0, unknown 1, pad and start last."""
    for side in ("source", "target"):
        (folder / f"{side}.tokenizer.json").unlink()
        (folder / f"{side}.spm").write_bytes(b"x")
    n = json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    (folder / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1}), "utf-8")
    return change(folder, eos_token_id=0, pad_token_id=n - 1, decoder_start_token_id=n - 1)


def test_a_vocabulary_of_another_model_makes_no_run(foreign, tmp_path):
    with pytest.raises(RequestError, match=r"vocab.json: has 2 tokens, but the model has"):
        import_run(foreign, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_weights_can_be_had_with_the_numbers_of_the_tokens(foreign):
    model, numberings = load_weights(foreign)
    theirs = load_file(foreign / "model.safetensors")["model.shared.weight"]
    n = len(theirs)
    # pad, start, end, unknown; classify, separate and mask; then all others in their order.
    assert numberings.target.theirs == (None, n - 1, 0, 1, None, None, None, *range(2, n - 1))
    assert numberings.source == numberings.target
    table = model.source_embedding.weight
    assert torch.equal(table[numberings.source.ours], theirs)
    mean = theirs.double().mean(0).float()
    assert all(torch.equal(table[i], mean) for i in (0, 4, 5, 6))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"model_type": "bart"}, "model_type: 'bart': expected 'marian'"),
        ({"eos_token_id": 999}, "the special token 999 is outside the vocabulary"),
        ({"decoder_start_token_id": 0}, "decoder_start_token_id: must differ from eos_token_id"),
        ({"decoder_start_token_id": None}, "decoder_start_token_id: it and eos_token_id must be given"),
    ],
)
def test_special_tokens_that_cannot_be_are_refused(foreign, values, message):
    with pytest.raises(RequestError) as error:
        load_weights(change(foreign, **values))
    assert message in str(error.value)
