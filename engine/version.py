"""This program: its version, which the build reads from here, and how it is started again."""

import sys

VERSION = "0.3.0"


def program_command() -> list[str]:
    """The command that starts this program again, from any working directory."""
    # -P: without it, a file spooldeck.py in the working directory would be run instead of this one.
    return [sys.executable, "-P", "-m", "spooldeck"]
