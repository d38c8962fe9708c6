"""Registry of formats for ``import`` and ``export``."""

from heedful.errors import RequestError, nearest
from heedful.interop.bert import BERT
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.format import Format
from heedful.interop.gpt2 import GPT2
from heedful.interop.marian import Marian
from heedful.interop.vit import ViT

FORMATS: dict[str, Format] = {each.name: each for each in (GPT2(), Marian(), BERT(), ViT())}


def format_called(name: str) -> Format:
    """Return the format with the given name.

    Raises:
        RequestError: the name is unknown.
    """
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise RequestError(f"--to {name}: unknown format{nearest(name, FORMATS)}; expected one of {known}")
    return FORMATS[name]


def format_of(checkpoint: Checkpoint) -> Format:
    """Return the format given by ``model_type`` of a folder.

    Raises:
        RequestError: it is missing or not supported.
    """
    settings = checkpoint.config
    kind = settings.get("model_type", str)
    known = ", ".join(FORMATS)
    if kind is None:
        raise RequestError(f"{settings.source}: model_type: required key is missing; expected one of {known}")
    if kind not in FORMATS:
        raise settings.wrong(
            "model_type", f"{kind!r} is not supported{nearest(kind, FORMATS)}; expected one of {known}"
        )
    return FORMATS[kind]
