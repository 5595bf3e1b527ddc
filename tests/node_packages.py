"""Versions of BullMQ for Node, installed by npm, and a program that lives as long as a test."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("node_bullmq_versions.cjs")
CACHE = Path(__file__).resolve().parents[1] / ".cache"
"""Where npm installs BullMQ, once for each version."""
INSTALL_SECONDS = 300.0


def install(version: str) -> Path:
    """The folder of modules with a version of BullMQ; without node, npm or a registry the test is
    skipped, on CI it fails."""
    if not shutil.which("node") or not shutil.which("npm"):
        if os.environ.get("CI"):
            raise FileNotFoundError("node and npm")
        pytest.skip("no node and npm")
    folder = CACHE / f"bullmq-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes install it once
        if not (folder / "node_modules" / "bullmq").exists():
            words = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder)]
            ran = subprocess.run(
                [*words, f"bullmq@{version}", "ioredis"],
                # The settings of npm; tests have a home of their own.
                env={**os.environ, "HOME": os.environ.get("USER_HOME", os.environ["HOME"])},
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
            )
            if ran.returncode:
                if os.environ.get("CI"):
                    raise RuntimeError(ran.stderr)
                pytest.skip("npm cannot install bullmq")
    return folder / "node_modules"


class NodeProgram:
    """A program of one version of BullMQ; call it with the words of `node_bullmq_versions.cjs`."""

    def __init__(self, version: str, socket: str) -> None:
        self.version = version
        modules = str(install(version))
        self._process = subprocess.Popen(
            ["node", str(SCRIPT), socket],
            env={**os.environ, "NODE_PATH": modules, "NODE_NO_WARNINGS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End it by its PID."""
        self._process.kill()
        self._process.communicate()

    def __call__(self, what: str, *arguments: object) -> Any:
        """Do something and return its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, *arguments]) + "\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("{"):
            assert line, "the program has ended"
        answer = json.loads(line)
        assert "error" not in answer, (what, arguments, answer["error"])
        return answer["value"]
