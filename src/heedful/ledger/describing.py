"""Compute the ledger of a model, a configuration, a preset, a recipe or a run."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from heedful.errors import RequestError
from heedful.ledger.ledger import CHUNK, LENGTH, TOKENS, Ledger, ledger_of
from heedful.ledger.subject import DescribedModel, RequestedSizes, subject
from heedful.runs.building import Vocabularies
from heedful.runs.run import Run


@dataclass(frozen=True)
class Extent:
    """Sizes that a ledger counts for; None: from the recipe or the model's configuration, else a default.

    Args:
        length: tokens of a target sentence, for FLOPs.
        source_length: tokens of a source sentence.
        tokens: target tokens of a batch, for memory.
    """

    length: int | None = None
    source_length: int | None = None
    tokens: int | None = None


def describe(
    what: Any,
    *,
    vocab_size: int | None = None,
    source_vocab: int | None = None,
    target_vocab: int | None = None,
    n_classes: int | None = None,
    length: int | None = None,
    source_length: int | None = None,
    tokens: int | None = None,
    overrides: Sequence[str] = (),
) -> Ledger:
    """Return the ledger of a model, a model's configuration, a preset, a recipe or a run.

    Args:
        what: a module; a loaded run, for its model; a configuration; a preset's name, a recipe's name or
            path, or a run's folder.
        vocab_size: entries of both vocabularies; by default those of the preset, recipe or run, else
            37,000. Not for a module.
        source_vocab: entries of the source vocabulary only; overrides ``vocab_size``.
        target_vocab: entries of the target vocabulary only; overrides ``vocab_size``.
        n_classes: number of classes of a model that reads texts or images; by default that of the image
            preset, of the run or of the recipe; 0: no head.
        length: tokens of a target sentence, for which FLOPs are counted; by default 32, or the tokens of
            an image.
        source_length: tokens of a source sentence; by default ``length``, or the patches of an image.
        tokens: target tokens of a batch, for which memory is counted; by default the recipe's, else 4096.
        overrides: ``key=value`` texts: keys of the configuration (``n_layers=16``), or for a recipe or run,
            of the recipe (``model.n_layers=16``).

    Raises:
        RequestError: if there is no such preset, recipe or run, or a setting is invalid.
    """
    asked = RequestedSizes(Vocabularies(vocab_size, source_vocab, target_vocab), n_classes)
    extent = Extent(length, source_length, tokens)
    if isinstance(what, Run):
        what = what.model
    if not isinstance(what, nn.Module):
        return _counted(subject(what, asked, overrides), extent)
    if overrides or asked:
        raise ValueError("sizes and overrides are not supported for a module")
    return _counted(DescribedModel("", what), extent)


def timed(
    what: Any,
    extent: Extent,
    overrides: Sequence[str] = (),
    *,
    device: str = "auto",
    log: Callable[[str], None] = lambda line: None,
) -> Ledger:
    """Return the ledger of a recipe or run, with the measured time of a few updates.

    Updates run on the recipe's own data, if these are available and no sizes or lengths are given; otherwise
    on made-up tokens.

    Args:
        what: as in `describe`.
        extent: the sizes to count for.
        overrides: as in `describe`.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        log: called with progress messages.

    Raises:
        RequestError: if it is only a model, there is no such recipe or run, or a setting is invalid.
    """
    from heedful.runs.timing import own_data, time_updates

    found = subject(what, RequestedSizes(), overrides)
    if found.recipe is None:
        raise RequestError(
            f"{found.name}: timing needs a recipe or a run; a model has no batches and no optimizer"
        )
    recipe, told = found.recipe, found.sizes_given or extent.length or extent.source_length
    with nullcontext() if told else own_data(recipe, log) as prepared:
        if prepared is not None:
            found = found.with_sizes(prepared.task.processor.sizes)
        ledger = _counted(found, extent)
        timing = time_updates(
            recipe,
            found.sizes,
            length=ledger.target_length,
            source_length=ledger.source_length,
            prepared=prepared,
            device=device,
            log=log,
        )
    return replace(ledger, timing=timing)


def _counted(found: DescribedModel, extent: Extent) -> Ledger:
    """Return the ledger of a described model; ``extent`` overrides its sizes."""
    return ledger_of(
        found.model,
        found.name,
        length=extent.length or found.length or LENGTH,
        source_length=extent.source_length or found.source_length,
        tokens=extent.tokens or found.tokens or TOKENS,
        chunk=found.chunk or CHUNK,
        notes=found.notes,
    )
