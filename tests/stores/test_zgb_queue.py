"""The mail queue at work: claims, tokens, waits, orphans, switches, and what stands beside it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from engine import rescuer, verbs
from engine.model import Missing, Move, State, Task, attempts_counted, own_word
from engine.store import Gone, Unavailable, Unsupported
from engine.stores.zgb import Pace, Place, ZgbStore
from engine.stores.zgb.place import PARKED, schedule
from engine.stores.zgb.redirect import UNDECIDABLE, Way
from engine.stores.zgb.store import EDGES
from tests.stores.children import at_once
from tests.stores.queued import NOW, ORGANIZER, USER, Sql, config, settle, there
from tests.stores.seen import naming, problems_in

Opener = Callable[..., ZgbStore]

DAY = 86_400.0
REAL = Pace()


def retried(task: Task) -> Task:
    """What retrying makes of it here."""
    new = verbs.along(EDGES, task, verbs.retry(task, NOW))
    assert new is not None
    return new


def row(sql: Sql, number: int = 1001, kind: str = "user") -> dict[str, Any]:
    """A row of theirs."""
    names = "id, status, attempts, next_attempt_at, locked_until, last_error, updated_at"
    (values,) = sql(
        f"SELECT {names} FROM mail_queue WHERE registration_number = ? AND mail_type = ?",
        *(number, kind),
    )
    return dict(zip(names.split(", "), values, strict=True))


# ---- edges


def test_every_edge_is_there(open_queue: Opener) -> None:
    """What the format can do, written out by hand; no more and no less, and all of it open."""
    p, a, h, d, t = State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH
    due, outcome = {"due"}, {"attempts", "due", "error"}
    expected: dict[tuple[State | None, State | None], set[str]] = {
        (None, p): set(),  # enqueued
        (a, None): set(),  # sent: the row is deleted, and nothing is kept of it
        (a, p): outcome,  # failed, with a wait; or its lease was over
        (a, d): outcome,  # failed too often: parked
        (a, h): outcome,
        (p, p): due,
        (p, d): set(),  # parked by an operator
        (d, p): {"attempts", "due"},  # "retry failed jobs": the last error stays
        (d, h): set(),
        (p, h): set(),
        (h, p): due,
        (h, h): due,
        (h, d): set(),
        **{(start, t): set() for start in (p, h, d)},
        **{(t, end): set() for end in (p, h, d)},
        (d, None): set(),
        (t, None): set(),
    }

    edges = open_queue().edges

    assert {way: set(edge.fields) for way, edge in edges.items()} == expected
    assert {way for way, edge in edges.items() if not edge.undoable} == {
        *((a, None), (d, None), (t, None)),
    }


def test_states_go_by_their_words(open_queue: Opener) -> None:
    """Pending, sending and parked are theirs; failed is a job that waits to be tried again."""
    store = open_queue()
    assert list(store.states.values()) == ["pending", "sending", "held", "parked", "trash"]
    store.enqueue(1001, ["user"])
    (task,) = store.take(NOW, "me", 1)

    store.swap(task, verbs.nack(task, NOW + 60, "no"))

    assert (there(store).state, there(store).word) == (State.PENDING, "failed")


def test_what_may_only_be_read_says_so_at_every_edge(open_queue: Opener, place: Place) -> None:
    """Opened to be read, every edge and control is refused with the reason, and nothing is done."""
    open_queue().enqueue(1001)
    store = open_queue(read_only=True)
    why = f"{place.path} was opened to be read only"

    assert {edge.refused for edge in store.edges.values()} == {why}
    assert {control.refused for control in store.controls.values()} == {why}
    task = there(store)
    for act in (
        lambda: store.swap(task, verbs.hold(task, NOW)),
        lambda: store.control("mailQueueEnabled", value="0"),
        lambda: next(store.take(NOW, "me", 1)),
    ):
        with pytest.raises(Unsupported, match="read only"):
            act()


# ---- enqueue


def test_a_registration_has_two_mails(open_queue: Opener) -> None:
    """Both by default, the user's first; asked for again, they are there already, and where."""
    store = open_queue()

    first, again = store.enqueue(1001), store.enqueue(1001)

    assert [(one.created, one.task.id) for one in first] == [(True, USER), (True, ORGANIZER)]
    assert [(one.created, one.task.state) for one in again] == [(False, State.PENDING)] * 2
    assert [task.id for task in store.take(NOW, "me", 9)] == [USER, ORGANIZER]


def test_one_kind_may_be_enqueued(open_queue: Opener) -> None:
    """Each of the two can be asked for by itself; of another kind there is none."""
    store = open_queue()

    store.enqueue(1001, ["organizer"])

    assert [item.id for item in store.look() if isinstance(item, Task)][-1:] == [ORGANIZER]
    with pytest.raises(Unsupported, match="expected NUMBER-KIND"):
        store.enqueue(1001, ["orga"])


def test_nothing_is_enqueued_for_nobody(open_queue: Opener) -> None:
    """Without a registration the next run would delete the job: it is refused, and says why."""
    with pytest.raises(Unsupported, match="no registration 7"):
        open_queue().enqueue(7)


def test_what_a_row_cannot_hold_is_refused(open_queue: Opener, sql: Sql) -> None:
    """There is no column for it: never here, and nothing is stored."""
    for change in (
        {"description": "mine"},
        {"payload": "/x"},
        {"priority": 1},
        {"destination": "example.net"},
        {"queue": "q"},
        {"group": "g"},
        {"id": "1001-orga"},
        {"id": "01001-user"},
        {"kind": "organizer"},
        {"attempts": -1},
        {"attempts": None},
        {"due": None},
        {"due": -1.0},
        {"due": 1e18},
    ):
        with naming(change):
            task = Task(USER, "user", State.PENDING, NOW)

            with pytest.raises(Unsupported):
                open_queue().swap(None, replace(task, **change))

            assert sql("SELECT count(*) FROM mail_queue") == [(0,)]


# ---- taking


def test_jobs_come_by_when_they_are_due(open_queue: Opener) -> None:
    """The longest due first, then by arrival; failed ones among the others."""
    store = open_queue()
    for number, due in ((1001, NOW - 5), (1002, NOW - 50), (1003, NOW - 5), (1004, NOW + 5)):
        store.swap(None, Task(f"{number}-user", "user", State.PENDING, NOW, due=due))
    (first,) = store.take(NOW - 10, "me", 1)
    store.swap(first, verbs.nack(first, NOW - 6, "no"))

    taken = [task.id for task in store.take(NOW, "me", 9)]

    assert taken == ["1002-user", "1001-user", "1003-user"]
    assert store.doorbell.due == NOW + 5


def test_a_claim_is_a_lease(open_queue: Opener, sql: Sql) -> None:
    """A claimed row is sending, locked for the lease, and its attempt counts at once."""
    store = open_queue()
    store.enqueue(1001, ["user"])

    (task,) = store.take(NOW, "me", 1)

    assert (task.attempts, task.lease and task.lease.until) == (0, NOW + 300)
    assert attempts_counted(task) == 1
    stored = row(sql)
    assert (stored["status"], stored["attempts"]) == ("sending", 1)
    assert stored["locked_until"] == NOW + 300


def test_each_attempt_costs_a_token(open_queue: Opener, sql: Sql) -> None:
    """No more is claimed than there are whole tokens; what is left over is kept."""
    settle(sql, mailMaxPerHour="40", mailTokens="2.5", mailLastRefill=str(int(NOW)))
    store = open_queue(pace=REAL)
    for number in range(1001, 1005):
        store.enqueue(number)

    taken = list(store.take(NOW, "me", 9))

    assert len(taken) == 2
    assert config(sql)["mailTokens"] == "0.5"
    assert store.doorbell.due == NOW + 45  # 40 an hour: half a token
    assert list(store.take(NOW + 44, "me", 9)) == []
    assert len(list(store.take(NOW + 45, "me", 9))) == 1


def test_nothing_due_refills_all_the_same(open_queue: Opener, sql: Sql) -> None:
    """An empty queue's bucket is refilled and stamped."""
    settle(sql, mailMaxPerHour="60", mailTokens="1", mailLastRefill=str(int(NOW - 120)))

    assert list(open_queue(pace=REAL).take(NOW, "me", 9)) == []

    assert (config(sql)["mailTokens"], config(sql)["mailLastRefill"]) == ("3.0", str(int(NOW)))


def test_a_take_that_goes_on_refills_nothing_twice(open_queue: Opener, sql: Sql) -> None:
    """Two workers in turns, one with an older time, get no more than one bucket's tokens."""
    settle(sql, mailMaxPerHour="60", mailTokens="5", mailLastRefill=str(int(NOW)))
    ours, theirs = open_queue(pace=REAL), open_queue(pace=REAL)
    for number in range(1001, 1020):
        ours.enqueue(number)
    slow = ours.take(NOW, "me", 9)
    taken = [next(slow)]
    for later in range(1, 5):
        taken += theirs.take(NOW + 10 * later, "they", 1)
        taken += [task for _ in "x" if (task := next(slow, None)) is not None]

    assert len({task.id for task in taken}) == len(taken) == 5
    assert config(sql)["mailLastRefill"] == str(int(NOW + 40))


def test_paused_claims_nothing_and_touches_no_token(open_queue: Opener, sql: Sql) -> None:
    """A queue that is switched off keeps house, keeps its tokens and sends nothing."""
    settle(sql, mailQueueEnabled="0", mailTokens="1.25")
    store = open_queue()
    store.enqueue(1001, ["user"])
    sql("UPDATE mail_queue SET status = 'sending', attempts = 1, locked_until = 5")

    assert list(store.take(NOW, "me", 9)) == []

    assert store.kept.recovered == (USER,)
    assert not store.kept.enabled
    assert config(sql)["mailTokens"] == "1.25"
    sql("DELETE FROM config WHERE key = 'mailQueueEnabled'")
    assert list(store.take(NOW + DAY, "me", 9)) == []  # not set is off


def test_a_taker_who_fails_has_claimed_nothing(open_queue: Opener, sql: Sql) -> None:
    """An error while it is asked undoes the claim, the token and the housekeeping together."""
    store = open_queue()
    store.enqueue(1001)
    before = config(sql)

    def wants(kind: str, group: str) -> bool:
        raise OSError("limits cannot be read")

    with pytest.raises(OSError, match="limits"):
        next(store.take(NOW + 50, "me", 1, wants))

    assert config(sql) == before
    assert sql("SELECT DISTINCT status FROM mail_queue") == [("pending",)]


WORKER = """
import sys
from engine.stores.zgb import Pace, Place, ZgbStore
store = ZgbStore(Place(sys.argv[1], pace=Pace(1000, 1000), durable=False, patience=60.0))
print("ready", flush=True)
sys.stdin.readline()
while batch := list(store.take(float(sys.argv[2]), "me", 3)):
    for task in batch:
        print(task.id)
"""


def test_two_workers_on_two_hundred_jobs(place: Place, open_queue: Opener, sql: Sql) -> None:
    """None is claimed twice, and the tokens that are spent are the jobs that are claimed."""
    store = open_queue()
    for number in range(1000, 1100):
        store.enqueue(number)
    settle(sql, mailMaxPerHour="1000", mailTokens="150.5", mailLastRefill=str(int(NOW)))

    said = list(chain(*at_once(2, WORKER, place.path, str(NOW))))

    assert len(said) == len(set(said)) == 150
    assert config(sql)["mailTokens"] == "0.5"
    counted = sql("SELECT status, count(*) FROM mail_queue GROUP BY status ORDER BY status")
    assert counted == [("pending", 50), ("sending", 150)]


# ---- failing, parking, retrying


def test_the_tenth_failure_parks(open_queue: Opener, sql: Sql) -> None:
    """Waits of 60, 300, 900, then 3600 s: parked after 6 h 21 min, and a retry brings it back."""
    store, now, elapsed = open_queue(), NOW, []
    store.enqueue(1001, ["user"])
    for _ in range(9):
        (task,) = store.take(now, "me", 1)
        store.swap(task, rescuer.outcome_of_failure(task, "no", schedule(), now))
        now = there(store).due or 0.0
        elapsed.append(now - NOW)
    (task,) = store.take(now, "me", 1)
    store.swap(task, rescuer.outcome_of_failure(task, "no", schedule(), now))

    assert elapsed == [60, 360, 1260, 4860, 8460, 12060, 15660, 19260, 22860]
    parked = there(store)
    assert (parked.state, parked.attempts, parked.due) == (State.DEAD, 10, 0.0)
    stored = row(sql)
    assert (stored["status"], stored["next_attempt_at"]) == ("failed", PARKED)
    store.swap(parked, retried(parked))
    again = there(store)
    assert (again.attempts, again.word, again.error) == (0, "", "no")
    assert len(list(store.take(now, "me", 1))) == 1


def test_a_late_outcome_touches_nothing(open_queue: Opener, sql: Sql) -> None:
    """Whose lease lapsed and was claimed by another can neither finish nor fail the job."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    (mine,) = store.take(NOW, "me", 1)
    list(store.take(NOW + 301, "they", 1))
    (theirs,) = store.take(NOW + 301 + 60, "they", 1)

    for outcome in (None, verbs.nack(mine, NOW + 60, "no"), verbs.bury(mine, "no", 1)):
        with pytest.raises(Gone):
            store.swap(mine, outcome)

    store.swap(theirs, None)
    assert sql("SELECT count(*) FROM mail_queue") == [(0,)]


def test_a_foreign_column_does_not_cost_the_claim(open_queue: Opener, sql: Sql) -> None:
    """Somebody who writes elsewhere in the row meanwhile does not make us send the mail again."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    (task,) = store.take(NOW, "me", 1)
    sql("UPDATE mail_queue SET last_error = 'looked at', updated_at = 1")

    assert store.swap(task, None) == ""


@pytest.mark.parametrize("locked", [NOW - 1, None])
def test_a_lapsed_lease_counts_as_a_failure(
    open_queue: Opener, sql: Sql, locked: float | None
) -> None:
    """What was never finished waits as if it had failed, so that no mail is tried for ever."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    sql("UPDATE mail_queue SET status = 'sending', attempts = 2, locked_until = ?", locked)

    assert list(store.take(NOW, "me", 9)) == []

    assert store.kept.recovered == (USER,)
    stored = row(sql)
    assert (stored["status"], stored["locked_until"]) == ("pending", None)
    assert (stored["attempts"], stored["last_error"]) == (2, "lease expired")
    assert stored["next_attempt_at"] == NOW + 300


def test_a_lapsed_lease_may_be_the_last(open_queue: Opener, sql: Sql) -> None:
    """A mail that ends its worker each time is parked as well."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    sql("UPDATE mail_queue SET status = 'sending', attempts = 10, locked_until = 5")

    list(store.take(NOW, "me", 9))

    assert there(store).state is State.DEAD


def test_a_lease_can_be_begun_anew(open_queue: Opener, sql: Sql) -> None:
    """Before each mail of a run: the claim goes on, under a new token; one that lapsed does not."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    (task,) = store.take(NOW, "me", 1)

    again = store.renew(task, NOW + 200)

    assert row(sql)["locked_until"] == NOW + 500
    with pytest.raises(Gone):
        store.swap(task, None)
    store.swap(again, None)
    with pytest.raises(Gone):
        store.renew(again, NOW + 201)


def test_a_lease_of_years_is_a_clock_fault(open_queue: Opener, sql: Sql) -> None:
    """A lease that ends ten leases ahead or more is shown as what it is; the job as well."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    sql("UPDATE mail_queue SET status = 'sending', locked_until = ?", int(NOW + 3001))

    assert "a clock was wrong" in problems_in(store)["mail_queue/row 1"]
    assert there(store).state is State.ACTIVE


def test_by_hand_only_when_it_is_said_so(open_queue: Opener) -> None:
    """Read literally, the document claims pending jobs only: a failed one waits for an operator."""
    store = open_queue(auto_retry=False)
    store.enqueue(1001, ["user"])
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, verbs.nack(task, NOW + 60, "no"))

    assert list(store.take(NOW + DAY, "me", 9)) == []
    failed = there(store)
    assert (failed.state, failed.word) == (State.DEAD, "failed")
    store.swap(failed, retried(failed))
    assert [task.id for task in store.take(NOW + DAY, "me", 9)] == [USER]


def test_who_was_parked_by_others_is_parked(open_queue: Opener, sql: Sql) -> None:
    """A failed job that is due in more than a year was parked, whatever the moment it stands for;
    a pending one just waits.
    """
    store = open_queue()
    store.enqueue(1001)
    sql("UPDATE mail_queue SET next_attempt_at = ?", int(NOW + 366 * DAY))
    sql("UPDATE mail_queue SET status = 'failed' WHERE mail_type = 'user'")

    assert (there(store).state, there(store, ORGANIZER).state) == (State.DEAD, State.PENDING)


def test_the_word_of_a_failed_job_names_its_state(open_queue: Opener, sql: Sql) -> None:
    """A failed job that is not parked has the word `failed`: among the pending ones while it is
    tried again by itself, among the parked ones where only an operator retries."""
    open_queue().enqueue(1001)
    sql("UPDATE mail_queue SET status = 'failed', next_attempt_at = 5 WHERE mail_type = 'user'")

    for auto_retry, state in ((True, State.PENDING), (False, State.DEAD)):
        store = open_queue(auto_retry=auto_retry)
        job = there(store)
        assert (store.words, job.state, job.word) == ({"failed": state}, state, "failed")
        assert own_word(job, store.states, store.words) == "failed"
        assert own_word(there(store, ORGANIZER), store.states, store.words) == "pending"
        assert not store.words.keys() & set(store.states.values())


def test_the_button_retries_all(open_queue: Opener, sql: Sql) -> None:
    """ "Retry failed jobs": failed and parked are due now with no attempts; their error is kept."""
    store = open_queue()
    store.enqueue(1001)
    sql(
        "UPDATE mail_queue SET status = 'failed', attempts = 9, last_error = 'no',"
        " next_attempt_at = CASE mail_type WHEN 'user' THEN 5 ELSE 253402300799 END"
    )

    counted = store.forecast("retryFailed")
    assert (counted.amount, counted.words) == (
        2,
        "2 jobs failed or parked: due now, attempts reset",
    )
    assert store.control("retryFailed") == "2 jobs failed or parked: due now"

    tasks = [there(store), there(store, ORGANIZER)]
    assert [(t.state, t.word, t.attempts, t.error) for t in tasks] == [
        (State.PENDING, "", 0, "no")
    ] * 2


# ---- orphans


def test_an_orphan_leaves_before_it_costs_a_token(open_queue: Opener, sql: Sql) -> None:
    """A job whose registration is gone is deleted by the next run, and told; others are sent."""
    store = open_queue()
    store.enqueue(1001)
    store.enqueue(1002, ["user"])
    sql("DELETE FROM registrations WHERE number = 1001")
    assert "2 jobs have no registration" in problems_in(store)["orphans"]
    before = float(config(sql)["mailTokens"])

    assert [task.id for task in store.take(NOW, "me", 9)] == ["1002-user"]

    assert store.kept.orphans == (USER, ORGANIZER)
    assert before - float(config(sql)["mailTokens"]) == 1.0


def test_what_is_being_sent_is_no_orphan_yet(open_queue: Opener, sql: Sql) -> None:
    """A claimed job stays in its worker's hand, who may ask before it sends."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    (task,) = store.take(NOW, "me", 1)
    assert not store.is_orphan(task)
    sql("DELETE FROM registrations")

    list(store.take(NOW, "me", 9))

    assert store.is_orphan(task)
    assert store.swap(task, None) == ""


def test_too_many_orphans_are_asked_about(open_queue: Opener, sql: Sql) -> None:
    """More than half of the queue and more than ten: nothing is deleted and nothing sent until an
    operator says so.
    """
    store = open_queue()
    for number in range(1000, 1010):
        store.enqueue(number)
    sql("DELETE FROM registrations WHERE number < 1006")

    with pytest.raises(Unavailable, match="12 of 20 jobs have no registration"):
        next(store.take(NOW, "me", 9))

    assert "12 of 20" in problems_in(store)["orphans"]
    assert sql("SELECT DISTINCT status, count(*) FROM mail_queue") == [("pending", 20)]
    assert store.control("deleteOrphans") == "12 jobs deleted"
    assert len(list(store.take(NOW, "me", 99))) == 8


def test_without_registrations_nobody_is_an_orphan(open_queue: Opener, sql: Sql) -> None:
    """A missing table is an error, not a reason to delete every job; none may be named."""
    open_queue().enqueue(1001)
    sql("ALTER TABLE registrations RENAME TO elsewhere")
    store = open_queue()

    with pytest.raises(Unavailable, match="no table registrations"):
        next(store.take(NOW, "me", 9))

    assert "no table registrations" in problems_in(store)["registrations"]
    assert len(list(open_queue(registrations="").take(NOW, "me", 9))) == 2
    assert len(list(open_queue(registrations="elsewhere").look({USER}))) == 1


@pytest.mark.parametrize(
    ("registered", "made"),
    [
        pytest.param(int(NOW) + 26 * 3600 + 1, int(NOW), id="seconds"),
        pytest.param("2026-11-21 10:00:01", "2026-11-20 08:00:00", id="text"),
    ],
)
def test_a_job_much_older_than_its_numbers_registration_waits(
    open_queue: Opener, sql: Sql, registered: object, made: object
) -> None:
    """The number was given out again, it seems: the job is not sent, and nothing deletes it until
    somebody has it deleted; others go on.
    """
    open_queue().enqueue(1001, ["user"])
    open_queue().enqueue(1002, ["user"])
    sql("UPDATE mail_queue SET created_at = ?", made)
    sql("UPDATE registrations SET created_at = ? WHERE number = 1001", registered)
    store = open_queue()

    assert [task.id for task in store.take(NOW, "me", 9)] == ["1002-user"]

    assert store.kept.orphans == ()
    assert "1 job is older than the registration" in problems_in(store)["orphans"]
    assert store.control("deleteOrphans") == "1 job deleted"
    assert problems_in(store) == {}
    assert sql("SELECT registration_number FROM mail_queue") == [(1002,)]


def test_times_that_cannot_be_compared_make_no_stranger(open_queue: Opener, sql: Sql) -> None:
    """Another form, unit or zone says nothing about which came first: the job is sent."""
    text, number = "2026-11-20 10:20:00", int(NOW)
    for registered, made in (
        ("2026-11-20T11:20:00+01:00", text),
        ("2026-11-29T10:20:00Z", text),
        ("2026-11-29 10:20:00.123", text),
        ("2026-11-20 11:20:00", text),
        ("2026-11-21 12:20:00", text),  # the zones farthest apart
        ("2026-13-45 10:20:00", text),
        (b"\xff\xfe", text),
        (None, text),
        (number * 1000, number),
        (number + 40 * 86_400, text),
        (number + 40 * 86_400, 1),
        (number + 26 * 3600, number),  # a clock that was set
    ):
        open_queue().enqueue(1001, ["user"])
        sql("UPDATE mail_queue SET created_at = ?", made)
        sql("UPDATE registrations SET created_at = coalesce(?, '')", registered)
        store = open_queue()
        with naming(registered, made):
            assert problems_in(store) == {}

            assert [task.id for task in store.take(NOW, "me", 9)] == [USER]

            assert store.kept.orphans == ()
        sql("DELETE FROM mail_queue")


# ---- held and trashed, beside theirs


@pytest.mark.parametrize("state", [State.HELD, State.TRASH])
def test_what_is_put_aside_leaves_their_table(
    open_queue: Opener, sql: Sql, place: Place, state: State
) -> None:
    """No program of theirs can stumble over it; it comes back as the same row, in all columns."""
    sql("ALTER TABLE mail_queue ADD COLUMN note BLOB")
    store = open_queue()
    store.enqueue(1001, ["user"])
    sql("UPDATE mail_queue SET note = ?, last_error = CAST(? AS TEXT)", b"\0\xff", b"caf\xe9")
    names = "id, note, hex(last_error), created_at, next_attempt_at"
    before = sql(f"SELECT {names} FROM mail_queue")
    task = there(store)

    store.swap(task, replace(task, state=state))

    assert sql("SELECT count(*) FROM mail_queue") == [(0,)]
    aside = there(open_queue())
    assert aside.state is state
    store.swap(aside, replace(aside, state=State.PENDING))
    assert sql(f"SELECT {names} FROM mail_queue") == before
    assert sql("SELECT count(*) FROM config WHERE key LIKE 'spooldeck%'") == [(1,)]


def test_our_database_is_as_private_as_theirs(open_queue: Opener, place: Place) -> None:
    """What stands in theirs is nobody else's to read in ours."""
    Path(place.path).chmod(0o600)
    store = open_queue()
    store.enqueue(1001, ["user"])

    store.swap(there(store), verbs.hold(there(store), NOW))

    assert Path(place.aside).stat().st_mode & 0o777 == 0o600


def test_a_number_that_was_given_out_again_keeps_an_old_job_out(
    open_queue: Opener, sql: Sql
) -> None:
    """Neither beside a new job of that number nor into another's registration, nor into none."""
    store = open_queue()
    store.enqueue(1001)
    for ident in (USER, ORGANIZER):
        task = there(store, ident)
        store.swap(task, verbs.purge(task, NOW))
    trashed = there(store, ORGANIZER)
    back = replace(trashed, state=State.PENDING)

    sql("DELETE FROM registrations WHERE number = 1001")
    with pytest.raises(Unsupported, match="registration 1001 is gone"):
        store.swap(trashed, back)
    sql("INSERT INTO registrations VALUES (1001, ?)", int(NOW))
    with pytest.raises(Unsupported, match="given out again since"):
        store.swap(trashed, back)
    sql("UPDATE registrations SET created_at = 0 WHERE number = 1001")
    sql("INSERT INTO mail_queue (registration_number, mail_type) VALUES (1001, 'organizer')")
    with pytest.raises(Unsupported, match="stands among theirs already"):
        store.swap(trashed, back)

    assert there(store).state is State.TRASH
    said = problems_in(store)[ORGANIZER]
    assert said == "stands in trash and pending at once: its number was given out again"
    seen = list(store.look({ORGANIZER}))
    assert len([item for item in seen if isinstance(item, Task)]) == 2


def test_only_one_of_a_number_is_put_aside(open_queue: Opener, sql: Sql) -> None:
    """A second job of the same number is kept out of our database until the first has left."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    store.swap(there(store), verbs.purge(there(store), NOW))
    sql("INSERT INTO mail_queue (registration_number, mail_type) VALUES (1001, 'user')")
    (new,) = (t for t in store.look({USER}) if isinstance(t, Task) and t.state is State.PENDING)

    with pytest.raises(Unsupported, match="expunge that one first"):
        store.swap(new, verbs.hold(new, NOW))

    assert sql("SELECT count(*) FROM mail_queue") == [(1,)]


def test_the_trash_says_since_when(open_queue: Opener) -> None:
    """What is in the trash says when it came there, by which it is swept one day."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    store.swap(there(store), verbs.purge(there(store), NOW))

    assert there(store).extra == {"trash_since": str(int(NOW))}


def test_an_image_puts_it_back_as_it_was(open_queue: Opener) -> None:
    """What `read` gave of a job can be put where it stood, in nobody's hand."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, verbs.bury(task, "no", 1))
    parked = there(store)
    image = store.read(parked)
    store.swap(parked, retried(parked))
    now = there(store)

    was = store.recall(now, image, State.DEAD)
    (outcome,) = store.swap_all([Move(now, was, image)])

    assert outcome.error is None
    after = there(store)
    assert (after.state, after.attempts, after.error) == (State.DEAD, 1, "no")
    with pytest.raises(Unsupported):
        store.recall(now, b"nonsense", State.DEAD)
    with pytest.raises(Unsupported):
        store.recall(there(store), image.replace(b"user", b"orga"), State.DEAD)


# ---- switches


def test_the_three_switches(open_queue: Opener, sql: Sql) -> None:
    """On and off, mails an hour, and the test mode, as their page has them; only what it allows."""
    store = open_queue(pace=REAL)

    for name, value in (("mailQueueEnabled", "0"), ("mailMaxPerHour", "12")):
        store.control(name, value=value)
    store.control("mailRedirectToSchumbi", value="1")

    found = config(sql)
    assert found["mailQueueEnabled"] == "0"
    assert (found["mailMaxPerHour"], found["mailRedirectToSchumbi"]) == ("12", "1")
    for name, value in (
        *(("mailQueueEnabled", "yes"), ("mailMaxPerHour", "0"), ("mailMaxPerHour", "61")),
        *(("mailMaxPerHour", "many"), ("mailRedirectToSchumbi", ""), ("mailTokens", "9")),
    ):
        with pytest.raises(Unsupported):
            store.control(name, value=value)
    assert config(sql) == found


def test_a_rate_out_of_bounds_is_said(open_queue: Opener, sql: Sql) -> None:
    """A rate that somebody else set, and that is not taken as it stands, is shown as a problem."""
    settle(sql, mailMaxPerHour="160")

    said = problems_in(open_queue(pace=REAL))["mailMaxPerHour"]

    assert said == "mailMaxPerHour is '160', expected 1 to 60: taken for 60"


def test_a_new_rate_settles_the_old_one_first(open_queue: Opener, sql: Sql) -> None:
    """The time until now went by at the old rate."""
    settle(sql, mailMaxPerHour="6", mailTokens="0", mailLastRefill=str(int(NOW - 600)))

    open_queue(pace=REAL).control("mailMaxPerHour", value="60")

    assert (config(sql)["mailTokens"], config(sql)["mailLastRefill"]) == ("1.0", str(int(NOW)))


def test_inside_the_period_the_test_mode_is_not_switched_on(open_queue: Opener, sql: Sql) -> None:
    """In the registration period the switch is refused, with the time from which it counts."""
    settle(sql, startDate="2026-11-01", endDate="2026-11-30")
    store = open_queue()

    refused = (
        "registration period 2026-11-01 to 2026-11-30: no test mode until 2026-11-30 23:00:00Z"
    )
    assert store.controls["mailRedirectToSchumbi"].refused == refused
    with pytest.raises(Unsupported, match="no test mode"):
        store.control("mailRedirectToSchumbi", value="1")
    assert store.test_mode_from(NOW) is None


def test_inside_the_period_the_test_mode_is_switched_off(open_queue: Opener, sql: Sql) -> None:
    """A test mode that is on has no effect in the registration period, and the control tells when
    it has one again; switched off, it stays off after the period."""
    settle(sql, startDate="2026-11-01", endDate="2026-11-30", mailRedirectToSchumbi="1")
    store = open_queue()
    store.enqueue(1001)
    after = NOW + 11 * DAY

    switch = store.controls["mailRedirectToSchumbi"]
    assert not switch.refused and "from 2026-11-30 23:00:00Z on users' mails go" in switch.summary
    assert store.test_mode_from(NOW) == 1_796_079_600.0
    assert (store.way_now(NOW), store.way_now(after)) == (Way.PLAIN, Way.REDIRECTED)
    with pytest.raises(Unsupported, match="expected 0: test mode is on, without effect"):
        store.control("mailRedirectToSchumbi", value="1")

    store.control("mailRedirectToSchumbi", value="0")

    assert config(sql)["mailRedirectToSchumbi"] == "0"
    assert store.way_now(after) is Way.PLAIN
    assert store.controls["mailRedirectToSchumbi"].refused
    assert {store.way(task, NOW) for task in store.take(NOW, "me", 9)} == {Way.PLAIN}


def test_an_undecidable_guard_holds_users_mails(open_queue: Opener, sql: Sql) -> None:
    """With the switch on and no dates, users' jobs wait and say why; the others are sent."""
    settle(sql, mailRedirectToSchumbi="1", startDate="soon")
    store = open_queue()
    store.enqueue(1001)

    assert [task.id for task in store.take(NOW, "me", 9)] == [ORGANIZER]

    assert store.kept.undecidable
    assert there(store).error == UNDECIDABLE
    assert UNDECIDABLE in problems_in(store)["redirect"]
    assert not store.controls["mailRedirectToSchumbi"].refused
    store.control("mailRedirectToSchumbi", value="0")
    assert [task.id for task in store.take(NOW, "me", 9)] == [USER]


@pytest.mark.parametrize(
    ("made", "registered", "claimed"),
    [
        pytest.param(None, "inside", True, id="registered within it"),
        pytest.param(None, "before", True, id="registered before it"),
        pytest.param(None, None, False, id="registered nobody knows when"),
        pytest.param(None, "milliseconds", False, id="registered at no time that could be meant"),
        pytest.param("inside", None, True, id="made within it"),
    ],
)
def test_without_a_time_of_its_own_a_job_has_that_of_its_registration(
    open_queue: Opener, sql: Sql, made: str | None, registered: str | None, claimed: bool
) -> None:
    """The test mode is decided by when the job was made, else by when one registered; where that
    is not known either the job waits, says why, and costs no token; the organizer's goes on.
    """
    moments = {"inside": int(NOW - 3 * DAY), "before": int(NOW - 300 * DAY)}
    moments["milliseconds"] = int(NOW) * 1000
    settle(sql, mailRedirectToSchumbi="1", startDate="2026-11-01", endDate="2026-11-18")
    sql("CREATE TABLE bare AS SELECT * FROM registrations")
    sql("DROP TABLE registrations")
    sql("ALTER TABLE bare RENAME TO registrations")
    sql("UPDATE registrations SET created_at = ?", moments.get(registered or ""))
    open_queue().enqueue(1001)
    if made is None:
        sql("ALTER TABLE mail_queue DROP COLUMN created_at")
    else:
        sql("UPDATE mail_queue SET created_at = ?", moments[made])
    store = open_queue()
    way = Way.PLAIN if "inside" in (made, registered) else Way.REDIRECTED

    taken = {task.id: task for task in store.take(NOW, "me", 9)}

    assert set(taken) == ({USER, ORGANIZER} if claimed else {ORGANIZER})
    if claimed:
        assert store.way(taken[USER], NOW) is store.errand(taken[USER], NOW).way is way
    assert store.kept.undecidable is not claimed
    assert (there(store).error == UNDECIDABLE) is not claimed
    assert 1_000_000 - float(config(sql)["mailTokens"]) == len(taken)


def test_where_nothing_says_when_users_mails_wait(open_queue: Opener, sql: Sql) -> None:
    """Neither jobs nor registrations with a time: undecidable, but within the period."""
    sql("ALTER TABLE mail_queue DROP COLUMN created_at")
    sql("ALTER TABLE registrations DROP COLUMN created_at")
    settle(sql, mailRedirectToSchumbi="1", startDate="2026-11-01", endDate="2026-11-18")
    store = open_queue()
    store.enqueue(1001)

    assert [task.id for task in store.take(NOW, "me", 9)] == [ORGANIZER]

    assert "neither jobs nor registrations" in problems_in(store)["redirect"]
    assert store.way_now(NOW) is Way.UNDECIDABLE
    settle(sql, endDate="2026-11-28")
    assert [task.id for task in store.take(NOW, "me", 9)] == [USER]
    assert problems_in(store) == {}


def test_figures_for_their_page(open_queue: Opener, sql: Sql) -> None:
    """Registrations, tokens, the next one, and when what is due would be sent at this rate."""
    settle(sql, mailMaxPerHour="40", mailTokens="1", mailLastRefill=str(int(NOW)))
    store = open_queue(pace=REAL)
    for number in (1001, 1002):
        store.enqueue(number)

    assert store.figures(NOW) == (400, 40, 1, NOW, NOW + 270)
    store.control("mailQueueEnabled", value="0")
    assert store.figures(NOW).drained is None


# ---- the doorbell


def test_the_bell_waits_as_long_as_it_is_told(place: Place) -> None:
    """It spends its time in the pause that it was handed, and no longer."""
    pauses: list[float] = []

    store = ZgbStore(place, lambda: NOW, pause=pauses.append)

    wait = store.doorbell.wait
    assert wait is not None
    assert not wait(0.01)
    assert 0 < max(pauses) <= 0.01
    store.close()


# ---- what stands where


def test_it_shows_which_way_a_name_is_none(open_queue: Opener) -> None:
    """A row, an id and a problem that are not there are missing, each by its name."""
    names = ["row 77", "77-user", "orphans", "failed"]

    assert set(open_queue().look(names)) == {Missing(name) for name in names}
