"""Shapes and types of the blocks are checked at run time in every test."""

from jaxtyping import install_import_hook

install_import_hook(
    ["heedful.nn", "heedful.models", "heedful.objectives", "heedful.decoding"], "beartype.beartype"
)

import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

torch.set_num_threads(1)
# How long something takes is never a reason to fail.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
