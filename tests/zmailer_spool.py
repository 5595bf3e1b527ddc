"""A ZMailer spool for the tests, filled as the router does, and worked on as agents do."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from engine.formats.zmailer.spool import marks, names
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.model import Edge, Edges, Move, Outcome, State, Task
from engine.store import ClaimFilter, Gone, accept_all

FIRST = 1_795_160_000
"""Time of each message, in epoch seconds."""

HEADERS = "m\nFrom: a@b.example\nSubject: a report\n\n"


def recipient(channel: str = "smtp", host: str = "mx.example", user: str = "c@d.example") -> str:
    """The text of a recipient line that waits."""
    return f"r           {channel} {host} {user} 65534\n"


class Spool(NamedTuple):
    """A spool on disk."""

    root: Path

    def make(self) -> Self:
        """Make its folders."""
        for name in ("transport", "queue", "router"):
            (self.root / name).mkdir(parents=True)
        return self

    def put(
        self, number: int, *recipients: str, folder: str = "", more: str = "", log_id: str = "one"
    ) -> Path:
        """A message, put there as the router does it: the message file first."""
        for above in ("queue", "transport"):
            (self.root / above / folder).mkdir(parents=True, exist_ok=True)
        message = self.root / "queue" / folder / str(number)
        message.write_text("external\nFrom: a@b.example\n\nall of it\n")
        os.utime(message, (FIRST, FIRST))
        head = f"@ 0x00000007\ni {number}\no 10\nl <{log_id}@b.example>\ne a@b.example\n"
        text = head + "s local a@b.example a@b.example 1\n" + "".join(recipients) + HEADERS + more
        path = self.root / "transport" / folder / str(number)
        draft = path.with_name(f".{number}")
        draft.write_text(text)
        draft.rename(path)
        return path

    def lines(self, path: Path, letter: str = "r") -> list[str]:
        """The lines of a control file that begin so; a CR does not end one."""
        return [one for one in path.read_bytes().decode().split("\n") if one.startswith(letter)]

    def finish(self, path: Path) -> None:
        """Remove a message as the scheduler does, once it knows of no more recipients."""
        path.unlink()
        (self.root / "queue" / path.relative_to(self.root / "transport")).unlink()


def dead_pid() -> int:
    """The PID of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def write_lock(path: Path, offset: int, pid: int) -> None:
    """Lock a recipient as an agent does: the tag, and its PID in six columns."""
    with path.open("r+b") as file:
        file.seek(offset + 1)
        file.write(b"~%6d" % pid)


_OUTCOME = frozenset({"attempts", "due", "error"})


class WorkedStore(ZmailerStore):
    """A store that can also do what router and agents do, for the suite of all stores."""

    gone_pid = 0

    def __init__(self, root: str, gone_pid: int, now: float) -> None:
        """`gone_pid`: of the agent, which has ended."""
        super().__init__(root, lambda: now)
        self.gone_pid = gone_pid

    def _refresh(self) -> None:
        super()._refresh()
        own: Edges = {
            (None, State.PENDING): Edge(),
            (State.ACTIVE, State.DONE): Edge(_OUTCOME, undoable=False),
            (State.ACTIVE, State.DEAD): Edge(_OUTCOME),
            (State.ACTIVE, None): Edge(undoable=False),
            (State.DONE, None): Edge(undoable=False),
        }
        self.edges = {**self.edges, **own}

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """Add new tasks one by one, and change the others as the store does, in order."""
        moves = list(moves)
        if all(move.old for move in moves):
            yield from super().swap_all(moves)
            return
        for move in moves:
            if move.old is None and move.new is not None and (None, move.new.state) in self.edges:
                yield self._add(move, move.new)
            else:
                yield from super().swap_all([move])

    def _add(self, move: Move, task: Task) -> Outcome:
        name = task.id.partition("/")[0]
        spool = Spool(Path(self._folders.root))
        if any(isinstance(item, Task) for item in self.scan({task.id})):
            return Outcome(move, error=Gone(task.id))
        spool.put(int(name), recipient(task.kind, user=task.destination))
        (stored_task,) = self.scan({task.id})
        assert isinstance(stored_task, Task)
        return Outcome(move, stored_task.rev)

    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        """Lock waiting recipients as an agent does that ends then."""
        waiting = [task for task in self.scan({"waiting"}) if isinstance(task, Task)]
        for task in waiting[-limit:]:  # the newest
            parsed = names.parse_task_id(task.id)
            assert parsed is not None
            folders = PostofficeFolders(self._folders.root)
            with folders.open_control(parsed[0], os.O_RDWR) as opened:
                marks.write_mark(opened.fd, parsed[1], b"~%6d" % self.gone_pid)
            folders.close()
            (stored_task,) = self.scan({task.id})
            assert isinstance(stored_task, Task)
            yield stored_task


def suite_id(number: int) -> str:
    """The id of the task that `WorkedStore` makes with this number."""
    head = f"@ 0x00000007\ni {1000 + number}\no 10\nl <one@b.example>\ne a@b.example\n"
    return f"{1000 + number}/{len(head) + len('s local a@b.example a@b.example 1') + 1}"
