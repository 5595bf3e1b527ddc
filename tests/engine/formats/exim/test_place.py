"""Places of a real Exim: plans that are killed or disturbed, and deliveries that outlast us."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from engine.model import State
from engine.operations import undo
from engine.operations.journal import Journal
from tests.engine.formats.exim.exim_places import (
    apply,
    opened,
    restore,
    setup_of,
    states_of,
    tasks_of,
    undo_last,
)
from tests.exim_server import EximServer, Sink, wait_until
from tests.programs import a_script
from tests.ssh_server import close_master, running_sshd

ROOT = Path(__file__).resolve().parents[4]

PURGE = """
import sys
from pathlib import Path
from engine.operations.journal import Journal
from tests.engine.formats.exim.exim_places import apply, open_by, tasks_of, undo_last
script, state = sys.argv[1:]
store, journal = open_by(script, state), Journal(f"{state}/journal")
if "VERB" == "undo":
    undo_last(store, journal)
else:
    apply(store, journal, "VERB", tasks_of(store))
"""
"""Carries out a plan with a prefix of one word."""


def run_apart(verb: str, script: str, state: Path) -> int:
    """Carry out a plan for all messages in a process of its own; its exit status."""
    code = PURGE.replace("VERB", verb)
    run = subprocess.run(
        [sys.executable, "-c", code, script, str(state)], cwd=ROOT, capture_output=True, check=False
    )
    assert run.returncode in (0, -9), run.stderr.decode()
    return run.returncode


@pytest.mark.deep
@pytest.mark.parametrize("verb", ["purge", "undo"])
def test_a_kill_at_each_call(exim: EximServer, tmp_path: Path, verb: str) -> None:
    """If we are killed before or after any call of a purge or its undo, each message is in exactly
    one queue with its bytes, and the next start accounts for each row."""
    exim.submit(number=5)
    before, ids = exim.digests(), exim.ids()
    run = f'{" ".join(exim.prefix)} "$@"'
    ended = False
    for number in count(1):
        for is_after in (False, True):
            state, counter = tmp_path / f"{number}-{is_after}", tmp_path / "calls"
            counter.write_text("")
            kill = f"{run}; kill -9 $PPID" if is_after else "kill -9 $PPID; exit 1"
            script = a_script(
                tmp_path / "lossy",
                f"echo >>{counter}\nif [ $(wc -l <{counter}) = {number} ]; then {kill}; fi\n"
                f"exec {run}",
            )
            if verb == "undo":
                with opened(exim, state) as store:
                    apply(store, Journal(f"{state}/journal"), "purge", tasks_of(store))
            ended = run_apart(verb, script, state) == 0

            assert exim.digests() == before
            here, there = exim.ids(), exim.ids("spooldeck-trash")
            assert sorted([*here, *there]) == ids
            _settle_and_restore(exim, state)
            assert exim.ids() == ids
            assert exim.digests() == before
        if ended:
            break
    assert number > 10


def _settle_and_restore(exim: EximServer, state: Path) -> None:
    """Account for the rows of the last operation, and undo what it did."""
    journal = Journal(f"{state}/journal")
    with opened(exim, state) as store:
        for operation in journal.operations():
            settled = undo.settle_operation(store, journal, operation)
            assert not settled.moving
            assert settled.operation is not None
            done = settled.operation.counts
            assert sum(done.values()) + len(settled.unmoved) == settled.operation.planned
            if settled.unmoved:
                undo.abandon_operation(store, journal, operation, "test")
        trashed = {t.id: t for t in tasks_of(store).values() if t.state is State.TRASH}
        if trashed:
            assert {*restore(store, journal, trashed).done} == {*trashed}


@pytest.mark.deep
def test_other_operators_in_a_plan_of_thousands(exim: EximServer, tmp_path: Path) -> None:
    """Another operator thaws all and removes all in the middle of a plan of 3,000: planned rows are
    accounted for, and no other message is touched."""
    ids = exim.submit(number=3000)
    exim.run("-Mf", *ids)
    (kept,) = exim.submit(sender="kept@shop.example.test")
    state = tmp_path / "state"
    journal = Journal(f"{state}/journal")
    with opened(exim, state) as store:
        planned = {ident: task for ident, task in tasks_of(store).items() if ident in {*ids}}
        calls = count()

        def disturb() -> float:
            if next(calls) == 0:
                argv = [*exim.prefix, "exim4"]
                thaw = " ".join(argv) + " -Mt " + " ".join(ids[::2])
                remove = " ".join(argv) + " -Mrm " + " ".join(ids[::-3])
                script = a_script(tmp_path / "others", f"{thaw} >/dev/null\n{remove} >/dev/null")
                others.append(subprocess.Popen([script], cwd="/"))
            return 4e9

        others: list[subprocess.Popen[bytes]] = []
        disturb()
        report = apply(store, journal, "purge", planned)
        assert others[0].wait(120) in (0, 1)

        assert report.accounted == 3000
        assert {*report.done} >= {*exim.ids("spooldeck-trash")}
        assert kept in exim.ids()
        assert {*exim.ids(), *exim.ids("spooldeck-trash")} <= {*ids, kept}
        lost = {*report.done} - {*exim.ids("spooldeck-trash")}
        assert not lost, "what we moved is out of the reach of others"
        assert states_of(store)[State.TRASH] == len(report.done)


def test_a_delivery_outlasts_us(exim: EximServer, tmp_path: Path) -> None:
    """A promoted message to a slow server is delivered once, with its log line, although we end
    while it is delivered."""
    slow = Sink("127.0.0.2", is_slow=True)
    exim.configure(sinks=[("slow.example.test", slow)])
    (ident,) = exim.submit(recipients=["x@slow.example.test"])
    script = a_script(tmp_path / "prefix", f'exec {" ".join(exim.prefix)} "$@"')
    code = PURGE.replace("VERB", "promote")
    with subprocess.Popen(
        [sys.executable, "-c", code, script, str(tmp_path / "state")], cwd=ROOT
    ) as ours:
        assert slow.waiting.acquire(timeout=60)
        os.kill(ours.pid, 9)
    assert exim.ids() == [ident]

    slow.release()

    wait_until(lambda: exim.ids() == [])
    assert len(slow.bodies) == 1
    wait_until(lambda: len(exim.log_lines(f"{ident} => x@slow.example.test")) == 1)
    wait_until(lambda: len(exim.log_lines(f"{ident} Completed")) == 1)


def test_purge_and_undo_over_ssh(exim: EximServer, tmp_path: Path) -> None:
    """Behind a real ssh, where all words go through a shell, purge and undo keep every byte: the
    name of the default queue is an empty word."""
    ids = exim.submit(number=7)
    before, state = exim.digests(), tmp_path / "state"
    setup = setup_of(exim, state)
    with running_sshd() as sshd:
        shared = ("ControlMaster=auto", f"ControlPath={sshd.folder}/m", "ControlPersist=60")
        ssh = sshd.words(*(word for one in shared for word in ("-o", one)))
        via = {"jail": (*ssh, *exim.prefix)}
        setup = setup._replace(config=setup.config._replace(via=via))
        store, journal = setup.open_store(), Journal(f"{state}/journal")
        try:
            assert {*apply(store, journal, "purge", tasks_of(store)).done} == {*ids}
            assert exim.ids("spooldeck-trash") == ids
            assert {*undo_last(store, journal).done} == {*ids}
        finally:
            store.close()
            close_master(ssh)
    assert exim.digests() == before
    assert exim.ids() == ids
