"""Run the command line interface as ``python -m heedful``."""

from heedful.cli.main import main

main()
