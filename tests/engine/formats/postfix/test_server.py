"""A real Postfix instance: what is listed, each act, and what other operators do meanwhile."""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import verbs
from engine.formats.postfix import server
from engine.formats.postfix.instance import Instance, open_instance
from engine.formats.postfix.lines import HELD_KEY, PID_KEY
from engine.formats.postfix.marks import Mark, Marks
from engine.formats.postfix.server import LOOK_SECONDS, REQUEUED_KEY, PostfixServer
from engine.model import Missing, Move, State, Task
from engine.operations.execute import PlanRun, Report
from engine.operations.plans import freeze_plan, preview_transitions
from engine.programs.mail_server import ActResult
from engine.programs.mail_store import MailStore
from engine.programs.prefix import HERE, Prefix
from engine.store import Gone, Unavailable, Unsupported
from tests.postfix_server import SINK_DOMAIN, PostfixInstance, change, errors, new_instance
from tests.smtp_server import STALL, Server
from tests.store_contents import found, tasks_in

EVERYWHERE = Prefix("env", ("env",))
"""A prefix that leads to this host: no file is read but through programs."""

USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def many(store: MailStore, ids: Sequence[str]) -> list[Task]:
    """The tasks of these ids, each by a look."""
    return [found(store, ident) for ident in ids]


def go_on(run: PlanRun) -> Report:
    """Carry out the rest of a plan."""
    while rows := run.next_rows(500):
        run.step(rows)
    return run.finish("")


def test_messages_are_listed(postfix: PostfixInstance) -> None:
    """In order after the sample, due at the next attempt; a look shows the same."""
    ids = postfix.deferred(3, sender="flood@shop.example.test")
    # Where no time passes, a listing costs none, so that one may follow each look.
    with closing(MailStore(postfix.server(HERE), steady=lambda: 0.0)) as store:
        tasks = [task for task in store.scan() if isinstance(task, Task)]
        assert [task.id for task in tasks[3:]] == ids
        for task in tasks[3:]:
            path = next(postfix.queue.glob(f"deferred/*/{task.id}"))
            assert task.due == int(path.stat().st_mtime) > time.time() + 500
            assert (task.sender, task.group) == ("flood@shop.example.test", "far.example.test")
            assert task.error == "deferred transport"
        looks = {task.id: task for task in store.scan({*ids}) if isinstance(task, Task)}
        for task in tasks_in(store).values():  # a look has shown that it has no account
            assert looks[task.id]._replace(extra=task.extra) == task
        others = {"4EBEB2DA019", "ALL", "../x", "-d"}
        assert {*store.scan(others)} == {Missing(name) for name in others}


P, H, T = State.PENDING, State.HELD, State.TRASH


@pytest.mark.parametrize("prefix", [HERE, EVERYWHERE])
def test_each_act_is_done_and_reported(postfix: PostfixInstance, prefix: Prefix) -> None:
    """Each time with the revision of a new look, and of a new listing."""
    ids = postfix.deferred(2)
    with closing(postfix.store(prefix)) as store:
        store.read_accounts_first()
        before = tasks_in(store)
        lines = sorted(postfix.run("postqueue", "-j").stdout.splitlines())
        for state in (H, T, H, P, T, P, H, P):
            moves = [Move(task, verbs.with_state(task, state)) for task in many(store, ids)]
            outcomes = list(store.swap_all(moves))
            assert [outcome.error for outcome in outcomes] == [None, None]
            queue = "deferred" if state is P else "hold"
            assert postfix.listed() == dict.fromkeys(ids, queue)
            with closing(postfix.store(prefix)) as fresh:
                listed = tasks_in(fresh)
            expected = [(state, outcome.rev) for outcome in outcomes]
            assert [(task.state, task.rev) for task in many(store, ids)] == expected
            assert [(listed[ident].state, listed[ident].rev) for ident in ids] == expected
        assert tasks_in(store) == before
        assert sorted(postfix.run("postqueue", "-j").stdout.splitlines()) == lines
        assert not Marks(str(postfix.marks)).read()
        assert errors(store, many(store, ids), "expire") == [None, None]
        assert {task.state for task in tasks_in(store).values()} == {State.DEAD}


def test_an_expired_message_returns_from_the_trash_as_expired(postfix: PostfixInstance) -> None:
    """It is not restored as pending: it would be returned to its sender."""
    (ident,) = postfix.deferred(1)
    with closing(postfix.store()) as store:
        for verb in ("expire", "purge"):
            assert errors(store, [found(store, ident)], verb) == [None]
        trashed = found(store, ident)
        assert trashed.state is State.TRASH
        with pytest.raises(Unsupported, match="it is expired"):
            store.swap(trashed, verbs.with_state(trashed, State.PENDING))
        store.swap(trashed, verbs.with_state(trashed, State.DEAD))
        assert found(store, ident).state is State.DEAD
        assert postfix.listed() == {ident: "deferred"}


def test_a_requeued_message_has_another_id(postfix: PostfixInstance) -> None:
    """It is gone under its id, and comes again with the same sender and arrival."""
    (ident,) = postfix.deferred(1)
    with closing(postfix.store()) as store:
        task = found(store, ident)
        assert errors(store, [task], "reroute") == [None]
        while ident in postfix.listed() or not postfix.listed():
            continue
        assert ident not in tasks_in(store)
        (new,) = tasks_in(store).values()
        assert (new.created, new.sender) == (task.created, task.sender)
        postfix.await_queue([new.id], "deferred")
        assert found(store, new.id).extra[REQUEUED_KEY] == ident


def test_attempts_are_only_asked_for(postfix: PostfixInstance) -> None:
    """Of a promoted message, or of all by the control, whose forecast has their number."""
    first, *others = ids = postfix.deferred(3, domain=SINK_DOMAIN)  # its port refuses
    with closing(postfix.store()) as store, Server(port=postfix.sink_port) as sink:
        task = found(store, first)
        assert not store.edges[State.PENDING, State.PENDING].exact
        assert errors(store, [task], "promote") == [None]
        assert sink.wait_for(1)
        postfix.await_queue([first], "")
        assert store.forecast("flush").amount == len(others)
        assert store.control("flush") == "asked for all deferred mail: Postfix decides"
        postfix.await_queue(ids, "")
        assert len(sink.mails) == 3
        for name in ("flush-site", "nonsense"):
            with pytest.raises(Unsupported):
                store.control(name, "a.test")


def test_a_message_that_is_purged_is_never_deleted_early(
    postfix: PostfixInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted after 24 hours, if it has stayed on hold in all that time."""
    _, freed, late = ids = postfix.deferred(3)
    marks, now = Marks(str(postfix.marks)), [time.time()]
    server = PostfixServer(open_instance(str(postfix.config)), marks, lambda: now[0])
    with closing(MailStore(server, lambda: now[0])) as store:
        assert errors(store, many(store, ids), "purge") == [None] * 3
        trashed = many(store, ids)
        assert {task.state for task in trashed} == {State.TRASH}
        refusals = errors(store, trashed, "expunge")
        assert {str(error) for error in refusals} == {"kept for 1d00h more"}

        # Another operator releases one and holds it again, later than any act of ours ends.
        postfix.run("postsuper", "-H", freed)
        postfix.run("postsuper", "-h", freed)
        mark = marks.read()[freed]
        marks.add([mark._replace(at=mark.at - 200)])
        now[0] += 86_401
        assert found(store, freed).state is State.HELD
        results = errors(store, trashed[:2], "expunge")
        assert [type(error) for error in results] == [type(None), Gone]
        # The times of files cannot be read: nothing is proven.
        monkeypatch.setattr(server, "instance", server.instance._replace(can_find=False))
        blind = tasks_in(store)[late]
        assert HELD_KEY in trashed[2].extra and HELD_KEY not in blind.extra
        (refusal,) = errors(store, [blind], "expunge")
        assert str(refusal) == "cannot prove that it stayed on hold"
        assert postfix.listed() == {freed: "hold", late: "hold"}


def test_a_message_that_was_held_in_delivery_is_not_requeued(
    postfix: PostfixInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it lies in deferred again: it would be delivered twice."""
    ids = postfix.deferred(2)
    server = postfix.server()
    monkeypatch.setattr(server, "_find_delivering", lambda some: {ids[0]: "4711"})
    with closing(MailStore(server)) as store:
        tasks = tasks_in(store)
        why, other = errors(store, [tasks[ident] for ident in ids], "reroute")
    assert isinstance(why, Unsupported) and "PID 4711 still delivers it" in str(why)
    monkeypatch.undo()
    with closing(postfix.store()) as store:
        task = tasks_in(store)[ids[0]]
        found(store, task.id)
        monkeypatch.setattr(Instance, "ask", lambda *words: [])  # no locks can be read any more
        (why,) = errors(store, [task], "reroute")
    assert "the locks of its queue cannot be read now" in str(why)
    assert (other, postfix.listed()[ids[0]]) == (None, "deferred")


def test_a_message_that_moves_after_its_check_is_not_held(postfix: PostfixInstance) -> None:
    """The name of the queue is the comparison: it has become active since, and stays so."""
    (ident,) = postfix.deferred(1, domain=SINK_DOMAIN)  # its port refuses
    with closing(postfix.store()) as store:
        task = tasks_in(store)[ident]
        assert len([*store.verify([(ident, task.state, task.rev)])]) == 1
        with Server(port=postfix.sink_port, body=STALL) as sink:
            postfix.run("postqueue", "-i", ident)
            assert sink.stalled.wait(30)
            (why,) = errors(store, [task], "hold")
            assert isinstance(why, Gone)
            assert postfix.listed() == {ident: "active"}


def test_a_hold_is_no_purge_that_was_not_finished(postfix: PostfixInstance) -> None:
    """A mark that a purge left behind goes with the hold of another operation."""
    (ident,) = postfix.deferred(1)
    with closing(postfix.store()) as store:
        task = found(store, ident)
        identity, now = task.rev.partition(".")[0], time.time()
        mark = Mark(ident, identity, task.sender, "deferred", at=now, who="ana")
        Marks(str(postfix.marks)).add([mark])
        assert errors(store, [task], "hold") == [None]
    assert found(postfix.store(), ident).state is State.HELD


@pytest.mark.parametrize("prefix", [HERE, EVERYWHERE])
def test_a_message_in_delivery_is_shown_and_held(
    postfix: PostfixInstance, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of the process that delivers it proves it; a plan to hold it says that this goes
    on, also if the locks cannot be read, and one to requeue it is not possible. Also on another
    host, no listing is run for it."""
    sink = Server(port=postfix.sink_port, body=STALL)
    with sink, closing(postfix.store(prefix)) as store:
        (ident,) = postfix.send(1, domain=SINK_DOMAIN)
        assert sink.stalled.wait(30)
        task = tasks_in(store)[ident]
        assert (task.state, task.word) == (State.ACTIVE, "delivering")
        assert Path(f"/proc/{task.extra[PID_KEY]}/comm").read_text() == "smtp\n"
        assert found(store, ident)._replace(extra=task.extra) == tasks_in(store)[ident]
        plan = freeze_plan("hold", [task], time.time(), edges=store.edges)
        warned = {(row.state, row.target, row.warned): 1 for row in plan.rows}
        (preview,) = preview_transitions("hold", warned, store.edges)
        assert preview.warnings == ("1 in delivery: that goes on",)
        assert (State.ACTIVE, State.DONE) not in store.edges
        with monkeypatch.context() as patch:
            patch.setattr(Instance, "ask", lambda *words: [])  # no locks can be read
            tasks_in(store)
            unknown = store.edges[State.ACTIVE, State.HELD].warning
            twice = store.edges[State.HELD, State.DONE].warning
        assert unknown.startswith("? of them in delivery, that goes on")
        assert twice.startswith("? of them in delivery, then sent twice")
        tasks_in(store)
        assert not store.edges[State.ACTIVE, State.HELD].warning
        monkeypatch.setattr(store, "_list", pytest.fail)
        assert errors(store, [task], "hold") == [None]
        held = found(store, ident)
        assert (held.state, held.extra[PID_KEY]) == (State.HELD, task.extra[PID_KEY])
        assert postfix.listed() == {ident: "hold"}


def test_a_message_delivered_on_hold_is_not_sent_again(postfix: PostfixInstance) -> None:
    """Held in the middle of its delivery, it is not sent again once it is released."""
    with Server(port=postfix.sink_port) as sink, closing(postfix.store()) as store:
        go_on, usual = threading.Event(), sink.came

        def came(mail: object, accepted: bool) -> None:
            go_on.wait(60)
            usual(mail, accepted)  # type: ignore[arg-type]

        sink.came = came  # type: ignore[method-assign]
        (ident,) = postfix.send(1, domain=SINK_DOMAIN)
        while (task := found(store, ident)).word != "delivering":
            continue
        assert errors(store, [task], "hold") == [None]
        go_on.set()
        while (held := tasks_in(store)[ident]).word != "delivered":
            continue
        assert (store.sample(0).words or {})["delivered"] == 1
        assert errors(store, [held], "release") == [None]
        postfix.run("postqueue", "-f")
        postfix.await_queue([ident], "")
        assert len(sink.mails) == 1


def test_an_envelope_is_kept_for_its_own_five_seconds(
    postfix: PostfixInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago the look before began: the images of a plan take no program. Older ones are
    dropped by the next look; what an act did with them has its new revision all the same."""
    ids = postfix.deferred(2)
    now, calls, start, act = [time.monotonic()], list[str](), Instance.start, PostfixServer.act
    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time, sleep=time.sleep)
    monkeypatch.setattr(server, "time", clock)

    def started(self: Instance, program: str, *words: str, **options: Any) -> Any:
        calls.append(program)
        return start(self, program, *words, **options)

    def look_late(self: PostfixServer, olds: Sequence[Task], new: Task | None) -> ActResult:
        now[0] += LOOK_SECONDS
        list(self.show([], {}))
        return act(self, olds, new)

    with closing(postfix.store()) as store:
        tasks = many(store, ids)
        seen = [(one.id, one.state, one.rev) for one in tasks]
        monkeypatch.setattr(Instance, "start", started)
        for some in (seen[:1], seen):
            list(store.verify(some))
            now[0] += LOOK_SECONDS - 0.05
        images = [*store.read_all(tasks)]
        assert (calls, [type(image) for image in images]) == (["postcat"] * 2, [bytes] * 2)
        list(store.verify(seen))
        monkeypatch.setattr(PostfixServer, "act", look_late)
        outcomes = change(store, tasks, "hold")
        held = [tasks_in(store)[ident] for ident in ids]
        assert [outcome.rev for outcome in outcomes] == [task.rev for task in held]
        assert [*store.read_all(held)] == images
        assert calls.count("postcat") == 5  # each read for itself


def test_the_parts_of_a_message(postfix: PostfixInstance) -> None:
    """Envelope, headers, body, recipients and line can be read while it is in its state."""
    (ident,) = postfix.deferred(1)
    with closing(postfix.store()) as store:
        task = found(store, ident)
        parts = {part.name: store.read(task, part.name) for part in store.parts(task)}
        assert b"sender: ana@mx1.example.test\n" in parts["envelope"]
        assert store.read(task) == parts["envelope"]
        assert b"Subject: m0\n" in parts["headers"] and b"body of 0" in parts["body"]
        assert parts["recipients"] == b"u0@far.example.test: deferred transport\n"
        assert parts["listing"].startswith(b'{"queue_name": "deferred"')
        assert store.size(task) == task.bytes
        assert errors(store, [task], "hold") == [None]
        held = found(store, ident)
        assert store.read(held) == parts["envelope"]
        for gone, part in ((task, ""), (held, "nonsense")):
            with pytest.raises(Gone):
                store.read(gone, part)


def test_a_file_that_is_cut_off_harms_no_other(postfix: PostfixInstance) -> None:
    """Nothing of them is changed; the others move, though postcat stops at each."""
    ids = postfix.deferred(6)
    with closing(postfix.store()) as store:
        tasks = many(store, ids)
        for ident, size in zip(ids, (0, 50, 100, 300), strict=False):
            path = next(postfix.queue.glob(f"deferred/*/{ident}"))
            path.write_bytes(path.read_bytes()[:size])
            path.chmod(0o700)
        results = errors(store, tasks, "hold")
        assert [type(error) for error in results[4:]] == [type(None)] * 2
        assert all(isinstance(error, Gone | Unavailable) for error in results[:4])
        listed = postfix.listed()
        assert {ident for ident in ids if listed.get(ident) == "hold"} == {*ids[4:]}


@pytest.mark.parametrize("number", [200, pytest.param(3000, marks=pytest.mark.deep)])
def test_a_plan_survives_another_operator(postfix: PostfixInstance, number: int) -> None:
    """Each row is accounted for, and no message is touched that was not planned."""
    planned, others = {*postfix.deferred(number)}, {*postfix.deferred(20)}
    ended = threading.Event()

    def interfere() -> None:
        while not ended.is_set():
            postfix.run("postqueue", "-f")
            postfix.run("postsuper", "-H", "ALL")

    rival = threading.Thread(target=interfere)
    with closing(postfix.store()) as store:
        tasks = [task for task in tasks_in(store).values() if task.id in planned]
        run = PlanRun(store, freeze_plan("hold", tasks, time.time()), time.time)
        rival.start()
        try:
            report = go_on(run)
        finally:
            ended.set()
            rival.join()
        assert report.accounted == number
        assert {*report.done, *report.gone, *(i for i, _ in report.failed)} == planned
        held = {
            line.split("]: ")[1].split(":")[0]
            for line in postfix.log().splitlines()
            if line.endswith(": placed on hold")
        }
        assert {*report.done} <= held
        assert not held & others
        postfix.await_all(planned | others)


def test_a_listing_that_fails_while_it_is_stopped_says_so(postfix: PostfixInstance) -> None:
    """The queue lacks a folder: postqueue alone says only that an answer is malformed."""
    (postfix.queue / "hold").rename(postfix.queue / "away")
    with postfix.stopped():
        with closing(postfix.store()) as store, pytest.raises(Unavailable) as refused:
            tasks_in(store)
        (postfix.queue / "away").rename(postfix.queue / "hold")
    assert str(refused.value).startswith("Postfix is stopped: postfix start; postqueue: fatal: ")


def test_a_requeue_while_attempts_begin_delivers_nothing_twice(postfix: PostfixInstance) -> None:
    """The name of the queue keeps it from messages that have just become active."""
    number = 200
    postfix.deferred(number, domain=SINK_DOMAIN)  # its port refuses
    with Server(port=postfix.sink_port) as sink, closing(postfix.store()) as store:
        plan = freeze_plan("reroute", [*tasks_in(store).values()], time.time())
        flush = threading.Thread(target=postfix.run, args=("postqueue", "-f"))
        flush.start()
        report = go_on(PlanRun(store, plan, time.time))
        flush.join()
        assert report.accounted == number
        while postfix.listed():
            postfix.run("postqueue", "-f")
        bodies = [mail.data.rpartition(b"\r\n\r\n")[2] for mail in sink.mails]
    assert len(bodies) == len({*bodies}) == number


def test_a_user_may_list_and_flush(postfix: PostfixInstance) -> None:
    """At the instance of /etc/postfix a user without rights sees all mail, may have it tried, and
    changes nothing: each other change is refused with what would allow it. At another one, the
    program's own words say why its listing is not allowed."""
    ids = postfix.deferred(2, domain=SINK_DOMAIN)  # its port refuses
    there = f'mount --bind {postfix.config} /etc/postfix && exec "$@"'
    words = ("unshare", "-m", "--propagation=private", "sh", "-c", there, "sh", *USER)
    instance = open_instance("/etc/postfix", Prefix("web", words))
    server = PostfixServer(instance, Marks(str(postfix.marks)))
    with closing(MailStore(server)) as store, Server(port=postfix.sink_port) as sink:
        tasks = tasks_in(store)
        assert sorted(tasks) == ids
        (why,) = {str(error) for error in errors(store, tasks.values(), "hold")}
        assert why.endswith("end its prefix with sudo -n; doctor prints the rule of sudo")
        allowed = {its for its, edge in store.edges.items() if not edge.refusal}
        assert allowed == {(State.PENDING, State.PENDING)}
        assert store.control("flush") == "asked for all deferred mail: Postfix decides"
        postfix.await_queue(ids, "")
        assert len(sink.mails) == 2
    with closing(postfix.store(Prefix("web", USER))) as store:
        assert store.edges[State.PENDING, State.HELD].refusal.startswith("only root may")
        with pytest.raises(Unavailable, match="alternate_config_directories"):
            tasks_in(store)


def test_a_message_without_an_account_hides_no_other(postfix: PostfixInstance) -> None:
    """The look goes on behind it; a user who may not look reads none, with the reason."""
    ids = postfix.deferred(2) + postfix.deferred(2, login="ann")
    with closing(postfix.server()) as server:
        postfix.run("postsuper", "-d", ids[1])
        assert {*server.read_accounts(ids)} == {*ids} - {ids[1]}
        assert server.accounts.get(ids[1], "") is None
    with closing(postfix.store()) as store:
        listed = tasks_in(store)
        assert [listed[ident].account for ident in (ids[0], *ids[2:])] == ["", "ann", "ann"]
        task = found(store, ids[2])
        assert (task.account, "sasl_username" in task.extra) == ("ann", False)
    with pytest.raises(Unavailable, match="postcat is not allowed"):
        postfix.server(Prefix("web", USER)).read_accounts(ids)


def test_a_stopped_instance_is_listed_and_changed() -> None:
    """Postfix stopped: the listing is there and shows that; with a log that postsuper cannot write
    (Postfix 3.7), each message has its own outcome though the program dies after the first."""
    with new_instance() as postfix:
        postfix.start()
        ids = postfix.deferred(3)
        postfix.stop()
        log = postfix.folder / "log/mail.log"
        os.chown(log, 0, 0)
        log.chmod(0o600)
        with closing(postfix.store()) as store:
            tasks = [*tasks_in(store).values()]
            assert sorted(task.id for task in tasks) == ids
            refusal = store.edges[State.PENDING, State.PENDING].refusal
            assert refusal == "Postfix is stopped: postfix start"
            results = errors(store, tasks, "hold")
            held = {ident for ident, queue in postfix.listed().items() if queue == "hold"}
            done = {task.id for task, why in zip(tasks, results, strict=True) if why is None}
            assert done == held and held
            text = f"postsuper cannot write {log} while Postfix is stopped; looked again: unchanged"
            for why in filter(None, results):
                assert isinstance(why, Unavailable) and str(why) == text
