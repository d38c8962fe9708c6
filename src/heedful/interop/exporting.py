"""From a run to a folder of another library: the one function behind ``heedful export``."""

from pathlib import Path

from heedful.errors import RequestError
from heedful.files import write_bytes
from heedful.interop.checkpoint import CONFIG, write_checkpoint
from heedful.interop.formats import FORMATS, format_called
from heedful.interop.importing import filling, refuse_full
from heedful.runs.kind import Log
from heedful.runs.run import load


def export_run(path: Path, to: str, out: Path | None = None, log: Log = lambda line: None) -> Path:
    """Write a run as another library wants it.

    Args:
        path: the run's folder.
        to: the format's name.
        out: the folder to write; must be empty, or not be there yet. By default it stands beside the
            run, with the format's name behind its own.
        log: is given lines about what is lost.

    Returns:
        The folder.

    Raises:
        RequestError: the format is unknown, or cannot hold the run.
    """
    form = format_called(to)
    named = path if path.name not in ("", "..") else path.resolve()
    folder = out or named.with_name(f"{named.name}-{form.name}")
    refuse_full(folder)
    run = load(path, device="cpu")
    task = run.recipe.task.kind
    if task not in form.loaders:
        fitting = [name for name, other in FORMATS.items() if task in other.loaders]
        advice = f"; take --to {' or '.join(fitting)}" if fitting else ""
        raise RequestError(
            f"--to {to}: holds runs of the task {' or '.join(form.loaders)}, "
            f"and this is one of {task}{advice}"
        )
    written = form.write(run)
    for note in written.notes:
        log(f"note: {note}")
    with filling(folder):
        try:
            for name in (CONFIG, *written.files):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"{folder}: the folder cannot be made ({error.strerror})") from None
        for name, content in written.files.items():
            write_bytes(folder / name, content.encode() if isinstance(content, str) else content)
        write_checkpoint(folder, written.config, written.tensors)
    log(f'load it:     {form.loaders[task]}.from_pretrained("{folder}")')
    return folder
