"""What logs say happened: every line of the contract's program and of ours, and whole histories."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine import events, handlers, verbs
from engine.events import Attempt, Event, What
from engine.handlers import Context, Failed, Fatal
from engine.logtail import LogLine, contract_line, parse
from engine.model import Task
from engine.policy import contract
from engine.stores.memory import MemoryStore
from engine.worker import Services, Worker
from tests.engine.builders import GOLDEN, log_line

NOW = 1_800_000_000.0
ID = "20261120T094121Z-geoban_apply-c2c41696"


def golden(name: str) -> list[LogLine]:
    """The lines of a log as the contract's program wrote it."""
    return [parse(raw, name) for raw in (GOLDEN / name).read_bytes().splitlines(keepends=True)]


KIND = "geoban_apply"
MAIL = "MAIL_SEND_ATTEMPT", "MAIL_SEND_RESULT"
NO_MAIL = "No mail system available, spooling for later"
FOUND = "found in flight: it may have been sent: back in queue, counted as an attempt"
CLEAN = "moving to cleanup"
LINES: dict[str, tuple[Any, ...]] = {
    # text: the event; then, where not empty: id, kind, error, transport, attempt
    f"Task queued: {ID} (geoban_apply: x (y): z)": (What.QUEUED, ID, KIND),
    f"Processing task: {ID} (x_y: what: ever)": (What.STARTED, ID, "x_y"),
    f"Processing task: {ID}": (What.STARTED, ID, KIND),
    "Processing task: t7 (x)": (What.STARTED, "t7", "x"),
    f"Task completed: {ID} (geoban_apply)": (What.SUCCEEDED, ID, KIND),
    f"Task completed: {ID}": (What.SUCCEEDED, ID, KIND),
    f"Task failed: {ID} ({KIND}): 421 (x): later": (What.FAILED, ID, KIND, "421 (x): later"),
    f"Task {ID} failed (attempt 2/3), retry in 120s": (What.WAITS, ID, KIND, "", "", 2),
    "Task b56e-7 failed (attempt 4), retry in 120s": (What.WAITS, "b56e-7", "", "", "", 4),
    f"Task {ID} failed, retry in 60s": (What.WAITS, ID, KIND),
    f"Task b56e-7 exhausted retries (5), {CLEAN}": (What.BURIED, "b56e-7", "", "", "", 5),
    f"Task b56e-7 cannot succeed, {CLEAN}": (What.BURIED, "b56e-7"),
    f"Task {ID} exhausted retries (3/3), moving to DLQ": (What.BURIED, ID, KIND, "", "", 3),
    f"Task {ID} cannot succeed, moving to DLQ": (What.BURIED, ID, KIND),
    f"Task {ID} moving to DLQ": (What.BURIED, ID, KIND),
    f"Task moved to DLQ: {ID} ({KIND}) after 3 retries": (What.BURIED, ID, KIND),
    f"DLQ task retried: {ID}": (What.RETRIED, ID, KIND),
    f"Moving orphaned work task back to pending: {ID}": (What.RECOVERED, ID, KIND),
    f"Recovered inflight/b56e-7: {FOUND}": (What.RECOVERED, "b56e-7"),
    f"Outcome of {ID} cannot be stored: full": (What.UNSETTLED, ID, KIND, "full"),
    f"Task {ID} is not where it was claimed; left alone": (What.UNSETTLED, ID, KIND),
    f"Task {ID} waits: no token for domain a.com": (What.PUT_OFF, ID, KIND),
    f"{MAIL[0]} task_id=inline attempt=2 transport=sendmail to=admin@...": (
        *(What.STARTED, "", "mail_send", "", "sendmail", 2),
    ),
    f"{MAIL[0]} failed attempt=2/3 error=send_failed_rc_1": (
        *(What.FAILED, "", "mail_send", "send_failed_rc_1", "?", 2),
    ),
    f"{MAIL[1]} task_id=inline status=success transport=postfix attempt=1": (
        *(What.SUCCEEDED, "", "mail_send", "", "postfix"),
    ),
    f"{MAIL[1]} task_id=inline status=failed transport=curl retries=3 last_error=x y": (
        *(What.BURIED, "", "mail_send", "x y", "curl", 3),
    ),
    f"{MAIL[1]} task_id={ID} status=failed transport=curl retries=3 last_error=x": (
        *(What.FAILED, ID, KIND, "x", "curl", 3),
    ),
    f"Mail spooled to queue: {ID} (recipient: a@...)": (What.QUEUED, ID, KIND),
    NO_MAIL: (What.BURIED, "", "mail_send", NO_MAIL, "none"),
}


def test_a_line_that_names_a_task_is_an_event() -> None:
    """A line of the contract's program, or of ours, is an event of a task; a line of no task is no
    event, whatever is quoted in it."""
    for text, told in LINES.items():
        rest: tuple[Any, ...] = ("", "", "", "", None)
        what, id, kind, error, transport, attempt = told + rest[len(told) - 1 :]
        line = log_line(text, NOW)
        found = events.event(line)
        assert found is not None, text
        assert found[:7] == (NOW, id, kind, what, error, transport, line)
        assert found.attempt == attempt
        assert bool(found.mark) is bool(error)
    assert [text for text in OTHERS if events.event(log_line(text))] == []


OTHERS = [
    *("", "Executing: geoban apply", "Queue processor completed in 0s", "Retrying in 5s..."),
    "No eligible tasks (1 pending, waiting for backoff)",
    *("Purged 1 DLQ tasks older than 7 days", "Task", "Task failed: ", "Task bob said hello"),
    *("he said: Task completed: t7 (x)", "transport=x"),
]


def test_the_real_programs_logs_are_understood() -> None:
    """Every line of the golden logs that names a task, or a mail's result, is an event. A failed
    attempt, whose line has no transport, is by that of the attempt before it, also if the log is
    read piece by piece. The mail module's JSON lines have the transport and the error."""
    for name in ("queue.log", "queue.processor-run.log", "mail.log"):
        for line in golden(name):
            names = any(words in line.text for words in ("Z-", "MAIL_SEND", "No mail"))
            assert (events.event(line) is not None) is names, line.text

    lines, known = golden("mail.log"), dict[str, str]()
    whole = list(events.read(lines))
    failed = [e for e in whole if e.what is What.FAILED]
    assert [e.transport for e in failed] == ["sendmail"] * 6
    assert {e.mark for e in failed} == {failed[0].mark}
    assert [told for line in lines for told in events.read([line], known)] == whole

    records = list(events.read(golden("delivery.jsonl")))
    assert [(e.what, e.transport, e.error) for e in records] == [
        (What.SUCCEEDED, "sendmail", ""),
        *[(What.BURIED, "sendmail", "send_failed_rc_1")] * 2,
    ]


def test_the_golden_history_has_its_attempts() -> None:
    """Three runs failed with one error; after a retry by hand one more run, counted from one,
    succeeded."""
    ident = "20261120T094115Z-geoban_apply-c2c41696"
    tries = events.attempts(events.history(events.read(golden("queue.log")), ident))
    outcomes = [(1, What.WAITS), (2, What.WAITS), (3, What.BURIED), (1, What.SUCCEEDED)]
    assert [(t.number, t.outcome) for t in tries] == outcomes
    assert all(t.began is not None and t.ended is not None for t in tries)
    assert {t.error[:10] for t in tries} == {"Error: set", ""}


def an_event(what: What, when: float | None = NOW, transport: str = "", **fields: object) -> Event:
    """An event of which only this matters."""
    told = Event(when, "t", "x", what, "", transport, log_line("", when))
    return told._replace(**fields)  # type: ignore[arg-type]


STARTED, FAILED, PUT_OFF = What.STARTED, What.FAILED, What.PUT_OFF
MAILED = [an_event(STARTED, transport="postfix"), an_event(FAILED, NOW + 1, "postfix")]
OPEN = Attempt(1, NOW, None, None)
Course = Sequence[tuple[What, float] | Event]
COURSES: list[tuple[Course, list[Attempt]]] = [
    # events, some as seconds after NOW: the attempts that they add up to
    ([], []),
    ([(What.QUEUED, 0)], []),
    ([(STARTED, 0)], [OPEN]),
    # its worker died, and the next one found it
    (
        [(STARTED, 0), (What.RECOVERED, 9), (STARTED, 9)],
        [Attempt(1, NOW, NOW + 9, What.RECOVERED), Attempt(2, NOW + 9, None, None)],
    ),
    # it was not attempted
    (
        [(STARTED, 0), (FAILED, 1), (STARTED, 60), (PUT_OFF, 60), (STARTED, 90)],
        [Attempt(1, NOW, NOW + 1, FAILED), Attempt(2, NOW + 90, None, None)],
    ),
    ([(PUT_OFF, 0)], []),
    # no line has its end
    ([(STARTED, 0), (STARTED, 9)], [OPEN, Attempt(2, NOW + 9, None, None)]),
    # the log begins in the middle of it
    (
        [an_event(FAILED, error="no"), an_event(What.WAITS, attempt=2)],
        [Attempt(2, None, NOW, What.WAITS, "no")],
    ),
    ([an_event(What.WAITS, attempt=2)], []),
    # the mail log has the same run
    (
        [(STARTED, 0), *MAILED, an_event(FAILED, NOW + 1, error="no")],
        [Attempt(1, NOW, NOW + 1, FAILED, "no")],
    ),
    (
        [an_event(STARTED, None, "curl", attempt=3), an_event(What.SUCCEEDED, None, "curl")],
        [Attempt(3, None, None, What.SUCCEEDED)],
    ),
]


def test_attempts_are_the_sum_of_the_lines() -> None:
    """Beginnings and ends in pairs, however many lines report them, and open without an end."""
    for course, tries in COURSES:
        told = [one if isinstance(one, Event) else an_event(one[0], NOW + one[1]) for one in course]
        assert list(events.attempts(told)) == tries


def test_a_history_is_in_the_order_of_time() -> None:
    """Two logs are read one after the other; an undated line stays behind the one before it."""
    told = [
        an_event(What.STARTED, NOW + 5),
        an_event(What.FAILED, None),
        an_event(What.STARTED, NOW, id="other"),
        an_event(What.QUEUED, NOW),
    ]
    assert [e.what for e in events.history(told, "t")] == [What.QUEUED, What.STARTED, What.FAILED]


def test_our_own_worker_is_understood() -> None:
    """The log of our worker's runs that fail, fail for good and succeed is read as just that."""
    log: list[LogLine] = []
    fates = {"a": Failed("421 later"), "b": Fatal("550 never"), "c": None}

    def handler(task: Task, context: Context) -> None:
        fate = fates[task.description]
        if fate is not None:
            raise fate

    def note(level: str, text: str) -> None:
        log.append(parse(contract_line(level, text, NOW), "queue.log"))

    store = MemoryStore()
    tasks = [verbs.enqueue("sync", NOW, f"0000000{n}", name) for n, name in enumerate(fates)]
    for task in tasks:
        store.swap(None, task)
    handled: dict[str, handlers.Handler] = {"sync": handler}
    worker = Worker(store, handled, contract(), services=Services(log=note), clock=lambda: NOW)
    worker.work(until_idle=True)
    told = list(events.read(log))
    ends = [events.attempts(events.history(told, task.id)) for task in tasks]
    assert [[(t.number, t.outcome, t.error) for t in tries] for tries in ends] == [
        [(1, What.WAITS, "421 later")],
        [(1, What.BURIED, "550 never")],
        [(1, What.SUCCEEDED, "")],
    ]
    assert {e.kind for e in told} == {"sync"}


def test_an_id_names_its_kind() -> None:
    """The contract's ids hold the kind; others say nothing of it."""
    kinds = {
        ID: "geoban_apply",
        "20261120T094121Z-my-own-kind-4711": "my-own-kind",
        **dict.fromkeys(("20261120T094121Z--c2c41696", "7QK2M9XA", ""), ""),
    }
    assert {id: events.kind_of(id) for id in kinds} == kinds


@given(st.text(), st.floats() | st.none())
def test_no_line_is_too_odd(text: str, when: float | None) -> None:
    """Whatever stands in a log, reading it fails on none."""
    for head in ("", "Task ", "MAIL_SEND_RESULT ", "Processing task: "):
        list(events.read([LogLine(when, "", head + text, "x")]))
