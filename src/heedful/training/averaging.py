"""Select the final weights of a run: the last or best checkpoint, or an average of several.

Vaswani et al. 2017 (section 6.1) average the last 5 checkpoints of their base models and the last 20
of the big ones; the lectures omit this step.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from heedful.artifacts.weights import opened, read_aliases
from heedful.errors import RequestError
from heedful.training.checkpoints import latest_good, load, path_of, paths
from heedful.training.settings import TrainingConfig

Weights = tuple[dict[str, Tensor], dict[str, str]]
"""Tensors by name, and the aliases of tied tensors."""


def average(files: Sequence[Path]) -> Weights:
    """Return the element-wise mean of the weights in several files, summed in fp64.

    Integer tensors (counters) are taken from the last file. Besides the result, only one tensor is in
    memory at a time.

    Raises:
        RequestError: ``files`` is empty, or the files differ in tensor names or shapes.
    """
    if not files:
        raise RequestError("expected at least one weights file to average, got none")
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
        raise RequestError(f"{path} and {reference} differ in {differing[0]}; they cannot be averaged")


def _mean(files: Sequence[Path], name: str) -> Tensor:
    total = None
    for path in files:
        with opened(path) as file:
            tensor = file.get_tensor(name)
        if tensor.is_floating_point():
            total = tensor.double() if total is None else total.add_(tensor.double())
    return tensor if total is None else (total / len(files)).to(tensor.dtype)


def chosen(run: Path, settings: TrainingConfig) -> list[Path]:
    """Return the checkpoints that the final weights of a run come from.

    If ``settings.average`` is above 0, these are that many of the last or best checkpoints, or as many
    as exist; otherwise the checkpoint with the best validation, or the last one if none was validated.

    Raises:
        RequestError: the run has no checkpoint.
        DamagedError: a selected checkpoint is damaged.
    """
    newest, _ = latest_good(run)
    if newest is None:
        raise RequestError(f"{run}: no checkpoint to load weights from")
    best = [path_of(run, scored.update) for scored in newest.state.best]
    if settings.average and settings.average_of == "last":
        found = paths(run)
        intact = found[: found.index(newest.path) + 1]  # later checkpoints are damaged
        selected = intact[-settings.average :]
    else:
        selected = best[: max(settings.average, 1)] or [newest.path]
    return [load(path).path for path in selected]


def final_weights(run: Path, settings: TrainingConfig) -> Weights:
    """Return the weights of the checkpoints selected by `chosen`, averaged if there are several."""
    return average([path / "model.safetensors" for path in chosen(run, settings)])
