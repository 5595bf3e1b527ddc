"""The row of transport agents: a conversation beside a bare loop with the same lines."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from functools import partial

from engine.formats.zmailer.scheduling.agent_lines import JobLine
from engine.formats.zmailer.scheduling.agent_process import Agent, start_agent
from engine.formats.zmailer.scheduling.agent_talk import Answered
from engine.system.supervisor import Program
from tests.bench.measure import CLEAN, Bench, Figures, compare, interleave

AGENT = r"""
import os
os.write(1, b"#hungry\n")
rest = b""
while data := os.read(0, 65536):
    *lines, rest = (rest + data).split(b"\n")
    if b"" in lines:
        break
    answer = b"/251\t\tok3 250 2.0.0 accepted as 1234567890\n#hungry\n"
    os.write(1, b"".join(line.split(b"\t")[0][4:] + answer for line in lines))
"""
"""An agent that answers each job with a success; it is the same for both."""

ARGV = [sys.executable, "-S", "-c", AGENT]
HOST = b"mx1.example.net"
HUNGRY = b"#hungry\n"


def _paths(number: int) -> list[str]:
    return [f"A/B/{3_000_000 + n}" for n in range(number)]


def _bare(number: int) -> float:
    """Seconds: send the line of a job, read until its `#hungry`."""
    lines = [b"%b\t%b\n" % (path.encode(), HOST) for path in _paths(number)]
    our_end, theirs = socket.socketpair()
    end = theirs.fileno()
    with our_end, subprocess.Popen(ARGV, stdin=end, stdout=end, env=CLEAN) as process:
        theirs.close()
        our_end.recv(100)
        began = time.perf_counter()
        for line in lines:
            our_end.sendall(line)
            while not our_end.recv(65536).endswith(HUNGRY):
                pass
        cost = time.perf_counter() - began
        our_end.sendall(b"\n")
        process.wait()
    return cost


def _ours(number: int, batch: int) -> float:
    """Seconds: give the jobs of a batch, take an event for each answer."""
    agent: Agent[str] = start_agent(Program(ARGV, CLEAN), 2, 0.0)
    poll = select.poll()
    poll.register(agent.sock, select.POLLIN)
    poll.poll()
    list(agent.read(0.0))
    agent.talk.attach()  # the one job of its start is not measured
    paths, answered = iter(_paths(number)), 0
    began = time.perf_counter()
    while answered < number:
        for _ in range(agent.talk.room(batch - 1)):
            if (path := next(paths, None)) is None or not agent.talk.give(
                JobLine(path, HOST), path, 0.0
            ):
                break
        agent.write(0.0)
        if not agent.talk.has_lines:
            poll.poll()
        answered += sum(isinstance(event, Answered) for event in agent.read(0.0))
    cost = time.perf_counter() - began
    agent.end(0.0)
    while not agent.reap():
        select.select([agent.pidfd], [], [])
    agent.close()
    return cost


def conversation(bench: Bench) -> Figures:
    """Microseconds a job by the clock, one at a time and in batches of overfeed + 1."""
    number = 2_000 if bench.quick else 20_000
    variants = {
        "overfeed 0": partial(_ours, number, 1),
        "overfeed 150": partial(_ours, number, 151),
        "bare": partial(_bare, number),
    }
    costs = interleave(variants, bench.rounds)
    each = {name: [1e6 * cost / number for cost in found] for name, found in costs.items()}
    for what, limit in (("overfeed 0", 2.0), ("overfeed 150", 1.0)):
        yield compare(what, "us", (each[what], each["bare"]), "bare loop, one at a time", limit)
