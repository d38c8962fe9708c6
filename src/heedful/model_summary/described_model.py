"""Find what to describe: a configuration, a preset, a recipe or a run, as a model on the meta device."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import RequestError, nearest
from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import class_head
from heedful.models.recurrent import RecurrentDecoderConfig
from heedful.models.recurrent_captioner import RecurrentCaptionerConfig
from heedful.models.registry import CLASSES, PRESETS, SIZES, VOCABULARIES, AnyConfig
from heedful.models.resnet import ResNetConfig
from heedful.models.vision import VisionConfig
from heedful.recipes.resolve import Overrides, is_recipe_file, overrides_tree, shipped_recipes
from heedful.recipes.schema import Recipe
from heedful.recipes.settings import plain
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import show
from heedful.runs.building import Vocabularies, assemble, configured, on_device
from heedful.runs.reading import read_recipe, saved_recipe
from heedful.text.configuration import TokenizerConfig
from heedful.text.specials import SPECIALS

VOCABULARY = 37_000  # the paper's English-German base model
_BYTES = 256


@dataclass(frozen=True)
class RequestedSizes:
    """Requested sizes that the data would otherwise determine.

    Args:
        vocabularies: sizes of the vocabularies.
        n_classes: number of classes of a classification head; 0: no head.
    """

    vocabularies: Vocabularies = field(default_factory=Vocabularies)
    n_classes: int | None = None

    def __bool__(self) -> bool:
        return self.n_classes is not None or any(vars(self.vocabularies).values())


@dataclass(frozen=True)
class Extent:
    """Sizes that a summary counts for; None: those of the training, or of the model's configuration.

    Args:
        length: tokens of a target sentence.
        source_length: tokens of a source sentence.
        tokens: target tokens of a batch, for memory.
    """

    length: int | None = None
    source_length: int | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class DescribedModel:
    """A model to describe, and where it comes from.

    Args:
        name: the requested name.
        model: the model on the meta device.
        notes: assumptions.
        recipe: the recipe, if there is one.
        sizes: of the vocabularies, and other sizes that the data determine.
        sizes_fixed: whether the sizes were requested or come from a run; otherwise the data determine them.
        length: tokens of an input, if the configuration fixes them.
        source_length: tokens of a source, if the configuration fixes them.
    """

    name: str
    model: nn.Module
    notes: tuple[str, ...] = ()
    recipe: Recipe | None = None
    sizes: tuple[int, ...] = ()
    sizes_fixed: bool = False
    length: int | None = None
    source_length: int | None = None


def find_model(source: object, requested: RequestedSizes, overrides: Overrides = ()) -> DescribedModel:
    """Find a model by name: presets first, then runs, then recipes.

    Args:
        source: a configuration, a name or path, or the settings of a recipe.
        requested: requested sizes.
        overrides: ``key=value`` texts, or one layer; keys of the model (``n_layers``) for a preset or
            configuration, keys of the recipe (``model.n_layers``) for a recipe or run; and ``vocab_size``,
            ``source_vocab``, ``target_vocab`` or ``n_classes`` for all.

    Raises:
        RequestError: if nothing has this name, or an override is invalid.
    """
    requested, other_overrides = _split_sizes(requested, overrides_tree(overrides))
    if isinstance(source, Mapping):
        settings = Tree.of(plain(source, "recipe"), Mark("recipe"))
        return from_recipe("recipe", read_recipe(settings, other_overrides)[0], requested)
    if not isinstance(source, str | Path):
        if not isinstance(source, AnyConfig):
            raise RequestError(
                "expected a module, a run, a model's configuration, a recipe's settings, or the name of a "
                f"preset, recipe or run, got {type(source).__name__}"
            )
        return _from_config(source, type(source).__name__, requested, other_overrides)
    name = str(source)
    if name in PRESETS:
        return _from_config(name, name, requested, other_overrides)
    if Path(name).is_dir():
        return _from_run(Path(name), requested, other_overrides)
    recipes = shipped_recipes()
    if name in recipes or "/" in name or is_recipe_file(name):
        recipe = read_recipe(name, other_overrides)[0]
        # The measured number is for the recipe without overrides.
        return from_recipe(
            name, recipe, requested, measured=None if other_overrides.value else recipe.expected.parameters
        )
    names = [*PRESETS, *recipes]
    raise RequestError(
        f"unknown model, recipe or run {name!r}{nearest(name, names)}; the models are "
        f"{', '.join(PRESETS)}; the recipes are {', '.join(recipes) or 'none'}"
    )


def _split_sizes(requested: RequestedSizes, overrides: Tree) -> tuple[RequestedSizes, Tree]:
    """Return the sizes among the overrides, and the other overrides."""
    other_overrides = {}
    for key, item in overrides.value.items():
        if key not in {"vocab_size", "source_vocab", "target_vocab", "n_classes"}:
            other_overrides[key] = item
            continue
        minimum, value = 0 if key == "n_classes" else 1, item.data
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise RequestError(
                f"{item.mark}: {key}={show(value)}: expected a whole number of at least {minimum}"
            )
        if key == "n_classes":
            requested = replace(requested, n_classes=value)
        else:
            vocabularies = replace(requested.vocabularies, **{key: value})
            requested = replace(requested, vocabularies=vocabularies)
    return requested, replace(overrides, value=other_overrides)


def _from_config(
    source: str | AnyConfig, name: str, requested: RequestedSizes, overrides: Tree
) -> DescribedModel:
    """Sizes that are not requested are those of the preset with this name."""
    config = configured(source, Tree({"model": overrides} if overrides.value else {}, overrides.mark))
    sizes, origin = _vocabularies(config.kind, name, requested.vocabularies)
    model = assemble(config, *sizes, device="meta")
    n_classes = CLASSES.get(name, 0) if requested.n_classes is None else requested.n_classes
    if requested.n_classes is not None and "pooled" not in model.heads:
        raise RequestError(f"n_classes: not supported by a {config.kind} model: it generates tokens")
    notes = [*_notes(config, sizes, origin)]
    if n_classes:
        assert not isinstance(config, RecurrentDecoderConfig)  # it has no head "pooled"
        model.heads["class"] = on_device("meta", class_head, config.d_model, n_classes, config.dropout)
        explanation = (
            "" if requested.n_classes else ", the preset's; change them with n_classes=… (0: no head)"
        )
        notes.append(f"a head for {n_classes:,} classes{explanation}")
    length = getattr(config, "context", None) if sizes else getattr(config, "n_tokens", None)
    return DescribedModel(name, model, notes=tuple(notes), length=length, source_length=_patches(config))


def _vocabularies(kind: str, name: str, requested: Vocabularies) -> tuple[tuple[int, ...], str]:
    """Return the sizes of the vocabularies, and a note on the source of sizes that were not requested."""
    preset = VOCABULARIES.get(name, ())
    if size := requested.source_vocab or requested.target_vocab:
        return requested.sizes(kind, [size]), ""
    of_preset = bool(preset) and len(preset) == len(SIZES[kind])
    sizes = requested.sizes(kind, preset if of_preset else [VOCABULARY])
    if requested.complete(kind):
        return sizes, ""
    origin = "the preset's" if of_preset else "by default"
    return sizes, f", {origin}; change it with vocab_size=…"


def _notes(config: AnyConfig, sizes: tuple[int, ...], origin: str) -> Iterator[str]:
    """Yield the assumptions about texts and images."""
    patches = _patches(config)
    if sizes:
        source, target = sizes[0], sizes[-1]
        sizes_note = (
            f"V = {target:,}" if source == target else f"V = {source:,} (source) and {target:,} (target)"
        )
        yield sizes_note + origin
    if patches is not None:
        unit = "patches" if getattr(config, "reads_patches", False) else "cells"
        yield f"an image becomes {patches} {unit}: they are the source tokens"
    elif isinstance(config, VisionConfig | ResNetConfig):
        yield f"an image becomes {config.n_tokens} tokens"


def _patches(config: object) -> int | None:
    """Return the number of source tokens of a captioner; None for other models."""
    return config.n_tokens if isinstance(config, CaptionerConfig | RecurrentCaptionerConfig) else None


def from_recipe(
    name: str,
    recipe: Recipe,
    requested: RequestedSizes,
    trained_sizes: tuple[int, ...] | None = None,
    measured: int | None = None,
) -> DescribedModel:
    """Return the model of a recipe.

    Args:
        name: the requested name.
        recipe: the recipe.
        requested: requested sizes.
        trained_sizes: the sizes of a trained processor.
        measured: number of parameters with the recipe's own data.
    """
    from heedful.tasks.registry import task_for

    family, task = recipe.model.kind, task_for(recipe)
    tokenizer = getattr(recipe, "tokenizer", None)
    size, assumption = _expected_vocabulary(tokenizer.subwords) if tokenizer else (VOCABULARY, "")
    n_vocabularies = len(SIZES[family])
    defaults = trained_sizes[:n_vocabularies] if trained_sizes and n_vocabularies else [size]
    entries = requested.vocabularies.sizes(family, defaults)
    expected = task.expected_sizes(entries)
    sizes = (*entries, *trained_sizes[n_vocabularies:])[: len(expected)] if trained_sizes else expected
    notes = []
    if len(expected) > n_vocabularies:
        sizes, class_counts = _classes(recipe, sizes, requested.n_classes, trained_sizes is not None)
        notes.append(class_counts)
    elif requested.n_classes is not None:
        raise RequestError(f"n_classes: {recipe.task.kind} has no classes")
    model = on_device("meta", task.build_model, sizes)
    origin = "" if trained_sizes or requested.vocabularies.complete(family) else assumption
    notes = [*_notes(recipe.model, entries, origin), *notes]
    if measured is not None and trained_sizes is None and not requested:
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        if n_parameters != measured:
            notes.append(
                f"with its own data it has {measured:,} parameters, as measured; the {n_parameters:,} here "
                "depend on the assumptions above (describe --time reads the data, if they are available)"
            )
    return DescribedModel(
        name,
        model,
        notes=tuple(notes),
        recipe=recipe,
        sizes=sizes,
        sizes_fixed=trained_sizes is not None or bool(requested),
        length=None if entries else recipe.model.n_tokens,
        source_length=_patches(recipe.model),
    )


def _classes(
    recipe: Recipe, sizes: tuple[int, ...], requested: int | None, is_trained: bool
) -> tuple[tuple[int, ...], str]:
    """Return the sizes with the requested number of classes, if any, and a note on its source."""
    if requested == 0:
        raise RequestError("n_classes=0: the model of a recipe always has a head")
    if requested is not None:
        return (*sizes[:-1], requested), f"{requested:,} classes"
    if is_trained:
        return sizes, f"{sizes[-1]:,} classes"
    if getattr(recipe.task, "labels", None):
        return sizes, f"{sizes[-1]:,} classes: task.labels"
    return sizes, f"{sizes[-1]:,} classes, assumed: the data determine them; change them with n_classes=…"


def _from_run(path: Path, requested: RequestedSizes, overrides: Tree) -> DescribedModel:
    from heedful.tasks.registry import task_class

    folder = RunFolder(path)
    recipe = saved_recipe(folder, overrides)
    processor = task_class(recipe.task.kind).Processor
    trained_sizes = processor.load(folder).sizes if processor.files(folder)[-1].is_file() else None
    return from_recipe(str(path), recipe, requested, trained_sizes)


def _expected_vocabulary(subwords: TokenizerConfig) -> tuple[int, str]:
    """Return the expected vocabulary size of an untrained tokenizer, and a note on its source."""
    size, merges = getattr(subwords, "vocab_size", None), getattr(subwords, "merges", None)
    if size is not None:
        return size, ", from the recipe; less if the text has fewer pieces"
    if subwords.kind == "byte":
        return _BYTES + len(SPECIALS), ""
    if merges is not None:
        learned = merges + len(SPECIALS)
        if subwords.kind == "byte-bpe":
            return learned + _BYTES, ", from the recipe"
        spare = _BYTES if getattr(subwords, "byte_fallback", False) else 0
        return learned + spare, ", without the characters of the text, which are unknown before training"
    return (
        VOCABULARY,
        ", assumed: it is known after the tokenizer is trained; change it with vocab_size=…",
    )
