"""The limits on agents: never exceeded at any moment, and never a reason to wait longer."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from engine.formats.zmailer.scheduling.jobs import ClauseSettings
from engine.formats.zmailer.scheduling.work import AgentWork
from tests.engine.formats.zmailer.scheduling.simulated_work import MODIFIED, NOW, Driven, clause
from tests.examples import IS_DEEP

CLAUSES = [
    clause("smtp/*.a", maxta=9, maxchannel=6, maxring=3, maxthr=2, interval=5),
    clause("smtp/*", maxta=8, maxchannel=5, maxring=4, interval=7),
    clause("local/*", maxta=7, maxchannel=2, interval=3, overfeed=2),
    clause("uucp/*", maxring=1, command="sm $host", interval=4),
]


def check_limits(engine: Driven) -> None:
    """Count the agents again, and compare with every limit."""
    agents = engine.work.agents.values()
    busy = [agent for agent in agents if agent.thread]
    assert len(agents) <= engine.slots.most
    channels, rings = Counter(a.ring.channel for a in agents), Counter(a.ring for a in agents)
    by_channel = {f"/{name}": count for name, count in channels.items()}
    assert engine.slots.counts == Counter({"": len(agents)} | by_channel) + Counter(dict(rings))
    threads = Counter(agent.thread for agent in busy)
    for thread in engine.table.threads.values():
        assert threads[thread] == thread.agents <= thread.settings.maxthr
    for channel, count in channels.items():
        of_channel = [one for one in CLAUSES if one.pattern.startswith(f"{channel}/")]
        most = max(settings.maxchannel for settings in of_channel)
        assert count <= (most or engine.slots.most)
    for ring, count in rings.items():
        own = next(one for one in CLAUSES if one.pattern == ring.clause)
        assert count <= (own.maxring or engine.slots.most)


def check_each_wait_has_a_cause(engine: Driven) -> None:
    """After all starts each ready thread is at a limit that is reached."""
    for thread in engine.table.threads.values():
        if thread.lane is not None:
            assert engine.slots.reached(thread.settings, thread.ring), thread.key
            assert engine.table.ready.reason(thread).startswith(">Max")


def act(engine: Driven, random: Random, number: int, now: float) -> None:
    """Let one thing happen."""
    agents = list(engine.work.agents.values())
    agent = random.choice(agents) if agents else None
    kind = random.randrange(12)
    if kind < 4 or agent is None or not engine.table.messages:
        groups: list[tuple[ClauseSettings, str, str, list[int]]] = []
        for host in {random.randrange(24): None for _ in range(random.randrange(1, 4))}:
            settings = CLAUSES[host % len(CLAUSES)]
            channel, offset = settings.pattern.partition("/")[0], 100 + len(groups)
            groups.append((settings, channel, f"h{host}", [offset]))
        engine.put(number, *groups, now=now)
    elif kind < 9:
        work_on(engine, agent, random.choice(["ok3", "ok3", "deferred x", "deferall x"]), now)
    elif kind == 9:
        engine.work.end(agent, now)
    elif kind == 10:
        engine.table.kick(random.choice(list(engine.table.threads.values())))
    else:
        engine.table.forget(random.choice(list(engine.table.messages.values())))


def work_on(engine: Driven, agent: AgentWork, words: str, now: float) -> None:
    """An agent answers what it has, and gets more."""
    for job in agent.outstanding:
        engine.answer(job, words, now)
    engine.work.release(agent, now)
    if agent.thread and engine.work.next_job(agent, now) is None:
        engine.work.leave(agent, now)


@pytest.mark.parametrize("seed", range(40 if IS_DEEP else 4))
def test_limits_hold_at_every_moment(seed: int) -> None:
    """No limit is ever exceeded, and no thread waits for a slot that is free."""
    engine, random = Driven(most=10), Random(seed)
    now = MODIFIED
    for number in range(1, 600):
        now += random.choice([0, 0, 0.1, 1])
        act(engine, random, number, now)
        engine.step(now)
        while start := engine.work.next_start():
            if start.agent:
                engine.work.assign(engine.work.agents[start.agent], start.thread)
            else:
                engine.work.add(number * 100 + len(engine.work.agents), start.thread)
            check_limits(engine)
        check_limits(engine)
        check_each_wait_has_a_cause(engine)
    for _ in range(1000):
        now += 5
        engine.step(now)
        for agent in [*engine.start(), *list(engine.work.agents.values())]:
            work_on(engine, agent, "ok3", now)
        for agent in [one for one in engine.work.agents.values() if one.thread is None]:
            engine.work.end(agent, now)
    assert not engine.table.threads


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"maxta": 2}, ">MaxTA"), ({"maxchannel": 2}, ">MaxChannel"), ({"maxring": 2}, ">MaxRing")],
)
def test_a_limit_is_shown_and_freed(limit: dict[str, Any], reason: str) -> None:
    """Threads behind a limit show which; when an agent ends, exactly one of them starts."""
    engine = Driven()
    for host in range(5):
        engine.add(host, f"h{host}", **limit)
    first, _ = engine.start()
    assert [engine.table.ready.reason(engine.thread(f"h{n}")) for n in range(5)].count(reason) == 3
    engine.work.end(first, NOW)
    assert len(engine.start()) == 1


def test_a_limit_of_one_clause_does_not_hold_up_others() -> None:
    """A ring at its limit lets the threads of other rings pass."""
    engine = Driven()
    for host in range(4):
        engine.add(host, f"h{host}.a", pattern="smtp/*.a", maxring=1).add(host + 9, f"h{host}")
    assert sorted(agent.host for agent in engine.start()) == ["h0", "h0.a", "h1", "h2", "h3"]


def idle_agents() -> Driven:
    """An engine with the most agents, two, which have delivered to the hosts a and b."""
    engine = Driven(most=2).add(97, "a").add(98, "b")
    for later, agent in enumerate(engine.start()):
        for job in engine.feed(agent):
            engine.answer(job, "ok3", NOW)
        engine.work.release(agent, NOW)
        assert engine.work.leave(agent, NOW - later) is None
    return engine


def test_an_idle_agent_is_used_again() -> None:
    """In its ring, for its last host if it can; a command with the host has its own agents."""
    engine = idle_agents()
    engine.put(1, (clause("uucp/*", command="sm $host"), "uucp", "a", [100]), now=NOW)
    started = engine.add(2, "b").add(3, "c").start()
    hosts = [(agent.number, agent.thread and agent.thread.key.host) for agent in started]
    assert hosts == [(2, "b"), (1, "c")]
    assert engine.table.ready.reason(next(iter(engine.table.threads.values()))) == ">MaxTA"


def test_which_idle_agent_is_in_the_way() -> None:
    """If threads of another ring wait for a slot of all agents or of their channel, the agent that
    is idle for longest there is named; a limit of the ring itself names none."""
    engine = idle_agents()
    assert engine.table.ready.held_up() == []
    engine.put(5, (clause("uucp/*"), "uucp", "c", [100]), now=NOW)
    assert engine.start() == []
    (scope,) = engine.table.ready.held_up()
    idle = engine.work.find_idle(scope)
    assert idle is not None and idle.number == 2
    assert engine.work.find_idle("/uucp") is None
    engine.work.end(idle, NOW)
    assert [agent.host for agent in engine.start()] == ["c"]


def test_several_agents_of_one_thread() -> None:
    """A thread has up to maxthr agents, not more than jobs to feed, and no job goes to two."""
    engine = Driven()
    for number in range(5):
        engine.add(number, maxthr=3)
    agents = engine.start()
    assert len(agents) == 3
    fed = [job for agent in agents if (job := engine.work.next_job(agent, NOW))]
    fed += engine.feed(agents[0])
    assert sorted(job.message.number for job in fed) == list(range(5))
    assert len(engine.add(9, "b", maxthr=3).start()) == 1


def test_a_failed_start_is_tried_again() -> None:
    """A thread whose agent could not be started shows why, and is ready again at its time."""
    engine = Driven().add(1)
    start = engine.work.next_start()
    assert start is not None
    engine.work.refuse(start.thread, "System:ForkFailure!", NOW + 1)
    assert engine.work.next_start() is None
    assert engine.table.ready.reason(engine.thread()) == "System:ForkFailure!"
    engine.step(NOW + 1)
    assert len(engine.start()) == 1


# ---- a long run, against a model that looks at every thread in every second

THREADS = {
    "a": clause("smtp/a", interval=7, retries=(1, 1, 2, 3, 5, 8, 13), expiry=5_000),
    "b": clause("smtp/b", interval=60, retries=(1, 3, 9), expiry=40_000),
    "c": clause("smtp/c", interval=11, retries=(0, 4), expiry=900, wakeuprestartonly=True),
    "d": clause("smtp/d", interval=600, retries=(1, 50, 50), expiry=200_000, ageorder=True),
}
DRAW = 0.4


class Fixed(Random):
    """Random numbers that are the same for engine and model, in any order of calls."""

    def random(self) -> float:
        """Always the same place to go on at."""
        return DRAW


class Arrival(NamedTuple):
    """A message for one host; its agent defers it until it is asked for the n-th time."""

    at: int
    number: int
    host: str
    tries: int


def arrivals(seconds: int) -> list[Arrival]:
    """Messages at random times; most are delivered late, some never."""
    random, found, at = Random(3), list[Arrival](), 0
    while (at := at + random.randrange(1, 1500)) < seconds:
        tries = random.choice([1, 2, 4, 30, 10**9])
        found.append(Arrival(at, len(found), random.choice("abcd"), tries))
    return found


Event = tuple[int, str, int]
"""Second, what happened, number of the message."""


def run_engine(seconds: int, mail: list[Arrival]) -> Iterator[Event]:
    """The events of the engine, which goes from one due time to the next."""
    engine = Driven(most=50)
    engine.table._random = engine.work._random = Fixed()
    tries = {one.number: one.tries for one in mail}
    coming = [*mail, Arrival(seconds, -1, "", 0)]
    while True:
        due = engine.table.timers.agenda.next_due()
        now = min(coming[0].at, coming[0].at if due is None else due)
        if now >= seconds:
            return
        second = int(now)
        assert second == now
        yield from ((second, "expired", number) for number in engine.step(now))
        yield from try_all(engine, tries, second)
        while coming[0].at == now:
            arrival = coming.pop(0)
            group = (THREADS[arrival.host], "smtp", arrival.host, [100])
            engine.put(arrival.number, group, now=now, modified=now)
            yield from try_all(engine, tries, second)


def try_all(engine: Driven, tries: dict[int, int], now: int) -> Iterator[Event]:
    """Run all agents that can start; each tries its jobs and ends within the second."""
    for agent in engine.start():
        for job in engine.feed(agent, now):
            number = job.message.number
            tries[number] -= 1
            yield now, "tried", number
            engine.answer(job, "deferred x" if tries[number] else "ok3", now)
        engine.work.end(agent, now)


class Model(NamedTuple):
    """A thread of the model."""

    settings: ClauseSettings
    jobs: dict[int, Arrival]
    tried: dict[int, int]
    state: list[float]
    """When it wakes, and its place in the retries."""

    def try_jobs(self, numbers: list[int], tries: dict[int, int], now: int) -> Iterator[Event]:
        """Try some jobs."""
        for number in numbers:
            tries[number] -= 1
            self.tried[number] += 1
            yield now, "tried", number
            if not tries[number]:
                del self.jobs[number]

    def wait(self, now: int) -> None:
        """Begin the next wait."""
        index = int(self.state[1])
        if index >= len(self.settings.retries):
            index = int(DRAW * len(self.settings.retries))
        self.state[:] = (
            now + max(1, self.settings.retries[index] * self.settings.interval),
            index + 1,
        )


def run_model(seconds: int, mail: list[Arrival]) -> Iterator[Event]:
    """The events of the rules, looked up in every second."""
    threads = {host: Model(one, {}, {}, [0, 0]) for host, one in THREADS.items()}
    tries = {one.number: one.tries for one in mail}
    at_second: dict[int, list[Arrival]] = {}
    for one in mail:
        at_second.setdefault(one.at, []).append(one)
    for now in range(seconds):
        for thread in threads.values():
            expiry = thread.settings.expiry or 0
            old = [n for n, one in thread.jobs.items() if now >= one.at + expiry]
            for number in [number for number in old if thread.tried[number]]:
                del thread.jobs[number]
                yield now, "expired", number
            if thread.jobs and now >= thread.state[0]:
                yield from thread.try_jobs(list(thread.jobs), tries, now)
                thread.wait(now)
        for one in at_second.get(now, ()):
            thread = threads[one.host]
            is_waiting = bool(thread.jobs)
            if not is_waiting:
                thread.state[:] = 0, 0
            thread.jobs[one.number], thread.tried[one.number] = one, 0
            if not is_waiting or not thread.settings.wakeuprestartonly:
                yield from thread.try_jobs([one.number], tries, now)
            if not is_waiting:
                thread.wait(now)


@pytest.mark.parametrize("seconds", [20_000, pytest.param(1_000_000, marks=pytest.mark.deep)])
def test_the_agenda_agrees_with_a_check_at_every_second(seconds: int) -> None:
    """Every try and every expiry is in the second that the rules give it, and no other."""
    mail = arrivals(seconds)
    events, model = sorted(run_engine(seconds, mail)), sorted(run_model(seconds, mail))
    assert events == model
    assert {what for _, what, _ in events} == {"tried", "expired"}
