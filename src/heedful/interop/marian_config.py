"""Convert Marian's configurations: config.json both ways, and generation_config.json.

| config.json | heedful's ``model`` |
|---|---|
| d_model, encoder_layers, decoder_layers | d_model, n_layers, n_decoder_layers |
| encoder_ffn_dim and decoder_ffn_dim; …_attention_heads | d_ff; n_heads: the same on both sides |
| activation_function swish, gelu, relu … | activation |
| share_encoder_decoder_embeddings, tie_word_embeddings | tie |
| max_position_embeddings | max_length; heedful also computes positions beyond it |
| final_logits_bias, if it is not zero | head_bias |

Positions are half-split sinusoids, embeddings are multiplied by sqrt(d_model), norms are post-norms. The
first target token is ``decoder_start_token_id``, in Marian the padding token; it becomes heedful's start.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heedful.errors import RequestError
from heedful.interop.activations import ACTIVATIONS, WRITTEN
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.names import Numbering
from heedful.interop.refusing import ALIKE, refuse_other_heads, refuse_others
from heedful.interop.sentencepieces import Numberings
from heedful.models.positions import SinusoidalConfig
from heedful.models.transformer import TransformerConfig
from heedful.text.specials import SPECIALS
from heedful.typing import JsonObject

BIAS = "final_logits_bias"
"""Name of the tensor of the output bias."""


def configuration(settings: Settings, checkpoint: Checkpoint) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """Return the configuration of a folder, and its tensors, which determine ``head_bias``."""
    settings.refuse(
        "scale_embedding", "must be true: heedful multiplies embeddings by sqrt(d_model)", (True,)
    )
    settings.refuse("normalize_before", "Marian is a post-norm model")
    settings.refuse("normalize_embedding", "heedful has no norm after the embedding")
    settings.refuse("add_final_layer_norm", "Marian has no norm after its last layer")
    settings.refuse("static_position_embeddings", "Marian's positions are not learned", (None, True))
    settings.refuse("quantization_config", "quantised weights are not read", (None,))
    both = {
        key: (settings.whole(f"encoder_{key}"), settings.whole(f"decoder_{key}"))
        for key in ("ffn_dim", "attention_heads")
    }
    for key, (encoder, decoder) in both.items():
        if encoder != decoder:
            raise settings.wrong(f"decoder_{key}", f"must equal encoder_{key}={encoder}, got {decoder}")
    d_model, n_heads = settings.whole("d_model"), both["attention_heads"][0]
    if d_model % 2 or d_model % n_heads:
        raise settings.wrong("d_model", f"{d_model}: must be even, and a multiple of the {n_heads} heads")
    held = checkpoint.tensors()
    bias = held.get(BIAS)
    layer: Any = {
        "mixer": {"n_heads": n_heads, "dropout": settings.rate("attention_dropout", 0.0)},
        "channels": {
            "d_ff": both["ffn_dim"][0],
            "activation": settings.choice("activation_function", ACTIVATIONS, "gelu"),
            "dropout": settings.rate("activation_dropout", 0.0),
        },
    }
    config = TransformerConfig(
        d_model=d_model,
        n_layers=settings.whole("encoder_layers"),
        n_decoder_layers=settings.whole("decoder_layers"),
        layer=layer,
        dropout=settings.rate("dropout", 0.1),
        positions=SinusoidalConfig(interleaved=False),
        max_length=settings.whole("max_position_embeddings", 1024),
        head_bias=bias is not None and bool(bias.any()),
        tie=_tie(settings),
    )
    return config, held


def _tie(settings: Settings) -> Any:
    sides = settings.get("share_encoder_decoder_embeddings", bool, True)
    output = settings.get("tie_word_embeddings", bool, True)
    if sides and not output:
        raise settings.wrong(
            "tie_word_embeddings", "false, and share_encoder_decoder_embeddings true: heedful ties both "
            "embeddings and the output layer, or target embedding and output layer, or nothing"
        )  # fmt: skip
    return "three-way" if sides else "target" if output else "none"


def sizes_of(settings: Settings) -> tuple[int, int]:
    """Return the vocabulary sizes of source and target."""
    source = settings.whole("vocab_size")
    return source, settings.whole("decoder_vocab_size", source)


def refuse(config: Any) -> None:
    """Refuse settings that Marian does not support.

    Raises:
        RequestError: names the key.
    """
    if config.kind != "transformer":
        raise RequestError(f"model.kind={config.kind}: Marian's model is a transformer")
    others = {
        **ALIKE,
        "layer.norm.eps": (1e-5, "the ε of its norms is 1e-05"),
        "layer.norm_placement": ("post", "it is a post-norm model"),
        "layer.mixer.score.kind": ("scaled-dot", "it scales the products of queries and keys"),
        "combine": ("add", "its positions are added"),
        "positions.kind": ("sinusoidal", "its positions are sinusoids"),
        "positions.base": (10000.0, "the base of its sinusoids is 10,000"),
        "positions.offset": (0, "its first position is 0"),
        "cross_attention": (None, "its cross-attention has the heads of its self-attention"),
    }
    refuse_others(config, "Marian", others)
    refuse_other_heads(config, "Marian")
    if config.decoder_layers[0] != config.layer:
        raise RequestError("model.decoder_layer: not supported by Marian: its layers are alike on both sides")


def specials_of(numbering: Numbering) -> dict[str, int]:
    """Return the ids of start, end and padding token; Marian also pads with the start token."""
    theirs = numbering.theirs
    start, end, pad = (theirs[i] for i in (SPECIALS.start, SPECIALS.end, SPECIALS.pad))
    assert start is not None
    assert end is not None
    filling = start if pad is None else pad
    return {"decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": filling}


def written(config: TransformerConfig, numberings: Numberings, specials: Mapping[str, int]) -> JsonObject:
    """Return the content of config.json."""
    mixer: Any = config.layer.mixer
    channels: Any = config.layer.channels
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": len(numberings.source.ours),
        "decoder_vocab_size": len(numberings.target.ours),
        "d_model": config.d_model,
        "encoder_layers": config.n_layers,
        "decoder_layers": config.n_decoder_layers or config.n_layers,
        **{f"{side}_ffn_dim": channels.d_ff or 4 * config.d_model for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": mixer.n_heads for side in ("encoder", "decoder")},
        "activation_function": WRITTEN[channels.activation],
        "dropout": config.dropout,
        "attention_dropout": mixer.dropout,
        "activation_dropout": channels.dropout,
        "scale_embedding": True,
        "max_position_embeddings": config.max_length,
        "share_encoder_decoder_embeddings": config.tie == "three-way",
        "tie_word_embeddings": config.tie != "none",
        **specials,
        "bos_token_id": None,
        "forced_eos_token_id": specials["eos_token_id"],
        "dtype": "float32",
    }


def generation(numbering: Numbering, specials: Mapping[str, int]) -> JsonObject:
    """Return the content of generation_config.json, which excludes other special tokens."""
    never = (numbering.theirs[i] for i in SPECIALS.never_written)
    return {**specials, "bad_words_ids": [[i] for i in never if i is not None], "num_beams": 1}
