"""Every format by name: one line here makes an architecture known to ``import`` and ``export``."""

from heedful.errors import RequestError, nearest
from heedful.interop.bert import BERT
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.format import Format
from heedful.interop.gpt2 import GPT2
from heedful.interop.marian import Marian
from heedful.interop.vit import ViT

FORMATS: dict[str, Format] = {each.name: each for each in (GPT2(), Marian(), BERT(), ViT())}


def format_called(name: str) -> Format:
    """The format of that name.

    Raises:
        RequestError: there is none.
    """
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise RequestError(f"--to {name}: no such format{nearest(name, FORMATS)}; there are {known}")
    return FORMATS[name]


def format_of(checkpoint: Checkpoint) -> Format:
    """The format that a folder's configuration names.

    Raises:
        RequestError: it is another than heedful knows.
    """
    settings = checkpoint.config
    kind = settings.get("model_type", str)
    known = ", ".join(FORMATS)
    if kind is None:
        raise RequestError(f"{settings.source}: names no model_type; heedful imports {known}")
    if kind not in FORMATS:
        raise settings.wrong("model_type", f"{kind!r} is not imported{nearest(kind, FORMATS)}; {known} are")
    return FORMATS[kind]
