"""Every key of the configurations of transformers: read, without effect, refused, or named on import.

For each key of a configuration class with its default, another legal value: the imported run computes what
transformers computes with that value, or the import refuses or names the key.
"""

import json

import pytest
import torch

from heedful.api.run import load
from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.interop.conversion import import_run
from heedful.interop.marian import load_weights
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.objectives.classification import class_logits
from heedful.text.specials import SPECIALS
from heedful.text.subwords import byte_letters

transformers = pytest.importorskip("transformers")

V, PAD = 37, 36
SMALL = {
    "bert": {
        "vocab_size": V, "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 31, "max_position_embeddings": 23, "architectures": ["BertForMaskedLM"],
    },
    "marian": {
        "vocab_size": V, "decoder_vocab_size": V, "d_model": 22, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_ffn_dim": 31, "decoder_ffn_dim": 31, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "max_position_embeddings": 23, "scale_embedding": True,
        "pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": 0, "forced_eos_token_id": 0,
    },
    "gpt2": {
        "vocab_size": 257, "n_positions": 23, "n_embd": 22, "n_layer": 2, "n_head": 2, "n_inner": 31,
        "bos_token_id": 256, "eos_token_id": 256,
    },
    "vit": {
        "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 31,
        "image_size": 12, "patch_size": 4, "num_channels": 3, "id2label": {0: "a", 1: "b", 2: "c"},
        "architectures": ["ViTForImageClassification"],
    },
}  # fmt: skip
CLASSES = {
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
    "marian": (transformers.MarianConfig, transformers.MarianMTModel),
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    "vit": (transformers.ViTConfig, transformers.ViTForImageClassification),
}
# What the library sets or checks itself, and sizes of vocabularies, which the tests of tokenizers change.
OWN = {
    "base_config_key", "sub_configs_defaults", "attribute_map", "base_model_tp_plan", "base_model_fsdp_plan",
    "base_model_pp_plan", "base_model_ep_plan", "_auto_class", "extra_files", "extra_config_files",
    "model_type", "transformers_version", "architectures", "id2label", "label2id", "vocab_size",
    "decoder_vocab_size", "dtype", "return_dict",
}  # fmt: skip
# Values that differ from the default and are legal, where a rule below does not give them.
VALUES = {
    "problem_type": "regression", "hidden_act": "gelu_new", "activation_function": "silu",
    "classifier_dropout": 0.25, "pad_token_id": PAD - 1, "bos_token_id": 3, "eos_token_id": 4,
    "decoder_start_token_id": PAD - 1, "forced_eos_token_id": None, "encoder_ffn_dim": 29,
    "decoder_ffn_dim": 29, "d_model": 26, "hidden_size": 26, "num_attention_heads": 11,
    "encoder_attention_heads": 11, "decoder_attention_heads": 11, "chunk_size_feed_forward": 1,
    "is_encoder_decoder": None, "n_embd": 26, "n_head": 11, "n_positions": 24, "summary_type": "mean",
    "summary_activation": "tanh",
    "layer_norm_eps": 0.25, "layer_norm_epsilon": 0.25, "image_size": 16, "patch_size": 6,
    "num_channels": 1, "pooler_act": "relu",
}  # fmt: skip


KEPT = {
    "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "add_cross_attention", "layer_norm_epsilon",
    "tie_word_embeddings", "activation_function", "n_positions", "qkv_bias", "layer_norm_eps", "image_size",
    "pooler_act", "hidden_act",
}  # fmt: skip
"""Keys of the formats of which only some run without ``--full``."""


def other(key, default):
    """Another value of the same kind."""
    if key in VALUES:
        return VALUES[key]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, float):
        return 0.5 if default == 0 else default / 4
    raise ValueError(f"no other value for {key}={default!r}: add one to VALUES")


def cases():
    for kind, (config_class, _) in CLASSES.items():
        for key in config_class.__dataclass_fields__:
            if key not in OWN and other(key, config_class(**SMALL[kind]).to_dict().get(key)) is not None:
                is_kept = kind in ("bert", "marian") or key in KEPT
                marks = [pytest.mark.slow] if is_kept else [pytest.mark.full]
                yield pytest.param(kind, key, id=f"{kind}, {key}", marks=marks)


def saved(kind, key, folder):
    """A folder with another value of the key, and its model; None if the library refuses it."""
    config_class, model_class = CLASSES[kind]
    value = other(key, config_class(**SMALL[kind]).to_dict().get(key))
    torch.manual_seed(1)
    try:
        model = model_class(config_class(**{**SMALL[kind], key: value})).eval()
    except (ValueError, TypeError, NotImplementedError):
        return None
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(content | {key: value}), "utf-8")
    if kind == "gpt2":
        names = [*byte_letters(), "<|endoftext|>"]
        (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), "utf-8")
        (folder / "merges.txt").write_text("", "utf-8")
    elif kind == "bert":
        letters = [chr(97 + i) for i in range(V - 5)]
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
        (folder / "vocab.txt").write_text("\n".join(names) + "\n", "utf-8")
    elif kind == "marian":
        (folder / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1}), "utf-8")
    return model


def check_bert(folder, model, tmp_path):
    lines = []
    run = load(import_run(folder, tmp_path / "run", lines.append).path)
    ids = [2, 9, 4, 17, 3]
    numbers = {1: SPECIALS.unknown, 2: SPECIALS.classify, 3: SPECIALS.separate, 4: SPECIALS.mask}
    ours = [numbers.get(i, i - 5 + len(SPECIALS)) for i in ids]
    batch = Batch.labelled([[ours[1:-1]]], [0], classify=SPECIALS.classify, separate=SPECIALS.separate)
    with torch.no_grad():
        found = run.model.heads["token"](run.model(batch.inputs))[:, len(SPECIALS) :]
        wanted = model(input_ids=torch.tensor([ids])).logits[0][:, 5:]
    return found, wanted, lines


def check_marian(folder, model, tmp_path):
    ours, numberings = load_weights(folder)
    source, target = [5, 9, 2, 0], [model.config.decoder_start_token_id, 4, 8]
    with torch.no_grad():
        hidden = ours.eval()(
            Tokens.of([[numberings.target.ours[i] for i in target]]),
            Tokens.of([[numberings.source.ours[i] for i in source]]),
        )
        found = ours.heads["token"](hidden)[:, numberings.target.ours]
        inputs = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([target])}
        wanted = model(**inputs).logits[0]
    return found, wanted, []


def check_gpt2(folder, model, tmp_path):
    lines, ids = [], [9, 4, 17, 3]
    run = load(import_run(folder, tmp_path / "run", lines.append).path)
    with torch.no_grad():
        hidden = run.model(Tokens.of([[i + len(SPECIALS) for i in ids]]))
        found = run.model.heads["token"](hidden)[:, len(SPECIALS) :]
        return found, model(input_ids=torch.tensor([ids])).logits[0][:, :256], lines


def check_vit(folder, model, tmp_path):
    lines = []
    run = load(import_run(folder, tmp_path / "run", lines.append).path)
    config = run.recipe.model
    pixels = torch.rand(2, config.channels, config.image_size, config.image_size)
    with torch.no_grad():
        inputs = Images.of(pixels, config.n_tokens)
        found = class_logits(run.model(inputs), run.model.heads, inputs.layout)
        return found, model(pixel_values=pixels).logits, lines


CHECKS = {"bert": check_bert, "marian": check_marian, "gpt2": check_gpt2, "vit": check_vit}


@pytest.mark.parametrize("kind, key", cases())
def test_another_value_is_computed_or_refused(kind, key, tmp_path):
    model = saved(kind, key, tmp_path / "their")
    if model is None:
        return  # the library does not allow it
    try:
        found, wanted, lines = CHECKS[kind](tmp_path / "their", model, tmp_path)
    except RequestError as error:
        if key not in str(error):
            raise
        return
    if not any(key in line for line in lines if "not read" in line):
        scale = max(1.0, float(wanted.abs().max()))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * scale)
