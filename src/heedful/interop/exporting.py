"""Export runs to folders of other libraries; implements ``heedful export``."""

from pathlib import Path

from heedful.errors import RequestError
from heedful.files import write_bytes
from heedful.interop.checkpoint import CONFIG, write_checkpoint
from heedful.interop.formats import FORMATS, format_called
from heedful.interop.importing import filling, refuse_full
from heedful.runs.run import load
from heedful.tasks.base import Log


def export_run(path: Path, to: str, out: Path | None = None, log: Log = lambda line: None) -> Path:
    """Export a run to the format of another library.

    Args:
        path: run folder.
        to: name of the format.
        out: folder to write; must be empty or not exist. Defaults to RUN-FORMAT beside the run.
        log: called with lines about differences to the run.

    Returns:
        The folder.

    Raises:
        RequestError: the format is unknown or does not support the run.
    """
    form = format_called(to)
    named = path if path.name not in ("", "..") else path.resolve()
    folder = out or named.with_name(f"{named.name}-{form.name}")
    refuse_full(folder)
    run = load(path, device="cpu")
    task = run.recipe.task.kind
    if task not in form.loaders:
        fitting = [name for name, other in FORMATS.items() if task in other.loaders]
        remedy = f"; use --to {' or '.join(fitting)}" if fitting else ""
        raise RequestError(
            f"--to {to}: expected a run of task {' or '.join(form.loaders)}, got {task}{remedy}"
        )
    written = form.write(run)
    for note in written.notes:
        log(f"note: {note}")
    with filling(folder):
        try:
            for name in (CONFIG, *written.files):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"{folder}: cannot create the folder ({error.strerror})") from None
        for name, content in written.files.items():
            write_bytes(folder / name, content.encode() if isinstance(content, str) else content)
        write_checkpoint(folder, written.config, written.tensors)
    log(f'load with:   {form.loaders[task]}.from_pretrained("{folder}")')
    return folder
