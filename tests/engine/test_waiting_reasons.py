"""Why a task is not running, in the phrases that an operator reads."""

from math import inf

from engine.model import STALLED_KEY, Lease, LockEvidence, State, Task, Verdict
from engine.waiting_reasons import Circumstances, join_reasons, why_waiting

NOW = 1_800_000_000.0


def a_task(state: State = State.PENDING, due: float = 0.0) -> Task:
    """Return a task of which only this matters."""
    return Task("t", "mail_send", state, NOW - 60, due=due)


HELD = LockEvidence(Verdict.HELD, 77, NOW - 5, 5, "PID 77 is running")
FREE_LOCK = LockEvidence(Verdict.FREE, reason="no lock file")
STUCK = LockEvidence(Verdict.STUCK, 77, NOW - 2820, 2820, "PID 77 is alive, ...")
STALE = LockEvidence(Verdict.STALE, 77, NOW - 5, 5, "PID 77 is gone")
ODD = LockEvidence(Verdict.UNKNOWN, reason="/run/queue.lock: Permission denied\x1b")
NO_HANDLER = "no handler configured for mail_send"
IS_HELD = "lock held by PID 77, last heartbeat 5s ago"
IS_STUCK = "lock is stuck: no heartbeat from PID 77 for 47m"
UNSEEN = "no worker running"
DELAYED = "delayed until 08:04:00Z (in 4m)"

WHY_PENDING: tuple[tuple[float, Circumstances, str], ...] = (
    # what keeps the task itself
    (0, Circumstances(pause_reason="by ann"), "the queue is paused: by ann"),
    (90, Circumstances(), "delayed until 08:01:30Z (in 1m)"),
    (90000, Circumstances(), "delayed until 2027-01-16 09:00:00Z (in 1d01h)"),
    (inf, Circumstances(), "delayed until never"),
    (1e20, Circumstances(), "delayed until epoch second 1e+20"),
    (0, Circumstances(is_handled=str.isdigit), NO_HANDLER),
    (0, Circumstances(closed_reason="no mail\x1b transport", tasks_ahead=2), "no mail\ufffd "
    "transport"),
    (0, Circumstances(token_at=NOW + 1), "no token until 08:00:01Z (in 1s)"),
    (0, Circumstances(token_at=inf), "no token until never"),
    # the lock
    (0, Circumstances(HELD, str.islower, NOW), f"next in line; {IS_HELD}"),
    (0, Circumstances(LockEvidence(Verdict.HELD, 77)), "next in line; lock held by PID 77"),
    (0, Circumstances(LockEvidence(Verdict.HELD, None, NOW - 60, 60)),
     "next in line; lock held by an unknown PID, "
     "last heartbeat 1m ago"),
    (0, Circumstances(STUCK), IS_STUCK),
    (0, Circumstances(STUCK._replace(pid=None)), IS_STUCK.replace("PID 77", "its holder")),
    (0, Circumstances(STALE), "lock is stale: PID 77 is gone; the next worker takes it over"),
    (0, Circumstances(ODD), "lock state unknown: /run/queue.lock: Permission denied\ufffd"),
    # others first
    (0, Circumstances(tasks_ahead=1), "1 older task first"),
    (0, Circumstances(tasks_ahead=15, is_age_order=False), "15 other tasks first"),
    (0, Circumstances(pause_reason="mailQueueEnabled is "
    "0", token_at=NOW + 1, tasks_ahead=1, is_age_order=False),
     "the queue is paused: mailQueueEnabled is 0 | no token until 08:00:01Z (in 1s)"
     " | 1 other task first"),
    (0, Circumstances(HELD, tasks_ahead=1200), f"1,200 older tasks first | {IS_HELD}"),
    # no worker is there
    (0, Circumstances(), f"due, {UNSEEN}"),
    (-2820, Circumstances(), f"due for 47m, {UNSEEN}"),
    (-7980, Circumstances(FREE_LOCK, str.islower, NOW, last_run=NOW - 200),
     f"due for 2h13m, {UNSEEN}: lock is free, last run 3m ago"),
    (0, Circumstances(FREE_LOCK, tasks_ahead=3, last_run=NOW - 900), "3 older tasks first"),
    (0, Circumstances(FREE_LOCK, tasks_ahead=3, last_run=NOW - 901),
     f"3 older tasks first | due, {UNSEEN}: lock is free, last run 15m ago"),
    (-3600, Circumstances(tasks_ahead=3, is_age_order=False, is_idle=True),
     f"3 other tasks first | due for 1h00m, {UNSEEN}"),
    (-3600, Circumstances(HELD, tasks_ahead=3, is_idle=True), f"3 older tasks first | {IS_HELD}"),
    # more than one thing
    (-180, Circumstances(server="the mailer delivers: running"),
     "due for 3m: the mailer delivers: running"),
    (0, Circumstances(server="the mailer is stopped", is_stopped=True, is_idle=True),
     "the mailer is stopped"),
    (240, Circumstances(server="the mailer is stopped", is_stopped=True, is_idle=True),
     f"the mailer is stopped | {DELAYED}"),
    (240, Circumstances(server="the mailer delivers: running"), DELAYED),
    (240, Circumstances(is_handled=str.isdigit), f"{DELAYED} | {NO_HANDLER}"),
    (240, Circumstances(HELD, token_at=NOW + 300, tasks_ahead=7),
     f"{DELAYED} | no token until 08:05:00Z (in 5m) | then 7 older tasks first"),
    (240, Circumstances(token_at=NOW + 239), DELAYED),
    (240, Circumstances(FREE_LOCK, last_run=NOW - 86400),
     f"{DELAYED} | no worker running, last run 1d00h ago"),
    (-1, Circumstances(HELD._replace(verdict=Verdict.STUCK), str.isdigit, NOW + 60,
                       pause_reason="x", tasks_ahead=4, last_run=0.0),
     f"the queue is paused: x | {NO_HANDLER} | lock is stuck: no heartbeat from PID 77 "
     "for 5s | no token until 08:01:00Z (in 1m)"),
    (0, Circumstances(STUCK, token_at=NOW + 60, tasks_ahead=2, last_run=0.0),
     f"{IS_STUCK} | no token until 08:01:00Z (in 1m) | 2 older tasks first"),
)  # fmt: skip


def test_a_pending_task_shows_why_it_waits() -> None:
    """What keeps it now comes first, then what will keep it after that."""
    for due, circumstances, sentences in WHY_PENDING:
        task = a_task(due=NOW + due if due else 0.0)
        reasons = list(why_waiting(task, NOW, circumstances))
        assert " | ".join(reasons) == sentences, circumstances
        assert join_reasons(reasons) == sentences.replace(" | ", "; ")


def a_dead_task(attempts: int | None, **extra: str) -> Task:
    """A task that was given up."""
    return a_task(State.DEAD)._replace(attempts=attempts, extra=extra)


TAKEN = a_task(State.ACTIVE)._replace(lease=Lease("worker \x1b7", NOW - 90, NOW - 30))
CLAIMED = a_task(State.ACTIVE)._replace(lease=Lease("", NOW - 90))
RETRY = "stays here until retried (attempts reset)"
GIVEN_BACK = "the next worker counts an attempt and requeues it"
BACK = "the next worker counts a failed attempt and requeues it"
BY_AN_OPERATOR = "held by an operator until released"
LAPSES = "its lease expires at 08:00:30Z (in 30s)"
AN_END = Lease("", NOW - 90, NOW + 30)
NO_TOKEN = "waits: no token for domain example.com"

WHY_OTHERS: tuple[tuple[Task, Circumstances, str], ...] = (
    (a_task(State.HELD), Circumstances(pause_reason="x"), BY_AN_OPERATOR),
    (a_task(State.HELD, NOW + 60), Circumstances(is_handled=str.isdigit),
     f"{BY_AN_OPERATOR} | delayed until 08:01:00Z (in 1m) | {NO_HANDLER}"),
    (CLAIMED, Circumstances(lock=HELD), "being processed by PID 77 for 1m"),
    (CLAIMED, Circumstances(), "being processed for 1m"),
    (a_task(State.ACTIVE), Circumstances(), "being processed"),
    (a_task(State.HELD)._replace(extra={"waits": "frozen"}), Circumstances(), "frozen"),
    (CLAIMED._replace(lease=Lease("PID 8", 0.0)), Circumstances(), "being processed by PID 8"),
    (a_task(State.ACTIVE)._replace(extra={STALLED_KEY: "no lock"}), Circumstances(),
     "stalled? no lock: a worker returns it, or you do with release"),
    (TAKEN, Circumstances(),
     f"its lease expired 30s ago: {GIVEN_BACK} | claimed 1m ago by worker \ufffd7"),
    (TAKEN._replace(lease=Lease("worker \x1b7", NOW - 90, NOW + 30)), Circumstances(),
     f"claimed 1m ago by worker \ufffd7 | {LAPSES}"),
    (TAKEN._replace(lease=AN_END), Circumstances(),
     f"claimed 1m ago, owner unknown | {LAPSES}"),
    (TAKEN._replace(lease=Lease("", 0.0, 0.0)), Circumstances(),
     f"its lease expired: {GIVEN_BACK}"),
    (TAKEN._replace(lease=AN_END), Circumstances(lock=HELD), "being processed by PID 77 for 1m"),
    (CLAIMED, Circumstances(lock=FREE_LOCK),
     f"orphaned: lock is free, claimed 1m ago | {BACK}"),
    (CLAIMED, Circumstances(lock=STALE),
     f"orphaned: PID 77 is gone, claimed 1m ago | {BACK}"),
    (CLAIMED, Circumstances(lock=STUCK), f"{IS_STUCK}, claimed 1m ago"),
    (a_task(State.ACTIVE), Circumstances(lock=ODD),
     "lock state unknown: /run/queue.lock: Permission denied\ufffd"),
    (a_dead_task(3, dead_since=str(NOW - 7980), dead_reason="max_retries_exceeded"),
     Circumstances(pause_reason="x"),
     f"given up 2h13m ago (max_retries_exceeded) | {RETRY}"),
    (a_dead_task(1), Circumstances(), f"given up | {RETRY}"),
    (a_dead_task(None, dead_since="soon"), Circumstances(is_handled=str.isdigit),
     f"given up | {RETRY} | {NO_HANDLER}"),
    (a_task(due=NOW + 60)._replace(error=NO_TOKEN), Circumstances(lock=HELD),
     f"{NO_TOKEN} until 08:01:00Z (in 1m)"),
    (a_task()._replace(due=None), Circumstances(), "due time unknown"),
    (a_task()._replace(due=None), Circumstances(pause_reason="x"), "the queue is paused: x"),
    (a_task()._replace(due=None), Circumstances(is_idle=True), "due, no worker running"),
    (a_task(State.DONE), Circumstances(), "done; its store deletes it later"),
    (a_task(State.TRASH), Circumstances(),
     "purged by an operator: not taken until restored"),
)  # fmt: skip


def test_any_other_task_shows_its_state() -> None:
    """One that is held, worked on, put off, given up or put away is told that, and the rest."""
    for task, circumstances, sentences in WHY_OTHERS:
        assert " | ".join(why_waiting(task, NOW, circumstances)) == sentences
    assert {task.state for task, _, _ in WHY_OTHERS} == set(State)
