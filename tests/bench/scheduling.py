"""The rows of the scheduling: a step of the agenda beside a bare heap, and the memory of mail that
waits."""

from __future__ import annotations

import heapq
import sys
import time

from engine.formats.zmailer.scheduling.timers import Agenda
from tests.bench.measure import Bench, Figure, Figures, command, compare, interleave

STEPS = 50_000

MEMORY = """
import sys
from random import Random
from engine.formats.zmailer.scheduling.jobs import ClauseSettings, QueuedMessage
from engine.formats.zmailer.scheduling.ready import AgentSlots
from engine.formats.zmailer.scheduling.table import JobGroup, ThreadTable

def used():
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) << 12

recipients, most, hosts = map(int, sys.argv[1:])
table = ThreadTable(AgentSlots(200), Random(1))
settings = ClauseSettings("smtp/*", command="smtp -s", queueonly=True)
before, number, left = used(), 3_000_000, recipients
while left > 0:
    number += 1
    count = min(left, number % most + 1)
    left -= count
    modified = 1_795_160_000_000_000_000 + 1001 * number
    sender = f"user{number}@example.org"
    message = QueuedMessage(
        number, modified, folder="I/F/", created=1_795_160_000.5 + number, sender=sender
    )
    groups = [
        JobGroup(settings, "smtp", f"mx{(7 * number + n) % hosts}.example.net", (200 + 50 * n,))
        for n in range(count)
    ]
    table.add(message, groups, 0.0)
print((used() - before) / (1 << 20))
"""
"""Prints the MiB that so many recipients take, in messages with at most so many of them."""


def _bare(number: int) -> float:
    """Microseconds of a step: the earliest entry is popped, and pushed with a later time."""
    heap = [(float(key), key) for key in range(number)]
    heapq.heapify(heap)
    began = time.perf_counter()
    for turn in range(STEPS):
        _, key = heapq.heappop(heap)
        heapq.heappush(heap, (float(number + turn), key))
    return 1e6 * (time.perf_counter() - began) / STEPS


def _ours(number: int) -> float:
    """Microseconds of a step: a thread wakes, and gets its next time."""
    agenda = Agenda[int]()
    for key in range(number):
        agenda.set(key, float(key))
    began = time.perf_counter()
    for turn in range(STEPS):
        for key in agenda.pop_due(float(turn)):
            agenda.set(key, float(number + turn))
        agenda.next_due()
    return 1e6 * (time.perf_counter() - began) / STEPS


def agenda(bench: Bench) -> Figures:
    """One step with 100,000 threads, and how it grows with their number."""
    costs = interleave(
        {
            "ours": lambda: _ours(100_000),
            "bare": lambda: _bare(100_000),
            "small": lambda: _ours(1_000),
            "bare small": lambda: _bare(1_000),
        },
        bench.rounds,
    )
    what, both = "100,000 threads, a step", (costs["ours"], costs["bare"])
    yield compare(what, "us wall", both, "heapq", 3.0)
    ours = [a / b for a, b in zip(costs["ours"], costs["small"], strict=True)]
    bare = [a / b for a, b in zip(costs["bare"], costs["bare small"], strict=True)]
    yield compare("growth, 100,000 against 1,000", "x", (ours, bare), "heapq", 1.5)


def waiting(bench: Bench) -> Figures:
    """What 100,000 recipients that wait take."""
    for most in (1, 5):
        words = [sys.executable, "-c", MEMORY, "100000", str(most), "2000"]
        what = f"1 to {most} of a message" if most > 1 else "1 of a message"
        yield Figure(f"100,000 recipients, {what}", float(command(*words)), "MiB", 60.0)
