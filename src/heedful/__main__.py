"""Run the command line interface as ``python -m heedful``."""

import sys

if not sys.flags.safe_path:
    # ``-m`` puts the current folder first, whose files may have been sent with a run: import nothing from it.
    del sys.path[0]

from heedful.cli.main import main

main()
