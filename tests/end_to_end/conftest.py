"""The real command and the runs that were trained with it."""

import sys
from pathlib import Path

from commands import (  # noqa: F401
    corpus,
    environment,
    heedful,
    own_run,
    process,
    recurrent,
    transformer,
)
from killing import whole  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))  # for `miniature`
