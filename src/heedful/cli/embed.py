"""The command ``heedful embed``."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful import files
from heedful.cli import options
from heedful.cli.inputs import Input
from heedful.cli.options import Device
from heedful.cli.output import check_out, json_result, log
from heedful.cli.predict import Inputs, NoteLog, with_input
from heedful.errors import WorkError
from heedful.typing import JsonObject

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from heedful.runs.run import Run
    from heedful.tasks.embedding import Embedding

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
    check_out(out, (".npy",))
    source = inputs.source(run)
    from heedful.runs.run import load
    from heedful.tasks.prediction import Prediction

    loaded_run = load(run, device=device)
    columns = loaded_run.task.embedded_columns
    parsed = inputs.read(source, loaded_run, columns=columns)
    notes, vectors, failed = NoteLog(), [], 0
    for parsed_input, embedding in _embedded(loaded_run, source.blocks(parsed), pooling, layer):
        if out is None:
            json_result(_record(parsed_input, embedding))
        vectors.append(embedding.vector)
        failed += embedding.vector is None
        text = parsed_input.values.get(columns.inputs[0])
        notes.add(Prediction("", note=embedding.note, error=embedding.error), text)
    notes.summarize()
    if out is not None:
        _write(out, vectors, loaded_run.embedding_width)
    if failed:
        raise WorkError(f"{failed} of {len(vectors)} inputs could not be read")


def _embedded(
    run: "Run", blocks: Iterable[Sequence[Input]], pooling: str | None, layer: int | None
) -> Iterator[tuple[Input, "Embedding"]]:
    """Yield each input with its embedding, or with the error of an invalid input, block by block."""
    from heedful.tasks.embedding import Embedding

    columns = run.task.embedded_columns
    index = None if layer is None else layer - 1
    # Also without inputs, so that an unsupported task or pooling is an error.
    run.embeddings([], pooling=pooling, layer=index)
    for block in blocks:
        readable = [columns.input_of(each.values) for each in block if not each.error]
        embeddings = iter(run.embeddings(readable, pooling=pooling, layer=index))
        for parsed_input in block:
            error = parsed_input.error
            yield parsed_input, Embedding(None, error=error) if error else next(embeddings)


def _record(parsed_input: Input, embedding: "Embedding") -> JsonObject:
    """Return the JSON object of an input: its keys and its vector, or an error."""
    vector = None if embedding.vector is None else embedding.vector.tolist()
    parts = {"vector": vector, "note": embedding.note, "error": embedding.error}
    answer = {"version": 1, **{key: part for key, part in parts.items() if part is not None}}
    return with_input(parsed_input, answer, parts.keys())


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
