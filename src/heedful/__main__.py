"""``python -m heedful``: the command, where its script is not on the path."""

from heedful.cli.main import main

main()
