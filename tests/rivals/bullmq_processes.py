"""Workers of ours and of BullMQ on Node on one queue, producers, operators, and pauses by both.

All but the producer are killed by SIGKILL at random. Each job that was acknowledged is in exactly
one list at any end, has run, and ends once the queue is drained.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config.place_address import parse_address
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.model import State, Task
from engine.operations.journal import Journal
from tests.bullmq_operator import apply
from tests.bullmq_workers import CONFIG
from tests.node_packages import install
from tests.redis_server import running_server
from tests.rivals.game import ROUNDS, Process, Result, churn, spooldeck, start

if TYPE_CHECKING:
    import redis

VERSIONS: Mapping[str, str] = {"bullmq 5 jobs": "5", "bullmq 6 jobs": "6"}
"""By game, the version of BullMQ on Node. Never two on one queue: they pause it in two ways."""

SCRIPT = Path(__file__).with_name("node_jobs.cjs")
WAITING = ("wait", "paused", "active", "prioritized", "delayed")
ENDED = ("completed", "failed")


class _Game:
    """The processes of a game, on a server, in a folder."""

    def __init__(self, at: Path, url: str, version: str) -> None:
        self._at, self._url = at, url
        self._modules = install(version)
        shell = f"echo $TASK_ID >>{at}/ran; sleep 0.03; case $TASK_ID in *7) exit 1;; esac"
        (at / "c.yaml").write_text(CONFIG.format(command=shell))
        self.error = (at / "errors").open("ab")

    def node(self, role: str) -> Process:
        """A process of Node."""
        lines = self._at / ("added" if role == "add" else "ran")
        socket = self._url.removeprefix("redis+unix://").partition("?")[0]
        return self._start(["node", str(SCRIPT), role, socket, str(lines)])

    def ours(self, *words: str) -> Process:
        """A command of ours on the place."""
        return self._start(spooldeck(self._at, *words, self._url))

    def operator(self, seed: int) -> Process:
        """An operator of ours, who acts eight times or more."""
        words = ["-m", "tests.bullmq_operator", self._url, f"{self._at}/journal", str(seed)]
        process = self._start([sys.executable, *words], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"." * 16)  # one for each act and one for each change
        process.stdin.close()
        return process

    def _start(self, words: list[str], **more: Any) -> Process:
        more |= {"NODE_PATH": str(self._modules), "NODE_NO_WARNINGS": "1"}
        more["XDG_STATE_HOME"] = str(self._at / "state")
        return start(words, self._at, output=self.error, **more)


def play(at: Path, version: str, seed: int, going: Callable[[], bool]) -> Result:
    """One game in an empty folder, with a server of its own."""
    rng = random.Random(seed)
    with running_server() as server, server.client() as client:
        game = _Game(at, server.place(), version)
        roles: Mapping[str, Callable[[], Process]] = {
            "node 1": lambda: game.node("work"),
            "node 2": lambda: game.node("work"),
            "ours 1": lambda: game.ours("bullmq", "work", "--concurrency", "2"),
            "ours 2": lambda: game.ours("bullmq", "work", "--concurrency", "2"),
            "pauses of node": lambda: game.node("pause"),
            "our pause": lambda: game.ours(*_pause(rng.randrange(2))),
            "operator": lambda: game.operator(rng.getrandbits(32)),
        }
        producer = game.node("add")
        starts = churn(roles, rng, going, 0.05)
        producer.kill()
        producer.wait()
        _drain(game, client, at / "journal", server.place())
        game.error.close()
        counts, broken = count(client, at)
        pauses = starts["our pause"] + starts["pauses of node"]
        return Result({**counts, "kills": starts["kills"], "pauses": pauses}, broken)


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


def count(client: redis.Redis, at: Path) -> Result:
    """Compare what was acknowledged and what ran with what the server has."""
    added, ran = set((at / "added").read_text().split()), (at / "ran").read_text().split()
    places = Counter(job for name in (*WAITING, *ENDED) for job in _members(client, name))
    left = sum(len(_members(client, name)) for name in WAITING)
    broken = [f"lost: {job} is in {places[job]} lists" for job in sorted(added) if places[job] != 1]
    gone = (job for job in sorted(added) if not client.hexists(f"bull:mails:{job}", "data"))
    broken += [f"lost: {job} has no content" for job in gone]
    unrun = set(_members(client, "completed")) - {each.removeprefix("mails/") for each in ran}
    broken += [f"completed and never ran: {job}" for job in sorted(unrun)]
    broken += [f"left: {left}"] * bool(left)
    ended = sum(len(_members(client, name)) for name in ENDED)
    return Result({"acknowledged": len(added), "ended": ended, "runs": len(ran)}, broken)
