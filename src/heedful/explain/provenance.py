"""What an explanation was made with: the model, by the hashes of its files, and the settings.

There is no date and no path: the same model, input and settings give the same files, byte by byte, on the
same kind of machine.
"""

from collections.abc import Sequence
from contextlib import suppress

from heedful import __version__
from heedful.errors import HeedfulError
from heedful.explain.attention_sites import Selection
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import AnswerOptions
from heedful.typing import JsonMapping, JsonObject

SEED = 0
"""Seed of everything that is drawn in an explanation: words that replace others, random choices of words."""

DIGITS = 12
"""Digits of a hash in lines and tables."""


def provenance_of(
    run: LoadedRun, maps: Selection, options: AnswerOptions, views: Sequence[str], n_inputs: int
) -> JsonObject:
    """Return what an explanation is made with.

    Args:
        run: the run.
        maps: the selected attention.
        options: those of the answer.
        views: the names of the views.
        n_inputs: the number of inputs; the first is explained.

    Returns:
        The version of ``heedful``; the SHA-256 of the ``weights`` and of all ``files``, as on the run's card
        (absent for a run without one); and the ``settings``. Layers and heads count from 1.
    """
    hashes: dict[str, str] = {}
    with suppress(HeedfulError):
        hashes = {name: entry["sha256"] for name, entry in run.folder.read_card()["files"].items()}
    weights = hashes.get(run.folder.weights.name)
    parameter = next(run.model.parameters())
    decoding = options.decoding or run.recipe.decoding if run.task.info.generates else None
    selected = {
        "layers": maps.layers if maps.layers is None else [i + 1 for i in maps.layers],
        "heads": maps.heads if maps.heads is None else [i + 1 for i in maps.heads],
        "kinds": maps.kinds if maps.kinds is None else [*maps.kinds],
        "target": options.target,
        "alternative": options.alternative or None,
        "decoding": None if decoding is None or options.target else decoding.model_dump(mode="json"),
        "inputs": n_inputs if n_inputs > 1 else None,
    }
    settings: JsonObject = {"views": [*views]}
    settings |= {name: value for name, value in selected.items() if value is not None}
    settings |= {"precision": str(parameter.dtype).removeprefix("torch."), "device": parameter.device.type}
    settings["seed"] = SEED
    return {
        "heedful": __version__,
        **({"weights": weights} if weights else {}),
        **({"files": hashes} if hashes else {}),
        "settings": settings,
    }


def model_line(run: str, provenance: JsonMapping) -> str:
    """Return the run, the beginning of the hash of its weights, and the version of heedful."""
    weights = provenance.get("weights", "")
    return f"run {run}{weights and f', weights {weights[:DIGITS]}'}, heedful {provenance['heedful']}"


def settings_line(provenance: JsonMapping) -> str:
    """Return the settings as a text; of decoding, only its kind."""
    parts = []
    for name, value in provenance["settings"].items():
        shown = value["kind"] if name == "decoding" else value
        shown = ", ".join(map(str, shown)) or "none" if isinstance(shown, list) else shown
        parts.append(f"{name}: {shown}")
    return "; ".join(parts)
