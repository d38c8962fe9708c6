"""The command ``heedful embed``."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful import files
from heedful.cli import options
from heedful.cli.answers import NoteLog, located
from heedful.cli.inputs import Inputs
from heedful.cli.options import Device
from heedful.cli.output import check_out, json_result, log
from heedful.errors import WorkError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Pooling = Annotated[
    str | None,
    typer.Option(
        help="Pooling of the hidden states: mean, first, last or max. [default: the model's own, or mean]",
        show_default=False,
    ),
]
Layer = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Pool the output of this Transformer layer, from 1. [default: the last hidden states]",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Write the vectors to a file of NumPy (.npy), float32 [n, d], instead of JSON lines."
    ),
]


def embed(
    run: options.Run,
    inputs: Inputs,
    pooling: Pooling = None,
    layer: Layer = None,
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Compute a vector of each input (text or image): an embedding.

    Prints one JSON object per input, with its vector, or writes all vectors to a file. Inputs that cannot be
    read are reported; the file then has NaN in their rows, and the exit status is 1.
    """
    check_out(out, (".npy",), inputs.files)
    source = inputs.source(run)
    from heedful.api.run import load
    from heedful.runs.inputs import answered
    from heedful.tasks.embedding import Embedding

    loaded_run = load(run, device=device)
    columns = loaded_run.task.embedded_columns
    blocks = inputs.read(source, loaded_run, columns=columns).blocks()
    notes, vectors = NoteLog(), []
    compute = partial(loaded_run.embeddings, pooling=pooling, layer=None if layer is None else layer - 1)
    compute([])  # also without inputs, an unsupported task or pooling is an error
    answers = answered(blocks, columns, compute, lambda error: Embedding(None, error=error))
    for record, answer in answers:
        embedding = located(record, answer)
        if out is None:
            json_result(embedding.to_dict(record.fields))
        vectors.append(embedding.vector)
        notes.add(embedding, record.row.get(columns.inputs[0]), record.location)
    notes.summarize()
    if out is not None:
        _write(out, vectors, loaded_run.embedding_width)
    if notes.failed:
        raise WorkError(f"{notes.failed} of {notes.n} inputs could not be read")


def _write(out: Path, vectors: Sequence["NDArray[np.float32] | None"], width: int) -> None:
    """Write the vectors, with NaN for those that are None."""
    import numpy as np

    rows = np.full((len(vectors), width), np.nan, dtype=np.float32)
    for row, vector in zip(rows, vectors, strict=True):
        if vector is not None:
            row[:] = vector
    with files.replacing(out) as temporary, open(temporary, "wb") as file:
        np.save(file, rows)
    log(f"{out}: {len(rows):,} vectors of {width} numbers")
