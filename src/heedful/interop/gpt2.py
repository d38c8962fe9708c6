"""Import and export of GPT-2 (Radford et al. 2019) in the format of transformers.

| config.json | heedful's ``model`` |
|---|---|
| n_embd, n_layer, n_positions | d_model, n_layers, context |
| n_head, n_inner | mixer.n_heads, layer.channels.d_ff |
| activation_function gelu_new, gelu, relu | layer.channels.activation gelu-tanh, gelu, relu |
| layer_norm_epsilon | layer.norm.eps |
| scale_attn_weights | layer.mixer.score: scaled-dot, or dot if false |
| resid_pdrop, attn_pdrop | dropout, layer.mixer.dropout |
| tie_word_embeddings | tie |

heedful uses the dropout rate of the residual branches for embeddings too, so an embd_pdrop that differs from
resid_pdrop is lost; this only affects training. The tokenizer is converted too (`heedful.interop.byte_bpe`).
A folder with a task head (`heedful.interop.gpt2_heads`) becomes a run of its task, any other folder a run for
language modelling.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from heedful.errors import RequestError
from heedful.interop.activations import ACTIVATIONS, WRITTEN
from heedful.interop.byte_bpe import read_byte_bpe, write_byte_bpe
from heedful.interop.checkpoint import HARMLESS, Checkpoint, Settings
from heedful.interop.encoders import fresh, recipe_of
from heedful.interop.format import ExportedModel, ImportedModel
from heedful.interop.gpt2_heads import HEADS, head_of, refuse_other_pad, with_bias, without_bias
from heedful.interop.heads import Head
from heedful.interop.names import Numbering, Pair, Rows, Table, Transposed, give, linear, pair, take
from heedful.interop.refusing import ALIKE, refuse_other_heads, refuse_others, standard_parts
from heedful.interop.tokenizer_files import TOKENIZER, settings_file
from heedful.models.language_model import LanguageModelConfig, build
from heedful.runs.run import Run
from heedful.tasks.processor import TextProcessor
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

# Defaults of transformers.
_DEFAULTS = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}

_HARMLESS = HARMLESS | {
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
    "summary_first_dropout",
    "reorder_and_upcast_attn",  # only affects the precision of half-precision models
    "unk_token_id",
}  # fmt: skip


def table(
    config: LanguageModelConfig, numbering: Numbering, answering: Sequence[Pair] | None = None
) -> Table:
    """Return the table of tensor names. GPT-2's weight matrices are transposed.

    Args:
        config: configuration of the model.
        numbering: numbering of the tokens.
        answering: rows for a task head; None for a language model.
    """
    rows, own = Rows(numbering), "transformer."
    pairs = [
        pair("embedding.weight", f"{own}wte.weight", form=rows),
        pair("embedding.positions.positions.weight", f"{own}wpe.weight"),
        *linear("stack.norm", f"{own}ln_f"),
    ]
    for i in range(config.n_layers):
        ours, theirs = f"stack.blocks.{i}", f"{own}h.{i}"
        pairs += [
            *linear(f"{ours}.mixer.norm", f"{theirs}.ln_1"),
            *_transposed(f"{ours}.mixer.part.qkv", f"{theirs}.attn.c_attn"),
            *_transposed(f"{ours}.mixer.part.out", f"{theirs}.attn.c_proj"),
            *linear(f"{ours}.feed_forward.norm", f"{theirs}.ln_2"),
            *_transposed(f"{ours}.feed_forward.part.up", f"{theirs}.mlp.c_fc"),
            *_transposed(f"{ours}.feed_forward.part.down", f"{theirs}.mlp.c_proj"),
        ]
    if answering is None and not config.tie:
        pairs.append(pair("heads.token.weight", "lm_head.weight", form=rows))
    return Table(
        [*pairs, *(answering or ())],
        copies={"lm_head.weight": f"{own}wte.weight"} if answering is None and config.tie else {},
        # The causal mask and the value of masked scores.
        derived=[r"transformer\.h\.\d+\.attn\.(bias|masked_bias)"],
        prefix=own,
    )


def _transposed(ours: str, theirs: str) -> list[Pair]:
    return [
        pair(f"{ours}.weight", f"{theirs}.weight", form=Transposed()),
        pair(f"{ours}.bias", f"{theirs}.bias"),
    ]


class GPT2:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "gpt2"
    loaders: ClassVar[dict[str, str]] = {
        "language-modelling": "transformers.AutoModelForCausalLM",
        **{task: f"transformers.{head.architecture}" for task, head in HEADS.items()},
    }

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read a language model or a model with a task head."""
        settings, held = checkpoint.config, checkpoint.tensors()
        head = head_of(settings, held)
        config, notes = _configuration(settings)
        tokenizer, numbering, framed = read_byte_bpe(checkpoint, settings, answers=head is not None)
        if head is None:
            plain, processor = _recipe(checkpoint, config, tokenizer.model.config), TextProcessor(tokenizer)
            model = checkpoint.model_of(held, lambda: build(config, tokenizer.vocab_size))
            lines = None
        else:
            refuse_other_pad(settings, numbering, framed=framed)
            plain, processor = _answering(checkpoint, head, config, tokenizer, framed=framed)
            model, lines = fresh(plain, checkpoint, held, processor.sizes), head.lines(processor)
            n = 1 if head.task == "regression" else len(processor.labels)
            held = with_bias(held, n, str(checkpoint.weights))
        if unread := settings.unread(_HARMLESS):
            notes.append(f"{settings.source}: unknown keys, ignored: {', '.join(unread)}")
        give(table(config, numbering, lines), held, model, str(checkpoint.weights))
        added = [SPECIALS.names[our] for our in range(len(SPECIALS)) if numbering.theirs[our] is None]
        notes.append(
            f"{', '.join(added)} have no row in the source: they got its mean, and are never written"
        )
        return ImportedModel(plain, processor, model, notes)

    def write(self, run: Run) -> ExportedModel:
        """Return a GPT2LMHeadModel, or the class of the task head, with its tokenizer."""
        config: LanguageModelConfig = run.recipe.model
        head = HEADS.get(run.recipe.task.kind)
        _refuse(config)
        tokenizer = run.processor.text
        framed = head is not None and run.recipe.task.add_special_tokens
        content, spelled, numbering = write_byte_bpe(tokenizer, answers=head is not None, framed=framed)
        lost = [name for our, name in enumerate(SPECIALS.names) if numbering.theirs[our] is None]
        notes = [f"the embeddings of {', '.join(lost)} are not exported: these tokens never occur in texts"]
        written = _written(config, numbering)
        tensors = take(table(config, numbering, head.lines(run.processor) if head else None), run.model)
        if head:
            written |= {
                **head.write(run),
                "architectures": [head.architecture],
                "pad_token_id": numbering.theirs[SPECIALS.pad],
            }
            if without_bias(tensors):
                notes.append("the head's bias went into that of the last norm: GPT-2's head has none")
        files = {TOKENIZER: content, **settings_file(config.context, spelled)}
        return ExportedModel(written, tensors, files, notes)


def _configuration(settings: Settings) -> tuple[LanguageModelConfig, list[str]]:
    """Read the model configuration; return it with notes about differences."""
    settings.refuse("scale_attn_by_inverse_layer_idx", "heedful scales attention alike in every layer")
    settings.refuse("add_cross_attention", "heedful's language models read no second sequence")
    settings.refuse("quantization_config", "quantised weights are not read", (None,))
    sizes = {key: settings.whole(key, default) for key, default in _DEFAULTS.items()}
    if sizes["n_embd"] % sizes["n_head"]:
        raise settings.wrong("n_head", f"{sizes['n_head']} does not divide n_embd={sizes['n_embd']}")
    if settings.get("n_ctx", int, sizes["n_positions"]) != sizes["n_positions"]:
        raise settings.wrong("n_ctx", f"is not n_positions={sizes['n_positions']}")
    dropout, notes = settings.rate("resid_pdrop", 0.1), []
    if (embedded := settings.rate("embd_pdrop", 0.1)) != dropout:
        notes.append(
            f"{settings.source}: embd_pdrop={embedded:g} is not resid_pdrop={dropout:g}; heedful uses the "
            "latter for both, which only affects training"
        )
    epsilon = settings.get("layer_norm_epsilon", (int, float), 1e-5)
    if not 0 < epsilon < 1:
        raise settings.wrong("layer_norm_epsilon", f"must be between 0 and 1, got {epsilon}")
    layer: Any = {
        "mixer": {
            "n_heads": sizes["n_head"],
            "score": "scaled-dot" if settings.get("scale_attn_weights", bool, True) else "dot",
            "dropout": settings.rate("attn_pdrop", 0.1),
        },
        "channels": {
            "d_ff": settings.whole("n_inner", 4 * sizes["n_embd"]),
            "activation": settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
        },
        "norm": {"kind": "layer", "eps": float(epsilon)},
    }
    config = LanguageModelConfig(
        d_model=sizes["n_embd"],
        n_layers=sizes["n_layer"],
        layer=layer,
        context=sizes["n_positions"],
        dropout=dropout,
        tie=settings.get("tie_word_embeddings", bool, True),
    )
    return config, notes


def _recipe(checkpoint: Checkpoint, config: LanguageModelConfig, subwords: Any) -> JsonObject:
    name = checkpoint.path.resolve().name
    return {
        "description": f"A GPT-2, imported from the folder {name}. It was not trained on these data: "
        "replace them with your own to train it further.",
        "task": {"kind": "language-modelling"},
        "data": {
            "train": {"kind": "text", "paths": "train.txt"},
            "valid": {"kind": "text", "paths": "valid.txt"},
        },
        "tokenizer": {"subwords": subwords.model_dump(mode="json")},
        "model": config.model_dump(mode="json"),
        "optimizer": {"kind": "adamw", "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "peak": 1e-4, "floor": 1e-5, "warmup": 100},
        "training": {"max_updates": 1000},
        "decoding": {"kind": "sample", "temperature": 0.8, "top_p": 0.95},
    }


def _answering(
    checkpoint: Checkpoint, head: Head, config: LanguageModelConfig, tokenizer: Tokenizer, *, framed: bool
) -> tuple[JsonObject, Any]:
    """Return recipe and processor of a run with a task head."""
    found = head.read(checkpoint.config, tokenizer)
    data = {"kind": "jsonl", "paths": "{}.jsonl", "columns": {column: column for column in found.columns}}
    sections = {
        "tokenizer": {"subwords": tokenizer.model.config.model_dump(mode="json")},
        "model": config.model_dump(mode="json"),
    }
    task = {**found.task, "add_special_tokens": framed}
    if found.task["pairs"] and not framed:
        raise RequestError(
            f"{checkpoint.path}: reads pairs, and its tokenizer puts nothing between two texts: heedful puts "
            "an end token before them and one behind each"
        )
    return recipe_of("A GPT-2", checkpoint, task, data, **sections), found.processor


def _refuse(config: LanguageModelConfig) -> None:
    """Check that GPT-2 supports the model.

    Raises:
        RequestError: it does not; the message names the key.
    """
    others = {
        "kind": ("language-model", "each of its tokens sees those before it alone"),
        **ALIKE,
        "layer.norm_placement": ("pre", "its norms precede the sublayers (pre-norm)"),
        "positions.kind": ("learned", "its positions are learned"),
    }
    if config.scale_embedding:
        raise RequestError("model.scale_embedding=true: GPT-2 does not multiply its embeddings")
    refuse_others(config, "GPT-2", others)
    refuse_other_heads(config, "GPT-2")
    mixer, _, _ = standard_parts(config.layer)
    if (score := mixer.score.kind) not in ("scaled-dot", "dot"):
        raise RequestError(
            f"model.layer.mixer.score.kind={score}: GPT-2 compares queries and keys by products"
        )


def _written(config: LanguageModelConfig, numbering: Numbering) -> JsonObject:
    """Return the content of config.json."""
    end = numbering.theirs[SPECIALS.end]
    mixer, channels, norm = standard_parts(config.layer)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": len(numbering.ours),
        "n_positions": config.context,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": mixer.n_heads,
        "n_inner": channels.d_ff,
        "activation_function": WRITTEN[channels.activation],
        "layer_norm_epsilon": norm.eps,
        "scale_attn_weights": mixer.score.kind == "scaled-dot",
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": mixer.dropout,
        "bos_token_id": end,
        "eos_token_id": end,
        "tie_word_embeddings": config.tie,
        "dtype": "float32",
    }
