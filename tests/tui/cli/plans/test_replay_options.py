"""`replay`: its pace, with a worker, and stopped by hand."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.operations.plans import RowResult
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules
from tests import command
from tests.nftban_queues import ids_at, journal_at, write_config
from tests.tui.cli.plans.queue_of_plans import Command, act, root
from tui.cli import make_parser
from tui.cli.plans import replay_options
from tui.cli.plans.replay_options import PaceOptions
from tui.plan import planning

__all__ = ["act", "root"]  # fixtures


@contextmanager
def started(root: Path, *words: str, text: str = "{}") -> Iterator[subprocess.Popen[str]]:
    """A command that runs beside the test on that queue, and is ended with the block."""
    pipe = subprocess.PIPE
    argv = ["--config", write_config(root, text), "--root", str(root), *words]
    process: command.Popen[str] = command.Popen(
        argv, stdout=pipe, stderr=pipe, text=True, stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


WORKING = "handlers: {report: {command: ['true']}, feeds_sync: {command: ['true']}}"


@pytest.mark.deep
def test_a_replay_goes_on_as_long_as_it_goes_well(root: Path, act: Command) -> None:
    """A canary, then the rest at the rate; each task delivered, as the log says."""
    with started(root, "queue", "work", text=WORKING):
        code, out, errors = act("replay --rate 100 --canary 1,2 --apply 6 --json")
    answer = json.loads(out)
    assert code == 0, errors
    assert (answer["outcome"]["delivered"], len(answer["done"])) == (6, 6)
    assert ids_at(root, "dlq") == set()
    assert "6 of 6 sent, 6 delivered" in errors
    (operation,) = journal_at(root).operations()
    assert operation.intent.pace["canary"] == [1, 2]


def test_a_replay_that_is_stopped_by_hand_leaves_the_rest(root: Path, act: Command) -> None:
    """After a Ctrl-C nothing more is sent, after a second one no outcome is waited for."""
    with started(root, "replay", "--rate", "100", "--apply", "6", "--json") as replay:
        assert replay.stderr is not None
        for sign in ("1 of 6 sent", "stopping:"):
            while sign not in replay.stderr.readline():
                assert replay.poll() is None
            replay.send_signal(signal.SIGINT)
        out, _ = replay.communicate(timeout=30)
    assert (replay.returncode, len(ids_at(root, "dlq"))) == (1, 5)
    answer = json.loads(out)
    assert (answer["verb"], len(answer["unapplied"]), len(answer["done"])) == ("replay", 5, 1)
    assert json.loads(act("journal --json")[1])["verb"] == "replay"
    (operation,) = journal_at(root).operations()
    assert (operation.counts[RowResult.DONE], operation.counts[RowResult.UNAPPLIED]) == (1, 5)
    assert not operation.is_interrupted


@pytest.mark.parametrize(
    "pace",
    [
        ReplayPace(),
        ReplayPace(rate=0.5, canary=(3,), timeout=60.0),
        ReplayPace(canary=(), stops=StopRules(same=None, share=None)),
        ReplayPace(
            stops=StopRules(same=5, share=0.25, last=8, pending=900, rest=RemainderPolicy.HOLD)
        ),
    ],
)
def test_a_pace_means_the_same_on_the_command_line(pace: ReplayPace) -> None:
    """The command that a plan on screen prints goes as fast and stops as early as the plan."""
    words = planning.pace_options(pace)
    assert words is not None
    parsed = make_parser(["replay", *words]).parse_args(["replay", *words])
    typed = PaceOptions(*(getattr(parsed, name) for name in PaceOptions._fields))
    assert replay_options.parse_pace(typed) == pace._replace(attended=False)
