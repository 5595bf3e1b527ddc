"""A long run under a test clock, against a model that looks at every thread in every second."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from engine.formats.zmailer.scheduling.jobs import ClauseSettings
from tests.engine.formats.zmailer.scheduling.simulated_work import Driven, clause

CLAUSES = {
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
    coming = iter([*mail, Arrival(seconds, -1, "", 0)])
    arrival = next(coming)
    while True:
        due = engine.table.timers.agenda.next_due()
        now = arrival.at if due is None else min(due, arrival.at)
        if now >= seconds:
            return
        second = int(now)
        assert second == now
        yield from ((second, "expired", number) for number in engine.step(now))
        yield from try_all(engine, tries, second)
        while arrival.at == now:
            settings = CLAUSES[arrival.host]
            group = (settings, "smtp", arrival.host, [100])
            engine.put(arrival.number, group, now=now, modified=now)
            yield from try_all(engine, tries, second)
            arrival = next(coming)


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
    threads = {host: Model(one, {}, {}, [0, 0]) for host, one in CLAUSES.items()}
    tries = {one.number: one.tries for one in mail}
    at_second: dict[int, list[Arrival]] = {}
    for one in mail:
        at_second.setdefault(one.at, []).append(one)
    for now in range(seconds):
        for thread in threads.values():
            if thread.jobs:
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
