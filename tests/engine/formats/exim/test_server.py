"""A queue of a real Exim: states, acts, and their races with deliveries and other operators."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from engine.formats.exim.facts import read_host
from engine.formats.exim.place import check_place, find_exim, open_store
from engine.formats.exim.programs import NO_MESSAGE
from engine.model import Missing, Move, Problem, State, Task
from engine.programs.mail_server import ActResult
from engine.programs.mail_store import MailStore
from engine.store import Gone, Store, Unavailable, Unsupported
from engine.verbs import VERBS
from tests.engine.formats.exim.exim_places import (
    USER,
    a_prefix,
    apply,
    open_by,
    opened,
    server_of,
    setup_of,
    states_of,
    task_in,
    undo_last,
)
from tests.exim_server import EximServer, Sink, wait_until
from tests.store_contents import tasks_in
from tests.tables import each
from tui.plan.plan_lines import requests_text, result_lines


def test_messages_have_their_fields(exim: EximServer) -> None:
    """A task has sender, open recipients, size, arrival, and reason and account from the log."""
    grey = Sink("127.0.0.3", "450 4.2.0 Greylisted")
    exim.configure(sinks=[("grey.example.test", grey)])
    recipients = ("Bob@grey.example.test", "c@grey.example.test")
    exim.submit(recipients=recipients, deliver=True)
    wait_until(lambda: len(exim.log_lines(" == ")) == 2)
    task = task_in(exim)
    assert (task.state, task.kind, task.word) == (State.PENDING, "mail", "")
    assert (task.sender, task.account) == ("ann@shop.example.test", "root")
    assert (task.recipients, task.destination) == (recipients, recipients[0])
    assert task.group == "grey.example.test"
    assert task.error.endswith("450 4.2.0 Greylisted")
    assert (task.due, task.attempts) == (None, None)
    assert task.bytes is not None and 300 < task.bytes < 500


def test_odd_addresses_and_flags(exim: EximServer) -> None:
    """Addresses, logins and flags are shown safely; a frozen message has its end."""
    more = "local_from_check = true\nuntrusted_set_sender = *\ntimeout_frozen_after = 7d\n"
    exim.configure(more)
    odd = ['"we\\"ird\\\\"@a.test', '"> (web) *** frozen ***"@a.test', "\u202ebob@a.test"]
    for address in odd:
        exim.submit(recipients=[address])
    exim.run("-Mf", *exim.ids())
    with opened(exim) as store:
        tasks = tasks_in(store).values()
    assert {task.state for task in tasks} == {State.HELD}
    assert all("Exim cancels frozen mail then" in t.extra["frozen until"] for t in tasks)
    assert {task.destination for task in tasks} >= {*odd[:2]}
    assert all(task.destination.isprintable() for task in tasks)


def test_hold_and_undo(exim: EximServer) -> None:
    """Hold freezes messages, and its undo thaws them."""
    exim.submit(number=3)
    with opened(exim) as store:
        assert len(apply(store, exim.state, "hold", tasks_in(store)).done) == 3
        assert exim.listing().count("*** frozen ***") == 3
        assert states_of(store) == {State.HELD: 3}
        assert len(undo_last(store, exim.state).done) == 3
        assert states_of(store) == {State.PENDING: 3}
        assert "frozen" not in exim.listing()


@pytest.mark.parametrize("more", ["", "split_spool_directory\n"])
def test_purge_and_undo_keep_every_byte(exim: EximServer, more: str) -> None:
    """Of 201 messages, 67 of them frozen, each spool file and state is as before."""
    exim.configure(more)
    exim.run("-Mf", *exim.submit(number=201)[:67])
    before = exim.digests()
    with opened(exim) as store:
        assert len(apply(store, exim.state, "purge", tasks_in(store)).done) == 201
        assert (exim.ids(), len(exim.ids("spooldeck-trash"))) == ([], 201)
        assert states_of(store) == {State.TRASH: 201}
        assert len(undo_last(store, exim.state).done) == 201
        assert exim.ids("spooldeck-trash") == []
        assert states_of(store) == {State.PENDING: 134, State.HELD: 67}
    assert exim.digests() == before


def test_a_message_in_delivery_is_not_purged(exim: EximServer, slow: Sink) -> None:
    """Messages that Exim delivers are skipped with the PID, and are delivered once."""
    exim.submit(number=4)
    with opened(exim) as store:
        (late,) = exim.submit(recipients=["x@slow.example.test"])
        planned = tasks_in(store)
        (early,) = exim.submit(recipients=["x@slow.example.test"], deliver=True)
        assert slow.waiting.acquire(timeout=30)
        active = tasks_in(store)[early]
        assert active.state is State.ACTIVE and active.lease is not None
        bar = store.edges[State.ACTIVE, State.HELD].bars(active, 0.0)
        assert bar == f"Exim has locked it: {active.lease.owner} delivers"
        exim.deliver(late)
        assert slow.waiting.acquire(timeout=30)
        report = apply(store, exim.state, "purge", planned)
        assert len(report.done) == 4
        assert [*report.gone, *(ident for ident, _ in report.failed)] == [late]
        assert exim.ids() == sorted([late, early])
    slow.release()
    wait_until(lambda: exim.ids() == [])
    assert len(slow.bodies) == 2


def test_a_message_that_is_locked_after_the_check_fails(exim: EximServer, slow: Sink) -> None:
    """Exim refuses an act on it; `-Mg` prints nothing, and the listing after it decides."""
    (ident,) = exim.submit(recipients=["x@slow.example.test"])
    with opened(exim) as store:
        assert isinstance(store, MailStore)
        (task,) = tasks_in(store).values()
        assert [*store.verify([(task.id, task.state, task.rev)])] == [task]
        exim.deliver(ident)
        assert slow.waiting.acquire(timeout=30)
        with pytest.raises(Exception, match=r"in delivery: PID [0-9]+ has locked it"):
            store.swap(task, task._replace(state=State.TRASH))
    result = server_of(exim).act([task], task._replace(state=State.DEAD))
    assert not result.done
    assert result.refused[ident].startswith("in delivery: PID")
    assert exim.ids() == [ident]


def test_an_old_message_is_not_held(exim: EximServer) -> None:
    """Exim would cancel it: a queue run after `-Mf` shows so, and X is the other way."""
    exim.configure("timeout_frozen_after = 1s\n")
    (ident,) = exim.submit()
    with opened(exim) as store:
        report = apply(store, exim.state, "hold", tasks_in(store))
        ((excluded, why),) = report.excluded
        assert (report.done, excluded) == ((), ident)
        assert "Exim cancels frozen mail older than 1s" in why and "X moves it" in why
        wait_until(lambda: exim.run("-bpc").stdout.strip() == b"1")
        exim.run("-Mf", ident)
        wait_until(lambda: exim.run("-q") is not None and ident not in exim.ids())
        assert exim.log_lines(f"{ident} cancelled by timeout_frozen_after")


def test_bounce(exim: EximServer) -> None:
    """Bounce ends messages, also frozen ones, and their sender gets a report."""
    ids = exim.submit(number=2)
    exim.run("-Mf", ids[0])
    with opened(exim) as store:
        assert {*apply(store, exim.state, "bounce", tasks_in(store)).done} == {*ids}
    assert not {*ids} & {*exim.ids()}
    assert len(exim.log_lines("cancelled by root")) == 2


def test_an_act_in_vain_has_a_reason(exim: EximServer) -> None:
    """The line or the status of the program; a message that is there is not called locked."""
    (ident,) = exim.submit()
    task, options = task_in(exim), {"bounce": "-Mg", "promote": "-M"}
    denied = "echo 'exim: permission denied' >&2; exit 1"
    for verb, answer, why in (
        ("bounce", denied, "exim: permission denied"),
        ("bounce", "exit 1", "exim -Mg ended with status 1"),
        ("bounce", "exit 0", "still in the queue: Exim names no reason, see its main log"),
        ("promote", denied, "exim: permission denied"),
    ):
        script = a_prefix(exim, f"*' {options[verb]} '*) {answer}")
        result = server_of(exim, script).act([task], VERBS[verb].function(task, 0.0))
        assert result == ActResult(refused={ident: why}), answer


def test_damaged_spool_files(exim: EximServer) -> None:
    """A broken header file is a problem; a message without data stays, and is not held."""
    broken, no_data, no_header, good = exim.submit(number=4)
    folder = exim.spool / "input"
    (folder / f"{broken}-H").write_bytes(b"x" * 60)
    (folder / f"{no_data}-D").unlink()
    (folder / f"{no_header}-H").unlink()
    with opened(exim) as store:
        items = [*store.scan()]
        tasks = {item.id: item for item in items if isinstance(item, Task)}
        (problem,) = [item for item in items if not isinstance(item, Task | Missing)]
        assert tasks.keys() == {no_data, good}
        assert broken in problem.where and "spool format error" in problem.what
        assert tasks[no_data].bytes is None
        assert not any(isinstance(item, Task) for item in store.scan({no_header}))
        report = apply(store, exim.state, "hold", tasks)
        ((ident, why),) = report.failed
        assert (report.done, ident) == ((good,), no_data)
        assert "does not exist" in why


def test_restore_of_what_another_moved(exim: EximServer) -> None:
    """Moved to the trash queue by hand, it returns as frozen, and is never deleted there."""
    (ident,) = exim.submit()
    exim.run("-MG", "spooldeck-trash", ident)
    with opened(exim) as store:
        tasks = tasks_in(store)
        assert tasks[ident].state is State.TRASH
        assert tasks[ident].extra["moved by"] == "another program, or by hand"
        report = apply(store, exim.state, "expunge", tasks, clock=4e9)
        assert report.done == () and "kept" in report.excluded[0][1]
        assert len(apply(store, exim.state, "restore", tasks).done) == 1
        assert states_of(store) == {State.HELD: 1}
    assert exim.ids() == [ident]


def test_expunge_only_after_a_day(exim: EximServer) -> None:
    """What we moved to the trash is deleted after 24 hours, and not before."""
    ids = exim.submit(number=2)
    with opened(exim) as store:
        assert len(apply(store, exim.state, "purge", tasks_in(store)).done) == 2
        trashed = tasks_in(store)
        now = float(trashed[ids[0]].extra["trash_since"])
        early = apply(store, exim.state, "expunge", trashed, clock=now + 23 * 3600)
        assert (early.done, len(early.excluded)) == ((), 2)
        plan = apply(store, exim.state, "expunge", trashed, clock=now + 25 * 3600)
        assert (len(plan.done), len(plan.failed)) == (0, 2), "the clock of the store decides"
    with closing(open_store(setup_of(exim), lambda: now + 25 * 3600)) as store:
        report = apply(store, exim.state, "expunge", tasks_in(store), clock=now + 25 * 3600)
    assert {*report.done} == {*ids}
    assert exim.ids("spooldeck-trash") == []


def test_what_was_moved_again_by_hand_is_kept(exim: EximServer) -> None:
    """An older record of ours lets no message be deleted; another clock there hides no move."""
    (ident,) = exim.submit()
    with closing(open_store(setup_of(exim), clock=lambda: 1e9)) as store:
        apply(store, exim.state, "purge", tasks_in(store))
        assert tasks_in(store)[ident].extra["moved by"] == "spooldeck"
        exim.run("-qGspooldeck-trash", "-MG", "", ident)
        exim.run("-MG", "spooldeck-trash", ident)
        record = exim.state / "trash.moved"
        lines = record.read_text()
        record.write_text(lines.replace(lines.split()[1], "1000"))
        assert tasks_in(store)[ident].extra["moved by"] != "spooldeck"


@pytest.mark.parametrize(("seconds", "note"), [(60.0, "ended"), (0.0, "still delivering")])
def test_promote_delivers_once(
    exim: EximServer, slow: Sink, monkeypatch: pytest.MonkeyPatch, seconds: float, note: str
) -> None:
    """The delivery goes on when the store is closed; the result says whether it had ended."""
    monkeypatch.setattr("engine.formats.exim.server.DELIVERY_SECONDS", seconds)
    (ident,) = exim.submit(recipients=["x@slow.example.test"])
    slow.release()
    with opened(exim) as store:
        report = apply(store, exim.state, "promote", tasks_in(store))
    assert (report.done, report.is_exact, report.notes) == ((ident,), False, {note: 1})
    assert requests_text(report) == f"asked for 1: 1 {note}"
    wait_until(lambda: exim.ids() == [])
    assert len(slow.bodies) == 1
    assert exim.log_lines(f"{ident} => x@slow.example.test")


def test_a_message_that_was_frozen_after_its_check(exim: EximServer) -> None:
    """`-M` would thaw it and does not start; `-MG` moves it and shows that it is frozen."""
    ident, other = exim.submit(number=2)
    with opened(exim) as store:
        tasks = tasks_in(store)
        task = tasks[ident]
        exim.run("-Mf", ident)
        result = server_of(exim).act([task], task._replace(due=0.0))
        assert result.refused == {ident: "changed: not queued any more"}
        assert "*** frozen ***" in exim.listing()
        result = server_of(exim).act([task, tasks[other]], task._replace(state=State.TRASH))
        assert result.done == {ident: task.rev for ident, task in tasks_in(store).items()}


def test_parts(exim: EximServer) -> None:
    """A message has its header file, log and body, also in the trash queue."""
    (ident,) = exim.submit(text="hello body")
    with opened(exim) as store:
        for _ in range(2):
            (task,) = tasks_in(store).values()
            parts = {part.name: store.read(task, part.name) for part in store.parts(task)}
            assert [*parts] == ["message", "headers", "envelope", "log", "body", "retry"]
            assert store.read(task).startswith(f"id: {ident}\n".encode())
            assert parts["headers"].startswith(b"Received: from ")
            assert b"\nSubject: mail 0\n" in parts["headers"]
            assert b"018  Subject" not in parts["headers"]
            for name, text in (
                ("envelope", f"{ident}-H\n"),
                ("log", "Received from ann@shop.example.test"),
                ("body", "hello body"),
                ("retry", "No retry data found"),
            ):
                assert text.encode() in parts[name]
            exim.run("-MG", "spooldeck-trash", ident)


def test_a_user_without_rights(exim: EximServer) -> None:
    """Without the right to list, opening says who may; with it all changes are refused."""
    exim.submit()
    setup = setup_of(exim, *USER)
    with pytest.raises(Unavailable, match="only root and Exim's admin_groups may list"):
        setup.open_store()
    exim.configure("no_queue_list_requires_admin\n")
    with closing(setup.open_store()) as store:
        assert len(tasks_in(store)) == 1
        assert all("only root" in edge.refusal for edge in store.edges.values())
        assert all("only root" in control.refusal for control in store.controls.values())


def test_a_place_that_must_not_be_used_is_refused(exim: EximServer) -> None:
    """Another spool than the program's, and as root a configuration that others may change."""
    setup, path = setup_of(exim), exim.root / "etc/exim4/exim4.conf"
    other = setup.address._replace(text="exim://jail/srv/spool")
    with pytest.raises(Unavailable, match="has the spool /var/spool/exim4"):
        setup._replace(address=other).open_store()
    path.chmod(0o666)
    try:
        with pytest.raises(Unavailable, match=r"exim4\.conf"):
            setup.open_store()
    finally:
        path.chmod(0o644)


def test_a_lost_connection_is_looked_at_again(exim: EximServer) -> None:
    """If the prefix loses the connection after the act, the listings decide what was done."""
    ids = exim.submit(number=5)
    act = "*' -MG spooldeck-trash '*) RUN >/dev/null; echo connection lost >&2; exit 255"
    script = a_prefix(exim, f"*{NO_MESSAGE}*) exec RUN;; {act}")
    with closing(open_by(script, exim.state)) as store:
        report = apply(store, exim.state, "purge", tasks_in(store))
    assert report.accounted == 5
    assert {*report.done} == {*ids}
    text = "".join(run[0] for line in result_lines(report, 100) for run in line)
    assert "5 connection lost; looked again: done" in text
    assert exim.ids("spooldeck-trash") == ids


@pytest.mark.parametrize(("verb", "option"), [("bounce", "-Mg"), ("promote", "-M")])
def test_what_a_killed_act_leaves_open_is_unknown(exim: EximServer, verb: str, option: str) -> None:
    """A message given up is not changed by others; a delivery that began has not failed."""
    (ident,) = exim.submit()
    script = a_prefix(exim, f"*' {option} '*) RUN >/dev/null; exit 137")
    store = MailStore(server_of(exim, script))
    (task,) = tasks_in(store).values()
    (outcome,) = store.swap_all([Move(task, VERBS[verb].function(task, 0.0))])
    gone = "; looked again: not there any more" if verb == "bounce" else ""
    assert isinstance(outcome.error, Unavailable)
    assert str(outcome.error) == f"unknown: jail: ended by SIGKILL{gone}"
    assert ident not in exim.ids()  # a delivery ends in a report to the sender too
    wait_until(lambda: "*** frozen ***" in exim.listing())  # that report, which comes last


@contextmanager
def watched(exim: EximServer, seconds: list[float]) -> Iterator[Store]:
    """The store of the place, by a clock of the test."""
    store = open_store(setup_of(exim), steady=lambda: seconds[0], pause=lambda seconds: None)
    with closing(store):
        yield store


@pytest.mark.parametrize("in_trash", [0, 1])
def test_an_idle_store_writes_no_line_into_the_log(exim: EximServer, in_trash: int) -> None:
    """With +arguments each call of Exim writes a line: while nothing changes, none is made."""
    exim.configure("log_selector = +arguments\n")
    exim.run("-MG", "spooldeck-trash", *exim.submit(number=3)[:in_trash])
    seconds, counts = [0.0], list[int]()
    with watched(exim, seconds) as store:
        wait = store.changes.wait
        assert len(tasks_in(store)) == 3 and wait is not None
        for _ in range(600):  # the first poll has nothing to compare with
            seconds[0] += 1.0
            if wait(0.0) is None:
                assert len(tasks_in(store)) == 3
            counts.append(len(exim.log_lines("cwd=")))
    assert counts[-1] == counts[180]


@pytest.mark.parametrize("act", ["-Mf", "-Mrm", "-MG spooldeck-trash", "arrival"])
def test_changes_by_others_are_noticed(exim: EximServer, act: str) -> None:
    """A message that arrives, is frozen, moved or removed changes the next poll."""
    (ident,) = exim.submit()
    seconds = [0.0]
    with watched(exim, seconds) as store:
        wait, [old] = store.changes.wait, [*tasks_in(store).values()]
        assert wait is not None and wait(0.0) == ()
        seconds[0] = 1000.0
        wait(0.0)
        exim.submit() if act == "arrival" else exim.run(*act.split(), ident)
        seconds[0] = 2000.0
        assert wait(0.0) is None
        assert [*tasks_in(store).values()] != [old]


SUDO = """#!/bin/sh
# As sudo(8) with one rule: root may be asked for /usr/sbin/exim4 alone.
[ "$1" = -n ] && shift
if [ "$1" = -l ]; then [ "$2" = /usr/sbin/exim4 ]; exit; fi
if [ "$1" = /usr/sbin/exim4 ]; then exec "$@"; fi
echo "$@" >>/tmp/refused
echo "sudo: a password is required" >&2
exit 1
"""


def test_sudo_is_not_asked_for_what_it_refuses(exim: EximServer) -> None:
    """With a rule for Exim alone all acts work: each refusal would send a mail to root."""
    script, refused = exim.root / "usr/local/bin/sudo", exim.root / "tmp/refused"
    script.write_text(SUDO)
    script.chmod(0o755)
    exim.submit(number=2)
    setup = setup_of(exim, "/usr/local/bin/sudo", "-n")
    try:
        with closing(setup.open_store()) as store:
            for verb in ("hold", "purge"):
                assert len(apply(store, exim.state, verb, tasks_in(store)).done) == 2
            assert states_of(store) == {State.TRASH: 2}
        daemon = read_host(find_exim(setup), None).daemon
        assert (daemon.pids, daemon.is_known) == ((), False), "root's processes cannot be read"
        assert "it does not allow" in str([*check_place(setup)])
        assert not refused.exists(), refused.read_text()
    finally:
        script.unlink()


def scripted(exim: EximServer, listing: str) -> Store:
    """The store behind a prefix that prints something else where a whole queue is listed."""
    return open_by(a_prefix(exim, f"*' -bpru ') {listing}"), exim.state)


GOOD = " 1m   345 1xX5UI-0003P1-0V <a@b.test>\\n          c@d.test\\n\\n"


@each(
    ("listing", "problem"),
    [
        (f"printf 'Welcome \\033[2J!\\n{GOOD}'", "not a line of a listing: Welcome"),
        (f"printf '{GOOD} 0m  34 1xX5UI-000\\n'", "not a line of a listing:  0m  34 1xX5UI-000"),
        (f"printf '{GOOD}'; head -c 17000000 /dev/zero | tr '\\0' x; echo", "too long: skipped"),
        (f"printf '{GOOD}\\377\\376\\n'", "not a line of a listing"),
    ],
)
def test_garbage_in_a_listing_is_a_problem(exim: EximServer, listing: str, problem: str) -> None:
    """A banner, a cut line, a line of 17 MB and garbage are problems; the message is listed."""
    with closing(scripted(exim, listing)) as store:
        items = [*store.scan()]
    assert {item.id for item in items if isinstance(item, Task)} == {"1xX5UI-0003P1-0V"}
    (what,) = [item.what for item in items if isinstance(item, Problem)]
    assert problem in what and what.isprintable()


@each(
    ("listing", "reason"),
    [
        (f"printf '{GOOD}'; kill -9 $$", "SIGKILL"),
        ("echo 'exim: permission denied' >&2; exit 1", "permission denied"),
        ("exit 127", "127"),
    ],
)
def test_half_of_a_listing_removes_no_task(exim: EximServer, listing: str, reason: str) -> None:
    """A program that is killed, refuses or is missing makes the queue unavailable, not empty."""
    store = scripted(exim, listing)
    with closing(store), pytest.raises(Unavailable, match=reason):
        [*store.scan()]


def test_as_many_recipients_as_exim_reads(exim: EximServer) -> None:
    """A message to 16,000 recipients is one task with all of them; Exim reads at most 16,384."""
    exim.submit(recipients=[f"user{number}@many.example.test" for number in range(16_000)])
    task = task_in(exim)
    assert (len(task.recipients), task.description) == (16_000, "16,000 recipients")


def test_no_other_text_is_given_to_exim(exim: EximServer) -> None:
    """An id that is none starts no program."""
    exim.submit()
    with opened(exim) as store:
        (task,) = tasks_in(store).values()
        for ident in ("ALL", "1xX5UI-0003P1-0V\n", "-Mrm", "../../etc/passwd", ""):
            assert [*store.verify([(ident, task.state, task.rev)])] == []
            with pytest.raises((Gone, Unsupported)):
                store.swap(task._replace(id=ident), task._replace(id=ident, state=State.HELD))
    assert "frozen" not in exim.listing()
