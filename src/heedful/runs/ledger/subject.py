"""What is to be described: a configuration, a preset, a recipe or a run, as a model on the meta device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from heedful.config import Config
from heedful.errors import RequestError, nearest
from heedful.models.captioner import CaptionerConfig
from heedful.models.registry import PRESETS, SIZES
from heedful.nn.convolutional import StandardisedConvolution
from heedful.runs.building import Vocabularies, assemble, configured, on_device
from heedful.runs.folder import RunFolder
from heedful.runs.reading import read_recipe, recipe_from
from heedful.runs.recipe import Recipe
from heedful.runs.resolve import SUFFIXES, overrides_tree, parse_override, shipped_recipes
from heedful.text.specials import SPECIALS

VOCABULARY = 37_000  # of the paper's English-German base model
_BYTES = 256


@dataclass(frozen=True)
class Subject:
    """What was found.

    Args:
        name: what was asked for.
        model: on the meta device.
        tokens, chunk: of the recipe, where there is one.
        notes: what was assumed.
        recipe: where there is one.
        sizes: of the vocabularies, and of what else the data decide.
        sizes_given: whether they were asked for, or are those of a run; else the data will tell better.
        length: tokens of what it reads, where the configuration says.
        source_length: tokens of a source, where the configuration says how many there are.
    """

    name: str
    model: nn.Module
    tokens: int | None = None
    chunk: int | None = None
    notes: tuple[str, ...] = ()
    recipe: Recipe | None = None
    sizes: tuple[int, ...] = ()
    sizes_given: bool = False
    length: int | None = None
    source_length: int | None = None

    def with_sizes(self, sizes: tuple[int, ...]) -> "Subject":
        """The same recipe, where its data were read: what they decide is known."""
        assert self.recipe is not None
        return _of_recipe(self.name, self.recipe, Vocabularies(), sizes)


def subject(what: Any, vocabularies: Vocabularies, overrides: Sequence[str] = ()) -> Subject:
    """Find what ``what`` names: presets first, then runs, then recipes.

    Args:
        what: a configuration, or a name or path.
        vocabularies: sizes that were asked for.
        overrides: ``key=value``; keys of the model (``n_heads``) for a preset or configuration, of the
            recipe (``model.n_heads``) for a recipe or run; and ``vocab_size``, ``source_vocab`` or
            ``target_vocab`` for all.

    Raises:
        RequestError: there is no such thing, or an override is wrong.
    """
    vocabularies, rest = _split(vocabularies, overrides)
    if not isinstance(what, str | Path):
        if not isinstance(what, Config):
            raise RequestError(
                "expected a module, a run, a model's configuration, or the name of a preset, recipe or run, "
                f"got {type(what).__name__}"
            )
        return _of_config(what, type(what).__name__, vocabularies, rest)
    name = str(what)
    if name in PRESETS:
        return _of_config(name, name, vocabularies, rest)
    if Path(name).is_dir():
        return _of_run(Path(name), vocabularies, rest)
    recipes = shipped_recipes()
    if name in recipes or "/" in name or name.endswith(SUFFIXES):
        return _of_recipe(name, read_recipe(name, rest)[0], vocabularies)
    known = [*PRESETS, *recipes]
    raise RequestError(
        f"no model, recipe or run is called {name!r}{nearest(name, known)}; the models are "
        f"{', '.join(PRESETS)}; the recipes are {', '.join(recipes) or 'none'}"
    )


def _split(vocabularies: Vocabularies, overrides: Sequence[str]) -> tuple[Vocabularies, list[str]]:
    """Sizes of vocabularies among the overrides, and the other overrides."""
    rest = []
    for text in overrides:
        path, value = parse_override(text)
        if path not in {("vocab_size",), ("source_vocab",), ("target_vocab",)}:
            rest.append(text)
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RequestError(f"on the command line: {text}: expected a whole number of at least 1")
        else:
            vocabularies = replace(vocabularies, **{str(path[0]): value})
    return vocabularies, rest


def _of_config(config: Any, name: str, vocabularies: Vocabularies, overrides: Sequence[str]) -> Subject:
    config = configured(config, overrides_tree(f"model.{text}" for text in overrides))
    default = vocabularies.source_vocab or vocabularies.target_vocab or VOCABULARY
    sizes = vocabularies.sizes(config.kind, [default])
    told = "" if vocabularies.complete(config.kind) else ", by default; change it with vocab_size=…"
    model = assemble(config, *sizes, device="meta")
    notes = tuple(_notes(config, model, sizes, told))
    length = None if sizes else config.n_tokens
    return Subject(name, model, notes=notes, length=length, source_length=_squares(config))


def _notes(config: Any, model: nn.Module, sizes: tuple[int, ...], told: str) -> Iterator[str]:
    """What was assumed: of texts that are read or written, and of pictures that are read."""
    squares = _squares(config)
    if sizes:
        yield _sizes_told(sizes, told)
    if squares is not None:
        yield f"a picture becomes {squares} squares: they are the source tokens"
    elif not sizes:
        yield from _of_pictures(config, model)


def _squares(config: Any) -> int | None:
    """The source tokens of a model that writes of a picture; None of all others."""
    return config.n_tokens if isinstance(config, CaptionerConfig) else None


def _of_pictures(config: Any, model: nn.Module) -> Iterator[str]:
    """What the ledger of a model of pictures counts, and what it does not."""
    yield f"a picture becomes {config.n_tokens} tokens"
    if any(isinstance(part, StandardisedConvolution) for part in model.modules()):
        yield "convolutions over pictures are counted by their parameters alone: no FLOPs, no activations"


def _of_recipe(
    name: str, recipe: Recipe, vocabularies: Vocabularies, known: tuple[int, ...] | None = None
) -> Subject:
    """``known``: the sizes of a trained codec."""
    from heedful.runs.kinds import kind_of

    family, kind = recipe.model.kind, kind_of(recipe)
    tokenizer = getattr(recipe, "tokenizer", None)
    size, why = _expected(tokenizer.subwords) if tokenizer else (VOCABULARY, "")
    n_vocabularies = len(SIZES[family])
    entries = vocabularies.sizes(family, known[:n_vocabularies] if known and n_vocabularies else [size])
    sizes = (*entries, *known[n_vocabularies:]) if known else kind.sizes(recipe, entries)
    model = on_device("meta", kind.model, recipe, sizes)
    told = "" if known or vocabularies.complete(family) else why
    notes = tuple(_notes(recipe.model, model, entries, told))
    return Subject(
        name,
        model,
        tokens=max(1, recipe.training.tokens_per_update // recipe.training.accumulate),
        chunk=recipe.objective.chunk,
        notes=notes,
        recipe=recipe,
        sizes=sizes,
        sizes_given=known is not None or any(vars(vocabularies).values()),
        length=None if entries else recipe.model.n_tokens,
        source_length=_squares(recipe.model),
    )


def _of_run(path: Path, vocabularies: Vocabularies, overrides: Sequence[str]) -> Subject:
    from heedful.runs.kinds import kind_of
    from heedful.runs.saved import saved_tree
    from heedful.runs.trees import merge

    folder = RunFolder(path)
    recipe = recipe_from(merge(saved_tree(path), overrides_tree(overrides)))
    kind = kind_of(recipe)
    known = kind.load(folder).sizes if kind.files(folder)[-1].is_file() else None
    return _of_recipe(str(path), recipe, vocabularies, known)


def _sizes_told(sizes: tuple[int, ...], why: str) -> str:
    source, target = sizes[0], sizes[-1]
    both = f"V = {target:,}" if source == target else f"V = {source:,} (source) and {target:,} (target)"
    return both + why


def _expected(subwords: Any) -> tuple[int, str]:
    """The vocabulary that a tokenizer not yet trained will have, and how that is known."""
    size, merges = getattr(subwords, "vocab_size", None), getattr(subwords, "merges", None)
    if size is not None:
        return size, ", as the recipe asks; less where its text gives less"
    if subwords.kind == "byte":
        return _BYTES + len(SPECIALS), ""
    if merges is not None:
        learned = merges + len(SPECIALS)
        if subwords.kind == "byte-bpe":
            return learned + _BYTES, ", as the recipe asks"
        spare = _BYTES if subwords.byte_fallback else 0
        return learned + spare, ", without the characters of the text, which are not known before training"
    return VOCABULARY, ", by default: the recipe's vocabulary is known after training only"
