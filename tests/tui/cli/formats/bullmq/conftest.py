"""Fixtures of BullMQ queues and of a federation's peers, for their commands."""

import subprocess
from pathlib import Path

import pytest

from tests.engine.formats.bullmq.conftest import client, own_state
from tests.engine.formats.bullmq.federation.conftest import make, peer, sender
from tests.nftban_queues import Run

__all__ = ["client", "make", "own_state", "peer", "sender"]


@pytest.fixture
def on_redis(redis_url: str, spooldeck: Run, tmp_path: Path) -> Run:
    """Run a command with a journal of the test's own."""

    def run(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return spooldeck(*words, redis_url, XDG_STATE_HOME=str(tmp_path), **variables)

    return run
