"""What logs say happened: every line of the contract's program and of ours, and whole histories."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine import verbs
from engine.formats.base.memory import MemoryStore
from engine.logs import task_events
from engine.logs.log_line import LogLine, format_log_line, parse_log_line
from engine.logs.task_events import Attempt, EventKind, TaskEvent
from engine.model import Task
from engine.policy import contract_retries
from engine.work import handlers
from engine.work.handlers import Context, Failed, Fatal
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.engine.task_builders import GOLDEN, log_line

NOW = 1_800_000_000.0
ID = "20261120T094121Z-geoban_apply-c2c41696"


def golden(name: str) -> list[LogLine]:
    """The lines of a log as the contract's program wrote it."""
    data = (GOLDEN / name).read_bytes()
    return [parse_log_line(raw, name) for raw in data.splitlines(keepends=True)]


KIND = "geoban_apply"
MAIL = "MAIL_SEND_ATTEMPT", "MAIL_SEND_RESULT"
NO_MAIL = "No mail system available, spooling for later"
FOUND = "found in flight: it may have been sent: back in queue, counted as an attempt"
CLEAN = "moving to cleanup"
LINES: dict[str, tuple[Any, ...]] = {
    # text: the event; then, where not empty: id, kind, error, transport, attempt
    f"Task queued: {ID} (geoban_apply: x (y): z)": (EventKind.QUEUED, ID, KIND),
    f"Processing task: {ID} (x_y: what: ever)": (EventKind.STARTED, ID, "x_y"),
    f"Processing task: {ID}": (EventKind.STARTED, ID, KIND),
    "Processing task: t7 (x)": (EventKind.STARTED, "t7", "x"),
    f"Task completed: {ID} (geoban_apply)": (EventKind.SUCCEEDED, ID, KIND),
    f"Task completed: {ID}": (EventKind.SUCCEEDED, ID, KIND),
    f"Task failed: {ID} ({KIND}): 421 (x): later": (EventKind.FAILED, ID, KIND, "421 (x): later"),
    f"Task {ID} failed (attempt 2/3), retry in 120s": (EventKind.WAITS, ID, KIND, "", "", 2),
    "Task b56e-7 failed (attempt 4), retry in 120s": (EventKind.WAITS, "b56e-7", "", "", "", 4),
    f"Task {ID} failed, retry in 60s": (EventKind.WAITS, ID, KIND),
    f"Task b56e-7 exhausted retries (5), {CLEAN}": (EventKind.BURIED, "b56e-7", "", "", "", 5),
    f"Task b56e-7 cannot succeed, {CLEAN}": (EventKind.BURIED, "b56e-7"),
    f"Task {ID} exhausted retries (3/3), moving to DLQ": (EventKind.BURIED, ID, KIND, "", "", 3),
    f"Task {ID} cannot succeed, moving to DLQ": (EventKind.BURIED, ID, KIND),
    f"Task {ID} moving to DLQ": (EventKind.BURIED, ID, KIND),
    f"Task moved to DLQ: {ID} ({KIND}) after 3 retries": (EventKind.BURIED, ID, KIND),
    "Task moved to failed: mails/7 (mails) after 3 retries": (EventKind.BURIED, "mails/7", "mails"),
    f"DLQ task retried: {ID}": (EventKind.RETRIED, ID, KIND),
    f"Moving orphaned work task back to pending: {ID}": (EventKind.RECOVERED, ID, KIND),
    f"Recovered inflight/b56e-7: {FOUND}": (EventKind.RECOVERED, "b56e-7"),
    f"Outcome of {ID} cannot be stored: full": (EventKind.UNSETTLED, ID, KIND, "full"),
    f"Task {ID} is not where it was claimed; left alone": (EventKind.UNSETTLED, ID, KIND),
    f"Task {ID} waits: no token for domain a.com": (EventKind.PUT_OFF, ID, KIND),
    f"{MAIL[0]} task_id=inline attempt=2 transport=sendmail to=admin@...":
     (EventKind.STARTED, "", "mail_send", "", "sendmail", 2),
    f"{MAIL[0]} failed attempt=2/3 error=send_failed_rc_1":
     (EventKind.FAILED, "", "mail_send", "send_failed_rc_1", "?", 2),
    f"{MAIL[1]} task_id=inline status=success transport=postfix attempt=1":
     (EventKind.SUCCEEDED, "", "mail_send", "", "postfix"),
    f"{MAIL[1]} task_id=inline status=failed transport=curl retries=3 last_error=x y":
     (EventKind.BURIED, "", "mail_send", "x y", "curl", 3),
    f"{MAIL[1]} task_id={ID} status=failed transport=curl retries=3 last_error=x":
     (EventKind.FAILED, ID, KIND, "x", "curl", 3),
    f"Mail spooled to queue: {ID} (recipient: a@...)": (EventKind.QUEUED, ID, KIND),
    NO_MAIL: (EventKind.BURIED, "", "mail_send", NO_MAIL, "none"),
}  # fmt: skip


def test_a_line_that_names_a_task_is_an_event() -> None:
    """A line of the contract's program or ours is an event; one of no task, or a quote, is none."""
    for text, expected in LINES.items():
        rest: tuple[Any, ...] = ("", "", "", "", None)
        what, id, kind, error, transport, attempt = expected + rest[len(expected) - 1 :]
        line = log_line(text, NOW)
        task_event = task_events.parse_event(line)
        assert task_event is not None, text
        assert task_event[:6] == (NOW, id, kind, what, error, transport)
        assert (task_event.line, task_event.attempt) == (line, attempt)
        assert bool(task_event.mark) is bool(error)
    assert [text for text in OTHERS if task_events.parse_event(log_line(text))] == []


OTHERS = [
    "", "Executing: geoban apply", "Queue processor completed in 0s", "Retrying in 5s...",
    "No eligible tasks (1 pending, waiting for backoff)", "Purged 1 DLQ tasks older than 7 days",
    "Task", "Task failed: ", "Task bob said hello", "he said: Task completed: t7 (x)",
    "transport=x",
]  # fmt: skip


def test_the_real_programs_logs_are_understood() -> None:
    """Every golden line that names a task, or a mail's result, is an event; a failed attempt has
    the transport of the attempt before it, also if it is read piece by piece."""
    for name in ("queue.log", "queue.processor-run.log", "mail.log"):
        for line in golden(name):
            names = any(words in line.text for words in ("Z-", "MAIL_SEND", "No mail"))
            assert (task_events.parse_event(line) is not None) is names, line.text

    lines, known = golden("mail.log"), dict[str, str]()
    whole = list(task_events.read_events(lines))
    failed = [e for e in whole if e.what is EventKind.FAILED]
    assert [e.transport for e in failed] == ["sendmail"] * 6
    assert {e.mark for e in failed} == {failed[0].mark}
    pieces = [event for line in lines for event in task_events.read_events([line], known)]
    assert pieces == whole

    records = list(task_events.read_events(golden("delivery.jsonl")))
    failed_twice = [(EventKind.BURIED, "sendmail", "send_failed_rc_1")] * 2
    told = [(event.what, event.transport, event.error) for event in records]
    assert told == [(EventKind.SUCCEEDED, "sendmail", ""), *failed_twice]


def test_the_golden_history_has_its_attempts() -> None:
    """Three runs failed with one error; after a retry by hand one more run succeeded."""
    ident = "20261120T094115Z-geoban_apply-c2c41696"
    history = task_events.task_history(task_events.read_events(golden("queue.log")), ident)
    tries = task_events.task_attempts(history)
    what = (EventKind.WAITS, EventKind.WAITS, EventKind.BURIED, EventKind.SUCCEEDED)
    outcomes = [*zip((1, 2, 3, 1), what, strict=True)]
    assert [(t.number, t.outcome) for t in tries] == outcomes
    assert all(t.began is not None and t.ended is not None for t in tries)
    assert {t.error[:10] for t in tries} == {"Error: set", ""}


def an_event(
    what: EventKind, when: float | None = NOW, transport: str = "", **fields: object
) -> TaskEvent:
    """An event of which only this matters."""
    task_event = TaskEvent(
        when, "t", "x", what, error="", transport=transport, level="", text="", source=""
    )
    return task_event._replace(**fields)  # type: ignore[arg-type]


STARTED, FAILED, PUT_OFF = EventKind.STARTED, EventKind.FAILED, EventKind.PUT_OFF
MAILED = [an_event(STARTED, transport="postfix"), an_event(FAILED, NOW + 1, "postfix")]
OPEN = Attempt(1, NOW, None, None)
Course = Sequence[tuple[EventKind, float] | TaskEvent]
COURSES: list[tuple[Course, list[Attempt]]] = [
    # events, some as seconds after NOW: the attempts that they add up to
    ([], []),
    ([(EventKind.QUEUED, 0)], []),
    ([(STARTED, 0)], [OPEN]),
    # its worker died, and the next one found it
    ([(STARTED, 0), (EventKind.RECOVERED, 9), (STARTED, 9)],
     [Attempt(1, NOW, NOW + 9, EventKind.RECOVERED), Attempt(2, NOW + 9, None, None)]),
    # it was not attempted
    ([(STARTED, 0), (FAILED, 1), (STARTED, 60), (PUT_OFF, 60), (STARTED, 90)],
     [Attempt(1, NOW, NOW + 1, FAILED), Attempt(2, NOW + 90, None, None)]),
    ([(PUT_OFF, 0)], []),
    # no line has its end
    ([(STARTED, 0), (STARTED, 9)], [OPEN, Attempt(2, NOW + 9, None, None)]),
    # the log begins in the middle of it
    ([an_event(FAILED, error="no"), an_event(EventKind.WAITS, attempt=2)],
     [Attempt(2, None, NOW, EventKind.WAITS, "no")]),
    ([an_event(EventKind.WAITS, attempt=2)], []),
    # the mail log has the same run
    ([(STARTED, 0), *MAILED, an_event(FAILED, NOW + 1, error="no")],
     [Attempt(1, NOW, NOW + 1, FAILED, "no")]),
    ([an_event(STARTED, None, "curl", attempt=3), an_event(EventKind.SUCCEEDED, None, "curl")],
     [Attempt(3, None, None, EventKind.SUCCEEDED)]),
]  # fmt: skip


def test_attempts_are_the_sum_of_the_lines() -> None:
    """Beginnings and ends in pairs, however many lines report them, and open without an end."""
    for course, tries in COURSES:
        events = [e if isinstance(e, TaskEvent) else an_event(e[0], NOW + e[1]) for e in course]
        assert list(task_events.task_attempts(events)) == tries


def test_a_history_is_in_the_order_of_time() -> None:
    """Two logs are read one after the other; an undated line stays behind the one before it."""
    events = [an_event(STARTED, NOW + 5), an_event(FAILED, None)]
    events += [an_event(STARTED, NOW, id="other"), an_event(EventKind.QUEUED, NOW)]
    order = [event.what for event in task_events.task_history(events, "t")]
    assert order == [EventKind.QUEUED, STARTED, FAILED]


def test_our_own_worker_is_understood() -> None:
    """The log of our worker's runs that fail, fail for good and succeed is read as just that."""
    log: list[LogLine] = []
    fates = {"a": Failed("421 later"), "b": Fatal("550 never"), "c": None}

    def handler(task: Task, context: Context) -> None:
        fate = fates[task.description]
        if fate is not None:
            raise fate

    def note(level: str, text: str) -> None:
        log.append(parse_log_line(format_log_line(level, text, NOW), "queue.log"))

    store = MemoryStore()
    tasks = [verbs.enqueue("sync", NOW, f"0000000{n}", name) for n, name in enumerate(fates)]
    for task in tasks:
        store.swap(None, task)
    handled: dict[str, handlers.Handler] = {"sync": handler}
    services = WorkerServices(log=note)
    worker = Worker(store, handled, contract_retries(), services=services, clock=lambda: NOW)
    worker.process_all(until_idle=True)
    told = list(task_events.read_events(log))
    histories = [task_events.task_history(told, task.id) for task in tasks]
    attempts = map(task_events.task_attempts, histories)
    assert [[(t.number, t.outcome, t.error) for t in tries] for tries in attempts] == [
        [(1, EventKind.WAITS, "421 later")],
        [(1, EventKind.BURIED, "550 never")],
        [(1, EventKind.SUCCEEDED, "")],
    ]
    assert {e.kind for e in told} == {"sync"}


def test_an_id_names_its_kind() -> None:
    """The contract's ids hold the kind; others say nothing of it."""
    kinds = {ID: "geoban_apply", "20261120T094121Z-my-own-kind-4711": "my-own-kind"}
    kinds |= dict.fromkeys(("20261120T094121Z--c2c41696", "7QK2M9XA", ""), "")
    assert {id: task_events.kind_of(id) for id in kinds} == kinds


@given(st.text(), st.floats() | st.none())
def test_no_line_is_too_odd(text: str, when: float | None) -> None:
    """Reading a log fails on no content."""
    for head in ("", "Task ", "MAIL_SEND_RESULT ", "Processing task: "):
        list(task_events.read_events([LogLine(when, "", head + text, "x")]))
