"""spooldeck is killed at each step of purge and restore: no message is lost or deleted."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.postfix.marks import Marks
from engine.model import State
from tests.postfix_server import PostfixInstance
from tests.store_contents import tasks_in

ROOT = Path(__file__).parents[4]

SCRIPT = """
import os, signal, sys
from engine.formats.postfix.instance import open_instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.model import Move, State
from engine.programs.mail_store import MailStore
from engine.system import files
from engine.system.run_program import RunningProgram
from engine.verbs import with_state
from tests.store_contents import tasks_in

config, marks, target, last = sys.argv[1:5]
steps = 0

def killed(function):
    def call(*arguments, **named):
        step()
        answer = function(*arguments, **named)
        step()
        return answer
    return call

def step():
    global steps
    steps += 1
    if steps == int(last):
        os.kill(os.getpid(), signal.SIGKILL)

store = MailStore(PostfixServer(open_instance(config), Marks(marks)))
moves = [Move(task, with_state(task, State(target))) for task in tasks_in(store).values()]
RunningProgram.__init__ = killed(RunningProgram.__init__)
files.fsync = killed(files.fsync)
assert [outcome.error for outcome in store.swap_all(moves)] == [None] * len(moves)
"""


def run_until(postfix: PostfixInstance, target: State, step: int) -> bool:
    """Move all messages, and be killed at a step; False if there was no such step."""
    words = [str(postfix.config), str(postfix.marks), target.value, str(step)]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], cwd=ROOT, capture_output=True, check=False
    )
    while _is_running(str(postfix.config)):
        continue
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    return run.returncode != 0


def _is_running(config: str) -> bool:
    """True if a postsuper of the killed process still runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = os.fsdecode(path.read_bytes()).split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "postsuper" in words[0] and config in words:
            return True
    return False


def states(postfix: PostfixInstance) -> dict[str, State]:
    """The state of each message, as the next start shows it."""
    with closing(postfix.store()) as store:
        return {ident: task.state for ident, task in tasks_in(store).items()}


@pytest.mark.deep
def test_a_kill_at_each_step_loses_nothing(postfix: PostfixInstance) -> None:
    """After a kill at any step of a purge, each message waits or is in the trash; after one of a
    restore too; the next try completes it, and the messages are as they were."""
    ids = postfix.deferred(4)
    before = sorted(postfix.run("postqueue", "-j").stdout.splitlines())
    for target, other in ((State.TRASH, State.PENDING), (State.PENDING, State.TRASH)):
        step = 1
        while run_until(postfix, target, step):
            seen = states(postfix)
            assert [*sorted(seen)] == ids
            assert {*seen.values()} <= {State.PENDING, State.TRASH}, step
            listed = postfix.listed()
            trash = {listed[ident] for ident, state in seen.items() if state is State.TRASH}
            assert trash <= {"hold"}
            if {*seen.values()} != {other}:
                assert not run_until(postfix, other, 0)
            assert {*states(postfix).values()} == {other}
            step += 1
        assert step > 6
        assert states(postfix) == dict.fromkeys(ids, target)
    assert sorted(postfix.run("postqueue", "-j").stdout.splitlines()) == before
    assert not Marks(str(postfix.marks)).read()
