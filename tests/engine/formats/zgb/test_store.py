"""The mail queue at work: claims, tokens, waits, orphans, switches, and our own database."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.zgb.control import QueueFigures
from engine.formats.zgb.place import (
    PARKED_DUE_SECONDS,
    RateLimit,
    ZgbDatabase,
    document_retry_policy,
)
from engine.formats.zgb.queue_config import UNDECIDABLE_ERROR, RedirectDecision
from engine.formats.zgb.store import EDGES, ZgbStore
from engine.model import Missing, Move, State, Task, counted_attempts, own_word
from engine.store import Gone, Unavailable, Unsupported
from engine.work import outcomes
from tests.store_contents import naming, problems_in, tasks_in
from tests.zgb import (
    NOW,
    ORGANIZER,
    USER,
    Opener,
    Sql,
    change,
    config,
    fail,
    settle,
    taken,
    there,
)

DAY = 86_400.0
REAL = RateLimit()


def retried(task: Task) -> Task:
    """The task as a retry makes it in this format."""
    new = verbs.keep_error(EDGES, task, verbs.retry(task, NOW))
    assert new is not None
    return new


def test_every_edge_is_there(user_job: ZgbStore) -> None:
    """The edges and words of the format, by hand; a job that failed is pending as `failed`."""
    p, a, h, d, t = State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH
    due, outcome = {"due"}, {"attempts", "due", "error"}
    expected: dict[tuple[State | None, State | None], set[str]] = {
        (None, p): set(),  # enqueued
        (a, None): set(),  # sent: the row is deleted
        (a, p): outcome,  # failed, with a wait; or its lease was over
        (a, d): outcome,  # failed too often: parked
        (a, h): outcome,
        (p, d): set(),  # parked by an operator
        (d, p): {"attempts", "due"},  # "retry failed jobs": the last error stays
        **{(p, p): due, (h, p): due, (h, h): due},
        **{(d, h): set(), (p, h): set(), (h, d): set()},
        **{(start, t): set() for start in (p, h, d)},
        **{(t, end): set() for end in (p, h, d)},
        **{(d, None): set(), (t, None): set()},
    }
    edges = user_job.edges
    assert {transition: set(edge.fields) for transition, edge in edges.items()} == expected
    final = {transition for transition, edge in edges.items() if not edge.undoable}
    assert final == {(a, None), (d, None), (t, None)}
    assert [*user_job.states.values()] == ["pending", "sending", "held", "parked", "trash"]
    failed = fail(user_job, due=NOW + 60)
    assert (failed.state, failed.word) == (State.PENDING, "failed")


def test_a_queue_opened_to_be_read_refuses_every_edge(
    both_jobs: ZgbStore, open_queue: Opener, place: ZgbDatabase
) -> None:
    """Opened to be read, every edge and control is refused with the reason, and nothing is done."""
    store = open_queue(read_only=True)
    why = f"{place.path} was opened read-only"
    refusals = {edge.refusal for edge in store.edges.values()}
    assert refusals | {control.refusal for control in store.controls.values()} == {why}
    task = there(store)
    for act in (
        lambda: store.swap(task, verbs.hold(task, NOW)),
        lambda: store.control("mailQueueEnabled", value="0"),
        lambda: next(store.take(NOW, "me", 1)),
    ):
        with pytest.raises(Unsupported, match="read-only"):
            act()


def test_a_registration_has_two_mails(open_queue: Opener) -> None:
    """Both are enqueued once, the user's first, or one by its kind; unknown ones are refused."""
    store = open_queue()
    first, again = store.enqueue(1001), store.enqueue(1001)
    assert [(one.is_new, one.task.id) for one in first] == [(True, USER), (True, ORGANIZER)]
    assert [(one.is_new, one.task.state) for one in again] == [(False, State.PENDING)] * 2
    assert taken(store) == [USER, ORGANIZER]
    store.enqueue(1002, ["organizer"])
    assert taken(store) == ["1002-organizer"]
    for job, why in (((1001, ["orga"]), "expected NUMBER-KIND"), ((7,), "no registration 7")):
        with pytest.raises(Unsupported, match=why):
            store.enqueue(*job)


def test_what_a_row_cannot_hold_is_refused(open_queue: Opener, sql: Sql) -> None:
    """A field without a column, or with a value that no column holds, is refused and not stored."""
    rows: list[tuple[str, Any]] = [("description", "mine"), ("payload", "/x"), ("priority", 1)]
    rows += [("queue", "q"), ("destination", "example.net"), ("group", "g")]
    rows += [("id", "1001-orga"), ("id", "01001-user"), ("kind", "organizer")]
    rows += [("attempts", -1), ("attempts", None), ("due", None), ("due", -1.0), ("due", 1e18)]
    for field, value in rows:
        task = Task(USER, "user", State.PENDING, NOW)._replace(**{field: value})
        with naming(field, value), pytest.raises(Unsupported):
            open_queue().swap(None, task)
    assert sql("SELECT count(*) FROM mail_queue") == [(0,)]


def test_jobs_are_claimed_in_the_order_of_due_times(open_queue: Opener) -> None:
    """The longest due comes first, then by arrival; failed ones among the others."""
    store = open_queue()
    for number, due in ((1001, NOW - 5), (1002, NOW - 50), (1003, NOW - 5), (1004, NOW + 5)):
        store.swap(None, Task(f"{number}-user", "user", State.PENDING, NOW, due=due))
    fail(store, NOW - 10, due=NOW - 6)
    assert taken(store) == ["1002-user", "1001-user", "1003-user"]
    assert store.changes.next_due == NOW + 5


ROW = "FROM mail_queue WHERE registration_number = 1001 AND mail_type = 'user'"
"""The row of the user's job."""


def test_a_claim_is_a_lease(user_job: ZgbStore, sql: Sql) -> None:
    """A claimed row is sending, locked and counts as an attempt, also after a foreign write."""
    (task,) = user_job.take(NOW, "me", 1)
    assert (task.attempts, counted_attempts(task)) == (0, 1)
    assert task.lease is not None and task.lease.until == NOW + 300
    assert sql(f"SELECT status, attempts, locked_until {ROW}") == [("sending", 1, NOW + 300)]
    sql("UPDATE mail_queue SET last_error = 'looked at', updated_at = 1")
    assert user_job.swap(task, None) == ""


def test_each_attempt_costs_a_token(open_queue: Opener, sql: Sql) -> None:
    """No more is claimed than whole tokens; the rest is kept; an empty queue is refilled too. A
    clock that is set back brings nothing, and from then on what it always did."""
    settle(sql, mailMaxPerHour="60", mailTokens="1", mailLastRefill=str(int(NOW - 120)))
    store = open_queue(rate_limit=REAL)
    assert taken(store) == []
    assert (config(sql)["mailTokens"], config(sql)["mailLastRefill"]) == ("3.0", str(int(NOW)))
    settle(sql, mailMaxPerHour="40", mailTokens="2.5", mailLastRefill=str(int(NOW)))
    for number in range(1001, 1005):
        store.enqueue(number)
    assert len(taken(store)) == 2
    assert config(sql)["mailTokens"] == "0.5"
    assert store.changes.next_due == NOW + 45  # 40 an hour: half a token
    assert taken(store, NOW + 44) == []
    assert len(taken(store, NOW + 45)) == 1
    settle(sql, mailTokens="0", mailLastRefill=str(int(NOW + 9000)))
    assert (taken(store, NOW + 100), config(sql)["mailTokens"]) == ([], "0.0")
    assert len(taken(store, NOW + 190)) == 1


def test_a_take_that_goes_on_refills_nothing_twice(open_queue: Opener, sql: Sql) -> None:
    """Two workers in turns, one with an older time, get no more than one bucket's tokens."""
    settle(sql, mailMaxPerHour="60", mailTokens="5", mailLastRefill=str(int(NOW)))
    first, theirs = open_queue(rate_limit=REAL), open_queue(rate_limit=REAL)
    for number in range(1001, 1020):
        first.enqueue(number)
    slow = first.take(NOW, "me", 9)
    claimed = [next(slow)]
    for later in range(1, 5):
        claimed += theirs.take(NOW + 10 * later, "they", 1)
        claimed += [task for _ in "x" if (task := next(slow, None)) is not None]
    assert len({task.id for task in claimed}) == len(claimed) == 5
    assert config(sql)["mailLastRefill"] == str(int(NOW + 40))


def test_paused_claims_nothing_and_touches_no_token(user_job: ZgbStore, sql: Sql) -> None:
    """A queue without its switch on recovers leases, keeps its tokens and claims nothing."""
    settle(sql, mailQueueEnabled="0", mailTokens="1.25")
    sql("UPDATE mail_queue SET status = 'sending', attempts = 1, locked_until = 5")
    assert taken(user_job) == []
    assert (user_job.claim_report.recovered, user_job.claim_report.enabled) == ((USER,), False)
    assert config(sql)["mailTokens"] == "1.25"
    sql("DELETE FROM config WHERE key = 'mailQueueEnabled'")
    assert taken(user_job, NOW + DAY) == []


def test_a_taker_that_fails_has_claimed_nothing(both_jobs: ZgbStore, sql: Sql) -> None:
    """An error while it is asked undoes the claim, the token and the recovered leases together."""
    before = config(sql)

    def wants(kind: str, group: str) -> bool:
        raise OSError("limits cannot be read")

    with pytest.raises(OSError, match="limits"):
        next(both_jobs.take(NOW + 50, "me", 1, wants))
    assert config(sql) == before
    assert sql("SELECT DISTINCT status FROM mail_queue") == [("pending",)]


def test_the_tenth_failure_parks(user_job: ZgbStore, sql: Sql) -> None:
    """Waits of 60, 300, 900, then 3600 s: parked after 6h21m, and a retry restores it."""
    store, now, elapsed = user_job, NOW, []
    for _ in range(10):
        (task,) = store.take(now, "me", 1)
        store.swap(task, outcomes.task_after_failure(task, "no", document_retry_policy(), now))
        now = there(store).due or now
        elapsed.append(now - NOW)
    assert elapsed[:9] == [60, 360, 1260, 4860, 8460, 12060, 15660, 19260, 22860]
    parked = there(store)
    assert (parked.state, parked.attempts, parked.due) == (State.DEAD, 10, 0.0)
    assert sql(f"SELECT status, next_attempt_at {ROW}") == [("failed", PARKED_DUE_SECONDS)]
    store.swap(parked, retried(parked))
    again = there(store)
    assert (again.attempts, again.word, again.error) == (0, "", "no")
    assert len(taken(store, now, 1)) == 1


def test_a_late_outcome_touches_nothing(user_job: ZgbStore, sql: Sql) -> None:
    """A worker whose lapsed lease another has claimed can neither finish nor fail the job."""
    (mine,) = user_job.take(NOW, "me", 1)
    list(user_job.take(NOW + 301, "they", 1))
    (theirs,) = user_job.take(NOW + 301 + 60, "they", 1)
    for outcome in (None, verbs.nack(mine, NOW + 60, "no"), verbs.give_up_task(mine, "no", 1)):
        with pytest.raises(Gone):
            user_job.swap(mine, outcome)
    user_job.swap(theirs, None)
    assert sql("SELECT count(*) FROM mail_queue") == [(0,)]


def test_a_lapsed_lease_is_a_failure(user_job: ZgbStore, sql: Sql) -> None:
    """A job that was never finished waits as a failed one, and is parked after the last attempt; a
    lease that ends ten leases ahead is reported and stays; a waiting job has none to extend."""
    for locked in (NOW - 1, None):
        sql("UPDATE mail_queue SET status = 'sending', attempts = 2, locked_until = ?", locked)
        assert taken(user_job) == []
        assert user_job.claim_report.recovered == (USER,)
        columns = "status, locked_until, attempts, last_error, next_attempt_at"
        stored = ("pending", None, 2, "lease expired", NOW + 300)
        assert sql(f"SELECT {columns} {ROW}") == [stored]
    (outcome,) = user_job.renew([there(user_job)], NOW + 300)
    assert isinstance(outcome.error, Gone) and sql(f"SELECT locked_until {ROW}") == [(None,)]
    sql("UPDATE mail_queue SET status = 'sending', locked_until = ?", int(NOW + 3001))
    assert "a clock was wrong" in problems_in(user_job)["mail_queue/row 1"]
    assert there(user_job).state is State.ACTIVE
    sql("UPDATE mail_queue SET attempts = 10, locked_until = 5")
    assert taken(user_job) == []
    assert there(user_job).state is State.DEAD


def test_failed_jobs_await_an_operator(both_jobs: ZgbStore, open_queue: Opener, sql: Sql) -> None:
    """It is pending while it is tried again by itself, else parked; its word is `failed`."""
    sql("UPDATE mail_queue SET status = 'failed', next_attempt_at = 5 WHERE mail_type = 'user'")
    for auto_retry, state in ((True, State.PENDING), (False, State.DEAD)):
        store = open_queue(auto_retry=auto_retry)
        job = there(store)
        assert (store.words, job.state, job.word) == ({"failed": state}, state, "failed")
        assert own_word(job, store.states, store.words) == "failed"
        assert own_word(there(store, ORGANIZER), store.states, store.words) == "pending"
        assert not store.words.keys() & set(store.states.values())
    assert taken(store, NOW + DAY) == [ORGANIZER]
    store.swap(job, retried(job))
    assert taken(store, NOW + DAY) == [USER]


def test_the_button_retries_all(both_jobs: ZgbStore, sql: Sql) -> None:
    """ "Retry failed jobs": failed and parked are due now with no attempts; their error is kept. A
    failed job that is due in more than a year was parked; a pending one waits."""
    sql("UPDATE mail_queue SET next_attempt_at = ?", int(NOW + 366 * DAY))
    sql("UPDATE mail_queue SET status = 'failed' WHERE mail_type = 'user'")
    states = there(both_jobs).state, there(both_jobs, ORGANIZER).state
    assert states == (State.DEAD, State.PENDING)
    sql(
        "UPDATE mail_queue SET status = 'failed', attempts = 9, last_error = 'no',"
        " next_attempt_at = CASE mail_type WHEN 'user' THEN 5 ELSE 253402300799 END"
    )
    forecast = (2, "2 jobs failed or parked: due now, attempts reset")
    assert both_jobs.forecast("retryFailed")[::-1] == forecast
    assert both_jobs.control("retryFailed") == "2 jobs failed or parked: due now"
    for job in tasks_in(both_jobs).values():
        assert (job.state, job.word, job.attempts, job.error) == (State.PENDING, "", 0, "no")


def test_an_orphan_is_deleted_before_it_costs_a_token(both_jobs: ZgbStore, sql: Sql) -> None:
    """A job whose registration is gone is deleted by the next run, and reported; a claimed one
    stays with its worker, who can ask before it sends; other jobs are claimed."""
    store = both_jobs
    store.enqueue(1002, ["user"])
    store.enqueue(1003, ["user"])
    (claimed,) = store.take(NOW, "me", 1, lambda kind, group: True)
    assert claimed.id == USER and not store.describe_claim(claimed, NOW).is_orphan
    sql("DELETE FROM registrations WHERE number IN (1001, 1002)")
    assert "2 jobs have no registration" in problems_in(store)["orphans"]
    before = float(config(sql)["mailTokens"])
    assert taken(store) == ["1003-user"]
    assert store.claim_report.orphans == (ORGANIZER, "1002-user")
    assert before - float(config(sql)["mailTokens"]) == 1.0
    assert store.describe_claim(claimed, NOW).is_orphan
    assert store.swap(claimed, None) == ""


def test_too_many_orphans_are_asked_about(open_queue: Opener, sql: Sql) -> None:
    """Of more than ten, and half of the queue, none is deleted or sent until one is asked."""
    store = open_queue()
    for number in range(1000, 1010):
        store.enqueue(number)
    sql("DELETE FROM registrations WHERE number < 1006")
    with pytest.raises(Unavailable, match="12 of 20 jobs have no registration"):
        next(store.take(NOW, "me", 9))
    assert "12 of 20" in problems_in(store)["orphans"]
    assert sql("SELECT DISTINCT status, count(*) FROM mail_queue") == [("pending", 20)]
    assert store.control("deleteOrphans") == "12 jobs deleted"
    assert len(taken(store, NOW, 99)) == 8


def test_no_registrations_no_orphans(both_jobs: ZgbStore, open_queue: Opener, sql: Sql) -> None:
    """A missing table is an error, and deletes no job; another one can be named, or none."""
    sql("ALTER TABLE registrations RENAME TO elsewhere")
    store = open_queue()
    with pytest.raises(Unavailable, match="no table registrations"):
        next(store.take(NOW, "me", 9))
    assert "no table registrations" in problems_in(store)["registrations"]
    assert len(taken(open_queue(registrations=""))) == 2
    assert len(list(open_queue(registrations="elsewhere").scan({USER}))) == 1


def test_a_job_much_older_than_its_numbers_registration_waits(open_queue: Opener, sql: Sql) -> None:
    """The number was given out again, it seems: the job waits until an operator deletes it."""
    for registered, made in (
        (int(NOW) + 26 * 3600 + 1, int(NOW)),
        ("2026-11-21 10:00:01", "2026-11-20 08:00:00"),
    ):
        for number in (1001, 1002):
            open_queue().enqueue(number, ["user"])
        sql("UPDATE mail_queue SET created_at = ?", made)
        sql("UPDATE registrations SET created_at = ? WHERE number = 1001", registered)
        store = open_queue()
        assert (taken(store), store.claim_report.orphans) == (["1002-user"], ())
        assert "1 job is older than the registration" in problems_in(store)["orphans"]
        assert store.control("deleteOrphans") == "1 job deleted"
        assert problems_in(store) == {}
        assert sql("SELECT registration_number FROM mail_queue") == [(1002,)]
        sql("DELETE FROM mail_queue")
        sql("UPDATE registrations SET created_at = 0")


def test_times_that_cannot_be_compared_make_no_orphan(open_queue: Opener, sql: Sql) -> None:
    """Another form, unit or zone does not tell which came first: the job is sent."""
    text, number = "2026-11-20 10:20:00", int(NOW)
    other_forms = "2026-11-20T11:20:00+01:00", "2026-11-29T10:20:00Z", "2026-11-29 10:20:00.123"
    other_zones = "2026-11-20 11:20:00", "2026-11-21 12:20:00"  # those farthest apart
    no_times, month = ("2026-13-45 10:20:00", b"\xff\xfe", None), number + 40 * 86_400
    rows: list[tuple[object, object]] = [(number * 1000, number), (month, text), (month, 1)]
    rows += [(number + 26 * 3600, number)]  # a clock that was set
    for registered, made in (
        *((one, text) for one in (*other_forms, *other_zones, *no_times)),
        *rows,
    ):
        open_queue().enqueue(1001, ["user"])
        sql("UPDATE mail_queue SET created_at = ?", made)
        sql("UPDATE registrations SET created_at = coalesce(?, '')", registered)
        store = open_queue()
        with naming(registered, made):
            assert (problems_in(store), taken(store)) == ({}, [USER])
            assert store.claim_report.orphans == ()
        sql("DELETE FROM mail_queue")


def test_a_held_job_leaves_their_table(user_job: ZgbStore, sql: Sql, place: ZgbDatabase) -> None:
    """It comes back as the same row; our database is as private as theirs."""
    Path(place.path).chmod(0o600)
    sql("ALTER TABLE mail_queue ADD COLUMN note BLOB")
    sql("UPDATE mail_queue SET note = ?, last_error = CAST(? AS TEXT)", b"\0\xff", b"caf\xe9")
    names = "id, note, hex(last_error), created_at, next_attempt_at"
    before = sql(f"SELECT {names} FROM mail_queue")
    for state, extra in ((State.HELD, {}), (State.TRASH, {"trash_since": str(int(NOW))})):
        with closing(ZgbStore(place, lambda: NOW)) as store:
            change(store, state=state)
        assert sql("SELECT count(*) FROM mail_queue") == [(0,)]
        assert Path(place.sidecar_path).stat().st_mode & 0o777 == 0o600
        aside = there(user_job)
        assert (aside.state, aside.extra) == (state, extra)
        change(user_job, state=State.PENDING)
        assert sql(f"SELECT {names} FROM mail_queue") == before
        assert sql("SELECT count(*) FROM config WHERE key LIKE 'spooldeck%'") == [(1,)]


def moved_until_commit(place: ZgbDatabase, state: State, number: int) -> bool:
    """Move the user's job in a process killed at that commit; True if it came to it."""
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, -signal.SIGKILL)
        return status != 0
    connect, commits = sqlite3.connect, list[str]()

    def trace(statement: str) -> None:
        commits.extend([statement] * (statement == "COMMIT"))
        if len(commits) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect_traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        db.set_trace_callback(trace)
        return db

    try:
        sqlite3.connect = connect_traced  # type: ignore[assignment]
        change(ZgbStore(place, lambda: NOW), state=state)
        os._exit(0)
    finally:
        os._exit(1)


def test_a_process_killed_between_two_commits_loses_no_job(place: ZgbDatabase) -> None:
    """Killed before any commit of a move, the job is where it was, or where it was to go."""
    with closing(ZgbStore(place, lambda: NOW)) as store:
        store.enqueue(1001)
        change(store, ORGANIZER, state=State.HELD)  # makes our file, with its own commit
    for before, after in ((State.PENDING, State.HELD), (State.HELD, State.PENDING)):
        seen = [before]
        while seen[-1] is before and moved_until_commit(place, after, len(seen)):
            with closing(ZgbStore(place, lambda: NOW)) as store:
                seen.append(there(store).state)
                assert problems_in(store) == {}
        assert len(seen) > 2
        with closing(ZgbStore(place, lambda: NOW)) as store:
            assert there(store).state is after


def test_an_old_job_of_a_reused_number_stays_in_the_trash(both_jobs: ZgbStore, sql: Sql) -> None:
    """It goes neither beside a new job of that number nor into another's registration."""
    store = both_jobs
    _, trashed = (change(store, ident, state=State.TRASH) for ident in (USER, ORGANIZER))
    for statement, why in (
        ("DELETE FROM registrations WHERE number = 1001", "registration 1001 is gone"),
        (f"INSERT INTO registrations VALUES (1001, {int(NOW)})", "reused for a newer registration"),
        ("UPDATE registrations SET created_at = 0 WHERE number = 1001", ""),
        (
            "INSERT INTO mail_queue (registration_number, mail_type) VALUES (1001, 'organizer')",
            "is in mail_queue already",
        ),
    ):
        sql(statement)
        if why:
            with pytest.raises(Unsupported, match=why):
                store.swap(trashed, trashed._replace(state=State.PENDING))

    assert there(store).state is State.TRASH
    problem = problems_in(store)[ORGANIZER]
    assert problem == "is in trash and pending at the same time: its number was reused"
    tasks = [item for item in store.scan({ORGANIZER}) if isinstance(item, Task)]
    (new,) = (task for task in tasks if task.state is State.PENDING)
    assert len(tasks) == 2
    with pytest.raises(Unsupported, match="expunge that job first"):
        store.swap(new, verbs.hold(new, NOW))
    assert sql("SELECT count(*) FROM mail_queue") == [(1,)]


def test_a_before_image_restores_a_job(user_job: ZgbStore) -> None:
    """What `read` gave of a job can be restored, without a claim; a wrong image is refused."""
    store, parked = user_job, fail(user_job)
    image = store.read(parked)
    store.swap(parked, retried(parked))
    now = there(store)
    (outcome,) = store.swap_all([Move(now, store.restore_image(now, image, State.DEAD), image)])
    assert outcome.error is None
    after = there(store)
    assert (after.state, after.attempts, after.error) == (State.DEAD, 1, "no")
    for wrong in (b"nonsense", image.replace(b"user", b"orga")):
        with pytest.raises(Unsupported):
            store.restore_image(after, wrong, State.DEAD)


def test_the_three_switches(open_queue: Opener, sql: Sql) -> None:
    """Queue on or off, mails an hour, and test mode take the values that their page allows; at a
    new rate the time until now counts at the old one; one out of bounds is a problem."""
    store = open_queue(rate_limit=REAL)
    switched = {"mailQueueEnabled": "0", "mailMaxPerHour": "12", "mailRedirectToSchumbi": "1"}
    for name, value in switched.items():
        store.control(name, value=value)
    config_rows = config(sql)
    assert switched.items() <= config_rows.items()
    rows = [("mailQueueEnabled", "yes"), ("mailRedirectToSchumbi", ""), ("mailTokens", "9")]
    rows += [("mailMaxPerHour", rate) for rate in ("0", "61", "many")]
    for name, value in rows:
        with pytest.raises(Unsupported):
            store.control(name, value=value)
    assert config(sql) == config_rows
    settle(sql, mailQueueEnabled="1", mailMaxPerHour="6", mailTokens="0")
    settle(sql, mailLastRefill=str(int(NOW - 600)))
    store.control("mailMaxPerHour", value="60")
    assert (config(sql)["mailTokens"], config(sql)["mailLastRefill"]) == ("1.0", str(int(NOW)))
    settle(sql, mailMaxPerHour="160")
    problem = "mailMaxPerHour is '160', expected 1 to 60: 60 is used"
    assert problems_in(store)["mailMaxPerHour"] == problem


def test_inside_the_period_the_test_mode_is_not_switched_on(both_jobs: ZgbStore, sql: Sql) -> None:
    """In the registration period the switch is refused, with the time from which it counts. One
    that is on has no effect, and the control tells when it has one again; switched off, it stays
    off after the period."""
    settle(sql, startDate="2026-11-01", endDate="2026-11-30")
    store, after, name = both_jobs, NOW + 11 * DAY, "mailRedirectToSchumbi"
    unchanged, redirected = RedirectDecision.UNCHANGED, RedirectDecision.REDIRECTED
    list(store.scan())
    period = "registration period 2026-11-01 to 2026-11-30: no test mode until 2026-11-30 23:00:00Z"
    assert (store.controls[name].refusal, store.test_mode_resumes(NOW)) == (period, None)
    with pytest.raises(Unsupported, match="no test mode"):
        store.control(name, value="1")
    settle(sql, mailRedirectToSchumbi="1")
    list(store.scan())
    switch = store.controls[name]
    assert not switch.refusal and "from 2026-11-30 23:00:00Z on users' mails go" in switch.summary
    assert store.test_mode_resumes(NOW) == 1_796_079_600.0
    assert (store.redirect_now(NOW), store.redirect_now(after)) == (unchanged, redirected)
    with pytest.raises(Unsupported, match="expected 0: test mode is on, without effect"):
        store.control(name, value="1")
    store.control(name, value="0")
    assert config(sql)[name] == "0"
    assert store.redirect_now(after) is unchanged and store.controls[name].refusal
    claims = [store.describe_claim(task, NOW) for task in store.take(NOW, "me", 9)]
    assert {claim.redirection for claim in claims} == {unchanged}


def test_an_undecidable_guard_holds_users_mails(both_jobs: ZgbStore, sql: Sql) -> None:
    """With the switch on and no dates, users' jobs wait with the reason; the others are sent."""
    settle(sql, mailRedirectToSchumbi="1", startDate="soon")
    store = both_jobs
    assert taken(store) == [ORGANIZER]
    assert store.claim_report.undecidable
    assert there(store).error == UNDECIDABLE_ERROR
    assert UNDECIDABLE_ERROR in problems_in(store)["redirect"]
    assert not store.controls["mailRedirectToSchumbi"].refusal
    store.control("mailRedirectToSchumbi", value="0")
    assert taken(store) == [USER]


BARE = "CREATE TABLE bare AS SELECT * FROM registrations; DROP TABLE registrations; "
BARE += "ALTER TABLE bare RENAME TO registrations"
"""Statements that leave the registrations without constraints."""


@pytest.mark.parametrize(
    ("made", "registered", "claimed"),
    [
        (None, NOW - 3 * DAY, "unchanged"),  # registered within the period
        (None, NOW - 300 * DAY, "redirected"),
        (None, None, ""),
        (None, NOW * 1000, ""),  # an impossible time
        (NOW - 3 * DAY, None, "unchanged"),
    ],
)
def test_without_a_time_of_its_own_a_job_has_that_of_its_registration(
    both_jobs: ZgbStore, sql: Sql, made: float | None, registered: float | None, claimed: str
) -> None:
    """The test mode is decided by when the job was made, else by when one registered; where neither
    is known the job waits with the reason and costs no token; the organizer's goes on."""
    settle(sql, mailRedirectToSchumbi="1", startDate="2026-11-01", endDate="2026-11-18")
    for statement in BARE.split("; "):
        sql(statement)
    sql("UPDATE registrations SET created_at = ?", registered and int(registered))
    if made is None:
        sql("ALTER TABLE mail_queue DROP COLUMN created_at")
    else:
        sql("UPDATE mail_queue SET created_at = ?", int(made))
    with closing(ZgbStore(both_jobs.place, lambda: NOW)) as store:
        tasks = {task.id: task for task in store.take(NOW, "me", 9)}
        assert set(tasks) == ({USER, ORGANIZER} if claimed else {ORGANIZER})
        if claimed:
            decision = store.describe_claim(tasks[USER], NOW).redirection
            assert decision is RedirectDecision[claimed.upper()]
        assert store.claim_report.undecidable is not bool(claimed)
        assert (there(store).error == UNDECIDABLE_ERROR) is not bool(claimed)
    assert 1_000_000 - float(config(sql)["mailTokens"]) == len(tasks)


def test_without_any_time_users_mails_wait(open_queue: Opener, sql: Sql) -> None:
    """Neither jobs nor registrations have a time: undecidable outside of the period."""
    for table in ("mail_queue", "registrations"):
        sql(f"ALTER TABLE {table} DROP COLUMN created_at")
    settle(sql, mailRedirectToSchumbi="1", startDate="2026-11-01", endDate="2026-11-18")
    store = open_queue()
    store.enqueue(1001)
    assert taken(store) == [ORGANIZER]
    assert "neither jobs nor registrations" in problems_in(store)["redirect"]
    assert store.redirect_now(NOW) is RedirectDecision.UNDECIDABLE
    settle(sql, endDate="2026-11-28")
    assert (taken(store), problems_in(store)) == ([USER], {})


def test_figures_for_their_page(open_queue: Opener, sql: Sql) -> None:
    """Registrations, tokens, the next one, and when what is due would be sent at this rate."""
    settle(sql, mailMaxPerHour="40", mailTokens="1", mailLastRefill=str(int(NOW)))
    store = open_queue(rate_limit=REAL)
    for number in (1001, 1002):
        store.enqueue(number)
    assert store.figures(NOW) == QueueFigures(
        400, 40, 1, NOW, drained=NOW + 270, drained_terms="3 x 90s at 40/h"
    )
    store.control("mailQueueEnabled", value="0")
    assert store.figures(NOW).drained is None


def test_what_does_not_exist_is_missing(open_queue: Opener) -> None:
    """A row, an id and a problem that do not exist are missing, each by its name."""
    names = ["row 77", "77-user", "orphans", "failed"]
    assert set(open_queue().scan(names)) == {Missing(name) for name in names}


def test_orphans_of_a_table_emptied_meanwhile_are_asked_about(open_queue: Opener, sql: Sql) -> None:
    """Registrations that vanish between two claims of one run, as while a copy is being restored,
    cost no job: those that are claimed no more are left for the next run, which asks."""
    store = open_queue()
    for number in range(1001, 1021):
        store.enqueue(number)
    taking = store.take(NOW, "me", 99)
    first = next(taking)
    sql("DELETE FROM registrations")
    assert list(taking) == []
    assert sql("SELECT count(*) FROM mail_queue") == [(40,)]
    with pytest.raises(Unavailable, match="39 of 40 jobs have no registration"):
        next(store.take(NOW, "me", 1))
    assert store.describe_claim(first, NOW).is_orphan
