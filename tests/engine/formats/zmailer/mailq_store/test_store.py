"""A scheduler reached by MAILQ: what is shown of it, rights, polling, and checked requests."""

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import verbs
from engine.config.place_address import parse_address
from engine.formats.zmailer.mailq import queue_view
from engine.formats.zmailer.mailq.connection import ServerAddress
from engine.formats.zmailer.mailq.job_text import ThreadJobs
from engine.formats.zmailer.mailq.queue_view import AgentView, JobView, JobWait
from engine.formats.zmailer.mailq_store import source
from engine.formats.zmailer.mailq_store.source import ThreadPoller, parse_place
from engine.formats.zmailer.mailq_store.store import MailqStore
from engine.formats.zmailer.mailq_store.tasks import last_line, parse_id, tasks_of
from engine.model import WAITS_KEY, Missing, Move, State, Task
from engine.operations.plans import freeze_shared_plan
from engine.operations.run_plan import run_journaled_plan
from engine.store import Gone, Unavailable, Unsupported
from tests.mailq_samples import FOLDER
from tests.mailq_server import NOW, SAMPLE_JOBS, RunningServer, SampleQueue, serving, waiting_job
from tests.store_contents import found, naming, problems_in, tasks_in

TWO_THREADS, ONE_THREAD = "I/F/3276785", "smtp/a.test/G/W/3268638"
"""A message in two threads, and the task of another one."""
THREAD = queue_view.ThreadView("smtp", "a", 1, recipients=1, attempts=0, oldest_at=NOW)


def store_of(running: RunningServer, user: str = "root", password: str = "s3cret") -> MailqStore:
    """Open a server's place."""
    address = ServerAddress("mailq+unix://x", running.path, user=user, password=password)
    return MailqStore(address, lambda: NOW)


@pytest.fixture
def store(running: RunningServer) -> Iterator[MailqStore]:
    """A store on it, as root."""
    with closing(store_of(running)) as opened:
        yield opened


def test_a_task_is_a_message_in_a_thread(store: MailqStore) -> None:
    """With host, due time, attempts and error; MAILQ does not show the size of a message."""
    ids = [item.id for item in store.scan() if isinstance(item, Task)][-4:]
    threads = [f"smtp/{host}.test/{TWO_THREADS}" for host in "ab"]
    assert ids == ["hold/ns:c.test/any/S/O/3268942", ONE_THREAD, *threads]
    task = found(store, ONE_THREAD)
    assert (task.kind, task.group, task.queue) == ("smtp", "a.test", "smtp/a.test")
    assert (task.state, task.due, task.attempts) == (State.PENDING, NOW + 60, 4)
    assert (task.error, task.payload) == ("last line", "G/W/3268638")
    assert task.extra["errors to"] == "alice@local.test"
    assert found(store, threads[1]).description == "2 recipients"
    assert store.count_tasks() == {State.PENDING: 4, State.ACTIVE: 0}
    assert b"first\nlast line" in store.read(task)
    assert [part.name for part in store.parts(task)] == ["job"]
    with pytest.raises(Unavailable, match="sizes"):
        store.size(task)
    with pytest.raises(Gone):
        store.size(task._replace(rev="x"))


def test_an_id_has_a_channel_a_host_and_a_path() -> None:
    """The host may have slashes; the error of a task is the last line of its diagnostic."""
    for ident, parts in (
        ("smtp/a.test/I/F/3276785", ("smtp", "a.test", "I/F/3276785")),
        ("hold/ns:a.test/any/3276785", ("hold", "ns:a.test/any", "3276785")),
        ("smtp/((a)(b c))/Z/3312477-2", ("smtp", "((a)(b c))", "Z/3312477-2")),
        ("smtp/a.test", None),
        ("smtp", None),
        ("", None),
        ("smtp/a\0/7", None),
    ):
        assert parse_id(ident) == parts

    assert last_line("\r<<- MAIL From\r->> 550 no such user\r\r") == "->> 550 no such user"
    assert last_line("\r \r") == ""


def test_the_jobs_that_were_fed_last_are_running() -> None:
    """Of the jobs that wait for nothing, as many are running as agents have outstanding. Others
    have the reason of their thread with an explanation, and a time only if time starts them."""
    fed = [(at, JobWait.UNKNOWN) for at in (10.0, 30.0, 20.0, 0.0)] + [(40.0, JobWait.CHANNEL)]
    jobs = [
        JobView(f"{n}", "smtp", "a", (1,), wait=wait, fed_at=at) for n, (at, wait) in enumerate(fed)
    ]
    agents = (AgentView(7, 1.0, 30.0, 1, "STUFF"), AgentView(8, 1.0, 20.0, 1, "STUFF"))
    thread = THREAD._replace(jobs=5, recipients=5, agents=agents)
    tasks = tasks_of(ThreadJobs(thread, tuple(jobs)), NOW)
    assert [task.payload for task in tasks if task.state is State.ACTIVE] == ["1", "2"]

    for reason, wait, word, due, why in (
        (">MaxRing", JobWait.UNKNOWN, "limited", NOW - 5, ">MaxRing: all agents of its ring"),
        ("QueueOnly", JobWait.RETRY, "queueonly", None, "QueueOnly: queueonly: only ETRN"),
        ("ConfBUG:NoCmdDefined!", JobWait.INACTIVE, "inactive", None, "ConfBUG:NoCmdDefined!: its"),
        ("System:New!", JobWait.INACTIVE, "inactive", None, "System:New!"),
        ("", JobWait.CHANNEL, "inactive", NOW - 5, "no agent: a limit of its channel, or queueo"),
        ("", JobWait.UNKNOWN, "", NOW - 5, "ready: its scheduler starts the agents"),
    ):
        thread = THREAD._replace(channel="etrn", pending=reason)
        job = JobView("7", "etrn", "a", (1,), wait=wait, wakeup=NOW - 5)
        (task,) = tasks_of(ThreadJobs(thread, (job,)), NOW)
        assert (task.word, task.due) == (word, due)
        assert task.extra[WAITS_KEY].startswith(why)
        assert task.error == f"waits: {task.extra[WAITS_KEY]}"


def test_a_name_with_controls_is_a_problem(running: RunningServer, store: MailqStore) -> None:
    """A job whose name could control a terminal is shown as a problem; the others are tasks."""
    running.queue.all_jobs[2] = running.queue.all_jobs[2]._replace(path="7\x1b[2J")
    assert len(tasks_in(store)) == 3
    assert problems_in(store) == {"smtp/a.test/7�[2J": "control characters in its name: shown only"}
    assert [*store.scan({"smtp/a.test/7\x1b[2J"})] == [Missing("smtp/a.test/7\x1b[2J")]


def test_edges_follow_the_rights(running: RunningServer) -> None:
    """What the login does not permit is refused with the right, and not asked."""
    for user, password, kill in (
        ("root", "s3cret", ""),
        ("nobody", "nobody", "user nobody has no right KILL"),
    ):
        with closing(store_of(running, user, password)) as store:
            assert store.edges[State.PENDING, None].refusal.startswith(kill)
            assert store.edges[State.PENDING, State.PENDING].refusal == ""
            assert store.controls["kill-thread"].refusal.startswith(kill)
            assert not any(edge.exact for edge in store.edges.values())
            if kill:
                with pytest.raises(Unsupported, match="no right KILL"):
                    store.swap(found(store, f"smtp/a.test/{TWO_THREADS}"), None)
                with pytest.raises(Unsupported, match="no right KILL"):
                    store.control("kill-thread", "smtp/a.test")
    for password, words in (("pw", "may not see threads"), ("x", "BAD USER OR PASSWORD")):
        with pytest.raises(Unavailable, match=words):
            store_of(running, "qonly", password)
    assert running.queue.all_jobs == [*SAMPLE_JOBS]


# ---- changes


def test_one_request_changes_all_its_tasks(running: RunningServer, store: MailqStore) -> None:
    """A promotion asks one ETRN for a host, a deletion one KILL for a message of all threads. A due
    time in the future is refused, in the form and by the store."""
    tasks = [t for t in tasks_in(store).values() if t.group == "a.test"]
    outcomes = [*store.swap_all(Move(task, verbs.promote(task, NOW)) for task in tasks)]
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert running.queue.asked.count("ETRN a.test") == 1
    assert all(found(store, task.id).due != task.due for task in tasks)
    tasks = [t for t in tasks_in(store).values() if t.payload == TWO_THREADS]
    outcomes = [*store.swap_all(Move(task, None) for task in tasks)]
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert running.queue.asked[-1:] == [f"KILL MSG {TWO_THREADS}"]
    assert len(tasks_in(store)) == 2

    task, edge = found(store, ONE_THREAD), store.edges[State.PENDING, State.PENDING]
    assert "only be started now" in edge.value_problem("due", NOW + 9, NOW)
    with pytest.raises(Unsupported, match="only be started now"):
        store.swap(task, verbs.edit(task, NOW, due=NOW + 9))


def test_an_answer_alone_is_no_success(running: RunningServer, store: MailqStore) -> None:
    """If the server says OK and does nothing, a deletion and a start are failures."""
    running.queue.is_lying = True
    task = found(store, f"smtp/a.test/{TWO_THREADS}")
    for new in (None, verbs.promote(task, NOW)):
        with pytest.raises(Unavailable, match="but the task is as before"):
            store.swap(task, new)
    for name, target in (("kill-thread", "smtp/a.test"), ("kill-message", "S3276785AbmKTJgU")):
        with pytest.raises(Unavailable, match="KILLed something"):
            store.control(name, target)


def test_a_task_that_has_changed_is_not_killed(running: RunningServer, store: MailqStore) -> None:
    """Nor one that was tried again, deleted or started since it was seen."""
    task = found(store, ONE_THREAD)
    running.queue.all_jobs[2] = running.queue.all_jobs[2]._replace(attempts=5)
    with pytest.raises(Gone):
        store.swap(task, None)
    assert running.queue.asked[-1:] != ["KILL MSG G/W/3268638"]
    assert not [*store.verify([(task.id, task.state, task.rev)])]

    tasks = tasks_in(store)
    with closing(store_of(running)) as other:
        for ident, end in (("hold/ns:c.test/any/S/O/3268942", None), ("smtp/b.test", "promote")):
            task = next(task for task in tasks.values() if task.id.startswith(ident))
            new = verbs.promote(task, NOW) if end else None
            other.swap(task, new)
            with pytest.raises(Gone):
                store.swap(task, new)


@pytest.mark.parametrize(("verb", "field"), [("expunge", "payload"), ("promote", "group")])
def test_rows_in_later_batches_have_its_outcome(tmp_path: Path, verb: str, field: str) -> None:
    """A plan with more rows than a batch asks once, and all its rows are done."""
    hosts = [f"h{n}.test" for n in range(130)] if verb == "expunge" else ["a.test"] * 130
    jobs = [waiting_job(f"{7 if verb == 'expunge' else 100 + n}", h) for n, h in enumerate(hosts)]
    with serving(tmp_path, SampleQueue(jobs)) as running, closing(store_of(running)) as store:
        tasks = tasks_in(store).values()
        first = next(iter(tasks))
        plan = freeze_shared_plan(verb, {first.id}, tasks, NOW, edges=store.edges)
        assert (len(plan.rows), plan.added) == (130, 129)
        report = run_journaled_plan(store, None, plan, None, lambda: NOW)
        assert (len(report.done), report.gone, report.failed) == (130, (), ())
        assert not report.is_exact
        asked = [text for text in running.queue.asked if "spooldeck" not in text]
        assert asked == [f"KILL MSG {first.payload}" if verb == "expunge" else "ETRN a.test"]


def test_a_plan_excludes_related_tasks_together(store: MailqStore) -> None:
    """A note on one task of a message, or a running one, excludes its others too."""
    tasks = [t for t in tasks_in(store).values() if t.payload == TWO_THREADS]
    ids = frozenset(task.id for task in tasks)
    freeze = partial(freeze_shared_plan, "expunge", now=NOW, edges=store.edges)
    noted = freeze(ids, tasks, noted=frozenset({tasks[0].id}))
    assert noted.amount == 0
    assert noted._replace(included_ids=noted.companions[tasks[0].id]).amount == 2
    plan = freeze({tasks[0].id}, tasks)
    assert (plan.amount, plan.added) == (2, 1)
    barred = freeze({tasks[0].id}, [tasks[0], tasks[1]._replace(state=State.ACTIVE)])
    assert barred.amount == 0
    assert {why for _, why in barred.excluded} == {f"{tasks[1].id} is active, and changes too"}


def test_controls_report_what_they_did(running: RunningServer, store: MailqStore) -> None:
    """With a forecast; KILL THREAD of the original is unsupported, with its answer."""
    assert store.forecast("kill-thread", "smtp/a.test").amount == 2
    assert store.forecast("start", "b.test").amount == 1
    for control, target, report in (
        ("kill-thread", "smtp/a.test", "messages deleted in smtp/a.test: 2"),
        ("start", "b.test", "+OK; an ETRN started something."),
        ("kill-message", TWO_THREADS, f"message deleted: {TWO_THREADS}"),
    ):
        assert store.control(control, target) == report
    assert [*tasks_in(store)] == ["hold/ns:c.test/any/S/O/3268942"]
    expected = r"no such thread|expected CHANNEL/HOST"
    for control, target, why in (
        *(("kill-thread", target, expected) for target in ("smtp/none", "smtp", "/x")),
        ("nothing", "", "no control"),
    ):
        with pytest.raises(Unsupported, match=why):
            store.control(control, target)
    folder = Path(running.path).parent / "exact"
    folder.mkdir()
    with (
        serving(folder, is_exact=True) as exact,
        closing(store_of(exact)) as original,
        pytest.raises(Unsupported, match="-Unknown request"),
    ):
        original.control("kill-thread", "smtp/a.test")


# ---- version 1 and files


def test_a_server_of_version_1_is_only_shown(tmp_path: Path) -> None:
    """The tasks of a dump have the states of its text; there are no edges and no controls."""
    jobs = [*SAMPLE_JOBS, waiting_job("5", "c.test", wait=JobWait.RUNNING, pid=77)]
    queue = SampleQueue([*jobs, waiting_job("6", "c.test", wait=JobWait.THREAD, wakeup=None)])
    with serving(tmp_path, queue, users=None) as running, closing(store_of(running)) as store:
        tasks = tasks_in(store)
        assert (store.edges, store.controls) == ({}, {})
        active, limited = tasks["smtp/c.test/5"], tasks["smtp/c.test/6"]
        assert active.state is State.ACTIVE and active.lease is not None
        assert (limited.word, limited.due) == ("limited", 0.0)
        queue.all_jobs.pop()
        assert len(tasks_in(store)) == 5


def test_a_rendezvous_file_is_shown_as_of_its_time(tmp_path: Path) -> None:
    """A dump in a file has its times from the time of the file, and is read again if replaced."""
    path = tmp_path / "rendezvous"
    path.write_bytes((FOLDER / "dump.txt").read_bytes())
    os.utime(path, (NOW, NOW))
    with closing(MailqStore(parse_place(parse_address(str(path))), lambda: NOW + 60)) as store:
        tasks = tasks_in(store)
        assert len(tasks) == 17
        assert problems_in(store) == {str(path): "an old dump: the queue has changed"}
        assert tasks["hold/ns:etrn.test/any/J/N/3268707"].due == NOW + 15
        assert tasks["uucp/uucphost/S/O/3268942"].word == "inactive"
        assert store.changes.wait is not None and not store.changes.wait(0.0)
        text = path.read_text().replace("try again (retry", "other (retry", 1)
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(path)
        assert "other" in {task.error for task in tasks_in(store).values()}
    path.write_text("version zmailer 1.0\nVertices:\nnonsense\n")
    with pytest.raises(Unavailable, match="rendezvous: line 3: 'nonsense', expected KEY"):
        MailqStore(parse_place(parse_address(str(path))))


# ---- polling


def test_polling_names_what_has_changed(
    running: RunningServer, store: MailqStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll names new, changed and gone tasks, and none if only time has passed."""
    monkeypatch.setattr(source, "POLL_SECONDS", 0.0)
    wait, queue = store.changes.wait, running.queue
    assert wait is not None and not wait(0.0)
    queue.now += 1.0
    queue.all_jobs = [job._replace(wakeup=NOW + 61) for job in queue.all_jobs]
    assert not wait(5.0), "rounding"
    queue.all_jobs[2] = queue.all_jobs[2]._replace(attempts=9)
    queue.all_jobs.append(waiting_job("9", "new.test"))
    del queue.all_jobs[1]
    names, of_message = wait(5.0), [f"smtp/{host}.test/{TWO_THREADS}" for host in "ab"]
    assert names is not None and {*names} == {ONE_THREAD, "smtp/new.test/9", *of_message}
    gone = next(item for item in store.scan(names) if isinstance(item, Missing))
    assert gone.id == of_message[1]


def test_polls_are_spaced_by_their_cost() -> None:
    """A poll that took two seconds is followed by a pause of twenty."""
    now, slept = [100.0], list[float]()

    def threads() -> tuple[queue_view.ThreadView, ...]:
        now[0] += 2.0
        return ()

    def pause(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    poller = ThreadPoller(SimpleNamespace(threads=threads), pause, lambda: now[0])  # type: ignore[arg-type]
    assert not poller.wait(5.0) and not poller.wait(5.0)
    assert (slept, now[0]) == ([5.0], 107.0)
    assert not poller.wait(50.0)
    assert (slept[1:], now[0]) == ([15.0], 124.0)


def test_a_thread_that_only_ages_has_not_changed() -> None:
    """Age and rounding are no change; attempts, a new wake-up and an agent's state are."""
    agent = AgentView(7, 1.0, 30.0, 1, "STUFF")
    old = THREAD._replace(wakeup=NOW + 5, agents=(agent,))
    aged = (agent._replace(hungry_at=2.0, fed_at=31.0),)
    for same in (old._replace(oldest_at=NOW - 9, wakeup=NOW + 6), old._replace(agents=aged)):
        assert not queue_view.has_changed(old, same)
    changes: list[dict[str, Any]] = [{"attempts": 1}, {"pending": ">MaxTA"}, {"agents": ()}]
    changes += [{"wakeup": NOW + 9}, {"wakeup": None}, {"agents": (agent._replace(state="IDLE"),)}]
    for change in changes:
        assert queue_view.has_changed(old, old._replace(**change)), change


# ---- addresses


def test_an_address_has_its_parts() -> None:
    """They are those of the URL, or defaults; a missing, unknown or unusable one is refused."""
    for text, expected in (
        ("mailq://mail.test", ("", "mail.test", 174, "nobody", "nobody")),
        ("mailq://root:pw%40x@[::1]:1740", ("", "::1", 1740, "root", "pw@x")),
        ("mailq+unix:///run/mailq", ("/run/mailq", "", 174, "nobody", "nobody")),
        ("mailq+unix://root:pw@/run/m%20q", ("/run/m q", "", 174, "root", "pw")),
    ):
        place = parse_place(parse_address(text))
        assert place[1:] == expected
        assert "pw" not in repr(place)

    for text, words in (
        ("mailq://root@mail.test", "no password of user root: write the URL with it into places"),
        ("mailq://mail.test/x", "expected mailq://HOST:PORT"),
        ("mailq+unix://host/x", "expected mailq.unix:///PATH"),
        ("mailq+unix://", "expected mailq.unix:///PATH"),
        ("mailq://mail.test?x=1", "expected no parameters"),
        ("mailq://a%20b:pw@mail.test", "blanks or control characters in the user"),
    ):
        with naming(text, words), pytest.raises(Unavailable, match=words):
            parse_place(parse_address(text))
