"""The ``xgpc`` command: outside of the package, whose imports take a second and may be interrupted."""

import sys


def main() -> int:
    """Run the command line of this process; exit status 130 after an interrupt, as the package is imported, too."""
    try:
        from xgpc.app.cli import command

        return command()
    except KeyboardInterrupt:
        print("xgpc: interrupted", file=sys.stderr)
        return 130
