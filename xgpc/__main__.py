"""``python -m xgpc``: the command line."""

import sys

from .app.cli import command

if __name__ == "__main__":
    sys.exit(command())
