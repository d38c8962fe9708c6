"""Import and export of BERT (Devlin et al. 2019) in the format of transformers.

| config.json | heedful's ``model`` |
|---|---|
| hidden_size, num_hidden_layers, num_attention_heads | d_model, n_layers, layer.mixer.n_heads |
| intermediate_size | layer.channels.d_ff |
| max_position_embeddings, type_vocab_size | max_length, segments |
| hidden_act gelu, gelu_new, relu … | layer.channels.activation |
| layer_norm_eps | layer.norm.eps |
| hidden_dropout_prob, attention_probs_dropout_prob | dropout, layer.mixer.dropout |
| tie_word_embeddings | tie |

The tensors of a folder determine the task of the run:

| tensors | transformers | task |
|---|---|---|
| ``cls.predictions`` | BertForMaskedLM, BertForPreTraining | masked-language-modelling |
| ``cls.seq_relationship`` | BertForPreTraining | its option next_sentence |
| ``classifier``, on the pooled vector | BertForSequenceClassification | classification |
| the same with one label | the same, one row | regression |
| ``classifier``, on every token | BertForTokenClassification | tagging |
| ``qa_outputs`` | BertForQuestionAnswering | question-answering |
| none of these | BertModel | masked-language-modelling, with an untrained head |

The tokenizer is converted too (`heedful.interop.wordpiece`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from heedful.interop.checkpoint import CONFIG, Checkpoint, Settings
from heedful.interop.configuration import ALIKE, Key, read_keys, refuse, stack_keys, unsupported, write_keys
from heedful.interop.format import ExportedModel, ImportedModel, imported_model, recipe_of
from heedful.interop.heads import (
    ANSWERING,
    TAGGING,
    Head,
    model_sections,
    read_head,
    sequence_heads,
    task_of_sequence,
    write_head,
)
from heedful.interop.names import Numbering, Pair, Table, layers, linear, pair, rows, write_weights
from heedful.interop.sentence_transformers import SENTENCE_SETTINGS, SentenceModel, read_sentence_model
from heedful.interop.sentence_transformers import TASK as SENTENCES
from heedful.interop.tokenizer_files import SETTINGS, length_notes, unused_rows
from heedful.interop.unread import ANY, Harmless
from heedful.interop.wordpiece import VOCAB_SIZE, read_wordpiece, tokenizer_obstacles, write_wordpiece
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.objectives.classification import ANSWER, TAG
from heedful.recipes.schema import Recipe
from heedful.runs.loading import LoadedRun
from heedful.tasks.inputs.processor import TaskProcessor, TextProcessor
from heedful.tasks.inputs.texts import PAIR, TEXT
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

MASKED = "masked-language-modelling"
_PREFIX = "bert."

KEYS = (
    *stack_keys(dropout=0.1),
    Key("max_position_embeddings", "max_length", default=512),
    Key("type_vocab_size", "segments", default=2),
)

_HARMLESS: Mapping[str, Harmless] = {
    CONFIG: dict.fromkeys(
        (
            "pad_token_id", "bos_token_id", "eos_token_id", "directionality", "pooler_fc_size", "pooler_type",
            "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
        ),
        ANY,
    ),
    SETTINGS: {
        "clean_up_tokenization_spaces": ANY,  # of texts that are generated
        **dict.fromkeys(("bos_token", "eos_token"), ANY),  # which BERT does not have
    },
    SENTENCE_SETTINGS: dict.fromkeys(("__version__", "prompts", "similarity_fn_name", "model_type"), ANY),
}  # fmt: skip

# Architectures whose inputs or outputs match no task of heedful.
_UNSUPPORTED = {"BertForMultipleChoice", "BertForNextSentencePrediction", "BertLMHeadModel"}

_ATTENTION = "attention.self"
_LAYER = {
    "mixer.part.qkv": (f"{_ATTENTION}.query", f"{_ATTENTION}.key", f"{_ATTENTION}.value"),
    "mixer.part.out": ("attention.output.dense",),
    "mixer.norm": ("attention.output.LayerNorm",),
    "feed_forward.part.up": ("intermediate.dense",),
    "feed_forward.part.down": ("output.dense",),
    "feed_forward.norm": ("output.LayerNorm",),
}

_SEQUENCE, _TOKENS = "BertForSequenceClassification", "BertForTokenClassification"
_CLASSIFIER, _ANSWERS = "classifier", "qa_outputs"
_OUTPUT, _BIAS = "cls.predictions.decoder", "cls.predictions.bias"

HEADS = sequence_heads(_SEQUENCE, _CLASSIFIER) | {
    TAGGING: Head(TAGGING, _TOKENS, lambda processor: linear(f"heads.{TAG}.1", _CLASSIFIER)),
    ANSWERING: Head(
        ANSWERING, "BertForQuestionAnswering", lambda processor: linear(f"heads.{ANSWER}.1", _ANSWERS)
    ),
}
"""Task heads by task."""


def table(
    config: EncoderConfig, numbering: Numbering, heads: Collection[str], task_head: Sequence[Pair] = ()
) -> Table:
    """Return the table of tensor names.

    Args:
        config: configuration of the model.
        numbering: numbering of the tokens.
        heads: which of ``pooled``, ``token`` and ``next`` exist on both sides; others stay unchanged.
        task_head: rows for a task head.
    """
    embeddings = f"{_PREFIX}embeddings"
    words = f"{embeddings}.word_embeddings.weight"
    pairs = [
        pair("embedding.weight", words, form=rows(numbering)),
        pair("embedding.positions.positions.weight", f"{embeddings}.position_embeddings.weight"),
        pair("embedding.segments", f"{embeddings}.token_type_embeddings.weight"),
        *linear("embedding.norm", f"{embeddings}.LayerNorm"),
        *layers(config.n_layers, "stack", f"{_PREFIX}encoder.layer", _LAYER),
        *task_head,
    ]
    copies: dict[str, str] = {}
    if "pooled" in heads:
        pairs += linear("heads.pooled.dense", f"{_PREFIX}pooler.dense")
    if "token" in heads:
        pairs += [
            *linear("heads.token.transform.0", "cls.predictions.transform.dense"),
            *linear("heads.token.transform.2", "cls.predictions.transform.LayerNorm"),
        ]
        if config.tie:
            pairs.append(pair("heads.token.out.bias", _BIAS, form=rows(numbering)))
            copies = {f"{_OUTPUT}.weight": words, f"{_OUTPUT}.bias": _BIAS}
        else:
            pairs += [
                pair(f"heads.token.out.{kind}", f"{_OUTPUT}.{kind}", form=rows(numbering))
                for kind in ("weight", "bias")
            ]
    if "next" in heads:
        pairs += linear("heads.next.1", "cls.seq_relationship")
    ignored = [rf"heads\.{name}\..*" for name in ("token", "boundary") if name not in heads]
    # Without tied weights, transformers leaves one of the two biases of the output layer unused.
    unused = [] if config.tie else [_BIAS.replace(".", r"\.")]
    return Table(pairs, copies, [r"bert\.embeddings\.position_ids", *unused], _PREFIX, ignored)


class BERT:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "bert"
    harmless: ClassVar[Mapping[str, Harmless]] = _HARMLESS
    loaders: ClassVar[dict[str, str]] = {
        MASKED: "transformers.AutoModelForMaskedLM",
        **{task: f"transformers.{head.architecture}" for task, head in HEADS.items()},
    }

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read a masked language model or a model with a task head."""
        settings, tensors = checkpoint.config, _modern_names(checkpoint.tensors())
        if _BIAS in tensors:  # files of older versions have the shared bias once
            tensors.setdefault(f"{_OUTPUT}.bias", tensors[_BIAS])
        _check_settings(settings)
        sentences = read_sentence_model(checkpoint)
        head = None if sentences else _task_head(settings, tensors)
        heads = set[str]() if sentences else _heads(tensors, head)
        config, notes = _configuration(settings, heads)
        tokenizer, numbering = read_wordpiece(checkpoint)
        processor: TaskProcessor
        if sentences is not None:
            notes += sentences.notes
            config = config.changed(pooling=sentences.pooling, max_length=_longest(sentences, config))
            tensors = _without_heads(tensors, config.max_length)
            recipe, processor = _sentence_recipe(checkpoint, tokenizer, config)
        elif head is not None:
            recipe, processor = read_head(head.task, "A BERT", checkpoint, tokenizer, config)
        else:
            task: JsonObject = {"kind": MASKED, "next_sentence": "next" in heads}
            data: JsonObject = {"kind": "text", "paths": "{}.txt"}
            recipe = recipe_of("A BERT", checkpoint, task, data, **model_sections(tokenizer, config))
            processor = TextProcessor(tokenizer)
        if not recipe["task"].get("pairs", True) and sentences is None:
            notes.append(
                "inputs are assumed to be single texts; if the model reads pairs, "
                'add "finetuning_task": "mrpc" to its config.json'
            )
        if sentences is None:
            notes += length_notes(checkpoint, config.max_length)
        if head is None and sentences is None and "token" not in heads:
            notes.append(
                "the source has no head: the masked language model head is randomly initialised; use this "
                "run to start others from (start.run), not for predictions"
            )
        vocab_size = settings.positive_int("vocab_size", VOCAB_SIZE)
        notes += unused_rows(numbering, vocab_size)
        notes.append(
            "<s> and </s> have no embedding in the source: they get the mean embedding, never generated"
        )
        names = table(config, numbering, heads, head.rows(processor) if head else [])
        tensors = names.without_padding(tensors, vocab_size)
        return imported_model(checkpoint, recipe, processor, names, tensors, notes)

    def obstacles(self, recipe: Recipe, model: nn.Module) -> list[str]:
        """Return all settings of a recipe that the format does not support."""
        config: Any = recipe
        head = HEADS.get(recipe.task.kind)
        pooled = head.pooled if head else "next" in getattr(model, "heads", ())
        return [
            *_unsupported(config.model, pooled=pooled),
            *tokenizer_obstacles(config.tokenizer.text, config.tokenizer.subwords),
        ]

    def write(self, run: LoadedRun) -> ExportedModel:
        """Return the model with its head and the tokenizer."""
        config: EncoderConfig = run.recipe.model
        head = HEADS.get(run.recipe.task.kind)
        heads = set() if head else {"token"} | ({"next"} & {*run.model.heads})
        refuse(self.obstacles(run.recipe, run.model))
        heads |= {"pooled"} if config.pooler else set()
        tokenizer = run.processor.text
        files, numbering = write_wordpiece(tokenizer, config.max_length)
        pretraining_class = "BertForPreTraining" if "next" in heads else "BertForMaskedLM"
        content = {
            "model_type": "bert",
            "vocab_size": len(numbering.ours),
            **write_keys(config, KEYS),
            "position_embedding_type": "absolute",
            "pad_token_id": numbering.theirs[SPECIALS.pad],
            "tie_word_embeddings": config.tie,
            "dtype": "float32",
            **(write_head(run) if head else {}),
            "architectures": [head.architecture if head else pretraining_class],
        }
        content["intermediate_size"] = content["intermediate_size"] or 4 * config.d_model
        notes = ["the embeddings of <s> and </s> are not exported: BERT has no such tokens"]
        if "boundary" in run.model.heads:
            notes.append("the span boundary head is not exported: transformers has none")
        names = table(config, numbering, heads, head.rows(run.processor) if head else [])
        weights = write_weights(names, run.model)
        if f"{_OUTPUT}.bias" in weights:
            weights.setdefault(_BIAS, weights[f"{_OUTPUT}.bias"].clone())
        return ExportedModel(content, weights, files, notes)


def _longest(sentences: SentenceModel, config: EncoderConfig) -> int:
    """Return the maximum number of tokens of a text."""
    return min(config.max_length, sentences.longest or config.max_length)


def _sentence_recipe(
    checkpoint: Checkpoint, tokenizer: Tokenizer, config: EncoderConfig
) -> tuple[JsonObject, TaskProcessor]:
    """Return the recipe and processor of a run whose model computes vectors of texts."""
    columns = {TEXT: TEXT, PAIR: PAIR}
    data: JsonObject = {"kind": "jsonl", "paths": "{}.jsonl", "columns": columns}
    sections = model_sections(tokenizer, config)
    recipe = recipe_of("A sentence model", checkpoint, {"kind": SENTENCES}, data, **sections)
    return recipe, TextProcessor(tokenizer)


def _without_heads(tensors: Mapping[str, Tensor], longest: int) -> dict[str, Tensor]:
    """Return the tensors that a sentence model uses: no heads, and as many positions as it reads."""
    unused = (f"{_PREFIX}pooler.", "pooler.", "cls.")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(unused)}
    return {
        name: tensor[:longest] if name.endswith("position_embeddings.weight") else tensor
        for name, tensor in kept.items()
    }


def _modern_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with the names used for norms since 2019."""
    suffixes = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    renamed = {}
    for name, tensor in tensors.items():
        for old_suffix, new_suffix in suffixes.items():
            name = name.removesuffix(old_suffix) + new_suffix if name.endswith(old_suffix) else name
        renamed[name] = tensor
    return renamed


def _task_head(settings: Settings, tensor_names: Collection[str]) -> Head | None:
    """Return the task head of a folder; None for a masked language model.

    A ``classifier`` reads the pooled vector if there is a pooler; since old models for token classification
    have a pooler too, ``architectures`` takes precedence.
    """
    if any(name.startswith(f"{_ANSWERS}.") for name in tensor_names):
        return HEADS[ANSWERING]
    if not any(name.startswith(f"{_CLASSIFIER}.") for name in tensor_names):
        return None
    architectures = settings.get("architectures", list, [])
    pooled = any(name.startswith(("bert.pooler.", "pooler.")) for name in tensor_names)
    if _TOKENS in architectures or not (pooled or _SEQUENCE in architectures):
        return HEADS[TAGGING]
    return HEADS[task_of_sequence(settings)]


def _heads(tensor_names: Collection[str], head: Head | None) -> set[str]:
    """Return heedful's names of the pretraining heads and the pooler in a folder."""
    prefixes = {
        "pooled": ("bert.pooler.", "pooler."),
        "token": ("cls.predictions.",),
        "next": ("cls.seq_relationship.",),
    }
    names = {
        name
        for name, prefix in prefixes.items()
        if any(tensor_name.startswith(prefix) for tensor_name in tensor_names)
    }
    if head:
        # A run with a task head has no other head; other tensors are then reported as unknown.
        names &= {"pooled"}
    # Heads that need the pooler: if it is missing, that is reported.
    return names | {"pooled"} if "next" in names or (head and head.pooled) else names


def _check_settings(settings: Settings) -> None:
    """Raise `RequestError` for a BERT that heedful does not support."""
    for architecture in settings.strings("architectures"):
        if architecture in _UNSUPPORTED:
            raise settings.error("architectures", f"{architecture}: this head is not supported")
    settings.refuse("is_decoder", "decoders are not supported, only bidirectional attention")
    settings.refuse("add_cross_attention", "cross-attention is not supported in encoders")
    settings.refuse("quantization_config", "quantised weights are not supported", (None,))
    settings.refuse("position_embedding_type", "only absolute positions are supported", (None, "absolute"))


def _configuration(settings: Settings, heads: Collection[str]) -> tuple[EncoderConfig, list[str]]:
    """Read the model configuration of a folder with these heads; return it with notes about differences."""
    section, notes = read_keys(settings, KEYS), []
    tie = settings.get("tie_word_embeddings", bool, True) or "token" not in heads
    dropout = section["dropout"]
    if (classifier_dropout := settings.rate("classifier_dropout", dropout)) != dropout:
        notes.append(
            f"{settings.source}: classifier_dropout={classifier_dropout:g} differs from "
            f"hidden_dropout_prob={dropout:g}; heedful uses the latter for both, which only affects training"
        )
    return EncoderConfig(**section, pooler="pooled" in heads, tie=tie), notes


def _unsupported(config: EncoderConfig | LanguageModelConfig, *, pooled: bool) -> list[str]:
    """Return the settings of the model that BERT does not support."""
    requirements = {
        "kind": ("encoder", "its attention is bidirectional"),
        **ALIKE,
        "layer.norm_placement": ("post", "its norms follow the residual sums (post-norm)"),
        "layer.mixer.score.kind": ("scaled-dot", "it uses scaled dot-product attention"),
        "positions.kind": ("learned", "its positions are learned"),
        "combine": ("add", "its positions are added"),
        "embedding_norm": (True, "it normalises embeddings"),
        "pooling": ("first", "it pools by the first token"),
    }
    if pooled:
        requirements["pooler"] = (True, "it classifies through a pooler with tanh")
    reasons = unsupported(config, "BERT", requirements)
    if config.scale_embedding:
        reasons.append("model.scale_embedding=true: not supported by BERT: it does not scale embeddings")
    if isinstance(config, EncoderConfig) and not config.segments:
        reasons.append("model.segments=0: not supported by BERT: it adds a segment embedding to every token")
    return reasons
