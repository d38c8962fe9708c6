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

The class determines the task of the run. Its head reads the last token that is not padding, so the padding
token must not occur in texts.

| transformers | tensors | task |
|---|---|---|
| GPT2ForSequenceClassification | ``score``, which has no bias | classification |
| the same with one label | the same, one row | regression |
| any other | | language-modelling |
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.interop.byte_bpe import VOCAB_SIZE, read_byte_bpe, tokenizer_obstacles, write_byte_bpe
from heedful.interop.checkpoint import CONFIG, Checkpoint, Settings, indented
from heedful.interop.configuration import (
    ALIKE,
    Key,
    read_activation,
    read_epsilon,
    read_keys,
    refuse,
    unsupported,
    write_keys,
)
from heedful.interop.format import ExportedModel, ImportedModel, imported_model, recipe_of
from heedful.interop.generation import GENERATION, read_generation, write_generation
from heedful.interop.heads import (
    NUMBERS,
    Head,
    model_sections,
    read_head,
    sequence_heads,
    task_of_sequence,
    write_head,
)
from heedful.interop.names import (
    TRANSPOSED,
    Numbering,
    Pair,
    Table,
    layers,
    linear,
    pair,
    rows,
    write_weights,
)
from heedful.interop.tokenizer_files import TOKENIZER, length_notes, settings_file, unused_rows
from heedful.interop.unread import ANY, Harmless
from heedful.models.language_model import LanguageModelConfig
from heedful.models.mixers import AttentionConfig
from heedful.recipes.schema import Recipe
from heedful.runs.loading import LoadedRun
from heedful.tasks.inputs.processor import TaskProcessor, TextProcessor
from heedful.text.specials import SPECIALS
from heedful.typing import JsonObject

_PREFIX = "transformer."
_NORM, _SCORE, _BIAS = f"{_PREFIX}ln_f.bias", "score", "score.bias"
_CLASS = "GPT2ForSequenceClassification"


def _read_inner(settings: Settings, key: str, default: None) -> int:
    """Read the number of hidden units, by default four times the width."""
    return settings.positive_int(key, 4 * settings.positive_int("n_embd", 768))


KEYS = (
    Key("n_positions", "context", default=1024),
    Key("n_embd", "d_model", default=768),
    Key("n_layer", "n_layers", default=12),
    Key("n_head", "layer.mixer.n_heads", default=12),
    Key("n_inner", "layer.channels.d_ff", _read_inner),
    Key("activation_function", "layer.channels.activation", read_activation, "gelu_new"),
    Key("layer_norm_epsilon", "layer.norm.eps", read_epsilon, 1e-5),
    Key("resid_pdrop", "dropout", Settings.rate, 0.1),
    Key("attn_pdrop", "layer.mixer.dropout", Settings.rate, 0.1),
    Key("tie_word_embeddings", "tie", lambda settings, key, default: settings.get(key, bool, default), True),
)

_HARMLESS: Mapping[str, Harmless] = {
    CONFIG: dict.fromkeys(
        (
            "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
            "summary_first_dropout",  # of the head of GPT2DoubleHeadsModel
            "reorder_and_upcast_attn",  # only affects the precision of half-precision models
            "unk_token_id",
        ),
        ANY,
    )
}  # fmt: skip

# How an imported language model is trained further, and what it generates by default.
_TRAINING = {
    "optimizer": {"kind": "adamw", "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1},
    "schedule": {"kind": "cosine", "peak": 1e-4, "floor": 1e-5, "warmup": 100},
    "training": {"max_updates": 1000},
    "decoding": {"kind": "sample", "temperature": 0.8, "top_p": 0.95},
}

_LAYER = {
    "mixer.norm": ("ln_1",),
    "mixer.part.qkv": ("attn.c_attn",),
    "mixer.part.out": ("attn.c_proj",),
    "feed_forward.norm": ("ln_2",),
    "feed_forward.part.up": ("mlp.c_fc",),
    "feed_forward.part.down": ("mlp.c_proj",),
}

HEADS = sequence_heads(_CLASS, _SCORE)
"""Task heads by task. Their rows include the bias of heedful's layers, which `without_bias` removes."""

_UNSUPPORTED = {"GPT2ForTokenClassification", "GPT2ForQuestionAnswering", "GPT2DoubleHeadsModel"}


def table(
    config: LanguageModelConfig, numbering: Numbering, task_head: Sequence[Pair] | None = None
) -> Table:
    """Return the table of tensor names. GPT-2's weight matrices are transposed.

    Args:
        config: configuration of the model.
        numbering: numbering of the tokens.
        task_head: rows for a task head; None for a language model.
    """
    words, output = f"{_PREFIX}wte.weight", "lm_head.weight"
    pairs = [
        pair("embedding.weight", words, form=rows(numbering)),
        pair("embedding.positions.positions.weight", f"{_PREFIX}wpe.weight"),
        *linear("stack.norm", f"{_PREFIX}ln_f"),
        *layers(config.n_layers, "stack", f"{_PREFIX}h", _LAYER, weight=TRANSPOSED),
        *(task_head or ()),
    ]
    if task_head is None and not config.tie:
        pairs.append(pair("heads.token.weight", output, form=rows(numbering)))
    copies = {output: words} if task_head is None and config.tie else {}
    # The causal mask and the value of masked scores.
    derived = [r"transformer\.h\.\d+\.attn\.(bias|masked_bias)"]
    return Table(pairs, copies, derived, _PREFIX)


class GPT2:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "gpt2"
    harmless: ClassVar[Mapping[str, Harmless]] = _HARMLESS
    loaders: ClassVar[dict[str, str]] = {
        "language-modelling": "transformers.AutoModelForCausalLM",
        **{task: f"transformers.{head.architecture}" for task, head in HEADS.items()},
    }

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read a language model or a model with a task head."""
        settings, tensors = checkpoint.config, checkpoint.tensors()
        head = _task_head(settings, tensors)
        config, notes = _configuration(settings)
        tokenizer, numbering, framed = read_byte_bpe(checkpoint, whole_texts=head is not None)
        processor: TaskProcessor
        if head is None:
            sections, generation_notes = _generation(checkpoint, config)
            notes += generation_notes
            recipe = recipe_of(
                "A GPT-2",
                checkpoint,
                {"kind": "language-modelling"},
                {"kind": "text", "paths": "{}.txt"},
                _TRAINING | sections,
                **model_sections(tokenizer, config),
            )
            processor = TextProcessor(tokenizer)
        else:
            _check_padding(settings, numbering, framed=framed)
            recipe, processor = read_head(head.task, "A GPT-2", checkpoint, tokenizer, config)
            recipe["task"]["add_special_tokens"] = framed
            if recipe["task"]["pairs"] and not framed:
                raise RequestError(
                    f"{checkpoint.path}: reads pairs, but its tokenizer adds no token between two texts; "
                    "heedful adds an end token before the first text and one after each"
                )
            tensors = with_bias(
                tensors, 1 if head.task == NUMBERS else processor.sizes[-1], str(checkpoint.weights)
            )
        vocab_size = settings.positive_int("vocab_size", VOCAB_SIZE)
        notes += unused_rows(numbering, vocab_size) + length_notes(checkpoint, config.context)
        missing = [SPECIALS.names[our] for our in range(len(SPECIALS)) if numbering.theirs[our] is None]
        notes.append(
            f"{', '.join(missing)} have no row in the source: they get the mean row and are never generated"
        )
        names = table(config, numbering, head.rows(processor) if head else None)
        tensors = names.without_padding(tensors, vocab_size)
        return imported_model(checkpoint, recipe, processor, names, tensors, notes)

    def obstacles(self, recipe: Recipe, model: nn.Module) -> list[str]:
        """Return all settings of a recipe that the format does not support."""
        config: Any = recipe
        return [
            *_unsupported(config.model),
            *tokenizer_obstacles(config.tokenizer.text, config.tokenizer.subwords),
        ]

    def write(self, run: LoadedRun) -> ExportedModel:
        """Return a GPT2LMHeadModel, or the class of the task head, with its tokenizer."""
        config: LanguageModelConfig = run.recipe.model
        head = HEADS.get(run.recipe.task.kind)
        refuse(self.obstacles(run.recipe, run.model))
        tokenizer = run.processor.text
        framed = head is not None and run.recipe.task.add_special_tokens
        content, special_tokens, numbering = write_byte_bpe(
            tokenizer, whole_texts=head is not None, framed=framed
        )
        unexported = [name for our, name in enumerate(SPECIALS.names) if numbering.theirs[our] is None]
        notes = [
            f"the embeddings of {', '.join(unexported)} are not exported: these tokens never occur in texts"
        ]
        end, mixer = numbering.theirs[SPECIALS.end], config.layer.mixer
        assert isinstance(mixer, AttentionConfig)
        config_json: JsonObject = {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": len(numbering.ours),
            **write_keys(config, KEYS),
            "embd_pdrop": config.dropout,
            "scale_attn_weights": mixer.score.kind == "scaled-dot",
            "bos_token_id": end,
            "eos_token_id": end,
            "dtype": "float32",
        }
        tensors = write_weights(
            table(config, numbering, head.rows(run.processor) if head else None), run.model
        )
        if head:
            config_json |= write_head(run)
            config_json |= {"architectures": [_CLASS], "pad_token_id": numbering.theirs[SPECIALS.pad]}
            if without_bias(tensors):
                notes.append("the head's bias was added to the bias of the last norm: GPT-2's head has none")
        options: JsonObject = {}
        files: dict[str, str | bytes] = {TOKENIZER: content}
        if head is None:
            generation, generation_notes = _written_generation(run, end)
            files[GENERATION] = indented(generation)
            notes += generation_notes
            # Batches of prompts are padded with the end token, before the text that is continued.
            special_tokens["pad_token"] = special_tokens["eos_token"]
            options = {"padding_side": "left"}
        files |= settings_file(config.context, special_tokens, **options)
        return ExportedModel(config_json, tensors, files, notes)


def _configuration(settings: Settings) -> tuple[LanguageModelConfig, list[str]]:
    """Read the model configuration; return it with notes about differences."""
    settings.refuse("scale_attn_by_inverse_layer_idx", "heedful scales attention alike in every layer")
    settings.refuse("add_cross_attention", "language models with cross-attention are not supported")
    settings.refuse("quantization_config", "quantised weights are not read", (None,))
    section, notes = read_keys(settings, KEYS), []
    context, dropout = section["context"], section["dropout"]
    if settings.get("n_ctx", int, context) != context:
        raise settings.error("n_ctx", f"is not n_positions={context}")
    if (embedding_dropout := settings.rate("embd_pdrop", 0.1)) != dropout:
        notes.append(
            f"{settings.source}: embd_pdrop={embedding_dropout:g} is not resid_pdrop={dropout:g}; heedful "
            "uses the latter for both, which only affects training"
        )
    is_scaled = settings.get("scale_attn_weights", bool, True)
    section["layer"]["mixer"]["score"] = "scaled-dot" if is_scaled else "dot"
    return LanguageModelConfig(**section), notes


def _unsupported(config: LanguageModelConfig) -> list[str]:
    """Return the settings of the model that GPT-2 does not support."""
    requirements = {
        "kind": ("language-model", "each of its tokens sees only itself and earlier tokens"),
        **ALIKE,
        "layer.norm_placement": ("pre", "its norms precede the sublayers (pre-norm)"),
        "positions.kind": ("learned", "its positions are learned"),
        "combine": ("add", "its positions are added"),
    }
    reasons = unsupported(config, "GPT-2", requirements)
    if config.scale_embedding:
        reasons.append(
            "model.scale_embedding=true: not supported by GPT-2: it does not multiply embeddings by "
            "sqrt(d_model)"
        )
    mixer = config.layer.mixer
    if isinstance(mixer, AttentionConfig) and (score := mixer.score.kind) not in ("scaled-dot", "dot"):
        reasons.append(
            f"model.layer.mixer.score.kind={score}: not supported by GPT-2, which has dot-product scores"
        )
    return reasons


# Generation ----------------------------------------------------------------------------------------------


def _generation(checkpoint: Checkpoint, config: LanguageModelConfig) -> tuple[JsonObject, list[str]]:
    """Return the sections ``decoding`` and ``completion`` of a recipe as far as the folder gives them."""
    generation = read_generation(checkpoint)
    notes, sections = generation.notes, JsonObject()
    if generation.decoding is not None:
        sections["decoding"] = generation.decoding
    if generation.max_new_tokens is not None:
        sections["completion"] = {"max_new_tokens": generation.max_new_tokens}
    elif generation.max_length is not None:
        notes.append(
            f"max_length={generation.max_length} is not read: it counts the tokens of the prompt too; "
            "heedful's limit is completion.max_new_tokens"
        )
    return sections, notes


def _written_generation(run: LoadedRun, end: int | None) -> tuple[JsonObject, list[str]]:
    """Return the content of generation_config.json, and notes about differences."""
    recipe: Any = run.recipe
    content, notes = write_generation(recipe.decoding)
    asked, most = recipe.completion.max_new_tokens, max(1, recipe.model.context // 2)
    if asked > most:
        notes.append(
            f"completion.max_new_tokens={asked}: exported as {most}, half of the context, beyond which "
            "transformers cannot continue a text"
        )
    if recipe.completion.stop:
        notes.append(
            "completion.stop: not exported; give stop_strings and tokenizer to generate() of transformers"
        )
    specials = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    return {**specials, "max_new_tokens": min(asked, most), **content}, notes


# Task heads ----------------------------------------------------------------------------------------------


def _task_head(settings: Settings, tensor_names: Collection[str]) -> Head | None:
    """Return the task head of a folder; None for a language model.

    Raises:
        RequestError: if heedful does not support it.
    """
    architectures = settings.strings("architectures")
    if unsupported := sorted(_UNSUPPORTED & {*architectures}):
        raise settings.error("architectures", f"{unsupported[0]}: heads of this kind are not supported")
    if _CLASS in architectures or any(name.startswith(f"{_SCORE}.") for name in tensor_names):
        return HEADS[task_of_sequence(settings)]
    return None


def with_bias(tensors: Mapping[str, Tensor], n: int, source: str) -> dict[str, Tensor]:
    """Return the tensors with zeros added for the missing bias.

    Raises:
        RequestError: if there is a bias, which transformers would not read.
    """
    if _BIAS in tensors:
        raise RequestError(f"{source}: does not fit its configuration:\n  unknown: {_BIAS}")
    return {**tensors, _BIAS: torch.zeros(n)}


def without_bias(tensors: dict[str, Tensor]) -> bool:
    """Move the bias of the head into the norm before it, which nothing else reads; return whether it had one.

    ``W (z + b) + c = W (z + b + e)`` with ``W e = c``, where e is the shortest solution.

    Raises:
        RequestError: there is none.
    """
    bias, weight = tensors.pop(_BIAS).double(), tensors[f"{_SCORE}.weight"].double()
    if not bias.any():
        return False
    norm_bias = tensors[_NORM].double()
    new_norm_bias = (norm_bias + torch.linalg.pinv(weight) @ bias).float()
    residual = (weight @ new_norm_bias.double() - weight @ norm_bias - bias).abs().max()
    if residual > 1e-5 * max(1.0, float(bias.abs().max())):
        raise RequestError(
            "GPT-2's head has no bias, and the bias of this run cannot be moved into the norm before it: "
            f"the rows of its {len(weight)} answers depend on each other"
        )
    tensors[_NORM] = new_norm_bias
    return True


def _check_padding(settings: Settings, numbering: Numbering, *, framed: bool) -> None:
    """Refuse a padding token in which texts may end: transformers would read the token before it.

    Raises:
        RequestError: if it is an ordinary token, or the token that ends every text.
    """
    pad, end = settings.get("pad_token_id", int), numbering.theirs[SPECIALS.end]
    never_last = {numbering.theirs[our] for our in SPECIALS.never_generated} | (set() if framed else {end})
    if pad is not None and 0 <= pad < len(numbering.ours) and pad not in never_last:
        raise settings.error(
            "pad_token_id", f"{pad}: texts may end in this token, and transformers would then read the token "
            "before it"
        )  # fmt: skip
