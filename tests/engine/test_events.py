"""What logs say happened: every line of the contract's program and of ours, and whole histories."""

from pathlib import Path

import pytest
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

GOLDEN = Path(__file__).parent.parent / "golden" / "nftban"
NOW = 1_800_000_000.0
ID = "20261120T094121Z-geoban_apply-c2c41696"


def a_line(text: str, when: float | None = NOW, source: str = "queue.log") -> LogLine:
    """A line of a log of which only this matters."""
    return LogLine(when, "INFO", text, source)


def golden(name: str) -> list[LogLine]:
    """The lines of a log as the contract's program wrote it."""
    return [parse(raw, name) for raw in (GOLDEN / name).read_bytes().splitlines(keepends=True)]


@pytest.mark.parametrize(
    ("text", "what", "id", "kind", "error", "transport", "attempt"),
    [
        (
            f"Task queued: {ID} (geoban_apply: x (y): z)",
            *(What.QUEUED, ID, "geoban_apply", "", "", None),
        ),
        (f"Processing task: {ID} (x_y: what: ever)", What.STARTED, ID, "x_y", "", "", None),
        (f"Processing task: {ID}", What.STARTED, ID, "geoban_apply", "", "", None),
        ("Processing task: t7 (x)", What.STARTED, "t7", "x", "", "", None),
        (f"Task completed: {ID} (geoban_apply)", What.SUCCEEDED, ID, "geoban_apply", "", "", None),
        (f"Task completed: {ID}", What.SUCCEEDED, ID, "geoban_apply", "", "", None),
        (
            f"Task failed: {ID} (geoban_apply): 421 (x): later",
            *(What.FAILED, ID, "geoban_apply", "421 (x): later", "", None),
        ),
        (
            f"Task {ID} failed (attempt 2/3), retry in 120s",
            *(What.WAITS, ID, "geoban_apply", "", "", 2),
        ),
        (
            "Task b56e-7 failed (attempt 4), retry in 120s",
            *(What.WAITS, "b56e-7", "", "", "", 4),
        ),
        (
            "Task b56e-7 exhausted retries (5), moving to cleanup",
            *(What.BURIED, "b56e-7", "", "", "", 5),
        ),
        (
            "Task b56e-7 cannot succeed, moving to cleanup",
            *(What.BURIED, "b56e-7", "", "", "", None),
        ),
        (f"Task {ID} failed, retry in 60s", What.WAITS, ID, "geoban_apply", "", "", None),
        (
            f"Task {ID} exhausted retries (3/3), moving to DLQ",
            *(What.BURIED, ID, "geoban_apply", "", "", 3),
        ),
        (f"Task {ID} cannot succeed, moving to DLQ", What.BURIED, ID, "geoban_apply", "", "", None),
        (f"Task {ID} moving to DLQ", What.BURIED, ID, "geoban_apply", "", "", None),
        (
            f"Task moved to DLQ: {ID} (geoban_apply) after 3 retries",
            *(What.BURIED, ID, "geoban_apply", "", "", None),
        ),
        (f"DLQ task retried: {ID}", What.RETRIED, ID, "geoban_apply", "", "", None),
        (
            f"Moving orphaned work task back to pending: {ID}",
            *(What.RECOVERED, ID, "geoban_apply", "", "", None),
        ),
        (
            "Recovered inflight/b56e-7: found in flight: it may have been sent: back in queue, "
            "counted as an attempt",
            *(What.RECOVERED, "b56e-7", "", "", "", None),
        ),
        (
            f"Outcome of {ID} cannot be stored: disk full",
            *(What.UNSETTLED, ID, "geoban_apply", "disk full", "", None),
        ),
        (
            f"Task {ID} is not where it was claimed; left alone",
            *(What.UNSETTLED, ID, "geoban_apply", "", "", None),
        ),
        (
            f"Task {ID} waits: no token for domain example.com",
            *(What.PUT_OFF, ID, "geoban_apply", "", "", None),
        ),
        (
            "MAIL_SEND_ATTEMPT task_id=inline attempt=2 transport=sendmail to=admin@...",
            *(What.STARTED, "", "mail_send", "", "sendmail", 2),
        ),
        (
            "MAIL_SEND_ATTEMPT failed attempt=2/3 error=send_failed_rc_1",
            *(What.FAILED, "", "mail_send", "send_failed_rc_1", "?", 2),
        ),
        (
            "MAIL_SEND_RESULT task_id=inline status=success transport=postfix attempt=1",
            *(What.SUCCEEDED, "", "mail_send", "", "postfix", None),
        ),
        (
            "MAIL_SEND_RESULT task_id=inline status=failed transport=curl retries=3 last_error=x y",
            *(What.BURIED, "", "mail_send", "x y", "curl", 3),
        ),
        (
            f"MAIL_SEND_RESULT task_id={ID} status=failed transport=curl retries=3 last_error=x",
            *(What.FAILED, ID, "geoban_apply", "x", "curl", 3),
        ),
        (
            f"Mail spooled to queue: {ID} (recipient: a@...)",
            *(What.QUEUED, ID, "geoban_apply", "", "", None),
        ),
        (
            "No mail system available, spooling for later",
            *(What.BURIED, "", "mail_send", "No mail system available, spooling for later"),
            *("none", None),
        ),
    ],
)
def test_each_line_is_the_event_it_tells_of(
    text: str, what: What, id: str, kind: str, error: str, transport: str, attempt: int | None
) -> None:
    """A line of the contract's program, or of ours, says what happened to whom, and how."""
    line = a_line(text)

    told = events.event(line)

    assert told is not None
    assert told[:7] == (NOW, id, kind, what, error, transport, line)
    assert told.attempt == attempt
    assert bool(told.mark) is bool(error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Executing: geoban apply",
        "Queue processor completed in 0s",
        "No eligible tasks (1 pending, waiting for backoff)",
        "Retrying in 5s...",
        "Purged 1 DLQ tasks older than 7 days",
        "Task",
        "Task failed: ",
        "Task bob said hello",
        "he said: Task completed: t7 (x)",
        "transport=x",
    ],
)
def test_other_lines_tell_of_nothing(text: str) -> None:
    """A line that is of no task is no event, whatever is quoted in it."""
    assert events.event(a_line(text)) is None


def test_the_real_programs_logs_are_understood() -> None:
    """Every line of the golden logs that names a task, or a mail's fate, is an event."""
    for name in ("queue.log", "queue.processor-run.log", "mail.log"):
        for line in golden(name):
            speaks = "Z-" in line.text or "MAIL_SEND" in line.text
            assert (events.event(line) is not None) is (speaks or "No mail" in line.text), line.text


def test_a_failed_attempt_was_by_the_transport_before_it() -> None:
    """The line of a failed attempt has no transport; it is that of the attempt it belongs to."""
    failed = [e for e in events.read(golden("mail.log")) if e.what is What.FAILED]

    assert [e.transport for e in failed] == ["sendmail"] * 6
    assert {e.mark for e in failed} == {failed[0].mark}


def test_a_log_may_be_read_piece_by_piece() -> None:
    """Wherever a log is cut, its pieces tell what it tells as a whole."""
    lines = golden("mail.log")
    known: dict[str, str] = {}

    pieces = [told for line in lines for told in events.read([line], known)]

    assert pieces == list(events.read(lines))


def test_delivery_records_are_events_too() -> None:
    """The mail module's JSON lines say which transport delivered, and which failed how."""
    told = list(events.read(golden("delivery.jsonl")))

    assert [(e.what, e.transport, e.error) for e in told] == [
        (What.SUCCEEDED, "sendmail", ""),
        (What.BURIED, "sendmail", "send_failed_rc_1"),
        (What.BURIED, "sendmail", "send_failed_rc_1"),
    ]


def test_the_golden_history_has_its_attempts() -> None:
    """Three runs failed alike, then a retry by hand, one more run, counted anew, did it."""
    told = events.history(
        events.read(golden("queue.log")), "20261120T094115Z-geoban_apply-c2c41696"
    )
    tries = events.attempts(told)

    assert [(t.number, t.outcome) for t in tries] == [
        (1, What.WAITS),
        (2, What.WAITS),
        (3, What.BURIED),
        (1, What.SUCCEEDED),
    ]
    assert all(t.began is not None and t.ended is not None for t in tries)
    assert {t.error[:10] for t in tries} == {"Error: set", ""}


def an_event(what: What, when: float | None = NOW, transport: str = "", **fields: object) -> Event:
    """An event of which only this matters."""
    told = Event(when, "t", "x", what, "", transport, a_line("", when))
    return told._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "tries"),
    [
        ([], []),
        ([an_event(What.QUEUED)], []),
        ([an_event(What.STARTED)], [Attempt(1, NOW, None, None)]),
        # its worker died, and the next one found it
        (
            [
                an_event(What.STARTED),
                an_event(What.RECOVERED, NOW + 9),
                an_event(What.STARTED, NOW + 9),
            ],
            [Attempt(1, NOW, NOW + 9, What.RECOVERED), Attempt(2, NOW + 9, None, None)],
        ),
        # it was not attempted
        (
            [
                an_event(What.STARTED),
                an_event(What.FAILED, NOW + 1, error="no"),
                an_event(What.STARTED, NOW + 60),
                an_event(What.PUT_OFF, NOW + 60),
                an_event(What.STARTED, NOW + 90),
            ],
            [
                Attempt(1, NOW, NOW + 1, What.FAILED, "no"),
                Attempt(2, NOW + 90, None, None),
            ],
        ),
        ([an_event(What.PUT_OFF)], []),
        # nobody told how it ended
        (
            [an_event(What.STARTED), an_event(What.STARTED, NOW + 9)],
            [Attempt(1, NOW, None, None), Attempt(2, NOW + 9, None, None)],
        ),
        # the log begins in the middle of it
        (
            [an_event(What.FAILED, error="no"), an_event(What.WAITS, attempt=2)],
            [Attempt(2, None, NOW, What.WAITS, "no")],
        ),
        ([an_event(What.WAITS, attempt=2)], []),
        # the mail log tells of the same run
        (
            [
                an_event(What.STARTED),
                an_event(What.STARTED, transport="postfix"),
                an_event(What.FAILED, NOW + 1, "postfix"),
                an_event(What.FAILED, NOW + 1, error="no"),
            ],
            [Attempt(1, NOW, NOW + 1, What.FAILED, "no")],
        ),
        (
            [
                an_event(What.STARTED, None, "curl", attempt=3),
                an_event(What.SUCCEEDED, None, "curl"),
            ],
            [Attempt(3, None, None, What.SUCCEEDED)],
        ),
    ],
)
def test_attempts_are_what_the_lines_add_up_to(told: list[Event], tries: list[Attempt]) -> None:
    """Begun and ended in pairs, however many lines tell of it, and open where nobody told."""
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
    """What our worker logs of runs that fail, fail for good and succeed reads as just that."""
    log: list[LogLine] = []
    fates = {"a": Failed("421 later"), "b": Fatal("550 never"), "c": None}

    def handler(task: Task, context: Context) -> None:
        fate = fates[task.description]
        if fate is not None:
            raise fate

    def note(level: str, text: str) -> None:
        log.append(parse(contract_line(level, text, NOW), "queue.log"))

    store = MemoryStore()
    for number, name in enumerate(fates):
        store.swap(None, verbs.enqueue("sync", NOW, f"0000000{number}", name))
    handled: dict[str, handlers.Handler] = {"sync": handler}
    services = Services(log=note)
    Worker(store, handled, contract(), services=services, clock=lambda: NOW).work(until_idle=True)

    told = list(events.read(log))
    ids = [verbs.enqueue("sync", NOW, f"0000000{number}").id for number in range(3)]
    ends = [events.attempts(events.history(told, id)) for id in ids]
    assert [[(t.number, t.outcome, t.error) for t in tries] for tries in ends] == [
        [(1, What.WAITS, "421 later")],
        [(1, What.BURIED, "550 never")],
        [(1, What.SUCCEEDED, "")],
    ]
    assert {e.kind for e in told} == {"sync"}


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        (ID, "geoban_apply"),
        ("20261120T094121Z-my-own-kind-4711", "my-own-kind"),
        ("20261120T094121Z--c2c41696", ""),
        ("7QK2M9XA", ""),
        ("", ""),
    ],
)
def test_an_id_names_its_kind(id: str, kind: str) -> None:
    """The contract's ids hold the kind; others say nothing of it."""
    assert events.kind_of(id) == kind


@given(st.text(), st.floats() | st.none())
def test_no_line_is_too_odd(text: str, when: float | None) -> None:
    """Whatever stands in a log, reading it fails on none."""
    for head in ("", "Task ", "MAIL_SEND_RESULT ", "Processing task: "):
        list(events.read([LogLine(when, "", head + text, "x")]))
