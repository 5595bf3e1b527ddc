"""Workers of ours and of BullMQ on Node on one queue, producers, operators, and pauses by both.

All but the producer are killed by SIGKILL at random. Each job that was acknowledged is in exactly
one list at any end, has run, and ends once the queue is drained.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.config.place_address import parse_address
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import State, Task
from engine.operations.journal import Journal
from tests.bullmq_operator import apply
from tests.bullmq_workers import CONFIG
from tests.node_packages import install
from tests.redis_server import running_server

if TYPE_CHECKING:
    import redis

VERSIONS: Mapping[str, str] = {"bullmq 5 jobs": "5", "bullmq 6 jobs": "6"}
"""By game, the version of BullMQ on Node. Never two on one queue: they pause it in two ways."""

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("node_jobs.cjs")
ROUNDS = 60
"""Runs of a worker until everything has to be done."""
WAITING = ("wait", "paused", "active", "prioritized", "delayed")
ENDED = ("completed", "failed")


class JobCounts(NamedTuple):
    """The result of a game."""

    acknowledged: int
    ended: int
    runs: int
    kills: int
    pauses: int
    lost: tuple[str, ...] = ()
    """Acknowledged jobs that are in no list, in two, or without content."""
    unrun: tuple[str, ...] = ()
    """Completed jobs that no worker ran."""
    left: int = 0

    def broken(self) -> list[str]:
        """What should not be."""
        wrong = [f"lost: {what}" for what in self.lost]
        wrong += [f"completed and never ran: {job}" for job in self.unrun]
        return wrong + [f"left: {self.left}"] * bool(self.left)


class _Game:
    """The processes of a game, on a server, in a folder."""

    def __init__(self, at: Path, url: str, version: str) -> None:
        self._at, self._url = at, url
        self._modules = install(version)
        shell = f"echo $TASK_ID >>{at}/ran; sleep 0.03; case $TASK_ID in *7) exit 1;; esac"
        (at / "c.yaml").write_text(CONFIG.format(command=shell))
        self.error = (at / "errors").open("ab")

    def node(self, role: str) -> subprocess.Popen[bytes]:
        """A process of Node."""
        lines = self._at / ("added" if role == "add" else "ran")
        socket = self._url.removeprefix("redis+unix://").partition("?")[0]
        return self._start(["node", str(SCRIPT), role, socket, str(lines)])

    def ours(self, *words: str) -> subprocess.Popen[bytes]:
        """A command of ours on the place."""
        command = [sys.executable, "-P", "-m", "tui.cli", "--config", f"{self._at}/c.yaml"]
        return self._start([*command, *words, self._url])

    def operator(self, seed: int) -> subprocess.Popen[bytes]:
        """An operator of ours, who acts eight times."""
        words = ["-m", "tests.bullmq_operator", self._url, f"{self._at}/journal", str(seed)]
        process = self._start([sys.executable, *words], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"." * 8)
        process.stdin.close()
        return process

    def _start(self, words: list[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("NFTBAN_")},
            **{"HOME": str(self._at), "XDG_STATE_HOME": str(self._at / "state")},
            **{"NODE_PATH": str(self._modules), "NODE_NO_WARNINGS": "1"},
        }
        return subprocess.Popen(
            words, env=environment, cwd=ROOT, stdin=stdin, stdout=self.error, stderr=self.error
        )


def play(at: Path, version: str, seed: int, going: Callable[[], bool]) -> JobCounts:
    """One game in an empty folder, with a server of its own."""
    rng, kills, pauses = random.Random(seed), 0, 0
    with running_server() as server, server.client() as client:
        game = _Game(at, server.place(), version)
        roles: Mapping[str, Callable[[], subprocess.Popen[bytes]]] = {
            "node 1": lambda: game.node("work"),
            "node 2": lambda: game.node("work"),
            "ours 1": lambda: game.ours("bullmq", "work", "--concurrency", "2"),
            "ours 2": lambda: game.ours("bullmq", "work", "--concurrency", "2"),
            "pauses of node": lambda: game.node("pause"),
            "our pause": lambda: game.ours(*_pause(rng.randrange(2))),
            "operator": lambda: game.operator(rng.getrandbits(32)),
        }
        producer = game.node("add")
        running: dict[str, subprocess.Popen[bytes]] = {}
        while going():
            for role, start in roles.items():
                if role not in running or running[role].poll() is not None:
                    pauses += "pause" in role
                    running[role] = start()
            time.sleep(rng.uniform(0, 0.2))
            if rng.random() < 0.05:
                rng.choice(list(running.values())).kill()
                kills += 1
        for process in (producer, *running.values()):
            process.kill()
            process.wait()
        _drain(game, client, at / "journal", server.place())
        game.error.close()
        return count(client, at, kills, pauses)


def _pause(value: int) -> tuple[str, ...]:
    return ("control", "pause", "--target", "mails", "--value", str(value), "--apply", "1")


def _drain(game: _Game, client: redis.Redis, journal: Path, url: str) -> None:
    """Put back what operators took away, resume, and let our worker end all."""
    with closing(BullmqStore(parse_place(parse_address(url)))) as store:
        for verb, start in (("restore", State.TRASH), ("release", State.HELD)):
            tasks = [t for t in store.scan() if isinstance(t, Task) and t.state is start]
            apply(store, Journal(str(journal)), verb, tasks)
    game.ours(*_pause(0)).wait()
    for _ in range(ROUNDS):
        game.ours("bullmq", "work", "--until-idle").wait()
        if not any(_members(client, name) for name in WAITING):
            break


def _members(client: redis.Redis, name: str) -> list[str]:
    key = f"bull:mails:{name}"
    kind = client.type(key)
    members = client.lrange(key, 0, -1) if kind == "list" else client.zrange(key, 0, -1)
    return [str(each) for each in members if not str(each).startswith("0:")]


def count(client: redis.Redis, at: Path, kills: int, pauses: int) -> JobCounts:
    """Compare what was acknowledged and what ran with what the server has."""
    added, ran = set((at / "added").read_text().split()), (at / "ran").read_text().split()
    places = Counter(job for name in (*WAITING, *ENDED) for job in _members(client, name))
    lost = [f"{job} is in {places[job]} lists" for job in sorted(added) if places[job] != 1]
    gone = (job for job in sorted(added) if not client.hexists(f"bull:mails:{job}", "data"))
    lost += [f"{job} has no content" for job in gone]
    unrun = set(_members(client, "completed")) - {each.removeprefix("mails/") for each in ran}
    return JobCounts(
        acknowledged=len(added),
        ended=sum(len(_members(client, name)) for name in ENDED),
        runs=len(ran),
        kills=kills,
        pauses=pauses,
        lost=tuple(lost),
        unrun=tuple(sorted(unrun)),
        left=sum(len(_members(client, name)) for name in WAITING),
    )
