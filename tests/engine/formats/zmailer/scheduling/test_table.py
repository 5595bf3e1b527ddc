"""The rules of a thread: when it starts, waits, is tried again, and when its jobs expire."""

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.formats.zmailer.scheduling import timers
from engine.formats.zmailer.scheduling.jobs import DAY_SECONDS
from engine.formats.zmailer.scheduling.timers import Agenda
from tests.engine.formats.zmailer.scheduling.simulated_work import MODIFIED, NOW, Driven, clause
from tests.examples import examples


def test_the_wait_after_a_try() -> None:
    """The waits are the numbers of the list in intervals; past its end comes a random one, from
    where it goes on; no wait is shorter than a second. With a skew wake-ups are multiples of
    interval / skew, and not earlier than without."""
    for retries, index, draw, wait, step in (
        ((1, 1, 2, 3), 0, 0.0, 60, 1),
        ((1, 1, 2, 3), 3, 0.0, 180, 4),
        ((1, 1, 2, 3), 4, 0.0, 60, 1),
        ((1, 1, 2, 3), 4, 0.99, 180, 4),
        ((1, 1, 2, 3), 99, 0.5, 120, 3),
        ((7,), 1, 0.99, 420, 1),
        ((0,), 0, 0.0, 1, 1),
    ):
        wake = timers.next_wake(clause(retries=retries), index, NOW, partial(float, draw))
        assert wake == (NOW + wait, step)
    due, _ = timers.next_wake(clause(retries=(1,), skew=5), 0, NOW, lambda: 0.0)
    assert NOW + 60 <= due < NOW + 72 and due % 12 == 0


def test_a_deferred_thread_is_tried_at_its_waits() -> None:
    """After each try the next wait of the list counts from the end of that try."""
    engine = Driven().add(1, retries=(1, 2, 5))
    tries, now = list[float](), NOW
    while len(tries) < 4:
        engine.step(now)
        tries += [now - NOW] * len(engine.round("deferred later", now + 3))
        now += 1
    assert tries == [0, 63, 186, 489]


def test_an_agent_may_name_the_next_time() -> None:
    """retryat +N counts from now, N is a time, past is soon; else the wait of the clause counts."""
    for words, due in (
        ("retryat +500 busy", NOW + 500),
        (f"retryat {NOW + 700:.0f} busy", NOW + 700),
        (f"retryat {NOW - 700:.0f} busy", NOW + 1),
        ("retryat soon", NOW + 60),
        ("deferall all", NOW + 60),
        ("deferback later", NOW + 60),
    ):
        engine = Driven().add(1)
        engine.round(words)
        assert engine.thread().wake == due


def test_deferall_ends_a_round_for_all() -> None:
    """After deferall the other jobs of the thread are not fed, and have its text."""
    engine = Driven()
    for number in range(1, 6):
        engine.add(number, modified=number, ageorder=True)
    (agent,) = engine.start()
    job = engine.work.next_job(agent, NOW)
    assert job is not None
    engine.answer(job, "deferall host is down", NOW)
    assert engine.work.next_job(agent, NOW) is None
    assert {one.text for one in engine.thread().jobs()} == {b"host is down"}
    assert engine.thread().attempts == 1


def test_the_order_of_a_round() -> None:
    """With ageorder the oldest message is fed first; without it a round is shuffled."""
    engine, numbers = Driven(), range(1, 30)
    for number in numbers:
        for host in "ab":
            age, pattern = 99 - number, f"smtp/{host}"
            engine.add(number, host, modified=age, ageorder=host == "a", pattern=pattern)
    first, second = ([job.message.number for job in engine.feed(a)] for a in engine.start())
    assert (first, sorted(second)) == ([*reversed(numbers)], [*numbers])
    assert second != sorted(second)


# ---- arrivals


def test_an_arrival_is_fed_alone_or_to_the_agent() -> None:
    """A new message of a waiting thread is tried now, of a running one by its agent."""
    engine = Driven().add(1)
    assert engine.round("deferred x") == [1]
    engine.add(2, now=NOW + 5)
    assert engine.round("deferred x", NOW + 5) == [2]
    assert engine.thread().wake == NOW + 60
    engine.step(NOW + 60)
    assert sorted(engine.round("ok3", NOW + 60)) == [1, 2]
    assert engine.table.threads == {}

    engine = Driven().add(1)
    (agent,) = engine.start()
    (job,) = engine.feed(agent)
    assert engine.add(2).start() == []
    engine.answer(job, "ok3", NOW)
    engine.work.release(agent, NOW)
    assert engine.work.leave(agent, NOW) is engine.thread()
    assert [one.message.number for one in engine.feed(agent)] == [2]


def test_wakeuprestartonly_lets_arrivals_wait() -> None:
    """An arrival waits for the time of its thread, and starts no further agent of a running one."""
    settings: dict[str, Any] = {"wakeuprestartonly": True, "maxthr": 2}
    engine = Driven().add(1, **settings)
    engine.round("deferred x")
    assert engine.add(2, now=NOW + 5, **settings).start() == []
    engine.step(NOW + 60)
    (agent,) = engine.start()[:1]
    engine.add(3, now=NOW + 61, **settings)
    assert (len(engine.work.agents), engine.start()) == (2, [])
    assert len(engine.feed(agent, NOW + 61)) == 3


# ---- what does not start


def test_why_a_thread_does_not_start() -> None:
    """Without a command, only for ETRN, not named by -p, or frozen it does not, and shows why."""
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        ({"command": ""}, "ConfBUG:NoCmdDefined!"),
        ({"queueonly": True}, "QueueOnly"),
        ({}, ""),
    )
    for settings, reason in rows:
        engine = Driven().add(1, **settings)
        assert engine.table.ready.reason(engine.thread()) == reason
        assert len(engine.start()) == (not reason)
    engine = Driven(selects=lambda key: key.host == "b").add(1, "a").add(2, "b")
    assert [agent.host for agent in engine.start()] == ["b"]
    assert engine.thread("a").pending == "procsel-mismatch"
    engine = Driven()
    engine.table.ready.is_frozen = True
    assert engine.add(1, "a").add(2, "b").start() == []
    assert engine.table.ready.reason(engine.thread("a")) == "Frozen"
    engine.table.ready.is_frozen = False
    assert len(engine.start()) == 2


def test_queueonly_waits_for_etrn_but_expires() -> None:
    """It first wakes after retries[0], runs by ETRN of its host alone, and expires as others."""
    engine = Driven().add(1, queueonly=True, retries=(12,), interval=10, expiry=1000, expiry2=50)
    assert engine.thread().wake == NOW + 12
    engine.step(NOW + 12)
    assert (engine.start(), engine.thread().wake) == ([], NOW + 12 + 120)
    assert (engine.table.etrn("b"), engine.table.etrn("a")) == (0, 1)
    assert engine.round("deferred x", NOW + 20) == [1]
    assert [engine.step(MODIFIED + at) for at in (999, 1000)] == [[], [1]]


# ---- expiry


def test_a_job_expires_by_the_age_of_its_message() -> None:
    """Tried jobs end at expiry, others expiry2 later, or a day; by age, one by one."""
    for tried, expiry, expiry2, at in (
        (True, 1000, 50, 1000),
        (False, 1000, 50, 1050),
        (False, 1000, 0, 1000 + DAY_SECONDS),
        (True, None, 50, None),
    ):
        ends = partial(Driven().add, expiry=expiry, expiry2=expiry2, queueonly=not tried)
        engine = ends(1, offsets=[100, 200], retries=(1000,), interval=10_000)
        engine.round("deferred x")
        last = MODIFIED + (at or 10**7)
        assert [engine.step(last - 1), engine.step(last)] == [[], [1] if at else []]
        assert len(engine.table.threads) == (not at)

    engine = Driven()
    for number in (1, 2, 3):
        engine.add(number, modified=MODIFIED + 5 * number, expiry=1000, interval=10_000)
    engine.round("deferred x")
    ended = {at: engine.step(MODIFIED + at) for at in range(1000, 1020)}
    expected = {1005: [1], 1010: [2], 1015: [3]}
    assert {at: numbers for at, numbers in ended.items() if numbers} == expected


def test_a_job_that_an_agent_has_does_not_expire() -> None:
    """It expires when the agent is done; a late one that was never tried is tried once."""
    engine = Driven().add(1, expiry=100).add(2, expiry=100)
    (agent,) = engine.start()
    jobs, late = engine.feed(agent), MODIFIED + 10 * DAY_SECONDS
    assert engine.step(late) == []
    for job, words in zip(jobs, ("ok3", "deferred x"), strict=True):
        engine.answer(job, words, late)
    engine.work.release(agent, late)
    assert engine.step(late) == [jobs[1].message.number]

    late = MODIFIED + 500
    engine = Driven().add(1, now=late, expiry=100, expiry2=10_000)
    assert engine.step(late) == []
    assert engine.round("deferred x", late) == [1]
    assert engine.step(late) == [1]


def test_an_expired_job_may_come_again() -> None:
    """After a minute if its report cannot be written; while frozen it stays."""
    engine, late = Driven().add(1, expiry=100, interval=10_000), MODIFIED + 100
    engine.round("deferred x")
    assert [job.message.number for job in engine.table.step(late)] == [1]
    assert [engine.step(late + at) for at in (59, 60)] == [[], [1]]
    engine = Driven().add(1, expiry=100, interval=10_000)
    engine.round("deferred x")
    engine.table.ready.is_frozen = True
    assert engine.step(NOW + 500) == []
    engine.table.ready.is_frozen = False
    assert engine.step(NOW + 560) == [1]


# ---- ends


def test_a_dead_agent_costs_the_thread_one_wait() -> None:
    """The jobs of an agent that died wait with their thread, and are all tried then."""
    engine = Driven().add(1).add(2)
    (agent,) = engine.start()
    engine.work.next_job(agent, NOW)
    engine.work.end(agent, NOW)
    assert (engine.start(), engine.thread().wake) == ([], NOW + 60)
    engine.step(NOW + 60)
    assert sorted(engine.round("ok3", NOW + 60)) == [1, 2]


def test_a_killed_message_is_fed_no_more() -> None:
    """A killed message leaves all its threads; a kicked thread is tried with all its jobs."""
    engine = Driven()
    both = [(clause(), "smtp", host, [at]) for at, host in ((100, "a"), (200, "b"))]
    first, _ = engine.put(1, *both, now=NOW), engine.put(2, both[0], now=NOW)
    engine.table.forget(first)
    assert [key.host for key in engine.table.numbers] == ["a"]
    assert engine.round("ok3") == [2]
    assert engine.table.messages.keys() == {2}

    engine = Driven().add(1)
    engine.round("deferred x")
    assert engine.table.kick(engine.thread())
    assert engine.round("ok3", NOW + 1) == [1]


def test_a_file_is_read_again_at_most_30_times() -> None:
    """After 30 resyncs a job is not fed again in the same round."""
    engine, fed = Driven().add(1), 0
    (agent,) = engine.start()
    while job := engine.work.next_job(agent, NOW):
        fed += 1
        engine.work.resync(job)
        engine.work.release(agent, NOW)
    assert (fed, engine.work.leave(agent, NOW)) == (31, None)
    assert engine.thread().wake == NOW + 60


def test_a_new_configuration_reaches_waiting_threads() -> None:
    """Threads get their new settings, clause and expiry; nothing of them is lost."""
    engine = Driven().add(1, command="")
    assert engine.start() == []
    engine.table.reconfigure(lambda channel, host: clause("smtp/a", expiry=20), NOW)
    assert engine.thread().key == ("smtp/a", "smtp", "a")
    assert engine.round("deferred x") == [1]
    assert engine.step(MODIFIED + 20) == [1]
    assert (engine.table.threads, engine.table.numbers) == ({}, {})


# ---- the agenda, against a model that looks at every key


@examples(200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
            st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
        ),
        max_size=60,
    )
)
def test_an_agenda_is_a_table_of_times(steps: list[tuple[str, int, int]]) -> None:
    """After any changes the keys that are due come in the order of their times, each once."""
    agenda, model = Agenda[int](), dict[int, float]()
    for verb, key, at in steps:
        if verb == "set":
            agenda.set(key, at)
            model[key] = at
        elif verb == "cancel":
            agenda.cancel(key)
            model.pop(key, None)
        else:
            due = sorted((when, one) for one, when in model.items() if when <= at)
            assert list(agenda.pop_due(at)) == [one for _, one in due]
            for _, one in due:
                del model[one]
        assert agenda.next_due() == min(model.values(), default=None)
        assert len(agenda) == len(model)


def test_only_the_last_time_of_a_key_counts() -> None:
    """A key is not due at an earlier time, nor if cancelled; its old times take no memory."""
    agenda = Agenda[int]()
    for key, at in ((1, 5), (1, 9), (2, 5), (3, 9), (3, 5)):
        agenda.set(key, at)
    agenda.cancel(2)
    assert [list(agenda.pop_due(at)) for at in (6, 9)] == [[3], [1]]
    for at in range(10_000):
        agenda.set(at % 3, at)
    assert len(agenda) == 3
    assert len(agenda._heap) < 200


def test_a_key_that_is_set_while_others_are_popped_is_seen() -> None:
    """A caller may set keys while it takes the due ones, also when the heap is built again."""
    agenda = Agenda[int]()
    for key in range(50):
        agenda.set(key, 1)
    seen = []
    for key in agenda.pop_due(5):
        seen.append(key)
        if key < 50:
            for at in range(5):
                agenda.set(key + 100, 4 - at / 10)
    assert sorted(seen) == [*range(50), *range(100, 150)]
