"""What a program prints in a process with another hash seed and another time zone."""

import os
import subprocess
import sys

from tests.engine.task_builders import ROOT


def output_elsewhere(program: str) -> bytes:
    """Run a Python program; returns its output."""
    other = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-P", "-c", program]
    return subprocess.run(argv, capture_output=True, check=True, env=os.environ | other).stdout
