"""The programs that mail tests run: real ones that must be there or may be missing, and scripts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

PLACES = "/usr/sbin:/usr/local/sbin:/sbin"
"""Where mail programs are, besides PATH: it seldom names them for ordinary users."""


def needs(name: str) -> str:
    """The path of a program; without it a test is skipped at home and fails on CI.

    CI says by the variable CI that it is CI, and installs what is missing (`.ci/run`)."""
    path = shutil.which(name) or shutil.which(name, path=PLACES)
    if path:
        return path
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed, and CI has to run this test: see .ci/run")
    pytest.skip(f"{name} is not installed")


def needs_root(why: str) -> None:
    """A test that only root can run is skipped for others at home, and fails for them on CI."""
    if os.geteuid() == 0:
        return
    if os.environ.get("CI"):
        pytest.fail(f"only root can run this: {why}")
    pytest.skip(f"only root can run this: {why}")


def a_script(path: Path, text: str) -> str:
    """A shell script that may be run."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def start_rivals(script: str, target: str, names: Iterable[str]) -> list[subprocess.Popen[str]]:
    """Python processes, one for each name, that are let go together once all have started."""
    words, pipe = [sys.executable, "-c", script, target], subprocess.PIPE
    rivals = [subprocess.Popen([*words, name], stdin=pipe, text=True) for name in names]
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.close()
    return rivals
