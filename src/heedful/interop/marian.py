"""Convert Marian's Transformer (Junczys-Dowmunt et al. 2018) from and to folders of transformers.

`heedful.interop.marian_config` converts configurations. Tokenizers are Marian's own
(`heedful.interop.sentencepieces`), or heedful's, which `Marian.write` exports for runs trained by heedful;
`load_weights` reads the weights of any folder.
"""

import json
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.interop.checkpoint import HARMLESS, Checkpoint, Settings
from heedful.interop.format import ExportedModel, ImportedModel
from heedful.interop.halves import in_halves
from heedful.interop.marian_config import (
    BIAS,
    configuration,
    generation,
    refuse,
    sizes_of,
    specials_of,
    written,
)
from heedful.interop.names import Numbering, Pair, Rows, Table, give, linear, pair, take
from heedful.interop.own_tokenizers import write_same_ids
from heedful.interop.sentencepieces import (
    UNKNOWN,
    VOCABULARY,
    Numberings,
    has_sentencepieces,
    numbering,
    read_sentencepieces,
    write_sentencepieces,
)
from heedful.models.positions import SinusoidalConfig
from heedful.models.transformer import TransformerConfig, build
from heedful.runs.run import Run
from heedful.tasks.source_target import COLUMNS, SOURCE, TARGET, Tokenizers
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

_OWN, _HEAD = "model.", "lm_head.weight"
GENERATION = "generation_config.json"
OWN_TOKENIZERS = [f"{side}.tokenizer.json" for side in COLUMNS]

_HARMLESS = HARMLESS | {
    "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout", "num_hidden_layers",
    "extra_pos_embeddings", "add_bias_logits",
    "force_bos_token_to_be_generated", "bos_token_id",
}  # fmt: skip


def table(config: TransformerConfig, numberings: Numberings) -> Table:
    """Return the names of all tensors."""
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
        *linear(f"{ours}.mixer.part.qkv", *(f"{own}.{x}_proj" for x in "qkv")),
        *linear(f"{ours}.mixer.part.out", f"{own}.out_proj"),
        *linear(f"{ours}.mixer.norm", f"{own}_layer_norm"),
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
    """Load the model of a folder, with any tokenizers, and the numberings of its ids.

    Raises:
        RequestError: if heedful does not support the model.
        DamagedError: if a file is damaged.
    """
    checkpoint = Checkpoint(Path(folder))
    settings = checkpoint.config
    settings.refuse("model_type", "expected 'marian'", ("marian",))
    unknown = None
    if checkpoint.has(VOCABULARY):
        unknown = Settings(checkpoint.json(VOCABULARY), str(checkpoint.path / VOCABULARY)).get(UNKNOWN, int)
    config, held = configuration(settings, checkpoint)
    sizes = sizes_of(settings)
    numberings = Numberings(*(numbering(settings, size, unknown) for size in sizes))
    return _model(config, numberings, held, checkpoint), numberings


class Marian:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "marian"
    loaders: ClassVar[dict[str, str]] = {"translation": "transformers.MarianMTModel"}

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Return a translation run."""
        settings = checkpoint.config
        config, held = configuration(settings, checkpoint)
        sizes = sizes_of(settings)
        if all(checkpoint.has(name) for name in OWN_TOKENIZERS):
            processor, numberings = _own(checkpoint, settings, sizes)
        else:
            processor, numberings = read_sentencepieces(checkpoint, settings, sizes)
        model = _model(config, numberings, held, checkpoint)
        unread = settings.unread(_HARMLESS)
        told = [f"{settings.source}: unknown keys, ignored: {', '.join(unread)}"] if unread else []
        if any(their is None for their in numberings.target.theirs):
            told.append(
                "special tokens that the source lacks have the mean of its rows, and are never generated"
            )
        return ImportedModel(_recipe(checkpoint, config, processor), processor, model, told)

    def write(self, run: Run) -> ExportedModel:
        """Return a MarianMTModel with its own tokenizers, or with heedful's."""
        config: TransformerConfig = run.recipe.model
        refuse(config)
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
            files, told = _write_own(run, config.max_length)
            notes.append(told)
        tensors = take(table(config, numberings), model)
        tensors.setdefault(BIAS, torch.zeros(1, len(numberings.target.ours)))
        specials = specials_of(numberings.target)
        files[GENERATION] = json.dumps(generation(numberings.target, specials), indent=2) + "\n"
        return ExportedModel(written(config, numberings, specials), tensors, files, notes)


def _model(
    config: TransformerConfig, numberings: Numberings, held: dict[str, Tensor], checkpoint: Checkpoint
) -> nn.Module:
    try:
        sizes = len(numberings.source.theirs), len(numberings.target.theirs)
        model = checkpoint.model_of(held, lambda: build(config, *sizes))
    except ValueError as error:
        raise RequestError(f"{checkpoint.path}: {error}") from None
    give(table(config, numberings), held, model, str(checkpoint.weights))
    return model


def _own(checkpoint: Checkpoint, settings: Settings, sizes: tuple[int, int]) -> tuple[Tokenizers, Numberings]:
    """Read heedful's tokenizers, whose ids are those of the model."""
    processor = Tokenizers(*(Tokenizer.load(checkpoint.file(name)) for name in OWN_TOKENIZERS))
    if processor.sizes != sizes:
        raise settings.wrong(
            "vocab_size", f"{sizes[0]} and {sizes[1]} tokens, but the tokenizers have {processor.sizes[0]} "
            f"and {processor.sizes[1]}: they belong to different models"
        )  # fmt: skip
    own = {"decoder_start_token_id": SPECIALS.start, "eos_token_id": SPECIALS.end}
    for key, ours in own.items():
        if (found := settings.get(key, int)) != ours:
            raise settings.wrong(key, f"must be {ours} with heedful's tokenizers, got {found}")
    settings.get("pad_token_id", int)
    return processor, Numberings(*(Numbering(tuple(range(size))) for size in sizes))


def _write_own(run: Run, longest: int) -> tuple[dict[str, str | bytes], str]:
    """Return the files of heedful's tokenizers, in both formats, and a note for the user."""
    processor = run.processor
    sides = zip(OWN_TOKENIZERS, COLUMNS, strict=True)
    files: dict[str, str | bytes] = {
        name: run.folder.tokenizer(side).read_text("utf-8") for name, side in sides
    }
    try:
        written = {
            side: write_same_ids(getattr(processor, side), longest, f"tokenizer.{side}") for side in COLUMNS
        }
    except RequestError as error:
        return files, f"the tokenizers cannot be exported, so transformers needs ids as input ({error})"
    if processor.source.fingerprint == processor.target.fingerprint:
        return files | written[SOURCE], "AutoTokenizer encodes both sides with the same ids as heedful"
    files |= {f"{side}/{name}": content for side, each in written.items() for name, content in each.items()}
    return files, (
        "each side has its own tokenizer, with the same ids as heedful: load AutoTokenizer from the folders "
        f"{SOURCE} and {TARGET}"
    )


def _recipe(checkpoint: Checkpoint, config: TransformerConfig, processor: Tokenizers) -> JsonObject:
    name = checkpoint.path.resolve().name
    sides = {side: getattr(processor, side) for side in COLUMNS}
    return {
        "description": f"A Marian model, imported from the folder {name}. It was not trained on these data: "
        "replace them by your own to train it further.",
        "task": {"kind": "translation"},
        "data": {
            part: {"kind": "files", "columns": {side: f"{part}.{side}" for side in COLUMNS}}
            for part in ("train", "valid")
        },
        "tokenizer": {
            "subwords": processor.source.model.config.model_dump(mode="json"),
            "shared": processor.source.same_pieces_as(processor.target),
            **{side: each.preprocessing.model_dump(mode="json") for side, each in sides.items()},
        },
        "model": config.model_dump(mode="json"),
        "training": {"max_updates": 1000},
    }
