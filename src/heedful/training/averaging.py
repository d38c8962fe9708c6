"""The weights a run ends with: of the last or best checkpoint, or an average of several.

Vaswani et al. 2017 (section 6.1) average the last 5 checkpoints of their base models and the last 20
of the big ones; the lectures leave this out of the recipe.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from heedful.artifacts.weights import opened, read_aliases
from heedful.errors import RequestError
from heedful.training.checkpoints import latest_good, load, path_of, paths
from heedful.training.settings import TrainingConfig

Weights = tuple[dict[str, Tensor], dict[str, str]]
"""Tensors by name, and the other names of tied ones."""


def average(files: Sequence[Path]) -> Weights:
    """The element-wise mean of the weights in several files, summed in fp64.

    Tensors that are not floating (counters) are the last file's. One tensor is in memory at a time,
    besides the result.

    Raises:
        RequestError: no file, or the files do not hold the same names and shapes.
    """
    if not files:
        raise RequestError("there are no weights to average")
    with opened(files[-1]) as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    for path in files:
        _compare(path, shapes, files[-1])
    return {name: _mean(files, name) for name in shapes}, read_aliases(files[-1])


def _compare(path: Path, shapes: dict[str, list[int]], reference: Path) -> None:
    with opened(path) as file:
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    differing = sorted(name for name in found.keys() | shapes.keys() if found.get(name) != shapes.get(name))
    if differing:
        raise RequestError(f"{path} and {reference} differ in {differing[0]}: no average is possible")


def _mean(files: Sequence[Path], name: str) -> Tensor:
    total = None
    for path in files:
        with opened(path) as file:
            tensor = file.get_tensor(name)
        if tensor.is_floating_point():
            total = tensor.double() if total is None else total.add_(tensor.double())
    return tensor if total is None else (total / len(files)).to(tensor.dtype)


def chosen(run: Path, settings: TrainingConfig) -> list[Path]:
    """The checkpoints whose weights (or the average of them) a run ends with.

    With ``settings.average`` above 0, that many of the last or the best ones, or as many as there
    are; else the best validated one, or the last if none was validated.

    Raises:
        RequestError: the run has no checkpoint.
        DamagedError: one of those chosen is not what was written.
    """
    newest, _ = latest_good(run)
    if newest is None:
        raise RequestError(f"{run}: has no checkpoint to take weights from")
    best = [path_of(run, scored.update) for scored in newest.state.best]
    if settings.average and settings.average_of == "last":
        found = paths(run)
        through = found[: found.index(newest.path) + 1]  # those after it are damaged
        picked = through[-settings.average :]
    else:
        picked = best[: max(settings.average, 1)] or [newest.path]
    return [load(path).path for path in picked]


def final_weights(run: Path, settings: TrainingConfig) -> Weights:
    """The weights of the checkpoints that `chosen` names, averaged if there are several."""
    return average([path / "model.safetensors" for path in chosen(run, settings)])
