"""The folder of masks that ``heedful predict --out FOLDER`` writes: one image for each input."""

import os
from collections.abc import Sequence
from pathlib import Path

from heedful import files
from heedful.cli.tables import OUTPUTS
from heedful.errors import RequestError, WorkError
from heedful.tasks.prediction import Prediction


class MaskFolder:
    """Writes predictions that are images.

    The mask of ``images/a/1.jpg`` is ``a/1.png`` if ``images`` is a given folder of inputs, else ``1.png``.

    Args:
        path: the folder; it is created.
        folders: the folders of inputs.

    Raises:
        RequestError: the folder cannot be created.
    """

    def __init__(self, path: Path, folders: Sequence[str]) -> None:
        self.path, self._folders = path, [Path(folder) for folder in folders]
        self._images: dict[Path, str] = {}
        files.check_parent(path, "--out")
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise RequestError(f"--out {path}: cannot be created ({error.strerror})") from None

    def __len__(self) -> int:
        """Return the number of masks."""
        return len(self._images)

    def add(self, image: str, prediction: Prediction) -> None:
        """Write the prediction for an image; nothing if the image could not be read.

        Raises:
            RequestError: the file exists, another image has the same name, or the image is in this folder.
            WorkError: the file cannot be written.
        """
        content = prediction.image_file()
        if content is None:
            return
        target = self.path / self._name(Path(image))
        if target.parent.resolve() == Path(image).parent.resolve():
            raise RequestError(
                f"--out {self.path}: contains the image {image}, which a mask may overwrite; choose another "
                "folder"
            )
        if target not in self._images and target.exists():
            raise RequestError(
                f"--out {self.path}: {target} exists, and may be an image or a mask of yours; choose another "
                "folder, or remove it"
            )
        other = self._images.setdefault(target, image)
        if other != image:
            raise RequestError(
                f"--out {self.path}: the masks of {other} and {image} would both be {target}; rename one, or "
                "predict them separately"
            )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkError(f"{target.parent}: cannot be created ({error.strerror})") from None
        files.write_bytes(target, content)

    def _name(self, image: Path) -> Path:
        folder = next((folder for folder in self._folders if folder in image.parents), image.parent)
        return image.relative_to(folder).with_suffix(".png")


def is_folder(out: Path) -> bool:
    """Whether ``--out`` names a folder: one that exists, or a path without suffix."""
    return out.suffix.lower() not in OUTPUTS and (out.is_dir() or not out.suffix)


def folders_of(paths: Sequence[str]) -> list[str]:
    """Return those of the given files that are folders."""
    return [path for path in paths if os.path.isdir(path)]
