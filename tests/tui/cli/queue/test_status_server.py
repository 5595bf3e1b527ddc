"""`status` of a place whose server delivers by itself: whether it runs, and what waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests import command
from tests.postfix_server import PostfixInstance, running_instance


@pytest.fixture(scope="module")
def server() -> Iterator[PostfixInstance]:
    """A real server with three messages."""
    with running_instance() as instance:
        instance.deferred(3)
        yield instance


def status(server: PostfixInstance, *words: str) -> tuple[int, str]:
    """Exit code and standard output of the command."""
    run = command.run(
        ["status", *words, str(server.config)], capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    return run.returncode, run.stdout


def test_a_server_that_runs_and_one_that_is_stopped(server: PostfixInstance) -> None:
    """Its state is a fact with PID and start; once it is stopped, that is the first alert, with the
    number of waiting messages."""
    _, running = status(server)
    server.stop()
    try:
        code, stopped = status(server, "--json")
        _, overview = command_text(server, "overview")
    finally:
        server.start()

    assert "Postfix delivers: running, PID" in running and "queues    deferred 3" in running
    row = json.loads(stopped)
    row = row[0] if isinstance(row, list) else row
    assert code == 1 and row["attention"][0] == "Postfix is stopped: 3 wait"
    assert row["facts"]["state"] == "Postfix is stopped: 3 wait" and row["stalled"] is False
    assert "Postfix is stopped: 3 wait" in overview and "no worker running" not in overview


def command_text(server: PostfixInstance, name: str) -> tuple[int, str]:
    """Exit code and standard output of another command."""
    run = command.run([name, str(server.config)], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout
