"""Changes in a ZMailer spool: no recipient is lost or torn, wherever a process dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

from engine.formats.zmailer.agents.jobs import AgentJobs, Deliver
from engine.formats.zmailer.agents.router_agents import ErrormailAgent, HoldAgent
from engine.formats.zmailer.reports import ReportForm, ReportSettings
from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer, JobLine, parse_agent_line
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.spool_mail import SpoolMail
from engine.formats.zmailer.submit import Router
from engine.model import Move, Outcome, Problem, State, Task
from engine.store import Unavailable
from engine.verbs import VERBS
from tests.crash.harness import Case, Ended, tasks_in
from tests.zmailer_spool import Spool, recipient

NOW = 1_795_170_000.0
IDENT = "1001/91"
TEXT = b"external\nFrom: a@b.example\n\nall of it\n"

P, D, H, T = State.PENDING, State.DEAD, State.HELD, State.TRASH
Seen = tuple[State, bytes]
"""What is compared of a recipient: its state, and the message."""


class _Change(Case):
    """A change of the first of two recipients; the other one is done."""

    def __init__(
        self,
        start: State,
        end: State | None,
        *,
        finished: bool = False,
        between: State | None = None,
    ) -> None:
        """`finished`: the scheduler has removed the message; `between`: the state that a kill may
        leave too."""
        self._start, self._end, self._finished = start, end, finished
        self.end = {} if end is None else {IDENT: (end, TEXT)}
        self._between = between

    def lay_out(self, root: Path) -> None:
        spool = Spool(root).make()
        path = spool.put(1001, recipient(), f"r+{recipient()[2:]}")
        with closing(_store(root)) as store:
            if self._start is not P:
                task = _task(store)
                store.swap(task, task._replace(state=self._start))
        if self._finished:
            spool.finish(path)

    def restored(self, root: Path, now: float) -> None:
        """Link both names of a file again: a copy of the folder has two files."""
        for word in ("queue", "transport"):
            path, kept_path = root / word / "1001", root / ".spooldeck" / "kept" / word / "1001"
            if path.exists() and kept_path.exists():
                kept_path.unlink()
                kept_path.hardlink_to(path)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        store = _store(root)
        task = _task(store)
        new = None if self._end is None else task._replace(state=self._end)
        return lambda: store.swap(task, new)

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report a control file that the scheduler would read without its message."""
        for path in (root / "transport").iterdir():
            if not (root / "queue" / path.name).exists():
                yield f"{path.name} is in transport/ without a message"

    def recover(self, root: Path, now: float) -> None:
        """Remove links that are of no use."""
        with closing(_store(root)) as store:
            store.control("tidy")

    def content(self, root: Path) -> Mapping[str, object]:
        with closing(_store(root)) as store:
            tasks = [task for task in tasks_in(store) if task.id == IDENT]
            return {task.id: (task.state, store.read(task, "message")) for task in tasks}

    def between(self, name: str) -> tuple[object, ...]:
        """A message that is not linked back yet is still held."""
        return () if self._between is None else ((self._between, TEXT),)

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Report what a scan finds broken, and links that stay without a use."""
        with closing(_store(root)) as store:
            yield from (f"{item}" for item in store.scan() if isinstance(item, Problem))
            if again := store.forecast("tidy").amount:
                yield f"{again} links are left"
        states = [state for state, _ in cast(Mapping[str, Seen], content).values()]
        copies = list((root / ".spooldeck").rglob("1001"))
        if bool(copies) != any(state in (H, T) for state in states):
            yield f"kept: {copies}"


class _Ending(_Change):
    """A verb that ends both recipients and gives a mail to the router: all of it, or nothing."""

    def __init__(self, verb: str, start: State = P) -> None:
        super().__init__(start, None)
        self._verb, state = verb, VERBS[verb].edges[0][1]
        self.end = {"both": ((state, state), 1, True)}

    def lay_out(self, root: Path) -> None:
        Spool(root).make().put(1001, recipient(), recipient())
        with closing(_store(root)) as store:
            for task in _tasks(store):
                if self._start is not P:
                    store.swap(task, task._replace(state=self._start))

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        store = _store(root)
        change = VERBS[self._verb].function
        moves = [Move(task, change(task, now)) for task in _tasks(store)]
        return lambda: [self._require(outcome) for outcome in store.swap_all(moves)]

    @staticmethod
    def _require(outcome: Outcome) -> None:
        if outcome.error is not None:
            raise outcome.error

    def recover(self, root: Path, now: float) -> None:
        """What the next change does first."""
        with closing(_store(root)) as store:
            list(store.verify([]))
        super().recover(root, now)

    def content(self, root: Path) -> Mapping[str, object]:
        with closing(_store(root)) as store:
            states = tuple(task.state for task in _tasks(store))
        mails = [path.read_bytes() for path in (root / "router").iterdir()]
        whole = all(mail.endswith((b"all of it\n", b"--\n")) for mail in mails)
        return {"both": (states, len(mails), whole)}

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Report what a scan finds broken, and what is left in our folders."""
        with closing(_store(root)) as store:
            yield from (f"{item}" for item in store.scan() if isinstance(item, Problem))
        left = [path for path in (root / ".spooldeck").rglob("*") if path.is_file()]
        if self._start is P and left:
            yield f"left: {left}"


class _AgentJob(_Ending):
    """A job of an agent that gives a mail to the router for both recipients."""

    def __init__(self, channel: str, host: str, deliver: Callable[[Router], Deliver]) -> None:
        super().__init__("reroute")
        self._channel, self._host, self._deliver = channel, host, deliver

    def lay_out(self, root: Path) -> None:
        Spool(root).make().put(1001, *[recipient(self._channel, self._host)] * 2)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        folders = PostofficeFolders(str(root))
        deliver = self._deliver(Router(folders.fd))
        agent = AgentJobs(folders, self._channel, "", deliver, lambda: NOW)
        return lambda: self._serve(agent)

    def _serve(self, agent: AgentJobs) -> None:
        for line in agent.serve(JobLine("1001", self._host.encode())):
            answer = parse_agent_line(line[:-1])
            if not isinstance(answer, AgentAnswer) or answer.status != b"ok3":
                raise Unavailable(line.decode())

    def recover(self, root: Path, now: float) -> None:
        """What the scheduler does when an agent has died."""
        super().recover(root, now)
        with closing(_store(root)) as store:
            for task in _tasks(store):
                if task.state is State.ACTIVE:
                    store.swap(task, task._replace(state=P, lease=None))


def _hold(router: Router) -> Deliver:
    return HoldAgent(router, "mta.example").deliver


def _errormail(router: Router) -> Deliver:
    settings = ReportSettings("mta.example")
    return ErrormailAgent(router, settings, lambda name: ReportForm(), "errormail[9]").deliver


def _store(root: Path) -> ZmailerStore:
    def mail(folders: PostofficeFolders) -> SpoolMail:
        return SpoolMail(folders, lambda: NOW, ReportSettings("mta.example"))

    return ZmailerStore(str(root), lambda: NOW, mail)


def _tasks(store: ZmailerStore) -> list[Task]:
    return sorted(tasks_in(store), key=lambda task: task.id)


def _task(store: ZmailerStore) -> Task:
    (task,) = tasks_in(store, [IDENT])
    return task


CASES: Mapping[str, Case] = {
    "hold": _Change(P, H),
    "release": _Change(H, P),
    "purge": _Change(P, T),
    "retry": _Change(D, P),
    "restore": _Change(T, P),
    "expunge": _Change(T, None),
    "release a finished one": _Change(H, P, finished=True, between=H),
    "restore a finished one": _Change(T, P, finished=True, between=H),
    "expunge a finished one": _Change(T, None, finished=True),
    "bounce": _Ending("bounce"),
    "expire a held one": _Ending("expire", H),
    "reroute": _Ending("reroute"),
    "agent hold": _AgentJob("hold", "timeout:1", _hold),
    "agent errormail": _AgentJob("error", "nosuchhost", _errormail),
}
