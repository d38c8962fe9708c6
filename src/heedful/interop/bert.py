"""Import and export of BERT (Devlin et al. 2019) in the format of transformers.

| config.json | heedful's ``model`` |
|---|---|
| hidden_size, num_hidden_layers, num_attention_heads | d_model, n_layers, layer.mixer.n_heads |
| intermediate_size | layer.channels.d_ff |
| max_position_embeddings, type_vocab_size | max_length, segments |
| hidden_act gelu, gelu_new, relu … | layer.channels.activation |
| layer_norm_eps | layer.norm.eps |
| hidden_dropout_prob, attention_probs_dropout_prob | dropout, layer.mixer.dropout |

The tensors of a folder determine the task of the run:

| tensors | run |
|---|---|
| ``cls.predictions`` (BertForMaskedLM, BertForPreTraining) | task masked-language-modelling |
| ``cls.seq_relationship`` (BertForPreTraining) | its option next_sentence |
| a task head (`heedful.interop.bert_heads`) | its task |
| none of these (BertModel) | task masked-language-modelling, with an untrained head |

The tokenizer is converted too (`heedful.interop.wordpiece`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from heedful.errors import RequestError
from heedful.interop.bert_heads import HEADS, head_of
from heedful.interop.checkpoint import HARMLESS, Checkpoint, Settings
from heedful.interop.encoders import fresh, recipe_of, stack_of, written_stack
from heedful.interop.format import ExportedModel, ImportedModel
from heedful.interop.heads import Head
from heedful.interop.names import Numbering, Pair, Rows, Table, give, linear, pair, take
from heedful.interop.refusing import ALIKE, refuse_other_heads, refuse_others
from heedful.interop.wordpiece import read_wordpiece, write_wordpiece
from heedful.models.encoder import EncoderConfig
from heedful.runs.run import Run
from heedful.tasks.processor import TextProcessor
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

MASKED = "masked-language-modelling"
_OWN = "bert."

_HARMLESS = HARMLESS | {
    "pad_token_id", "bos_token_id", "eos_token_id", "directionality", "pooler_fc_size", "pooler_type",
    "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
}  # fmt: skip

# Architectures whose inputs or outputs match no task of heedful.
_UNSUPPORTED = {"BertForMultipleChoice", "BertForNextSentencePrediction", "BertLMHeadModel"}


def table(
    config: EncoderConfig, numbering: Numbering, heads: Collection[str], answering: Sequence[Pair] = ()
) -> Table:
    """Return the table of tensor names.

    Args:
        config: configuration of the model.
        numbering: numbering of the tokens.
        heads: which of ``pooled``, ``token`` and ``next`` exist on both sides; others stay unchanged.
        answering: rows for a task head.
    """
    rows, embeddings = Rows(numbering), f"{_OWN}embeddings"
    words = f"{embeddings}.word_embeddings.weight"
    pairs = [
        pair("embedding.weight", words, form=rows),
        pair("embedding.positions.positions.weight", f"{embeddings}.position_embeddings.weight"),
        pair("embedding.segments", f"{embeddings}.token_type_embeddings.weight"),
        *linear("embedding.norm", f"{embeddings}.LayerNorm"),
    ]
    for i in range(config.n_layers):
        pairs += _layer(f"stack.blocks.{i}", f"{_OWN}encoder.layer.{i}")
    copies: dict[str, str] = {}
    if "pooled" in heads:
        pairs += linear("heads.pooled.dense", f"{_OWN}pooler.dense")
    if "token" in heads:
        pairs += [
            *linear("heads.token.transform.0", "cls.predictions.transform.dense"),
            *linear("heads.token.transform.2", "cls.predictions.transform.LayerNorm"),
            pair("heads.token.out.bias", "cls.predictions.bias", form=rows),
        ]
        copies = {"cls.predictions.decoder.weight": words}
        copies["cls.predictions.decoder.bias"] = "cls.predictions.bias"
    if "next" in heads:
        pairs += linear("heads.next.1", "cls.seq_relationship")
    left = [rf"heads\.{name}\..*" for name in ("token", "boundary") if name not in heads]
    return Table([*pairs, *answering], copies, [r"bert\.embeddings\.position_ids"], _OWN, left)


def _layer(ours: str, theirs: str) -> list[Pair]:
    attention = f"{theirs}.attention"
    return [
        *linear(f"{ours}.mixer.part.qkv", *(f"{attention}.self.{x}" for x in ("query", "key", "value"))),
        *linear(f"{ours}.mixer.part.out", f"{attention}.output.dense"),
        *linear(f"{ours}.mixer.norm", f"{attention}.output.LayerNorm"),
        *linear(f"{ours}.feed_forward.part.up", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}.feed_forward.part.down", f"{theirs}.output.dense"),
        *linear(f"{ours}.feed_forward.norm", f"{theirs}.output.LayerNorm"),
    ]


class BERT:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "bert"
    loaders: ClassVar[dict[str, str]] = {
        MASKED: "transformers.AutoModelForMaskedLM",
        **{task: f"transformers.{head.architecture}" for task, head in HEADS.items()},
    }

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read a masked language model or a model with a task head."""
        settings, held = checkpoint.config, _modern_names(checkpoint.tensors())
        _check_settings(settings)
        head = head_of(settings, held)
        heads = _heads(held, head)
        config, notes = _configuration(settings, pooler="pooled" in heads)
        tokenizer, numbering = read_wordpiece(checkpoint, settings)
        plain, processor = _run_of(checkpoint, settings, config, tokenizer, head, heads)
        if not plain["task"].get("pairs", True):
            notes.append(
                "inputs are assumed to be single texts; if the model reads pairs, "
                'add "finetuning_task": "mrpc" to its config.json'
            )
        if head is None and "token" not in heads:
            notes.append(
                "the source has no head: the masked language model head is randomly initialised; use this "
                "run to start others from (start.run), not for predictions"
            )
        if unread := settings.unread(_HARMLESS):
            notes.append(f"{settings.source}: unknown keys, ignored: {', '.join(unread)}")
        notes.append(
            "<s> and </s> have no embedding in the source: they get the mean embedding, never generated"
        )
        model = fresh(plain, checkpoint, held, processor.sizes)
        lines = head.lines(processor) if head else []
        give(table(config, numbering, heads, lines), held, model, str(checkpoint.weights))
        return ImportedModel(plain, processor, model, notes)

    def write(self, run: Run) -> ExportedModel:
        """Return the model with its head and the tokenizer."""
        config: EncoderConfig = run.recipe.model
        head = HEADS.get(run.recipe.task.kind)
        heads = set() if head else {"token"} | ({"next"} & {*run.model.heads})
        _refuse(config, pooled=head.pooled if head else "next" in heads)
        heads |= {"pooled"} if config.pooler else set()
        tokenizer = run.processor.text
        files, numbering = write_wordpiece(tokenizer, config.max_length)
        written = _written(config, numbering) | (head.write(run) if head else {})
        masked = "BertForPreTraining" if "next" in heads else "BertForMaskedLM"
        written["architectures"] = [head.architecture if head else masked]
        notes = ["the embeddings of <s> and </s> are not exported: BERT has no such tokens"]
        if "boundary" in run.model.heads:
            notes.append("the span boundary head is not exported: transformers has none")
        lines = head.lines(run.processor) if head else []
        return ExportedModel(written, take(table(config, numbering, heads, lines), run.model), files, notes)


def _modern_names(held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with the names used for norms since 2019."""
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    found = {}
    for name, tensor in held.items():
        for before, now in old.items():
            name = name.removesuffix(before) + now if name.endswith(before) else name
        found[name] = tensor
    return found


def _heads(held: Collection[str], head: Head | None) -> set[str]:
    """Return heedful's names of the pretraining heads and the pooler in a folder."""
    signs = {
        "pooled": ("bert.pooler.", "pooler."),
        "token": ("cls.predictions.",),
        "next": ("cls.seq_relationship.",),
    }
    found = {name for name, begins in signs.items() if any(each.startswith(begins) for each in held)}
    if head:
        # A run with a task head has no other head; other tensors are then reported as unknown.
        found &= {"pooled"}
    # Heads that need the pooler: if it is missing, that is reported.
    return found | {"pooled"} if "next" in found or (head and head.pooled) else found


def _check_settings(settings: Settings) -> None:
    """Raise `RequestError` for a BERT that heedful does not support."""
    for architecture in settings.texts("architectures"):
        if architecture in _UNSUPPORTED:
            raise settings.wrong("architectures", f"{architecture}: this head is not supported")
    settings.refuse("is_decoder", "decoders are not supported, only bidirectional attention")
    settings.refuse("add_cross_attention", "cross-attention is not supported in encoders")
    settings.refuse("quantization_config", "quantised weights are not supported", (None,))
    settings.refuse(
        "tie_word_embeddings", "must be true: heedful's head shares the embedding weights", (None, True)
    )
    settings.refuse("position_embedding_type", "only absolute positions are supported", (None, "absolute"))


def _configuration(settings: Settings, *, pooler: bool) -> tuple[EncoderConfig, list[str]]:
    """Read the model configuration; return it with notes about differences."""
    dropout, notes = settings.rate("hidden_dropout_prob", 0.1), []
    if (last := settings.rate("classifier_dropout", dropout)) != dropout:
        notes.append(
            f"{settings.source}: classifier_dropout={last:g} differs from hidden_dropout_prob={dropout:g}; "
            "heedful uses the latter for both, which only affects training"
        )
    config = EncoderConfig(
        **stack_of(settings, 0.1),
        max_length=settings.whole("max_position_embeddings", 512),
        segments=settings.whole("type_vocab_size", 2),
        dropout=dropout,
        pooler=pooler,
    )
    return config, notes


def _run_of(
    checkpoint: Checkpoint,
    settings: Settings,
    config: EncoderConfig,
    tokenizer: Tokenizer,
    head: Head | None,
    heads: Collection[str],
) -> tuple[JsonObject, Any]:
    """Return recipe and processor of the run for a folder with these heads."""
    sections = {
        "tokenizer": {"subwords": tokenizer.model.config.model_dump(mode="json")},
        "model": config.model_dump(mode="json"),
    }
    if head is None:
        task: JsonObject = {"kind": MASKED, "next_sentence": "next" in heads}
        data: JsonObject = {"kind": "text", "paths": "{}.txt"}
        return recipe_of("A BERT", checkpoint, task, data, **sections), TextProcessor(tokenizer)
    found = head.read(settings, tokenizer)
    data = {"kind": "jsonl", "paths": "{}.jsonl", "columns": {column: column for column in found.columns}}
    return recipe_of("A BERT", checkpoint, found.task, data, **sections, **found.sections), found.processor


def _refuse(config: Any, *, pooled: bool) -> None:
    """Check that BERT supports the model.

    Args:
        config: configuration of the model.
        pooled: whether a head reads the pooled vector.

    Raises:
        RequestError: it does not; the message names the key.
    """
    others = {
        "kind": ("encoder", "its attention is bidirectional"),
        **ALIKE,
        "layer.norm_placement": ("post", "its norms follow the residual sums (post-norm)"),
        "layer.mixer.score.kind": ("scaled-dot", "it uses scaled dot-product attention"),
        "positions.kind": ("learned", "its positions are learned"),
        "embedding_norm": (True, "it normalises embeddings"),
        "pooling": ("first", "it pools by the first token"),
    }
    if pooled:
        others["pooler"] = (True, "it classifies through a pooler with tanh")
    if config.scale_embedding:
        raise RequestError("model.scale_embedding=true: not supported by BERT: it does not scale embeddings")
    refuse_others(config, "BERT", others)
    refuse_other_heads(config, "BERT")
    if not config.segments:
        raise RequestError(
            "model.segments=0: not supported by BERT: it adds a segment embedding to every token"
        )


def _written(config: EncoderConfig, numbering: Numbering) -> JsonObject:
    """Return the content of config.json."""
    return {
        "model_type": "bert",
        "vocab_size": len(numbering.ours),
        **written_stack(config),
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.segments,
        "position_embedding_type": "absolute",
        "pad_token_id": numbering.theirs[SPECIALS.pad],
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
