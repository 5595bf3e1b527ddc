"""A scripted day of the scheduler: failures, deferrals, expiry, agents and schedulers killed."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

import pytest

from engine.system.run_clock import RECORD, read_moment
from tests import command
from tests.zmailer_spool import HEADERS, Spool

AGENT = Path(__file__).with_name("fast_agent.py")
MAX_AGENTS, MAX_OF_CHANNEL, MAX_OF_RING = 5, 3, 2
EXPIRY = 86400
PATIENCE = 15.0
"""Seconds without anything that happens, after which the test fails."""

CONF = f"""
PARAMmailqsock = "UNIX:{{root}}/mailq"
PARAMglobal-report-interval = 1s
*/*
  interval=1s expiry={EXPIRY}s expiry2=1d retries="1 1 1" overfeed=3
  maxta={MAX_AGENTS} maxchannel={MAX_OF_CHANNEL} user={{user}} group={{group}}
  command="{sys.executable} -S -E {AGENT} $channel"
smtp/*0
  maxring={MAX_OF_RING} maxthr=2
  command="{sys.executable} -S -E {AGENT} $channel"
"""


class Day(NamedTuple):
    """The size of a day."""

    messages: int
    recipients: int
    """Of each message."""
    hosts: int
    kills: int


class DaySpool(NamedTuple):
    """A spool with mail for the fast agent."""

    root: Path
    users: frozenset[str]

    @classmethod
    def fill(cls, root: Path, day: Day) -> Self:
        """Make the spool: two channels, a third of the users fail, some by age."""
        spool = Spool(root).make()
        for name in ("tries", "freezer", "postman", ".spooldeck"):
            (root / name).mkdir()
        os.mkfifo(root / "events")
        random, users, now = Random(5), [], time.time()
        for number in range(1000, 1000 + day.messages):
            lines, is_old = [], number % 6 == 0
            for at in range(day.recipients):
                kind = "never" if is_old else random.choice(["good", "good", "slow", "bad"])
                users.append(f"{kind}-{number}-{at}")
                host = random.randrange(day.hosts)
                channel = "smtp" if host % 2 else "local"
                lines.append(f"r           {channel} host{host} {users[-1]} 65534\n")
            path = spool.put(number, *lines)
            path.write_text(path.read_text().replace(HEADERS, "m\nSubject: x\n\n"))
            modified = now - EXPIRY - 5 if is_old else now  # an old one expires after its first try
            os.utime(root / "queue" / str(number), (modified, modified))
        # Earlier runs have seen the time pass: else no mail is too old.
        moment = read_moment(now)
        last = f"{moment.at!r} {moment.uptime!r} {moment.boot}"
        record = f"{last}\n0.0 0.0\n{moment.at - 2 * EXPIRY!r} {moment.at!r}\n"
        (root / ".spooldeck" / RECORD).write_text(record)
        conf = CONF.format(root=root, user=os.getuid(), group=os.getgid())
        (root / "scheduler.conf").write_text(conf)
        return cls(root, frozenset(users))

    def start(self) -> command.Popen[bytes]:
        """Start a scheduler; it ends an earlier one."""
        words = ["zmailer", "scheduler", "-i", "-HH", "-R", "1000", "-P", str(self.root)]
        for option, name in (("-f", "scheduler.conf"), ("-L", "log"), ("-l", "statistics")):
            words += [option, f"{self.root}/{name}"]
        return command.Popen(words, stdin=subprocess.DEVNULL)

    def is_empty(self) -> bool:
        """True if no message is left."""
        folders = self.root / "transport", self.root / "queue"  # the data file is removed last
        return not any(path.is_file() for folder in folders for path in folder.rglob("1*"))

    def reported(self) -> Counter[str]:
        """How often each user was reported to have failed."""
        counts: Counter[str] = Counter()
        for path in (self.root / "router").iterdir():
            status = path.read_text().split("message/delivery-status")[1]
            assert status.count("Action: failed") == status.count("Final-Recipient:")
            counts.update(re.findall(r"Final-Recipient: x-local; (\S+)", status))
        return counts


def children(pid: int) -> list[tuple[int, str]]:
    """The agents of a scheduler, each with its channel."""
    processes = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                processes.append((int(child), words[-2].decode() if len(words) > 2 else ""))
    return processes


def check_limits(pid: int) -> None:
    """No limit is exceeded at this moment."""
    agents = children(pid)
    counts = Counter(channel for _, channel in agents if channel in ("smtp", "local"))
    assert len(agents) <= MAX_AGENTS
    assert all(count <= MAX_OF_CHANNEL for count in counts.values())


class Watch:
    """Reads the deliveries that the agents report."""

    def __init__(self, day_spool: DaySpool) -> None:
        self.deliveries: list[tuple[str, int]] = []
        """User, and PID of the agent."""
        self.killed: set[int] = set()
        self._office, self._random, self._rest = day_spool, Random(8), b""
        self._fd = os.open(day_spool.root / "events", os.O_RDWR | os.O_NONBLOCK)

    def close(self) -> None:
        """Close the FIFO."""
        os.close(self._fd)

    def follow(self, scheduler: int, until: int | None) -> None:
        """Read until there were so many deliveries, or until the spool is empty; check the limits
        at each, and kill an agent now and then."""
        quiet = 0.0
        while not self._office.is_empty() and (until is None or len(self.deliveries) < until):
            if not select.select([self._fd], [], [], 0.02)[0]:
                quiet += 0.02
                assert quiet < PATIENCE, (self._office.root / "log").read_text()[-3000:]
                check_limits(scheduler)
                continue
            quiet = 0.0
            self._read()
            check_limits(scheduler)
            if self._random.random() < 0.03:
                self._kill_agent(scheduler)
        while select.select([self._fd], [], [], 0)[0]:
            self._read()  # the last ones, whose message is gone already

    def _read(self) -> None:
        self._rest += os.read(self._fd, 4096)
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            user, _, pid = line.decode().partition(" ")
            self.deliveries.append((user, int(pid)))

    def _kill_agent(self, scheduler: int) -> None:
        if agents := children(scheduler):
            pid, _ = self._random.choice(agents)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed.add(pid)


@contextmanager
def watching(day_spool: DaySpool) -> Iterator[Watch]:
    """A watch that is closed in the end."""
    watch = Watch(day_spool)
    try:
        yield watch
    finally:
        watch.close()


@pytest.mark.parametrize(
    "day",
    [
        pytest.param(Day(60, 5, 20, 3), id="quick"),
        pytest.param(Day(1000, 10, 200, 20), id="deep", marks=pytest.mark.deep),
    ],
)
def test_each_recipient_ends_once(tmp_path: Path, day: Day) -> None:
    """With agents and schedulers killed at any moment each is delivered or reported once."""
    day_spool = DaySpool.fill(tmp_path, day)
    to_deliver = {user for user in day_spool.users if not user.startswith("never")}
    with watching(day_spool) as watch:
        for turn in range(day.kills + 1):
            scheduler = day_spool.start()
            until = len(to_deliver) * (turn + 1) // (day.kills + 2)
            try:
                watch.follow(scheduler.pid, None if turn == day.kills else until)
            finally:
                scheduler.kill()
                scheduler.wait()
    delivered = Counter(user for user, _ in watch.deliveries)
    assert set(delivered) == to_deliver
    assert not any((tmp_path / "queue").rglob("1*"))
    for user, count in delivered.items():
        pids = [pid for one, pid in watch.deliveries if one == user]
        assert count == 1 or watch.killed.issuperset(pids[:-1]), user
    failing = {user for user in day_spool.users if user.startswith(("bad", "never"))}
    assert day_spool.reported() == Counter(failing)
