"""Copy runs without what only training needs, and remove it from runs: ``heedful.pack`` and ``clean``."""

from pathlib import Path

from heedful.api.checks import check_switches, folder_of, run_folder
from heedful.api.run import Run, load
from heedful.runs import packing
from heedful.runs.loading import LoadedRun


def pack(run: LoadedRun | Path | str, out: Path | str) -> Run:
    """Copy a finished run without what only training needs, and load the copy.

    The copy has the recipe, the weights, the tokenizers, labels and scales, calibration and thresholds, and
    the best head for alignments. It predicts, evaluates and explains as the run does, and cannot be resumed.

    Args:
        run: the run, or its folder.
        out: the folder of the copy, which must be new or empty.

    Raises:
        RequestError: training has not finished or is in progress, or the folder is not empty.
        DamagedError: a file of the run is damaged.
    """
    return load(packing.pack(run_folder(run), folder_of(out, "out")).path)


def clean(run: LoadedRun | Path | str, *, resumable: bool = False) -> int:
    """Remove the checkpoints and the tokenised data of a finished run; return the number of bytes.

    The run predicts, evaluates and explains as before. It can no longer be resumed.

    Args:
        run: the run, or its folder.
        resumable: whether to keep the checkpoints that continuing the training needs; then the training need
            not be finished.

    Raises:
        RequestError: training is in progress or, unless ``resumable``, not finished.
        DamagedError: a file of the run is damaged, and may be repaired from its checkpoints.
    """
    check_switches(resumable=resumable)
    with packing.cleaning(run_folder(run), resumable=resumable) as removable:
        packing.remove_all(removable)
    return removable.total
