"""Places of a real Exim: plans that are killed or disturbed, and deliveries that outlast us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.model import State
from engine.operations import undo
from engine.operations.journal import Journal
from tests.engine.formats.exim.exim_places import (
    a_prefix,
    apply,
    opened,
    states_of,
)
from tests.exim_server import EximServer, Sink, wait_until
from tests.programs import a_script
from tests.store_contents import tasks_in

ROOT = Path(__file__).resolve().parents[4]

APPLY = """
import sys
from tests.engine.formats.exim.exim_places import apply, open_by, undo_last
from tests.store_contents import tasks_in
verb, script, state = sys.argv[1:]
store = open_by(script, state)
if verb == "undo":
    undo_last(store, state)
else:
    apply(store, state, verb, tasks_in(store))
"""
"""Carries out a plan with a prefix of one word."""


@pytest.mark.deep
@pytest.mark.parametrize("verb", ["purge", "undo"])
def test_a_kill_at_each_call(exim: EximServer, tmp_path: Path, verb: str) -> None:
    """Killed at any call, each message is in one queue with its bytes, each row accounted for."""
    exim.submit(number=5)
    before, ids, counter = exim.digests(), exim.ids(), tmp_path / "calls"
    status, number, run = -9, 0, " ".join(exim.prefix)
    while status != 0:
        number += 1
        for kill in ("kill -9 $PPID; exit 1", f'{run} "$@"; kill -9 $PPID'):
            exim.state = tmp_path / f"{number}{kill[:4]}"
            counter.write_text("")
            at = f"if [ $(wc -l <{counter}) = {number} ]; then {kill}; fi"
            script = a_script(tmp_path / "lossy", f'echo >>{counter}\n{at}\nexec {run} "$@"')
            if verb == "undo":
                with opened(exim) as store:
                    apply(store, exim.state, "purge", tasks_in(store))
            argv = [sys.executable, "-c", APPLY, verb, script, str(exim.state)]
            ended = subprocess.run(argv, cwd=ROOT, capture_output=True, check=False)
            status = ended.returncode
            assert status in (0, -9), ended.stderr.decode()
            assert exim.digests() == before
            assert sorted([*exim.ids(), *exim.ids("spooldeck-trash")]) == ids
            _settle_and_restore(exim)
            assert exim.ids() == ids
            assert exim.digests() == before
    assert number > 10


def _settle_and_restore(exim: EximServer) -> None:
    """Account for the rows of the last operation, and undo what it did."""
    journal = Journal(f"{exim.state}/journal")
    with opened(exim) as store:
        for operation in journal.operations():
            settled = undo.settle_operation(store, journal, operation)
            assert not settled.moving and settled.operation is not None
            done = settled.operation.counts
            assert sum(done.values()) + len(settled.unmoved) == settled.operation.planned
            if settled.unmoved:
                undo.abandon_operation(store, journal, operation, "test")
        trashed = {t.id: t for t in tasks_in(store).values() if t.state is State.TRASH}
        if trashed:
            assert {*apply(store, exim.state, "restore", trashed).done} == {*trashed}


@pytest.mark.deep
def test_other_operators_in_a_plan_of_thousands(exim: EximServer, tmp_path: Path) -> None:
    """Thaw and removal of all meanwhile: planned rows are accounted for, others untouched."""
    ids = exim.submit(number=3000)
    exim.run("-Mf", *ids)
    (kept,) = exim.submit(sender="kept@shop.example.test")
    with opened(exim) as store:
        planned = {ident: task for ident, task in tasks_in(store).items() if ident in {*ids}}
        acts = (("-Mt", ids[::2]), ("-Mrm", ids[::-3]))
        lines = [" ".join([*exim.prefix, "exim4", act, *some, ">/dev/null"]) for act, some in acts]
        with subprocess.Popen([a_script(tmp_path / "others", "\n".join(lines))], cwd="/") as others:
            report = apply(store, exim.state, "purge", planned)
            assert others.wait(120) in (0, 1)
        assert report.accounted == 3000
        assert {*report.done} >= {*exim.ids("spooldeck-trash")}
        assert kept in exim.ids()
        assert {*exim.ids(), *exim.ids("spooldeck-trash")} <= {*ids, kept}
        assert {*report.done} <= {*exim.ids("spooldeck-trash")}, "what we moved is out of reach"
        assert states_of(store)[State.TRASH] == len(report.done)


def test_a_delivery_outlasts_us(exim: EximServer, slow: Sink) -> None:
    """A promoted message is delivered once, with its log line, although we end meanwhile."""
    (ident,) = exim.submit(recipients=["x@slow.example.test"])
    argv = [sys.executable, "-c", APPLY, "promote", a_prefix(exim, "no) true"), str(exim.state)]
    with subprocess.Popen(argv, cwd=ROOT) as ours:
        assert slow.waiting.acquire(timeout=60)
        os.kill(ours.pid, 9)
    assert exim.ids() == [ident]
    slow.release()
    wait_until(lambda: exim.ids() == [])
    assert len(slow.bodies) == 1
    for line in (" => x@slow.example.test", " Completed"):
        wait_until(lambda line=line: len(exim.log_lines(ident + line)) == 1)
