"""Processes on one spool, killed and stopped by a seeded schedule; then a drain, and a count.

What was acknowledged must be handled once the queue is drained. The schedule depends on events
alone: the lines that the processes write to the ledger, and their ends.
"""

import contextlib
import fcntl
import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from engine import verbs
from engine.formats.nftban.store import NftbanStore, make_spool
from engine.model import Move, State, Task
from tests.rivals.game import Result
from tests.rivals.rival import MAIL, spool_at

HERE = Path(__file__).parent
CONCURRENCY = 2
QUIET_MILLISECONDS = 300
"""Without an event for so long, stopped processes are continued."""

CONFIG = f"""\
handlers:
  job:
    command: [sh, {HERE}/handler.sh]
    concurrency: {CONCURRENCY}
    timeout: 60
    environment: {{LEDGER: , HEAL: , GATE: , MAIL: , RIVAL: }}
queue:
  {{max_retries: 2, backoff_base: 0.2, backoff_max: 1, max_pending: 1000000}}
"""


class Role(NamedTuple):
    """A kind of process in the game."""

    argv: Callable[["Field", str], list[str]]
    at_risk: int = 0
    """Tasks that it may have claimed, and that are repeated when it is killed."""
    paced: bool = False
    """Whether it works once for each byte on its standard input."""
    killed: bool = True
    adds: bool = False
    """Whether it prints the id of a task whose description is the name of the process."""


def _command(*words: str) -> Callable[["Field", str], list[str]]:
    return lambda field, name: field.command("queue", *words)


def _rival(role: str) -> Callable[["Field", str], list[str]]:
    words = (sys.executable, "-m", "tests.rivals.rival", role)
    return lambda field, name: [*words, str(field.root), name, str(field.rng.getrandbits(32))]


def _standin(word: str, *, named: bool = False) -> Callable[["Field", str], list[str]]:
    script = str(HERE / "standin.sh")
    return lambda field, name: ["bash", script, str(field.root), word, *([name] if named else [])]


ROLES: Mapping[str, Role] = {
    "produce": Role(_rival("produce"), paced=True),
    "operate": Role(_rival("operate"), paced=True),
    "add": Role(lambda f, n: f.command("queue", "add", "job", n, f.new_payload(n)), adds=True),
    "work": Role(_command("work", "--concurrency", str(CONCURRENCY)), at_risk=CONCURRENCY),
    "next": Role(_command("process-next"), at_risk=1),
    "drain": Role(_command("work", "--until-idle"), at_risk=1),
    "recover": Role(_rival("recover")),
    "retry-all": Role(_command("dlq", "retry-all")),
    "purge": Role(_command("dlq", "purge", "1")),
    # Killed while it rewrites a file in place it loses a task, and that is none of ours.
    "standin": Role(_standin("next"), killed=False),
    "standin-add": Role(_standin("add", named=True), killed=False, adds=True),
    "standin-retry": Role(_standin("retry"), killed=False),
}

BACK: Mapping[State, Callable[[Task], Task]] = {
    State.PENDING: lambda task: verbs.promote(task, 0),
    State.HELD: lambda task: verbs.release(task, 0),
    State.DEAD: lambda task: verbs.retry(task, 0),
    State.TRASH: lambda task: task._replace(state=State.PENDING),
}
"""How each task becomes pending in the end."""

OURS = (*["produce"] * 2, "operate", "add", *["work"] * 2, *["next"] * 2, "retry-all", "purge")
"""The processes of a game."""
BESIDE = (*OURS, "standin", "standin", "standin-add", "standin-retry")
BREAKING = (*OURS, "recover", "recover")
BACKLOG = 100
"""Waiting tasks with which the producers pause."""


class Actor(NamedTuple):
    """A process on the field."""

    name: str
    role: Role
    process: "subprocess.Popen[bytes]"
    pidfd: int


class Line(NamedTuple):
    """One line of the ledger."""

    name: str
    event: str
    task: str
    """The task's description, by which it is known from before it has an id."""
    detail: str


class Field:
    """One spool, the processes on it and the ledger; all of them end with the block."""

    root: Path
    config: Path

    def __init__(self, root: Path, seed: int, crew: Collection[str] = OURS) -> None:
        self.root, self.crew, self.rng = root, crew, random.Random(seed)
        self._breaking = "recover" in crew
        self.is_shared = "standin" in crew
        """Whether another program, which locks nothing out, is on the field."""
        self.lines: list[Line] = []
        self.events: Counter[str] = Counter()
        self.ledger, self._heal, self._gate = root / "ledger", root / "healed", root / "gate"
        self.config, self._mail = root / "spooldeck.yaml", root / MAIL
        self._actors: dict[int, Actor] = {}
        self._stopped: set[int] = set()
        self._started: Counter[str] = Counter()
        self._killed: dict[str, int] = {}
        self._odd: list[str] = []
        self._rest = b""

    def __enter__(self) -> "Field":
        if set(self.crew) <= set(OURS):
            make_spool(spool_at(str(self.root)))
        for word in ("pending", "work", "dlq"):
            (self.root / "queue" / word).mkdir(parents=True, exist_ok=True)
        (self.root / "run").mkdir()
        self._mail.mkdir()
        self.config.write_text(CONFIG)
        os.mkfifo(self.ledger)
        os.mkfifo(self._gate)
        # For both: so that no process waits for the other end to be opened, or sees an end of file.
        self._fd = os.open(self.ledger, os.O_RDWR | os.O_NONBLOCK)
        self._gate_fd = os.open(self._gate, os.O_RDWR | os.O_NONBLOCK)
        self._stderr = (self.root / "stderr").open("wb")
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        return self

    def __exit__(self, *_: object) -> None:
        for pidfd in list(self._actors):
            self._signal(pidfd, signal.SIGKILL)
            self._reap(pidfd)
        os.close(self._fd)
        os.close(self._gate_fd)
        self._stderr.close()

    def command(self, *words: str) -> list[str]:
        """The real command on this spool."""
        place_options = ("--config", str(self.config), "--root", str(self.root))
        return [sys.executable, "-m", "tui.cli", *words, *place_options]

    def new_payload(self, name: str) -> str:
        """A file that a task of this name may have; `queue add` takes none that is not there."""
        path = self._mail / name
        path.touch()
        return str(path)

    # ---- processes

    def start(self, kind: str) -> None:
        """Start one more of a kind."""
        role = ROLES[kind]
        self._started[kind] += 1
        name = f"{kind}-{self._started[kind]}{self.rng.choice('1234567')}"
        if role.adds:
            self._note(Line(name, "try", name, "-"))
        process = subprocess.Popen(
            role.argv(self, name),
            stdin=subprocess.PIPE if role.paced else subprocess.DEVNULL,
            stdout=subprocess.PIPE if role.adds else subprocess.DEVNULL,
            stderr=self._stderr,
            cwd=HERE.parent.parent,
            env={
                **os.environ,
                **{"LEDGER": str(self.ledger), "HANDLER": str(HERE / "handler.sh"), "RIVAL": name},
                **{"HEAL": str(self._heal), "GATE": str(self._gate), "MAIL": str(self._mail)},
            },
            start_new_session=True,
        )
        actor = Actor(name, role, process, os.pidfd_open(process.pid))
        self._actors[actor.pidfd] = actor
        self._poll.register(actor.pidfd, select.POLLIN)

    def _signal(self, pidfd: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)

    def _reap(self, pidfd: int) -> None:
        actor = self._actors.pop(pidfd)
        self._stopped.discard(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        output, _ = actor.process.communicate()
        status = actor.process.returncode
        if status == -signal.SIGKILL or (self._breaking and status == -signal.SIGTERM):
            self._killed[actor.name] = actor.role.at_risk
        elif status not in (0, 1, 2, 3):
            self._odd.append(f"{actor.name}: status {status}")
        if output:
            self._note(Line(actor.name, "ack", actor.name, output.decode().strip()))

    # ---- events

    def turn(self) -> int:
        """Wait for an event; returns how many lines came."""
        ready = self._poll.poll(QUIET_MILLISECONDS)
        if not ready:
            self.go_on()
        before = len(self.lines)
        for fd, _ in ready:
            if fd in self._actors:
                self._reap(fd)
        self._read()
        return len(self.lines) - before

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, 65536):
                *whole, self._rest = (self._rest + data).split(b"\n")
                for line in whole:
                    self._note(Line(*line.decode().split(" ", 3)))

    def _note(self, line: Line) -> None:
        self.lines.append(line)
        self.events[line.event] += 1

    # ---- the schedule

    def go_on(self) -> None:
        """Continue the stopped processes, and let the paced ones work."""
        for pidfd in list(self._stopped):
            self._signal(pidfd, signal.SIGCONT)
        self._stopped.clear()
        self._pace()

    def _pace(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._gate_fd, b".")
        behind = self.events["try"] - self.events["ok"] > BACKLOG
        for actor in self._actors.values():
            idle = behind and actor.name.startswith("produce")
            if actor.process.stdin is not None and not idle:
                with contextlib.suppress(BrokenPipeError):
                    os.write(actor.process.stdin.fileno(), b".")

    def act(self) -> None:
        """Make one move: start a missing process; kill, stop or continue one."""
        counts = Counter(actor.name.rpartition("-")[0] for actor in self._actors.values())
        missing = list((Counter(self.crew) - counts).elements())
        if missing:
            self.start(self.rng.choice(missing))
        running = sorted(set(self._actors) - self._stopped)
        move = self.rng.random()
        if move < 0.3:
            mortal = [pidfd for pidfd in running if self._actors[pidfd].role.killed]
            if mortal:
                self.kill(self.rng.choice(mortal))
        elif move < 0.6 and len(self._stopped) < len(self._actors) // 2:
            pidfd = self.rng.choice(running)
            self._signal(pidfd, signal.SIGSTOP)
            self._stopped.add(pidfd)
        elif self._stopped:
            pidfd = self.rng.choice(sorted(self._stopped))
            self._signal(pidfd, signal.SIGCONT)
            self._stopped.discard(pidfd)
        self._pace()

    def kill(self, pidfd: int) -> None:
        """Kill a process."""
        self._signal(pidfd, signal.SIGKILL)
        self._reap(pidfd)

    def play(self, going: Callable[[], bool]) -> None:
        """Start all processes; make a move of the schedule after each few lines while it goes."""
        for kind in self.crew:
            self.start(kind)
        self._pace()
        due = 0
        while going():
            due -= max(1, self.turn())
            if due <= 0:
                self.act()
                due = self.rng.randint(1, 8)

    # ---- the end

    def finish(self) -> Result:
        """End all processes, let one worker handle the rest, and count."""
        for pidfd in list(self._actors):
            actor = self._actors[pidfd]
            if actor.role.killed:
                self.kill(pidfd)
            else:
                self._signal(pidfd, signal.SIGCONT)
        while self._actors:
            self.turn()
        self._await_orphans()
        self._heal.touch()
        for _ in range(10):
            self.start("drain")
            while self._actors:
                self.turn()
            if not self._bring_back():
                break
        self._read()
        return self.count()

    def _await_orphans(self) -> None:
        """Wait for the handlers that outlived their worker: they hold its lock's flock."""
        try:
            lock = os.open(self.root / "run" / "queue.lock", os.O_RDWR)
        except FileNotFoundError:
            return
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self.turn()
        os.close(lock)

    def _bring_back(self) -> int:
        """Make all tasks due; returns how many there are."""
        store = NftbanStore(spool_at(str(self.root)))
        tasks = {task.id: task for task in store.scan() if isinstance(task, Task)}
        back = [Move(task, BACK[task.state](task)) for task in tasks.values() if task.state in BACK]
        list(store.swap_all(back))
        store.close()
        return len(tasks)

    def count(self) -> Result:
        """Count by the ledger and the spool.

        Of a game beside a program that locks nothing out, fewer promises are made.
        """
        by: dict[str, set[str]] = defaultdict(set)
        for line in self.lines:
            by[line.event].add(line.task)
        tried, acked, handled = by["try"], by["ack"], by["ok"]
        ids = {line.task: line.detail for line in self.lines if line.event == "ack"}
        others = {
            line.task
            for line in self.lines
            if line.event == "begin" and not line.detail.endswith(f":{ids.get(line.task, '')}")
        }
        standing = dict(self._standing())
        stderr = (self.root / "stderr").read_text(errors="replace")
        if "Traceback" in stderr:
            self._odd.append(stderr[stderr.index("Traceback") :][:2000])
        wrong: dict[str, Iterable[str]] = {
            "lost": acked - handled - by["expunge"] - set(standing.values()),
            "not added, or under another id": by["begin"] - tried | (others & acked),
            "with other fields than written": by["torn"],
            "exit code or traceback": self._odd,
            # A file that the other program is rewriting looks broken for a moment.
            "quarantined": (where for where in standing if "/corrupt/" in where),
        }
        if not self.is_shared:
            wrong["two holders of the lock"] = overlaps(self.lines)
            wrong["repeated without a kill"] = needless(self.lines, self._killed)
            wrong["left"] = standing
        counts = {
            "tried": len(tried),
            "acknowledged": len(acked),
            "handled": len(handled),
            "handled unacknowledged": len(handled - acked),  # their producer was killed first
            "kills": len(self._killed),
            "repeated": self.events["ok"] - len(handled),
            "tasks of killed processes": sum(self._killed.values()),
        }
        return Result(
            counts, [f"{what}: {each}" for what, some in wrong.items() for each in sorted(some)]
        )

    def _standing(self) -> Iterator[tuple[str, str]]:
        """Yield each file below queue/ that is or was a task, and its description."""
        queue = self.root / "queue"
        for path in queue.rglob("*"):
            task = b"TASK_DESCRIPTION=" in path.read_bytes() if path.is_file() else False
            # Neither a draft that was never acknowledged, nor what the journal keeps for an undo.
            if task and not path.name.startswith("T.") and "journal" not in path.parts:
                text = path.read_text(errors="replace").split('TASK_DESCRIPTION="')[1]
                yield str(path.relative_to(queue)), text.split('"')[0]


def overlaps(lines: Collection[Line]) -> Iterator[str]:
    """Yield each handler that began during the work of one of another lock holder.

    A killed handler reports no end, and its duration is unknown.
    """
    began: dict[tuple[str, str], int] = {}
    begins: list[Line] = []
    for line in lines:
        if line.event == "begin":
            began[line.name, line.detail] = len(begins)
            begins.append(line)
        elif line.event in ("ok", "fail"):
            for other in begins[began.pop((line.name, line.detail)) :]:
                if other.name != line.name:
                    yield f"{other.name} began {other.task} beside {line.name} at {line.task}"


def needless(lines: Collection[Line], killed: Mapping[str, int]) -> Iterator[str]:
    """Yield each repeated task that no process may have claimed; `killed` has how many tasks each
    killed one may have."""
    by: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line.event == "ok":
            by[line.task].append(line.name)
    claimed = Counter(killed)
    for task, names in by.items():
        for name in names[:-1]:
            if claimed[name] <= 0:
                yield f"{task} after {name}"
            claimed[name] -= 1
