"""Import and export of Marian's Transformer (Junczys-Dowmunt et al. 2018) in the format of transformers.

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

Tokenizers are Marian's own (`heedful.interop.sentencepieces`), or heedful's, which `Marian.write` exports for
runs trained by heedful; `load_weights` reads the weights of any folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.interop.checkpoint import CONFIG, Checkpoint, Settings, indented
from heedful.interop.configuration import (
    ALIKE,
    Key,
    read_activation,
    read_keys,
    refuse,
    unsupported,
    write_keys,
)
from heedful.interop.format import ExportedModel, ImportedModel, recipe_of
from heedful.interop.generation import GENERATION
from heedful.interop.marian_generation import read_decoding, write_decoding
from heedful.interop.names import Numbering, Table, layers, pair, read_weights, rows, write_weights
from heedful.interop.sentencepieces import (
    UNKNOWN,
    VOCABULARY,
    Numberings,
    has_sentencepieces,
    numbering,
    read_sentencepieces,
    write_sentencepieces,
)
from heedful.interop.tokenizer_files import SETTINGS, write_same_ids
from heedful.interop.unread import ANY, Harmless
from heedful.models.base import Model
from heedful.models.language_model import LanguageModelConfig
from heedful.models.positions import SinusoidalConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.transformer import TransformerConfig, build
from heedful.recipes.schema import Recipe
from heedful.runs.loading import LoadedRun
from heedful.tasks.inputs.processor import COLUMNS, SOURCE, TARGET, Tokenizers
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

_PREFIX, _HEAD, _BIAS = "model.", "lm_head.weight", "final_logits_bias"
_TOKENIZERS = [f"{side}.tokenizer.json" for side in COLUMNS]

KEYS = (
    Key("d_model", "d_model"),
    Key("encoder_layers", "n_layers"),
    Key("decoder_layers", "n_decoder_layers"),
    Key("encoder_ffn_dim", "layer.channels.d_ff"),
    Key("encoder_attention_heads", "layer.mixer.n_heads"),
    Key("activation_function", "layer.channels.activation", read_activation, "gelu"),
    Key("dropout", "dropout", Settings.rate, 0.1),
    Key("attention_dropout", "layer.mixer.dropout", Settings.rate, 0.0),
    Key("activation_dropout", "layer.channels.dropout", Settings.rate, 0.0),
    Key("max_position_embeddings", "max_length", default=1024),
)

_HARMLESS: Mapping[str, Harmless] = {
    CONFIG: {
        # Of training, or of heads that Marian does not have; a translator has no labels.
        **dict.fromkeys(
            (
                "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout",
                "num_hidden_layers", "extra_pos_embeddings", "bos_token_id",
            ),
            ANY,
        ),
        "force_bos_token_to_be_generated": (False,),
        "add_bias_logits": (False,),
    },
    SETTINGS: {"separate_vocabs": ANY},
}  # fmt: skip

_ENCODER_LAYER = {
    "mixer.part.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mixer.part.out": ("self_attn.out_proj",),
    "mixer.norm": ("self_attn_layer_norm",),
    "feed_forward.part.up": ("fc1",),
    "feed_forward.part.down": ("fc2",),
    "feed_forward.norm": ("final_layer_norm",),
}
_DECODER_LAYER = {
    **_ENCODER_LAYER,
    "cross_attention.part.q": ("encoder_attn.q_proj",),
    "cross_attention.part.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.part.out": ("encoder_attn.out_proj",),
    "cross_attention.norm": ("encoder_attn_layer_norm",),
}


def table(config: TransformerConfig, numberings: Numberings) -> Table:
    """Return the names of all tensors."""
    shared = f"{_PREFIX}shared.weight"
    sides = [f"{_PREFIX}encoder.embed_tokens.weight", f"{_PREFIX}decoder.embed_tokens.weight"]
    source, target = rows(numberings.source), rows(numberings.target)
    n_decoder_layers = config.n_decoder_layers or config.n_layers
    pairs = [
        *layers(config.n_layers, "encoder", f"{_PREFIX}encoder.layers", _ENCODER_LAYER),
        *layers(n_decoder_layers, "decoder", f"{_PREFIX}decoder.layers", _DECODER_LAYER),
    ]
    copies: dict[str, str] = {}
    if config.tie == "three-way":
        pairs.append(pair("source_embedding.weight", shared, form=source))
        copies = dict.fromkeys([*sides, _HEAD], shared)
    else:
        pairs.append(pair("source_embedding.weight", sides[0], form=source))
        pairs.append(pair("target_embedding.weight", sides[1], form=target))
        copies = {_HEAD: sides[1]} if config.tie == "target" else {}
    if config.tie == "none":
        pairs.append(pair("heads.token.weight", _HEAD, form=target))
    if config.head_bias:
        pairs.append(pair("heads.token.bias", _BIAS, form=rows(numberings.target, as_one_row=True)))
    derived = [r"model\.(en|de)coder\.embed_positions\.weight"]
    return Table(pairs, copies, derived if config.head_bias else [*derived, _BIAS], _PREFIX)


def load_weights(folder: Path | str) -> tuple[nn.Module, Numberings]:
    """Load the model of a folder, with any tokenizers, and the numberings of its ids.

    Raises:
        RequestError: if heedful does not support the model.
        DamagedError: if a file is damaged.
    """
    checkpoint = Checkpoint(Path(folder))
    settings = checkpoint.config
    settings.refuse("model_type", "expected 'marian'", ("marian",))
    unknown = checkpoint.settings(VOCABULARY).get(UNKNOWN, int)
    tensors = checkpoint.tensors()
    config = _configuration(settings, tensors)
    numberings = Numberings(*(numbering(settings, size, unknown) for size in _sizes(settings)))
    return _model(config, numberings, tensors, checkpoint), numberings


class Marian:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "marian"
    harmless: ClassVar[Mapping[str, Harmless]] = _HARMLESS
    loaders: ClassVar[dict[str, str]] = {"translation": "transformers.MarianMTModel"}

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Return a translation run."""
        settings, tensors = checkpoint.config, checkpoint.tensors()
        config, sizes = _configuration(settings, tensors), _sizes(settings)
        if all(checkpoint.has(name) for name in _TOKENIZERS):
            processor, numberings = _read_tokenizers(checkpoint, sizes)
        else:
            processor, numberings = read_sentencepieces(checkpoint, sizes)
        model = _model(config, numberings, tensors, checkpoint)
        decoding, notes = read_decoding(checkpoint, numberings.target)
        if None in numberings.target.theirs:
            notes.append(
                "special tokens that the source lacks have the mean of its rows, and are never generated"
            )
        return ImportedModel(_recipe(checkpoint, config, processor, decoding), processor, model, notes)

    def obstacles(self, recipe: Recipe, model: nn.Module) -> list[str]:
        """Return all settings of a recipe that the format does not support."""
        config: Any = recipe
        return _unsupported(config.model)

    def write(self, run: LoadedRun) -> ExportedModel:
        """Return a MarianMTModel with its own tokenizers, or with heedful's."""
        config: TransformerConfig = run.recipe.model
        refuse(self.obstacles(run.recipe, run.model))
        model, notes = run.model, []
        if isinstance(config.positions, SinusoidalConfig) and config.positions.interleaved:
            config, model = in_halves(config, model, run.processor.sizes)
            notes.append(
                "the features are in another order, because Marian has all sines first; outputs agree to "
                "rounding"
            )
        if has_sentencepieces(run.processor):
            files, numberings = write_sentencepieces(run.processor)
            if None in numberings.target.theirs:
                notes.append("the embeddings of special tokens that Marian lacks are not exported")
        else:
            numberings = Numberings(*(Numbering(tuple(range(size))) for size in run.processor.sizes))
            files, note = _write_tokenizers(run, config.max_length)
            notes.append(note)
        tensors = write_weights(table(config, numberings), model)
        tensors.setdefault(_BIAS, torch.zeros(1, len(numberings.target.ours)))
        theirs = numberings.target.theirs
        # Marian pads with the start token too.
        pad = theirs[SPECIALS.start] if theirs[SPECIALS.pad] is None else theirs[SPECIALS.pad]
        specials = {
            "decoder_start_token_id": theirs[SPECIALS.start],
            "eos_token_id": theirs[SPECIALS.end],
            "pad_token_id": pad,
        }
        bad_words = [[i] for our in SPECIALS.never_generated if (i := theirs[our]) is not None]
        recipe: Any = run.recipe
        longest, decoding = recipe.max_source, recipe.decoding
        generation, generation_notes = write_decoding(decoding, longest)
        notes += generation_notes
        files[GENERATION] = indented({**specials, "bad_words_ids": bad_words, **generation})
        config_json = _config_json(config, numberings, specials)
        # heedful computes positions as they are needed, transformers this many; a source has an end token.
        config_json["max_position_embeddings"] = max(config.max_length, longest + 1, generation["max_length"])
        config_json["task_specific_params"] = {"heedful": {"decoding": decoding.model_dump(mode="json")}}
        return ExportedModel(config_json, tensors, files, notes)


def _model(
    config: TransformerConfig, numberings: Numberings, tensors: Mapping[str, Tensor], checkpoint: Checkpoint
) -> nn.Module:
    try:
        sizes = len(numberings.source.theirs), len(numberings.target.theirs)
        model = checkpoint.model_of(tensors, lambda: build(config, *sizes))
    except ValueError as error:
        raise RequestError(f"{checkpoint.path}: {error}") from None
    read_weights(table(config, numberings), tensors, model, str(checkpoint.weights))
    return model


def _read_tokenizers(checkpoint: Checkpoint, sizes: tuple[int, int]) -> tuple[Tokenizers, Numberings]:
    """Read heedful's tokenizers, whose ids are those of the model."""
    settings = checkpoint.config
    processor = Tokenizers(*(Tokenizer.load(checkpoint.file(name)) for name in _TOKENIZERS))
    if processor.sizes != sizes:
        raise settings.error(
            "vocab_size", f"{sizes[0]} and {sizes[1]} tokens, but the tokenizers have {processor.sizes[0]} "
            f"and {processor.sizes[1]}: they belong to different models"
        )  # fmt: skip
    for key, ours in (("decoder_start_token_id", SPECIALS.start), ("eos_token_id", SPECIALS.end)):
        if (token_id := settings.get(key, int)) != ours:
            raise settings.error(key, f"must be {ours} with heedful's tokenizers, got {token_id}")
    settings.get("pad_token_id", int)
    return processor, Numberings(*(Numbering(tuple(range(size))) for size in sizes))


def _write_tokenizers(run: LoadedRun, longest: int) -> tuple[dict[str, str | bytes], str]:
    """Return the files of heedful's tokenizers, in both formats, and a note for the user."""
    processor = run.processor
    sides = zip(_TOKENIZERS, COLUMNS, strict=True)
    files: dict[str, str | bytes] = {
        name: run.folder.tokenizer(side).read_text("utf-8") for name, side in sides
    }
    try:
        files_by_side = {
            side: write_same_ids(getattr(processor, side), longest, f"tokenizer.{side}") for side in COLUMNS
        }
    except RequestError as error:
        return files, f"the tokenizers cannot be exported, so transformers needs ids as input ({error})"
    if processor.source.content == processor.target.content:
        return files | files_by_side[SOURCE], "AutoTokenizer encodes both sides with the same ids as heedful"
    files |= {
        f"{side}/{name}": content
        for side, side_files in files_by_side.items()
        for name, content in side_files.items()
    }
    return files, (
        "each side has its own tokenizer, with the same ids as heedful: load AutoTokenizer from the folders "
        f"{SOURCE} and {TARGET}"
    )


def _recipe(
    checkpoint: Checkpoint, config: TransformerConfig, processor: Tokenizers, decoding: JsonObject
) -> JsonObject:
    sides = {side: getattr(processor, side) for side in COLUMNS}
    data = {"kind": "files", "columns": {side: f"{{}}.{side}" for side in COLUMNS}}
    tokenizer = {
        "subwords": processor.source.model.config.model_dump(mode="json"),
        "shared": processor.source.same_pieces_as(processor.target),
        **{
            side: tokenizer_of_side.preprocessing.model_dump(mode="json")
            for side, tokenizer_of_side in sides.items()
        },
    }
    return recipe_of(
        "A Marian model",
        checkpoint,
        {"kind": "translation"},
        data,
        {"training": {"max_updates": 1000}},
        tokenizer=tokenizer,
        model=config.model_dump(mode="json"),
        decoding=decoding,
    )


# The configuration ---------------------------------------------------------------------------------------


def _configuration(settings: Settings, tensors: Mapping[str, Tensor]) -> TransformerConfig:
    """Return the configuration of a folder; its tensors determine ``head_bias``."""
    settings.refuse(
        "scale_embedding", "must be true: heedful multiplies embeddings by sqrt(d_model)", (True,)
    )
    settings.refuse("normalize_before", "Marian is a post-norm model")
    settings.refuse("normalize_embedding", "heedful has no norm after the embedding")
    settings.refuse("add_final_layer_norm", "Marian has no norm after its last layer")
    settings.refuse("static_position_embeddings", "Marian's positions are not learned", (None, True))
    settings.refuse("quantization_config", "quantised weights are not read", (None,))
    for key in ("ffn_dim", "attention_heads"):
        encoder, decoder = settings.positive_int(f"encoder_{key}"), settings.positive_int(f"decoder_{key}")
        if encoder != decoder:
            raise settings.error(f"decoder_{key}", f"must equal encoder_{key}={encoder}, got {decoder}")
    d_model, n_heads = settings.positive_int("d_model"), settings.positive_int("encoder_attention_heads")
    if d_model % 2 or d_model % n_heads:
        raise settings.error("d_model", f"{d_model}: must be even, and a multiple of the {n_heads} heads")
    sides = settings.get("share_encoder_decoder_embeddings", bool, True)
    output = settings.get("tie_word_embeddings", bool, True)
    if sides and not output:
        raise settings.error(
            "tie_word_embeddings", "false, and share_encoder_decoder_embeddings true: heedful ties both "
            "embeddings and the output layer, or target embedding and output layer, or nothing"
        )  # fmt: skip
    return TransformerConfig(
        **read_keys(settings, KEYS),
        positions=SinusoidalConfig(interleaved=False),
        head_bias=_BIAS in tensors and bool(tensors[_BIAS].any()),
        tie="three-way" if sides else "target" if output else "none",
    )


def _sizes(settings: Settings) -> tuple[int, int]:
    """Return the vocabulary sizes of source and target."""
    source = settings.positive_int("vocab_size")
    return source, settings.positive_int("decoder_vocab_size", source)


def _unsupported(config: TransformerConfig | RecurrentConfig | LanguageModelConfig) -> list[str]:
    """Return the settings of the model that Marian does not support."""
    if not isinstance(config, TransformerConfig):
        return [f"model.kind={config.kind}: Marian's model is a transformer"]
    requirements = {
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
    reasons = unsupported(config, "Marian", requirements)
    if config.decoder_layers[0] != config.layer:
        reasons.append("model.decoder_layer: not supported by Marian: its layers are alike on both sides")
    return reasons


def _config_json(config: TransformerConfig, numberings: Numberings, specials: JsonObject) -> JsonObject:
    """Return the content of config.json."""
    content = write_keys(config, KEYS)
    content["encoder_ffn_dim"] = content["encoder_ffn_dim"] or 4 * config.d_model
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": len(numberings.source.ours),
        "decoder_vocab_size": len(numberings.target.ours),
        **content,
        "decoder_layers": config.n_decoder_layers or config.n_layers,
        "decoder_ffn_dim": content["encoder_ffn_dim"],
        "decoder_attention_heads": content["encoder_attention_heads"],
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie == "three-way",
        "tie_word_embeddings": config.tie != "none",
        **specials,
        "bos_token_id": None,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


# The order of features -----------------------------------------------------------------------------------


# Layers that output features (permute rows) and layers that read features (permute columns); the rows of
# the embedding are features too.
_OUTPUT_LAYERS = {"norm", "out", "down"}
_INPUT_LAYERS = {"source_embedding", "target_embedding", "qkv", "q", "kv", "up", "token"}


def in_halves(
    config: TransformerConfig, model: Model, sizes: tuple[int, int]
) -> tuple[TransformerConfig, Model]:
    """Permute the features of a model from interleaved to half-split sinusoids (all sines, then all cosines).

    The order of features is arbitrary: layer norms sum over all of them, and matrices can be permuted. So the
    result computes the same function up to rounding.
    """
    half_split = config.changed(positions={"interleaved": False})
    permuted = build(half_split, *sizes)
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    state = {}
    for name, tensor in model.state_dict().items():
        module, kind = name.split(".")[-2:]
        if module in _OUTPUT_LAYERS or (module in _INPUT_LAYERS and kind == "weight"):
            tensor = tensor[..., order] if module in _INPUT_LAYERS else tensor[order]
        state[name] = tensor
    permuted.load_state_dict(state)
    return half_split, permuted
