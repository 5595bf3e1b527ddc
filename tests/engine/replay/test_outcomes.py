"""What became of a replayed task: each case of where it is and what is said of it."""

import sys
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.logs import task_events
from engine.logs.log_line import LogLine
from engine.logs.task_events import TaskEvent
from engine.model import Missing, Problem, State, Task
from engine.replay import outcomes
from engine.replay.outcomes import KnownOutcome, OutcomeTracker, ReplayOutcome, determine_outcome
from tests.engine.task_builders import NOW
from tests.tables import each

ERROR = "421 4.7.0 try again later"
MARK = outcomes.fingerprint_of(ERROR)


def ident(number: int = 1) -> str:
    """The id of a task."""
    return f"20261120T094115Z-mail_send-{number:08x}"


def a_sent(number: int = 1, mark: str = MARK) -> outcomes.SentTask:
    """A task that was sent half a second into a second."""
    return outcomes.SentTask(number, ident(number), "r1", NOW + 0.5, mark)


def a_task(state: State, number: int = 1, **fields: Any) -> Task:
    """It, as it is seen now."""
    task = Task(ident(number), "mail_send", state, NOW - 3600, rev="r2")
    return task._replace(**fields)


def said(*texts: str, number: int = 1, when: float | None = NOW + 1) -> list[TaskEvent]:
    """What the queue's log says of it."""
    log = [LogLine(when, "INFO", text.replace("ID", ident(number)), "queue.log") for text in texts]
    return list(task_events.read_events(log))


MISSING = Missing(ident())
BEGUN = "Processing task: ID (mail_send: to admin)"
DONE = "Task completed: ID (mail_send)"
FAILED = f"Task failed: ID (mail_send): {ERROR}"
WAITS = "Task ID failed (attempt 1/4), retry in 60s"
BURIED = "Task ID exhausted retries (4/4), moving to DLQ"
UNSETTLED = "Task ID is not where it was claimed; left alone"
SENT_OK = "MAIL_SEND_RESULT task_id=ID status=success transport=postfix attempt=1"
TOKENLESS = "waits: no token for domain example.com"
AGAIN: dict[str, Any] = {"attempts": 1, "error": ERROR}
DEAD_NOW = {"dead_since": f"{NOW + 1:.0f}"}


def dead(**fields: Any) -> Task:
    """It, dead since it was sent."""
    return a_task(State.DEAD, **{"error": ERROR, "extra": DEAD_NOW, **fields})


DELIVERED, WAITING, RUNS = ReplayOutcome.DELIVERED, ReplayOutcome.WAITING, ReplayOutcome.RUNNING
FAILS, TAKEN, UNKNOWN = ReplayOutcome.FAILED, ReplayOutcome.TAKEN, ReplayOutcome.UNKNOWN
TOUCHED = "waits for a worker; changed by another process since it was sent"
PUT_BACK, NOT_RUN = "put back by another process", "moved to dead without a failed run"
GAVE_UP = "failed, dead again"
TRIED = KnownOutcome(FAILS, f"failed, will retry: {ERROR}", MARK)
DIRTY = "bad \x1b[2J"
DIRTY_MARK = outcomes.fingerprint_of(DIRTY)
TOKEN: dict[str, Any] = {"attempts": 0, "error": TOKENLESS}
PENDING, ACTIVE = State.PENDING, State.ACTIVE
SEEN: list[tuple[Task | Missing | None, KnownOutcome]] = [
    (None, KnownOutcome(WAITING, "sent, not looked up since", is_untouched=True)),
    (a_task(PENDING, rev="r1"), KnownOutcome(WAITING, "waits for a worker", is_untouched=True)),
    # claimed and given back, or promoted
    (a_task(PENDING), KnownOutcome(WAITING, TOUCHED)),
    (a_task(PENDING, **AGAIN), TRIED),
    # of a store that does not count attempts
    (a_task(PENDING, attempts=None, error=ERROR), TRIED),
    # claimed and given back until it has a token, and claimed again
    (a_task(PENDING, **TOKEN), KnownOutcome(WAITING, f"not attempted: {TOKENLESS}")),
    (a_task(ACTIVE, **TOKEN), KnownOutcome(RUNS, "running")),
    (a_task(ACTIVE), KnownOutcome(RUNS, "running")),
    (a_task(ACTIVE, **AGAIN), KnownOutcome(RUNS, "running again", MARK)),
    (dead(), KnownOutcome(FAILS, f"{GAVE_UP}: {ERROR}", MARK, is_final=True)),
    (
        dead(error=DIRTY),
        KnownOutcome(FAILS, f"{GAVE_UP}: bad \ufffd[2J", DIRTY_MARK, is_final=True),
    ),
    # dead since long before it was sent
    (dead(extra={"dead_since": f"{NOW - 1:.0f}"}), KnownOutcome(TAKEN, PUT_BACK, is_final=True)),
    (dead(error=""), KnownOutcome(TAKEN, NOT_RUN, is_final=True)),
    (a_task(State.HELD), KnownOutcome(TAKEN, "held by another process", is_final=True)),
    (a_task(State.TRASH), KnownOutcome(TAKEN, "purged by another process", is_final=True)),
    (a_task(State.DONE), KnownOutcome(DELIVERED, "done (store)", is_final=True)),
]


@each(("task", "known"), SEEN)
def test_the_state_decides_the_outcome(task: Task | Missing | None, known: KnownOutcome) -> None:
    """A task that is somewhere is believed before any line of a log."""
    assert determine_outcome(a_sent(), task, ()) == known
    if task is not None:
        assert determine_outcome(a_sent(), task, said(BEGUN, DONE)) == known


OK = KnownOutcome(DELIVERED, "succeeded (log)", is_final=True)
NOT_YET = "left the queue; no outcome recorded yet"
NOTHING = KnownOutcome(WAITING, NOT_YET)
RUNNING = KnownOutcome(RUNS, f"started and {NOT_YET}")
LOG = "failed (log)"
TOLD: list[tuple[list[TaskEvent], KnownOutcome]] = [
    (said(BEGUN, DONE), OK),
    (said(SENT_OK), OK),
    (said(BEGUN, DONE, when=None), OK),
    (said(BEGUN, FAILED, WAITS, BEGUN, DONE), OK),
    (said(BEGUN, FAILED, WAITS), KnownOutcome(FAILS, f"{LOG}, will retry: {ERROR}", MARK)),
    (said(BEGUN, FAILED), KnownOutcome(FAILS, f"{LOG}: {ERROR}", MARK)),
    # buried, and purged from there
    (said(BEGUN, FAILED, BURIED), KnownOutcome(FAILS, f"{LOG}, moved to dead: {ERROR}", MARK)),
    (said(BEGUN), RUNNING),
    # run, but its outcome was not stored
    (said(BEGUN, UNSETTLED), RUNNING),
    ([], NOTHING),
    # only lines from before it was sent, or of another task
    (said(BEGUN, DONE, when=NOW - 1), NOTHING),
    (said(BEGUN, DONE, number=2), NOTHING),
]


def test_the_log_decides_the_outcome_of_a_missing_task() -> None:
    """Since it was sent, however late; without a line it is unknown, or the counter rose."""
    for outcome, known in TOLD:
        assert determine_outcome(a_sent(), MISSING, outcome, silent=1) == known, outcome
    assert determine_outcome(a_sent(), MISSING, said(BEGUN, DONE), silent=1e6) == OK
    neither = "neither log nor counter records the outcome"
    for outcome, why in (
        ([], f"left the queue; {neither}"),
        (said(BEGUN), f"started and left the queue; {neither}"),
    ):
        unknown = determine_outcome(a_sent(), MISSING, outcome, silent=120, timeout=120)
        assert unknown == KnownOutcome(UNKNOWN, why)
    counted = KnownOutcome(DELIVERED, "left without a log line; the processed counter rose")
    assert determine_outcome(a_sent(), MISSING, (), counted=True) == counted


def followed(*sent: outcomes.SentTask, timeout: float = 120) -> OutcomeTracker:
    """These, being followed."""
    fates = OutcomeTracker(timeout)
    for one in sent:
        fates.add(one)
    return fates


def news(fates: OutcomeTracker, now: float = NOW) -> dict[int, ReplayOutcome]:
    """The changed outcomes, by number."""
    return {change.sent.nth: change.after.outcome for change in fates.pop_changes(now)}


def gone(fates: OutcomeTracker, *numbers: int, now: float = NOW) -> None:
    """These were looked for, and are nowhere."""
    ids = {ident(number) for number in numbers}
    fates.add_scan(ids, [Missing(one) for one in sorted(ids)], now)


def test_a_settled_task_is_not_read_again() -> None:
    """The others are, each in turn; of two outcomes one is the first."""
    fates = followed(a_sent(1), a_sent(2), a_sent(3))
    fates.add_events(said(BEGUN, DONE, number=2))
    gone(fates, 2)
    assert news(fates) == {2: DELIVERED}
    assert [fates.next_lookups(1) for _ in range(3)] == [(ident(n),) for n in (1, 3, 1)]
    many = followed(*(a_sent(number) for number in range(50)))
    many.add_events(said(BEGUN, number=40))
    assert many.next_lookups(2) == (ident(40), ident(0))

    fates, changes = followed(a_sent()), list[outcomes.ObservedChange]()
    for state in (State.PENDING, State.ACTIVE):
        fates.add_scan({ident()}, [a_task(state, **AGAIN)], NOW)
        changes += fates.pop_changes(NOW)
    fates.add_events(said(BEGUN, DONE))
    gone(fates, 1)
    changes += fates.pop_changes(NOW)
    assert [change.is_first_outcome for change in changes] == [True, False, False]
    assert changes[-1].after.outcome is DELIVERED


def test_a_task_on_its_way_an_undone_one_and_a_counter_that_restarts() -> None:
    """None of them is news; a counter that fell counts from there."""
    fates = followed(a_sent())
    fates.add_scan({ident()}, [a_task(State.ACTIVE)], NOW)
    assert len(news(fates)) == 1
    fates.add_scan({ident()}, [], NOW)
    fates.add_scan({ident()}, [Problem(f"work/{ident()}.task", "cannot be read now")], NOW)
    assert news(fates, NOW + 1e6) == {}

    fates = followed(a_sent(1), a_sent(2))
    for finished in (100, 101, None, 0, 1):
        fates.add_count(finished)
    gone(fates, 1, 2)
    assert news(fates, NOW + outcomes.COUNTER_DELAY_SECONDS) == {1: DELIVERED, 2: DELIVERED}

    fates = followed(a_sent(1), a_sent(2))
    (back,) = fates.remove([ident(1), ident(77)])
    fates.add_scan({ident(1)}, [a_task(State.DEAD)], NOW)
    assert (back[0], fates.open, news(fates)) == (a_sent(1), 1, {})


def calls_of_settle(amount: int) -> list[int]:
    """Calls of a turn without any news, and of one with a count, of so many missing tasks."""
    fates = followed(*(a_sent(number) for number in range(amount)))
    fates.add_count(0)
    gone(fates, *range(amount))
    for seconds in (0, outcomes.COUNTER_DELAY_SECONDS, 500):
        list(fates.pop_changes(NOW + seconds))
    costs = []
    for finished in (0, 1):
        fates.add_count(finished)
        calls: list[str] = []
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, arg: calls.append(event))  # noqa: B023
        try:
            list(fates.pop_changes(NOW + 501))
        finally:
            sys.setprofile(before)
        costs.append(sum(event in ("call", "c_call") for event in calls))
    return costs


def test_a_turn_costs_the_same_however_many_tasks_are_missing() -> None:
    """Only what comes due is judged again."""
    assert calls_of_settle(10) == calls_of_settle(1000)


HAPPENED = st.sampled_from(["gone", "line", "other", "count", "pending"])
PAUSES = st.sampled_from([0.0, 0.5, outcomes.COUNTER_DELAY_SECONDS, 60.0, 120.0])


@given(st.lists(st.tuples(st.integers(0, 4), HAPPENED, PAUSES), max_size=30))
def test_nothing_that_comes_due_is_missed(happened: list[tuple[int, str, float]]) -> None:
    """What is known after each turn is what judging every task from the beginning would say."""
    sent = [a_sent(number) for number in range(5)]
    fates, now, finished, told_done = followed(*sent), NOW + 1, 0, 0
    known = dict.fromkeys(range(5), determine_outcome(sent[0], None, ()))
    tasks: dict[int, Task | Missing | None] = dict.fromkeys(range(5))
    since: dict[int, float] = {}
    task_events: dict[int, list[TaskEvent]] = {number: [] for number in range(5)}
    fates.add_count(finished)
    for number, what, seconds in happened:
        now += seconds
        if what == "gone" and not isinstance(tasks[number], Missing):
            gone(fates, number, now=now)
            tasks[number], since[number] = Missing(ident(number)), now
        elif what == "pending":
            task = a_task(State.PENDING, number)
            fates.add_scan({ident(number)}, [task], now)
            tasks[number] = task
            since.pop(number, None)
        elif what in ("line", "other"):
            lines = said(BEGUN, DONE, number=number if what == "line" else 77, when=now)
            fates.add_events(lines)
            told_done += 1
            if what == "line":
                task_events[number] += lines
        elif what == "count":
            finished += 1
            fates.add_count(finished)
        for change in fates.pop_changes(now):
            known[change.sent.nth] = change.after
        spare = max(0, finished - told_done)
        for nth in (n for n in range(5) if not known[n].is_final):
            silent = now - since[nth] if nth in since else 0.0
            judge = partial(determine_outcome, sent[nth], tasks[nth], task_events[nth], silent)
            expected = judge()
            unsaid = expected.outcome in (WAITING, RUNS, UNKNOWN)
            if spare and nth in since and silent >= outcomes.COUNTER_DELAY_SECONDS and unsaid:
                spare -= 1
                expected = judge(counted=True)
            assert known[nth] == expected


KINDS = st.sampled_from(["gone", "line", "count", *State])


@given(st.lists(st.tuples(st.integers(0, 4), KINDS, st.floats(0, 100)), max_size=40))
def test_a_settled_task_is_never_reported_again(happened: list[tuple[int, str, float]]) -> None:
    """With any events and counts, what was final stays, and each has one first outcome."""
    fates, now, finished = followed(*(a_sent(n) for n in range(5))), NOW, 10
    final, firsts = set[int](), list[int]()
    fates.add_count(finished)
    for number, what, seconds in happened:
        now += seconds
        if what == "gone":
            gone(fates, number, now=now)
        elif what == "line":
            fates.add_events(said(BEGUN, DONE, number=number, when=now))
        elif what == "count":
            finished += 1
            fates.add_count(finished)
        else:
            fates.add_scan({ident(number)}, [a_task(State(what), number, error=ERROR)], now)
        for change in fates.pop_changes(now):
            assert change.sent.nth not in final
            assert change.before != change.after
            firsts += [change.sent.nth] * change.is_first_outcome
            if change.after.is_final:
                final.add(change.sent.nth)
    assert len(firsts) == len(set(firsts))
    assert fates.open == 5 - len(final)
