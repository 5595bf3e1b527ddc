"""A queue of a real Exim: states, acts, and their races with deliveries and other operators."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.formats.exim import server
from engine.formats.exim.facts import read_host
from engine.formats.exim.place import check_place, find_exim, open_store
from engine.formats.exim.programs import NO_MESSAGE
from engine.formats.exim.trash_record import TrashRecord
from engine.model import Missing, Move, Problem, State, Task
from engine.operations.journal import Journal
from engine.programs.mail_server import ActResult
from engine.programs.mail_store import MailStore
from engine.programs.prefix import Prefix
from engine.store import Gone, Store, Unavailable, Unsupported
from engine.verbs import VERBS
from tests.engine.formats.exim.exim_places import (
    apply,
    open_by,
    opened,
    setup_of,
    states_of,
    tasks_of,
    undo_last,
)
from tests.exim_server import EximServer, Sink, wait_until
from tests.programs import a_script
from tui.plan.plan_lines import requests_text, result_lines


@pytest.fixture
def journal(state: Path) -> Journal:
    """The journal of the place."""
    return Journal(f"{state}/journal")


def test_messages_have_their_fields(exim: EximServer, state: Path) -> None:
    """A task has sender, open recipients, size, arrival, and reason and account from the log."""
    sink = Sink("127.0.0.3", "450 4.2.0 Greylisted")
    exim.configure(sinks=[("grey.example.test", sink)])
    (ident,) = exim.submit(
        recipients=["Bob@grey.example.test", "c@grey.example.test"], deliver=True
    )
    wait_until(lambda: len(exim.log_lines(" == ")) == 2)

    with opened(exim, state) as store:
        task = tasks_of(store)[ident]

    assert (task.state, task.kind, task.word) == (State.PENDING, "mail", "")
    assert task.sender == "ann@shop.example.test"
    assert task.recipients == ("Bob@grey.example.test", "c@grey.example.test")
    assert task.destination == "Bob@grey.example.test"
    assert task.group == "grey.example.test"
    assert task.error.endswith("450 4.2.0 Greylisted")
    assert task.account == "root"
    assert (task.due, task.attempts) == (None, None)
    assert task.bytes is not None and 300 < task.bytes < 500


def test_odd_addresses_and_flags(exim: EximServer, state: Path) -> None:
    """Quoted local parts, a login and a frozen flag in one line, and U+202E are shown safely."""
    exim.configure("local_from_check = true\nuntrusted_set_sender = *\n")
    odd = ['"we\\"ird\\\\"@a.test', '"> (web) *** frozen ***"@a.test', "\u202ebob@a.test"]
    for address in odd:
        exim.submit(recipients=[address])
    exim.run("-Mf", *exim.ids())

    with opened(exim, state) as store:
        tasks = tasks_of(store).values()

    assert {task.state for task in tasks} == {State.HELD}
    assert {task.destination for task in tasks} >= {*odd[:2]}
    assert all(task.destination.isprintable() for task in tasks)


def test_hold_and_undo(exim: EximServer, state: Path, journal: Journal) -> None:
    """Hold freezes messages, and its undo thaws them."""
    exim.submit(number=3)
    with opened(exim, state) as store:
        report = apply(store, journal, "hold", tasks_of(store))
        assert len(report.done) == 3
        assert exim.listing().count("*** frozen ***") == 3
        assert states_of(store) == {State.HELD: 3}

        back = undo_last(store, journal)

        assert len(back.done) == 3
        assert states_of(store) == {State.PENDING: 3}
        assert "frozen" not in exim.listing()


@pytest.mark.parametrize("more", ["", "split_spool_directory\n"])
def test_purge_and_undo_keep_every_byte(
    exim: EximServer, state: Path, journal: Journal, more: str
) -> None:
    """After a purge of 300 messages, a third of them frozen, and its undo, each spool file has the
    bytes that it had, and each message its state; in one folder, and in a split spool."""
    exim.configure(more)
    ids = exim.submit(number=300)
    exim.run("-Mf", *ids[:100])
    before = exim.digests()
    with opened(exim, state) as store:
        report = apply(store, journal, "purge", tasks_of(store))

        assert len(report.done) == 300
        assert (exim.ids(), len(exim.ids("spooldeck-trash"))) == ([], 300)
        assert states_of(store) == {State.TRASH: 300}

        back = undo_last(store, journal)

        assert len(back.done) == 300
        assert exim.ids("spooldeck-trash") == []
        assert states_of(store) == {State.PENDING: 200, State.HELD: 100}
    assert exim.digests() == before


def test_the_revision_of_a_purged_message_shows_whether_it_is_frozen(
    exim: EximServer, state: Path
) -> None:
    """Another operator may freeze it between the check and the act: `-MG` moves it all the same."""
    ids = exim.submit(number=2)
    with opened(exim, state) as store:
        tasks = tasks_of(store)
        exim.run("-Mf", ids[0])
        purged = tasks[ids[0]]._replace(state=State.TRASH)

        result = server_of(exim, state).act([*tasks.values()], purged)

        assert result.done == {ident: task.rev for ident, task in tasks_of(store).items()}


def test_a_message_in_delivery_is_not_purged(
    exim: EximServer, state: Path, journal: Journal
) -> None:
    """Messages that Exim delivers are skipped with the PID, and are delivered once."""
    slow = Sink("127.0.0.2", is_slow=True)
    exim.configure(sinks=[("slow.example.test", slow)])
    exim.submit(number=4)
    with opened(exim, state) as store:
        (late,) = exim.submit(recipients=["x@slow.example.test"])
        planned = tasks_of(store)
        (early,) = exim.submit(recipients=["x@slow.example.test"], deliver=True)
        assert slow.waiting.acquire(timeout=30)
        active = tasks_of(store)[early]
        assert active.state is State.ACTIVE and active.lease is not None
        bar = store.edges[State.ACTIVE, State.HELD].bars(active, 0.0)
        assert bar == f"Exim has locked it: {active.lease.owner} delivers"

        exim.deliver(late)
        assert slow.waiting.acquire(timeout=30)
        report = apply(store, journal, "purge", planned)

        assert len(report.done) == 4
        assert [*report.gone, *(ident for ident, _ in report.failed)] == [late]
        assert exim.ids() == sorted([late, early])
    slow.release()
    wait_until(lambda: exim.ids() == [])
    assert len(slow.bodies) == 2


def test_a_message_that_is_locked_after_the_check_fails_with_the_pid(
    exim: EximServer, state: Path
) -> None:
    """If a delivery begins between the check and the act, Exim refuses the act."""
    slow = Sink("127.0.0.2", is_slow=True)
    exim.configure(sinks=[("slow.example.test", slow)])
    (ident,) = exim.submit(recipients=["x@slow.example.test"])
    with opened(exim, state) as store:
        assert isinstance(store, MailStore)
        (task,) = tasks_of(store).values()
        assert [*store.verify([(task.id, task.state, task.rev)])] == [task]
        exim.deliver(ident)
        assert slow.waiting.acquire(timeout=30)

        with pytest.raises(Exception, match=r"in delivery: PID [0-9]+ has locked it"):
            store.swap(task, task._replace(state=State.TRASH))
    slow.release()
    wait_until(lambda: exim.ids() == [])


def test_an_old_message_is_not_held(exim: EximServer, state: Path, journal: Journal) -> None:
    """A message that Exim would cancel when it is frozen is barred; a queue run after `-Mf` shows
    that the bar is needed, and X is the other way."""
    exim.configure("timeout_frozen_after = 1s\n")
    (ident,) = exim.submit()
    with opened(exim, state) as store:
        tasks = tasks_of(store)
        report = apply(store, journal, "hold", tasks)

        assert report.done == ()
        ((excluded, why),) = report.excluded
        assert excluded == ident
        assert "Exim cancels frozen mail older than 1s" in why and "X moves it" in why

        wait_until(lambda: exim.run("-bpc").stdout.strip() == b"1")
        exim.run("-Mf", ident)
        wait_until(lambda: exim.run("-q") is not None and ident not in exim.ids())
        assert exim.log_lines(f"{ident} cancelled by timeout_frozen_after")


def test_a_held_message_shows_when_exim_cancels_it(
    exim: EximServer, state: Path, journal: Journal
) -> None:
    """A frozen message has the time at which Exim cancels it, by its arrival."""
    exim.configure("timeout_frozen_after = 7d\n")
    (ident,) = exim.submit()
    exim.run("-Mf", ident)

    with opened(exim, state) as store:
        task = tasks_of(store)[ident]

    assert "Exim cancels frozen mail then" in task.extra["frozen until"]


def test_other_operators_in_a_plan(exim: EximServer, state: Path, journal: Journal) -> None:
    """If others thaw and remove messages in the middle of a plan, each planned row is accounted
    for, and only those are touched."""
    ids = exim.submit(number=60)
    exim.run("-Mf", *ids[:30])
    with opened(exim, state) as store:
        planned = {ident: task for ident, task in tasks_of(store).items() if ident in ids[10:50]}
        exim.run("-Mt", *ids[:20])
        exim.run("-Mrm", *ids[40:])

        report = apply(store, journal, "purge", planned)

        assert report.accounted == 40
        assert {*report.done} == {*ids[20:40]}
        assert {*report.gone} == {*ids[10:20], *ids[40:50]}
    assert exim.ids() == sorted(ids[:20])


def test_bounce(exim: EximServer, state: Path, journal: Journal) -> None:
    """Bounce ends messages, also frozen ones, and their sender gets a report."""
    ids = exim.submit(number=2)
    exim.run("-Mf", ids[0])
    with opened(exim, state) as store:
        report = apply(store, journal, "bounce", tasks_of(store))

        assert {*report.done} == {*ids}
    assert not {*ids} & {*exim.ids()}
    assert len(exim.log_lines("cancelled by root")) == 2


def test_a_bounce_of_a_locked_message_is_a_failure(exim: EximServer, state: Path) -> None:
    """`-Mg` prints nothing for a locked message: the listing after it shows that it is there."""
    slow = Sink("127.0.0.2", is_slow=True)
    exim.configure(sinks=[("slow.example.test", slow)])
    (ident,) = exim.submit(recipients=["x@slow.example.test"])
    with opened(exim, state) as store:
        (task,) = tasks_of(store).values()
    exim.deliver(ident)
    assert slow.waiting.acquire(timeout=30)

    result = server_of(exim, state).act([task], task._replace(state=State.DEAD))

    assert not result.done
    assert result.refused[ident].startswith("in delivery: PID")
    assert exim.ids() == [ident]
    slow.release()
    wait_until(lambda: exim.ids() == [])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("echo 'exim: permission denied' >&2; exit 1", "exim: permission denied"),
        ("exit 1", "exim -Mg ended with status 1"),
        ("exit 0", "still in the queue: Exim names no reason, see its main log"),
    ],
)
def test_a_bounce_without_effect_has_the_reason_of_exim(
    exim: EximServer, state: Path, tmp_path: Path, answer: str, why: str
) -> None:
    """A message that is still there, and that no process has locked, is not called locked."""
    (ident,) = exim.submit()
    with opened(exim, state) as store:
        (task,) = tasks_of(store).values()
    dead = task._replace(state=State.DEAD, error="x", due=0.0)

    result = refusing(exim, state, tmp_path, f"*' -Mg '*) {answer}").act([task], dead)

    assert result == ActResult(refused={ident: why})


def test_damaged_spool_files(exim: EximServer, state: Path, journal: Journal) -> None:
    """A broken header file is a problem, a message without data stays, one without a header file
    is not there."""
    broken, no_data, no_header, good = exim.submit(number=4)
    folder = exim.spool / "input"
    (folder / f"{broken}-H").write_bytes(b"x" * 60)
    (folder / f"{no_data}-D").unlink()
    (folder / f"{no_header}-H").unlink()
    with opened(exim, state) as store:
        items = [*store.scan()]
        tasks = {item.id: item for item in items if isinstance(item, Task)}
        problems = [item for item in items if not isinstance(item, Task | Missing)]
        assert tasks.keys() == {no_data, good}
        assert [broken in one.where for one in problems] == [True]
        assert "spool format error" in problems[0].what
        assert tasks[no_data].bytes is None
        assert not any(isinstance(item, Task) for item in store.scan({no_header}))

        report = apply(store, journal, "hold", tasks)

        assert report.done == (good,)
        ((ident, why),) = report.failed
        assert ident == no_data and "does not exist" in why


def test_restore_of_what_another_moved(exim: EximServer, state: Path, journal: Journal) -> None:
    """A message that was moved to the trash queue by hand comes back as frozen, and is never
    deleted from there."""
    (ident,) = exim.submit()
    exim.run("-MG", "spooldeck-trash", ident)
    with opened(exim, state) as store:
        tasks = tasks_of(store)
        assert tasks[ident].state is State.TRASH
        assert tasks[ident].extra["moved by"] == "another program, or by hand"
        report = apply(store, journal, "expunge", tasks, clock=4e9)
        assert report.done == ()
        assert "kept" in report.excluded[0][1]

        assert len(apply(store, journal, "restore", tasks).done) == 1

        assert states_of(store) == {State.HELD: 1}
    assert exim.ids() == [ident]


def test_expunge_only_after_a_day(exim: EximServer, state: Path, journal: Journal) -> None:
    """What we moved to the trash is deleted after 24 hours, and not before."""
    ids = exim.submit(number=2)
    with opened(exim, state) as store:
        assert len(apply(store, journal, "purge", tasks_of(store)).done) == 2
        trashed = tasks_of(store)
        now = float(trashed[ids[0]].extra["trash_since"])
        early = apply(store, journal, "expunge", trashed, clock=now + 23 * 3600)
        assert (early.done, len(early.excluded)) == ((), 2)

        plan = apply(store, journal, "expunge", trashed, clock=now + 25 * 3600)

        assert len(plan.done) == 0 and len(plan.failed) == 2, "the clock of the store decides"
    store = open_store(setup_of(exim, state), lambda: now + 25 * 3600)
    report = apply(store, journal, "expunge", tasks_of(store), clock=now + 25 * 3600)
    store.close()
    assert {*report.done} == {*ids}
    assert exim.ids("spooldeck-trash") == []


def test_what_was_moved_again_by_hand_is_kept(
    exim: EximServer, state: Path, journal: Journal
) -> None:
    """A record of ours that is older than the move does not allow to delete a message."""
    (ident,) = exim.submit()
    with opened(exim, state) as store:
        apply(store, journal, "purge", tasks_of(store))
        exim.run("-qGspooldeck-trash", "-MG", "", ident)
        exim.run("-MG", "spooldeck-trash", ident)
        lines = (state / "trash.moved").read_text()
        (state / "trash.moved").write_text(lines.replace(lines.split()[1], "1000"))

        assert tasks_of(store)[ident].extra["moved by"] != "spooldeck"


@pytest.mark.parametrize(("seconds", "note"), [(60.0, "ended"), (0.0, "still delivering")])
def test_promote_delivers_once(
    exim: EximServer,
    state: Path,
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    note: str,
) -> None:
    """A delivery that was started goes on when the store is closed, with its log line; the result
    says whether it had ended."""
    monkeypatch.setattr("engine.formats.exim.server.DELIVERY_SECONDS", seconds)
    sink = Sink("127.0.0.2", is_slow=True)
    exim.configure(sinks=[("ok.example.test", sink)])
    (ident,) = exim.submit(recipients=["x@ok.example.test"])
    sink.release()
    with opened(exim, state) as store:
        report = apply(store, journal, "promote", tasks_of(store))
    assert (report.done, report.is_exact, report.notes) == ((ident,), False, {note: 1})
    assert requests_text(report) == f"asked for 1: 1 {note}"
    wait_until(lambda: exim.ids() == [])
    assert len(sink.bodies) == 1
    assert exim.log_lines(f"{ident} => x@ok.example.test")


def test_a_message_that_was_frozen_after_its_check_is_not_started(
    exim: EximServer, state: Path
) -> None:
    """`-M` would thaw a message that another operator has frozen since it was looked at."""
    (ident,) = exim.submit()
    with opened(exim, state) as store:
        (task,) = tasks_of(store).values()
        exim.run("-Mf", ident)

        result = server_of(exim, state).act([task], task._replace(due=0.0))

    assert result.refused == {ident: "changed: not queued any more"}
    assert "*** frozen ***" in exim.listing()


def refusing(exim: EximServer, state: Path, tmp_path: Path, case: str) -> server.EximServer:
    """The server of the place behind a prefix that answers some calls itself."""
    run = f'{" ".join(exim.prefix)} "$@"'
    script = a_script(tmp_path / "prefix", f'case " $* " in {case};; *) exec {run};; esac')
    place = find_exim(setup_of(exim, state))._replace(prefix=Prefix("jail", (script,), 0))
    return server.EximServer(place, TrashRecord(str(state)))


def test_a_delivery_that_exim_refuses_is_not_done(
    exim: EximServer, state: Path, tmp_path: Path
) -> None:
    """If `-M` ends with a status, the line that it prints is the reason."""
    (ident,) = exim.submit()
    with opened(exim, state) as store:
        (task,) = tasks_of(store).values()
    case = "*' -M '*) echo 'exim: permission denied' >&2; exit 1"

    result = refusing(exim, state, tmp_path, case).act([task], task._replace(due=0.0))

    assert result == ActResult(refused={ident: "exim: permission denied"})


def test_parts(exim: EximServer, state: Path) -> None:
    """A message has its header file, log and body, also in the trash queue."""
    (ident,) = exim.submit(text="hello body")
    with opened(exim, state) as store:
        for _ in range(2):
            (task,) = tasks_of(store).values()
            names = [part.name for part in store.parts(task)]
            assert names == ["message", "headers", "envelope", "log", "body", "retry"]
            assert store.read(task).startswith(f"id: {ident}\n".encode())
            assert store.read(task, "headers").startswith(b"Received: from ")
            assert b"\nSubject: mail 0\n" in store.read(task, "headers")
            assert b"018  Subject" not in store.read(task, "headers")
            assert f"{ident}-H\n".encode() in store.read(task, "envelope")
            assert b"Received from ann@shop.example.test" in store.read(task, "log")
            assert b"hello body" in store.read(task, "body")
            assert b"No retry data found" in store.read(task, "retry")
            exim.run("-MG", "spooldeck-trash", ident)


def test_a_user_without_rights(exim: EximServer, state: Path) -> None:
    """Without the right to list, opening says who may; with it all changes are refused."""
    jail = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    exim.submit()
    setup = setup_of(exim, state)
    words = (*exim.prefix, *jail)
    setup = setup._replace(config=setup.config._replace(via={"jail": words}))
    with pytest.raises(Unavailable, match="only root and Exim's admin_groups may list"):
        setup.open_store()

    exim.configure("no_queue_list_requires_admin\n")
    store = setup.open_store()
    assert len(tasks_of(store)) == 1
    assert {"only root" in edge.refusal for edge in store.edges.values()} == {True}
    assert {"only root" in control.refusal for control in store.controls.values()} == {True}
    store.close()


def test_a_configuration_that_others_may_write_is_refused(exim: EximServer, state: Path) -> None:
    """As root no program is run with a configuration that others may change."""
    path = exim.root / "etc/exim4/exim4.conf"
    path.chmod(0o666)
    try:
        with pytest.raises(Unavailable, match=r"exim4\.conf"):
            setup_of(exim, state).open_store()
    finally:
        path.chmod(0o644)


def test_another_spool_is_refused(exim: EximServer, state: Path) -> None:
    """A place that is not the spool of the program there is refused, with the one that is."""
    setup = setup_of(exim, state)
    other = setup.address._replace(text="exim://jail/srv/spool")
    with pytest.raises(Unavailable, match="has the spool /var/spool/exim4"):
        setup._replace(address=other).open_store()


def test_a_lost_connection_is_looked_at_again(
    exim: EximServer, state: Path, journal: Journal, tmp_path: Path
) -> None:
    """If the prefix loses the connection after the act, the listings decide what was done."""
    run = f'{" ".join(exim.prefix)} "$@"'
    act = f"*' -MG spooldeck-trash '*) {run} >/dev/null; echo connection lost >&2; exit 255"
    ids, script = exim.submit(number=5), tmp_path / "ssh"
    probe = f"*{NO_MESSAGE}*) exec {run}"
    a_script(script, f'case " $* " in {probe};; {act};; *) exec {run};; esac')
    setup = setup_of(exim, state)
    config = setup.config._replace(via={"jail": (str(script),)}, via_quoting={"jail": 0})
    store = setup._replace(config=config).open_store()
    report = apply(store, journal, "purge", tasks_of(store))
    store.close()

    assert report.accounted == 5
    assert {*report.done} == {*ids}
    text = "".join(run[0] for line in result_lines(report, 100) for run in line)
    assert "5 connection lost; looked again: done" in text
    assert exim.ids("spooldeck-trash") == ids


@pytest.mark.parametrize(("verb", "option"), [("bounce", "-Mg"), ("promote", "-M")])
def test_what_an_act_without_an_end_leaves_open_is_unknown(
    exim: EximServer, state: Path, tmp_path: Path, verb: str, option: str
) -> None:
    """If its program is killed, or its container ends, a message that was given up is not said to
    be changed by others, and one whose delivery was started has not failed."""
    (ident,) = exim.submit()
    run = f'{" ".join(exim.prefix)} "$@"'
    act = f"*' {option} '*) {run} >/dev/null; exit 137"
    store = MailStore(refusing(exim, state, tmp_path, act))
    (task,) = tasks_of(store).values()
    (outcome,) = store.swap_all([Move(task, VERBS[verb].function(task, 0.0))])
    gone = "; looked again: not there any more" if verb == "bounce" else ""
    assert isinstance(outcome.error, Unavailable)
    assert str(outcome.error) == f"unknown: jail: ended by SIGKILL{gone}"
    assert ident not in exim.ids()  # a delivery ends in a report to the sender too


@pytest.mark.parametrize("in_trash", [0, 1])
def test_an_idle_store_writes_no_line_into_the_log(
    exim: EximServer, state: Path, in_trash: int
) -> None:
    """With +arguments each call of Exim writes a line: while nothing changes, none is made."""
    exim.configure("log_selector = +arguments\n")
    exim.run("-MG", "spooldeck-trash", *exim.submit(number=3)[:in_trash])
    seconds = [0.0]
    store = open_store(setup_of(exim, state), steady=lambda: seconds[0], pause=lambda seconds: None)
    try:
        wait = store.changes.wait
        assert len(tasks_of(store)) == 3 and wait is not None
        counts = list[int]()
        for _ in range(600):  # the first poll has nothing to compare with
            seconds[0] += 1.0
            if wait(0.0) is None:
                assert len(tasks_of(store)) == 3
            counts.append(len(exim.log_lines("cwd=")))
        assert counts[-1] == counts[180]
    finally:
        store.close()


@pytest.mark.parametrize("act", ["-Mf", "-Mrm", "-MG spooldeck-trash", "arrival"])
def test_changes_by_others_are_noticed(exim: EximServer, state: Path, act: str) -> None:
    """A message that arrives, is frozen, moved or removed changes the next poll."""
    (ident,) = exim.submit()
    seconds = [0.0]
    store = open_store(setup_of(exim, state), steady=lambda: seconds[0], pause=lambda seconds: None)
    try:
        wait, [old] = store.changes.wait, [*tasks_of(store).values()]
        assert wait is not None and wait(0.0) == ()
        seconds[0] = 1000.0
        wait(0.0)
        if act == "arrival":
            exim.submit()
        else:
            exim.run(*act.split(), ident)
        seconds[0] = 2000.0

        assert wait(0.0) is None

        assert [*tasks_of(store).values()] != [old]
    finally:
        store.close()


SUDO = """#!/bin/sh
# As sudo(8) with one rule: root may be asked for /usr/sbin/exim4 alone.
[ "$1" = -n ] && shift
if [ "$1" = -l ]; then [ "$2" = /usr/sbin/exim4 ]; exit; fi
if [ "$1" = /usr/sbin/exim4 ]; then exec "$@"; fi
echo "$@" >>/tmp/refused
echo "sudo: a password is required" >&2
exit 1
"""


def test_sudo_is_not_asked_for_what_it_refuses(
    exim: EximServer, state: Path, journal: Journal
) -> None:
    """With a sudo rule for Exim alone, sudo is asked for no other program: a refusal sends a mail
    to root; holding and purging work."""
    script, refused = exim.root / "usr/local/bin/sudo", exim.root / "tmp/refused"
    script.write_text(SUDO)
    script.chmod(0o755)
    exim.submit(number=2)
    setup = setup_of(exim, state)
    config = setup.config._replace(via={"jail": (*exim.prefix, "/usr/local/bin/sudo", "-n")})
    setup = setup._replace(config=config)
    store = setup.open_store()
    try:
        assert len(apply(store, journal, "hold", tasks_of(store)).done) == 2
        assert len(apply(store, journal, "purge", tasks_of(store)).done) == 2
        assert states_of(store) == {State.TRASH: 2}
        daemon = read_host(find_exim(setup), None).daemon
        assert (daemon.pids, daemon.is_known) == ((), False), "root's processes cannot be read"
        assert "it does not allow" in str([*check_place(setup)])
        assert not refused.exists(), refused.read_text()
    finally:
        store.close()
        script.unlink()


def server_of(
    exim: EximServer, state: Path, clock: Callable[[], float] = time.time
) -> server.EximServer:
    """The server of the place, whose acts are not checked before by a store."""
    place = find_exim(setup_of(exim, state))
    return server.EximServer(place, TrashRecord(str(state)), clock=clock)


def scripted(exim: EximServer, state: Path, tmp_path: Path, listing: str) -> Store:
    """The store behind a prefix that prints something else where a whole queue is listed."""
    run = f'{" ".join(exim.prefix)} "$@"'
    cases = f"*' -bpru ') {listing};; *) exec {run};;"
    return open_by(a_script(tmp_path / "prefix", f'case " $* " in {cases} esac'), str(state))


GOOD = " 1m   345 1xX5UI-0003P1-0V <a@b.test>\\n          c@d.test\\n\\n"


@pytest.mark.parametrize(
    ("listing", "problem"),
    [
        (f"printf 'Welcome \\033[2J!\\n{GOOD}'", "not a line of a listing: Welcome"),
        (f"printf '{GOOD} 0m  34 1xX5UI-000\\n'", "not a line of a listing:  0m  34 1xX5UI-000"),
        (f"printf '{GOOD}'; head -c 17000000 /dev/zero | tr '\\0' x; echo", "too long: skipped"),
        (f"printf '{GOOD}\\377\\376\\n'", "not a line of a listing"),
    ],
)
def test_garbage_in_a_listing_is_a_problem(
    exim: EximServer, state: Path, tmp_path: Path, listing: str, problem: str
) -> None:
    """A banner, a cut line, a line of 17 MB and garbage are problems; the message is listed."""
    store = scripted(exim, state, tmp_path, listing)
    try:
        items = [*store.scan()]
    finally:
        store.close()

    assert {item.id for item in items if isinstance(item, Task)} == {"1xX5UI-0003P1-0V"}
    (what,) = [item.what for item in items if isinstance(item, Problem)]
    assert problem in what and what.isprintable()


@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        (f"printf '{GOOD}'; kill -9 $$", "SIGKILL"),
        ("echo 'exim: permission denied' >&2; exit 1", "permission denied"),
        ("exit 127", "127"),
    ],
)
def test_a_listing_that_is_not_whole_removes_no_task(
    exim: EximServer, state: Path, tmp_path: Path, listing: str, reason: str
) -> None:
    """A program that is killed, refuses or is missing makes the queue unavailable, not empty."""
    store = scripted(exim, state, tmp_path, listing)
    try:
        with pytest.raises(Unavailable, match=reason):
            [*store.scan()]
    finally:
        store.close()


def test_as_many_recipients_as_exim_reads(exim: EximServer, state: Path) -> None:
    """A message to 16,000 recipients is one task with all of them; Exim reads at most 16,384."""
    many = [f"user{number}@many.example.test" for number in range(16_000)]
    (ident,) = exim.submit(recipients=many)

    with opened(exim, state) as store:
        task = tasks_of(store)[ident]

    assert len(task.recipients) == 16_000
    assert task.description == "16,000 recipients"


@pytest.mark.parametrize("ident", ["ALL", "1xX5UI-0003P1-0V\n", "-Mrm", "../../etc/passwd", ""])
def test_no_other_text_is_given_to_exim(exim: EximServer, state: Path, ident: str) -> None:
    """An id that is none starts no program."""
    (good,) = exim.submit()
    with opened(exim, state) as store:
        task = tasks_of(store)[good]
        assert [*store.verify([(ident, task.state, task.rev)])] == []
        with pytest.raises((Gone, Unsupported)):
            store.swap(task._replace(id=ident), task._replace(id=ident, state=State.HELD))
    assert "frozen" not in exim.listing()


def test_another_clock_there_does_not_hide_what_we_moved(
    exim: EximServer, state: Path, journal: Journal
) -> None:
    """If our clock differs from the one of the host, what we moved is still known as ours."""
    exim.submit()
    store = open_store(setup_of(exim, state), clock=lambda: 1e9)
    try:
        apply(store, journal, "purge", tasks_of(store))
        (task,) = tasks_of(store).values()
    finally:
        store.close()

    assert task.extra["moved by"] == "spooldeck"
