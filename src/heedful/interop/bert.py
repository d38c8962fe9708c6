"""BERT (Devlin et al. 2019) from and to the folders of transformers.

| config.json | heedful's ``model`` |
|---|---|
| hidden_size, num_hidden_layers, num_attention_heads | d_model, n_layers, n_heads |
| intermediate_size, max_position_embeddings, type_vocab_size | d_ff, max_length, segments |
| hidden_act gelu, gelu_new, relu … | activation |
| layer_norm_eps | norm_eps |
| hidden_dropout_prob, attention_probs_dropout_prob | dropout, attention_dropout |

What a folder becomes follows from its tensors:

| there | here |
|---|---|
| ``cls.predictions`` (BertForMaskedLM, BertForPreTraining) | task masked-language-modelling |
| ``cls.seq_relationship`` (BertForPreTraining) | its option next_sentence |
| ``classifier`` (BertForSequenceClassification) | task classification, its labels those of id2label |
| none of these (BertModel) | task masked-language-modelling, its head untrained |

The tokenizer travels along (`heedful.interop.wordpiece`).
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from heedful.errors import RequestError
from heedful.interop.activations import ACTIVATIONS, WRITTEN
from heedful.interop.checkpoint import HARMLESS, Checkpoint, Settings
from heedful.interop.encoders import (
    epsilon_of,
    fresh,
    labels_of,
    recipe_of,
    sizes_of,
    written_labels,
    written_sizes,
)
from heedful.interop.format import Found, Written
from heedful.interop.names import Numbering, Pair, Rows, Table, give, linear, pair, take
from heedful.interop.refusing import refuse_other_heads, refuse_others
from heedful.interop.wordpiece import read_wordpiece, write_wordpiece
from heedful.models.encoder import EncoderConfig
from heedful.runs.run import Run
from heedful.tasks.classification import LabelCodec
from heedful.tasks.language_modelling import TextCodec
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

MASKED, CLASSES = "masked-language-modelling", "classification"
_OWN = "bert."

_HARMLESS = HARMLESS | {
    "pad_token_id", "bos_token_id", "eos_token_id", "directionality", "pooler_fc_size", "pooler_type",
    "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
}  # fmt: skip

# Those whose tensors have the names of a classifier of sequences, and mean something else.
_OTHERS = {"BertForTokenClassification", "BertForMultipleChoice", "BertForQuestionAnswering"}
_OTHERS |= {"BertForNextSentencePrediction", "BertLMHeadModel"}

# Data sets of pairs (GLUE): whoever fine-tuned on one has often written its name down.
_PAIRS = {"mnli", "mrpc", "qnli", "qqp", "rte", "snli", "wnli"}


def table(config: EncoderConfig, numbering: Numbering, heads: Collection[str]) -> Table:
    """The names of all tensors.

    Args:
        config: of the model.
        numbering: of the tokens.
        heads: the names of those that there are on both sides; others stay as they are.
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
    if "class" in heads:
        pairs += linear("heads.class.1", "classifier")
    left = [rf"heads\.{name}\..*" for name in ("token", "boundary") if name not in heads]
    return Table(pairs, copies, [r"bert\.embeddings\.position_ids"], _OWN, left)


def _layer(ours: str, theirs: str) -> list[Pair]:
    attention = f"{theirs}.attention"
    return [
        *linear(f"{ours}.mixing.part.qkv", *(f"{attention}.self.{x}" for x in ("query", "key", "value"))),
        *linear(f"{ours}.mixing.part.out", f"{attention}.output.dense"),
        *linear(f"{ours}.mixing.norm", f"{attention}.output.LayerNorm"),
        *linear(f"{ours}.feed_forward.part.up", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}.feed_forward.part.down", f"{theirs}.output.dense"),
        *linear(f"{ours}.feed_forward.norm", f"{theirs}.output.LayerNorm"),
    ]


class BERT:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "bert"
    loaders: ClassVar[dict[str, str]] = {
        MASKED: "transformers.AutoModelForMaskedLM",
        CLASSES: "transformers.AutoModelForSequenceClassification",
    }

    def read(self, checkpoint: Checkpoint) -> Found:
        """A run that fills gaps, or one that labels."""
        settings, held = checkpoint.config, _today(checkpoint.tensors())
        _refuse_others(settings)
        heads = _heads(held)
        config, notes = _configuration(settings, pooler="pooled" in heads)
        tokenizer, numbering = read_wordpiece(checkpoint, settings)
        plain, codec = _run_of(checkpoint, settings, config, tokenizer, heads)
        if "class" in heads and not plain["task"]["pairs"]:
            notes.append("inputs are single texts: nothing in the source says that they are pairs")
        if not heads & {"token", "class"}:
            notes.append(
                "the source has no head: that for hidden tokens begins afresh, so this run is one to start "
                "others from (start.run), and fills gaps by chance"
            )
        if unread := settings.unread(_HARMLESS):
            notes.append(f"{settings.source}: keys that heedful does not know: {', '.join(unread)}")
        notes.append("<s> and </s> have no row in the source: they got its mean, and are never written")
        model = fresh(plain, checkpoint, codec.sizes)
        give(table(config, numbering, heads), held, model, str(checkpoint.weights))
        return Found(plain, codec, model, notes)

    def write(self, run: Run) -> Written:
        """BertForMaskedLM, BertForPreTraining or BertForSequenceClassification, with the tokenizer."""
        recipe = run.recipe
        config: EncoderConfig = recipe.model
        classifies = recipe.task.kind == CLASSES
        _refuse(config, pooled=classifies or "next" in run.model.heads)
        tokenizer = run.codec.tokenizer if classifies else run.codec.text
        files, numbering = write_wordpiece(tokenizer, config.max_length)
        heads = {"class", "pooled"} if classifies else {"token"}
        heads |= {"pooled"} if config.pooler else set()
        heads |= {"next"} & {*run.model.heads}
        written = _written(config, numbering)
        if classifies:
            # transformers has no key for this one.
            own = {"task_specific_params": {"heedful": {"pairs": recipe.task.pairs}}}
            written |= {**written_labels(run.codec.labels), **own}
        written["architectures"] = [_architecture(heads)]
        notes = ["the rows of <s> and </s> stay behind: BERT has no such tokens"]
        if "boundary" in run.model.heads:
            notes.append("the head of the spans' boundaries stays behind: transformers has none")
        return Written(written, take(table(config, numbering, heads), run.model), files, notes)


def _architecture(heads: Collection[str]) -> str:
    kind = "SequenceClassification" if "class" in heads else "PreTraining" if "next" in heads else "MaskedLM"
    return f"BertFor{kind}"


def _today(held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with the names that norms have had since 2019."""
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    found = {}
    for name, tensor in held.items():
        for before, now in old.items():
            name = name.removesuffix(before) + now if name.endswith(before) else name
        found[name] = tensor
    return found


def _heads(held: Collection[str]) -> set[str]:
    """heedful's names of the heads that a file has."""
    signs = {
        "pooled": ("bert.pooler.", "pooler."),
        "token": ("cls.predictions.",),
        "next": ("cls.seq_relationship.",),
        "class": ("classifier.",),
    }
    found = {head for head, begins in signs.items() if any(name.startswith(begins) for name in held)}
    if "class" in found:
        # A classifier's run has no other head: what else there is, is told as unknown.
        found = {"class"}
    # These stand on the pooled vector: where it is missing, that is told.
    return found | {"pooled"} if found & {"next", "class"} else found


def _refuse_others(settings: Settings) -> None:
    """Refuse a BERT that computes something else than heedful's tasks."""
    for architecture in settings.get("architectures", list, []):
        if architecture in _OTHERS:
            raise settings.wrong("architectures", f"{architecture}: heads of this kind are not imported")
    settings.refuse("is_decoder", "heedful's BERT sees the whole sequence")
    settings.refuse("add_cross_attention", "heedful's encoders read no second sequence")
    settings.refuse("quantization_config", "quantised weights are not read", (None,))
    settings.refuse("tie_word_embeddings", "heedful's head shares the embedding's table", (None, True))
    settings.refuse("position_embedding_type", "heedful adds positions to embeddings", (None, "absolute"))


def _configuration(settings: Settings, *, pooler: bool) -> tuple[EncoderConfig, list[str]]:
    """The model that a configuration describes, and what is lost of it."""
    dropout, notes = settings.rate("hidden_dropout_prob", 0.1), []
    if (last := settings.rate("classifier_dropout", dropout)) != dropout:
        notes.append(
            f"{settings.source}: classifier_dropout={last:g} is not hidden_dropout_prob={dropout:g}; heedful "
            "drops out both at the latter's rate, which matters to training alone"
        )
    config = EncoderConfig(
        **sizes_of(settings),  # type: ignore[arg-type]
        max_length=settings.whole("max_position_embeddings", 512),
        segments=settings.whole("type_vocab_size", 2),
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        norm_eps=epsilon_of(settings),
        dropout=dropout,
        attention_dropout=settings.rate("attention_probs_dropout_prob", 0.1),
        pooler=pooler,
    )
    return config, notes


def _run_of(
    checkpoint: Checkpoint,
    settings: Settings,
    config: EncoderConfig,
    tokenizer: Tokenizer,
    heads: Collection[str],
) -> tuple[dict[str, Any], TextCodec | LabelCodec]:
    """The recipe and the codec of the run that a folder with these heads becomes."""
    sections = {
        "tokenizer": {"subwords": tokenizer.model.config.model_dump(mode="json")},
        "model": config.model_dump(mode="json"),
    }
    if "class" not in heads:
        task: dict[str, Any] = {"kind": MASKED, "next_sentence": "next" in heads}
        data: dict[str, Any] = {"kind": "text", "paths": "{}.txt"}
        return recipe_of("A BERT", checkpoint, task, data, **sections), TextCodec(tokenizer)
    labels, pairs = labels_of(settings), _reads_pairs(settings)
    columns = ("text", "pair", "label") if pairs else ("text", "label")
    task = {"kind": CLASSES, "pairs": pairs, "labels": list(labels)}
    data = {"kind": "jsonl", "paths": "{}.jsonl", "columns": {column: column for column in columns}}
    return recipe_of("A BERT", checkpoint, task, data, **sections), LabelCodec(tokenizer, labels)


def _reads_pairs(settings: Settings) -> bool:
    """Whether inputs are pairs, as far as the configuration tells."""
    own = settings.get("task_specific_params", dict, {}).get("heedful", {})
    name = settings.get("finetuning_task", str, "")
    return bool(isinstance(own, dict) and own.get("pairs")) or name.lower() in _PAIRS


def _refuse(config: Any, *, pooled: bool) -> None:
    """Refuse what BERT has not.

    Args:
        config: of the model.
        pooled: whether a head stands on the vector of the sequence.

    Raises:
        RequestError: naming the key.
    """
    others = {
        "mixer": ("attention", "it mixes by attention"),
        "norm": ("layer", "its norms are layer norms"),
        "norm_placement": ("post", "its norms come after the sums"),
        "positions": ("learned", "its positions are learned"),
        "embedding_norm": (True, "it normalises embeddings"),
        "pooling": ("first", "it takes the first token's vector for the sequence"),
        "score": ("scaled-dot", "it scales the products of queries and keys"),
        "attention_bias": (True, "its attention has biases"),
        "feed_forward": ("plain", "its feed-forwards are not gated"),
        "feed_forward_bias": (True, "its feed-forwards have biases"),
    }
    if pooled:
        others["pooler"] = (True, "it classifies through a layer with tanh")
    refuse_others(config, "BERT", others)
    refuse_other_heads(config, "BERT")
    if not config.segments:
        raise RequestError("model.segments=0: BERT adds a vector of the segment to every token")


def _written(config: EncoderConfig, numbering: Numbering) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "model_type": "bert",
        "vocab_size": len(numbering.ours),
        **written_sizes(config),
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.segments,
        "hidden_act": WRITTEN[config.activation],
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "position_embedding_type": "absolute",
        "pad_token_id": numbering.theirs[SPECIALS.pad],
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
