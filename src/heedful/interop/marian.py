"""Marian's Transformer (Junczys-Dowmunt et al. 2018) from and to the folders of transformers.

| config.json | heedful's ``model`` |
|---|---|
| d_model, encoder_layers, decoder_layers | d_model, n_layers, n_decoder_layers |
| encoder_ffn_dim and decoder_ffn_dim; …_attention_heads | d_ff; n_heads: both sides alike |
| activation_function swish, gelu, relu … | activation |
| share_encoder_decoder_embeddings, tie_word_embeddings | tie |
| max_position_embeddings | max_length, beyond which heedful goes on |
| final_logits_bias, where it is not zero | head_bias |

Positions are half-split sinusoids, embeddings are multiplied by sqrt(d_model), norms come after the sums.
Writing begins with ``decoder_start_token_id``, in Marian the token that pads: it becomes heedful's start.

Tokenizers are Marian's own (`heedful.interop.sentencepieces`), or heedful's, as `Marian.write` leaves those
of runs that were trained here; the weights of any folder are read by `load_weights`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.interop.activations import ACTIVATIONS, WRITTEN
from heedful.interop.checkpoint import HARMLESS, Checkpoint, Settings
from heedful.interop.format import Found, Written
from heedful.interop.halves import in_halves
from heedful.interop.names import Numbering, Pair, Rows, Table, give, linear, pair, take
from heedful.interop.refusing import refuse_other_heads, refuse_others
from heedful.interop.sentencepieces import (
    UNKNOWN,
    VOCABULARY,
    Numberings,
    has_sentencepieces,
    numbering,
    read_sentencepieces,
    write_sentencepieces,
)
from heedful.models.transformer import TransformerConfig, build
from heedful.runs.run import Run
from heedful.tasks.translation import COLUMNS, Tokenizers
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

_OWN, _HEAD = "model.", "lm_head.weight"
BIAS, GENERATION = "final_logits_bias", "generation_config.json"
OWN_TOKENIZERS = [f"{side}.tokenizer.json" for side in COLUMNS]

_HARMLESS = HARMLESS | {
    "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout", "num_hidden_layers",
    "extra_pos_embeddings", "add_bias_logits",
    "force_bos_token_to_be_generated", "bos_token_id",
}  # fmt: skip


def table(config: TransformerConfig, numberings: Numberings) -> Table:
    """The names of all tensors."""
    both = f"{_OWN}shared.weight"
    copies: dict[str, str] = {}
    sides = [f"{_OWN}encoder.embed_tokens.weight", f"{_OWN}decoder.embed_tokens.weight"]
    source, target = Rows(numberings.source), Rows(numberings.target)
    if config.tie == "three-way":
        pairs = [pair("source_embedding.weight", both, form=source)]
        copies = dict.fromkeys([*sides, _HEAD], both)
    else:
        pairs = [
            pair("source_embedding.weight", sides[0], form=source),
            pair("target_embedding.weight", sides[1], form=target),
        ]
        copies = {_HEAD: sides[1]} if config.tie == "target" else {}
    if config.tie == "none":
        pairs.append(pair("heads.token.weight", _HEAD, form=target))
    if config.head_bias:
        pairs.append(pair("heads.token.bias", BIAS, form=Rows(numberings.target, as_one_row=True)))
    for i in range(config.n_layers):
        pairs += _layer(f"encoder.blocks.{i}", f"{_OWN}encoder.layers.{i}", crosses=False)
    for i in range(config.n_decoder_layers or config.n_layers):
        pairs += _layer(f"decoder.blocks.{i}", f"{_OWN}decoder.layers.{i}", crosses=True)
    derived = [r"model\.(en|de)coder\.embed_positions\.weight"]
    return Table(pairs, copies, derived if config.head_bias else [*derived, BIAS], _OWN)


def _layer(ours: str, theirs: str, *, crosses: bool) -> list[Pair]:
    own, cross = f"{theirs}.self_attn", f"{theirs}.encoder_attn"
    pairs = [
        *linear(f"{ours}.mixing.part.qkv", *(f"{own}.{x}_proj" for x in "qkv")),
        *linear(f"{ours}.mixing.part.out", f"{own}.out_proj"),
        *linear(f"{ours}.mixing.norm", f"{own}_layer_norm"),
        *linear(f"{ours}.feed_forward.part.up", f"{theirs}.fc1"),
        *linear(f"{ours}.feed_forward.part.down", f"{theirs}.fc2"),
        *linear(f"{ours}.feed_forward.norm", f"{theirs}.final_layer_norm"),
    ]
    if crosses:
        pairs += [
            *linear(f"{ours}.cross_attention.part.q", f"{cross}.q_proj"),
            *linear(f"{ours}.cross_attention.part.kv", f"{cross}.k_proj", f"{cross}.v_proj"),
            *linear(f"{ours}.cross_attention.part.out", f"{cross}.out_proj"),
            *linear(f"{ours}.cross_attention.norm", f"{cross}_layer_norm"),
        ]
    return pairs


def load_weights(folder: Path | str) -> tuple[nn.Module, Numberings]:
    """The model of a folder, whatever its tokenizers are, and which of their ids its ids have.

    Raises:
        RequestError: heedful cannot express it.
        DamagedError: a file is damaged.
    """
    checkpoint = Checkpoint(Path(folder))
    settings = checkpoint.config
    settings.refuse("model_type", "this is no Marian", ("marian",))
    unknown = None
    if checkpoint.has(VOCABULARY):
        unknown = Settings(checkpoint.json(VOCABULARY), str(checkpoint.path / VOCABULARY)).get(UNKNOWN, int)
    config, held = _configuration(settings, checkpoint)
    sizes = _sizes(settings)
    numberings = Numberings(*(numbering(settings, size, unknown) for size in sizes))
    return _model(config, numberings, held, checkpoint), numberings


class Marian:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "marian"
    loaders: ClassVar[dict[str, str]] = {"translation": "transformers.MarianMTModel"}

    def read(self, checkpoint: Checkpoint) -> Found:
        """A run that translates."""
        settings = checkpoint.config
        config, held = _configuration(settings, checkpoint)
        sizes = _sizes(settings)
        if all(checkpoint.has(name) for name in OWN_TOKENIZERS):
            codec, numberings = _own(checkpoint, settings, sizes)
        else:
            codec, numberings = read_sentencepieces(checkpoint, settings, sizes)
        model = _model(config, numberings, held, checkpoint)
        unread = settings.unread(_HARMLESS)
        told = [f"{settings.source}: keys that heedful does not know: {', '.join(unread)}"] if unread else []
        if any(their is None for their in numberings.target.theirs):
            told.append(
                "special tokens that the source has not got the mean of its rows, and are never written"
            )
        return Found(_recipe(checkpoint, config, codec), codec, model, told)

    def write(self, run: Run) -> Written:
        """MarianMTModel, with its own tokenizers, or heedful's beside it."""
        config: TransformerConfig = run.recipe.model
        _refuse(config)
        model, notes = run.model, []
        if config.positions == "sinusoidal":
            config, model = in_halves(config, model, run.codec.sizes)
            notes.append(
                "the features are in another order, for Marian has all sines first; numbers agree to rounding"
            )
        if has_sentencepieces(run.codec):
            files, numberings = write_sentencepieces(run.codec)
            if None in numberings.target.theirs:
                notes.append("the rows of special tokens that Marian has not stay behind")
        else:
            numberings = Numberings(*(Numbering(tuple(range(size))) for size in run.codec.sizes))
            sides = zip(OWN_TOKENIZERS, COLUMNS, strict=True)
            files = {name: run.folder.tokenizer(side).read_text("utf-8") for name, side in sides}
            notes.append("the tokenizers are heedful's: transformers reads the model, and is given ids")
        tensors = take(table(config, numberings), model)
        tensors.setdefault(BIAS, torch.zeros(1, len(numberings.target.ours)))
        specials = _specials(numberings.target)
        files[GENERATION] = json.dumps(_generation(numberings.target, specials), indent=2) + "\n"
        return Written(_written(config, numberings, specials), tensors, files, notes)


def _configuration(settings: Settings, checkpoint: Checkpoint) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """The model that a folder describes, and its tensors, of which the output's bias decides something."""
    settings.refuse(
        "scale_embedding", "heedful multiplies embeddings by sqrt(d_model): it must be true", (True,)
    )
    settings.refuse("normalize_before", "Marian's norms come after the sums")
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
            raise settings.wrong(
                f"decoder_{key}", f"{decoder} is not encoder_{key}={encoder}; both must agree"
            )
    d_model, n_heads = settings.whole("d_model"), both["attention_heads"][0]
    if d_model % 2 or d_model % n_heads:
        raise settings.wrong("d_model", f"{d_model}: must be even, and a multiple of the {n_heads} heads")
    held = checkpoint.tensors()
    bias = held.get(BIAS)
    config = TransformerConfig(
        d_model=d_model,
        d_ff=both["ffn_dim"][0],
        n_heads=n_heads,
        n_layers=settings.whole("encoder_layers"),
        n_decoder_layers=settings.whole("decoder_layers"),
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        dropout=settings.rate("dropout", 0.1),
        attention_dropout=settings.rate("attention_dropout", 0.0),
        activation_dropout=settings.rate("activation_dropout", 0.0),
        positions="half-split",
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
            "embeddings and the output, or the target's embedding and the output, or none"
        )  # fmt: skip
    return "three-way" if sides else "target" if output else "none"


def _sizes(settings: Settings) -> tuple[int, int]:
    """Of the vocabularies of source and target."""
    source = settings.whole("vocab_size")
    return source, settings.whole("decoder_vocab_size", source)


def _model(
    config: TransformerConfig, numberings: Numberings, held: dict[str, Tensor], checkpoint: Checkpoint
) -> nn.Module:
    try:
        model = build(config, len(numberings.source.theirs), len(numberings.target.theirs))
    except ValueError as error:
        raise RequestError(f"{checkpoint.path}: {error}") from None
    give(table(config, numberings), held, model, str(checkpoint.weights))
    return model


def _own(checkpoint: Checkpoint, settings: Settings, sizes: tuple[int, int]) -> tuple[Tokenizers, Numberings]:
    """heedful's tokenizers, whose ids are the model's."""
    codec = Tokenizers(*(Tokenizer.load(checkpoint.file(name)) for name in OWN_TOKENIZERS))
    if codec.sizes != sizes:
        raise settings.wrong(
            "vocab_size", f"{sizes[0]} and {sizes[1]} tokens, and the tokenizers have {codec.sizes[0]} "
            f"and {codec.sizes[1]}: they belong to different models"
        )  # fmt: skip
    own = {"decoder_start_token_id": SPECIALS.start, "eos_token_id": SPECIALS.end}
    for key, ours in own.items():
        if (found := settings.get(key, int)) != ours:
            raise settings.wrong(key, f"{found} is not {ours}, which it is in heedful's tokenizers")
    settings.get("pad_token_id", int)
    return codec, Numberings(*(Numbering(tuple(range(size))) for size in sizes))


def _recipe(checkpoint: Checkpoint, config: TransformerConfig, codec: Tokenizers) -> dict[str, Any]:
    name = checkpoint.path.resolve().name
    sides = {side: getattr(codec, side) for side in COLUMNS}
    return {
        "description": f"A Marian model, imported from the folder {name}. It was not trained on these data: "
        "whoever trains such a model anew puts their own here.",
        "task": {"kind": "translation"},
        "data": {
            part: {"kind": "files", "columns": {side: f"{part}.{side}" for side in COLUMNS}}
            for part in ("train", "valid")
        },
        "tokenizer": {
            "subwords": codec.source.model.config.model_dump(mode="json"),
            "shared": codec.source.same_pieces_as(codec.target),
            **{side: each.preprocessing.model_dump(mode="json") for side, each in sides.items()},
        },
        "model": config.model_dump(mode="json"),
        "training": {"max_updates": 1000},
    }


# Writing -------------------------------------------------------------------------------------------------


def _refuse(config: Any) -> None:
    """Refuse what Marian has not.

    Raises:
        RequestError: naming the key.
    """
    if config.kind != "transformer":
        raise RequestError(f"model.kind={config.kind}: Marian's model is a transformer")
    others = {
        "norm": ("layer", "its norms are layer norms"),
        "norm_eps": (1e-5, "the ε of its norms is 1e-05"),
        "norm_placement": ("post", "its norms come after the sums"),
        "score": ("scaled-dot", "it scales the products of queries and keys"),
        "attention_bias": (True, "its attention has biases"),
        "combine": ("add", "its positions are added"),
    }
    refuse_others(config, "Marian", others)
    refuse_other_heads(config, "Marian")
    if config.positions not in ("half-split", "sinusoidal"):
        raise RequestError(
            f"model.positions={config.positions}: Marian cannot hold this model: its positions are sinusoids"
        )


def _specials(numbering: Numbering) -> dict[str, int]:
    """Their tokens that begin, end and fill; in Marian what begins also fills."""
    theirs = numbering.theirs
    start, end, pad = (theirs[i] for i in (SPECIALS.start, SPECIALS.end, SPECIALS.pad))
    assert start is not None
    assert end is not None
    filling = start if pad is None else pad
    return {"decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": filling}


def _written(
    config: TransformerConfig, numberings: Numberings, specials: Mapping[str, int]
) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": len(numberings.source.ours),
        "decoder_vocab_size": len(numberings.target.ours),
        "d_model": config.d_model,
        "encoder_layers": config.n_layers,
        "decoder_layers": config.n_decoder_layers or config.n_layers,
        **{f"{side}_ffn_dim": config.d_ff for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": config.n_heads for side in ("encoder", "decoder")},
        "activation_function": WRITTEN[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "max_position_embeddings": config.max_length,
        "share_encoder_decoder_embeddings": config.tie == "three-way",
        "tie_word_embeddings": config.tie != "none",
        **specials,
        "bos_token_id": None,
        "forced_eos_token_id": specials["eos_token_id"],
        "dtype": "float32",
    }


def _generation(numbering: Numbering, specials: Mapping[str, int]) -> dict[str, Any]:
    """How transformers writes: from the start token to the end token, and no other special."""
    never = (numbering.theirs[i] for i in SPECIALS.never_written)
    return {**specials, "bad_words_ids": [[i] for i in never if i is not None], "num_beams": 1}
