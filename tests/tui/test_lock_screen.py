"""The lock on screen: the evidence, the plan, and that nobody is ended but whom it names."""

from __future__ import annotations

import asyncio
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine import config, lockfile, locks
from engine.model import LockEvidence, State, Task, Verdict
from engine.stores import open_store
from tests.engine.lockers import INNOCENT, cli_later, is_unharmed, later, true_claim
from tests.tui.spools import (
    Clock,
    a_console,
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    loaded,
    make_spool,
    queue_of,
    recover_command,
    some_tasks,
    until,
)
from tui import keys
from tui.app import Console
from tui.cli.console import _place
from tui.cli.wiring import Setup
from tui.place import Place
from tui.plain import text_of
from tui.recovery import Recovery
from tui.screens.lock import LockScreen
from tui.views.ladder import twin
from tui.views.lock import difference
from tui.widgets.lines import Lines

PID = 4711
"""Whom the evidence of these tests names; no process is asked for it."""

HOLDER = """
import signal, sys, time
from engine import locks
from engine.stores.nftban import NftbanStore, Spool
root = sys.argv[1]
lock = locks.acquire(f"{root}/run/queue.lock", 1200.0)
queue = f"{root}/queue"
store = NftbanStore(Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
print(*(task.id for task in store.take(time.time(), "holder", 1)), flush=True)
while True:
    signal.pause()
"""
"""A worker that took the lock and a task, and gives no more heartbeats."""

SILENT = 1300
"""Seconds without a heartbeat, more than the 1200 after which a holder counts as stuck."""

Starter = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts a Python program and waits for its first line; it is killed when the test is over."""
    children: list[subprocess.Popen[str]] = []

    def starter(code: str, *args: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline()
        return child

    yield starter
    for child in children:
        child.kill()
        child.communicate()


class Deck:
    """A console whose lock is looked at."""

    def __init__(self, console: Console, pilot: Pilot[None], clock: Clock | None = None) -> None:
        self.console, self.pilot, self.clock = console, pilot, clock

    async def press(self, *pressed: str) -> None:
        """Press keys."""
        for key in pressed:
            await self.pilot.press(key)
        await self.pilot.pause()

    async def until_said(self, words: str) -> None:
        """Wait for words on the page."""
        try:
            await until(self.pilot, lambda: words in self.page)
        except AssertionError:
            raise AssertionError(f"{words!r} is not in\n{self.page}") from None

    async def open(self) -> None:
        """The lock, looked at once."""
        await self.press("U")
        await until(self.pilot, lambda: isinstance(self.console.screen, LockScreen))
        await until(self.pilot, lambda: "looking at" not in self.page)
        await self.pilot.pause()

    @property
    def page(self) -> str:
        """What the page on top shows."""
        rows = [line for pane in self.console.screen.query(Lines) for line in pane.lines]
        return "\n".join("".join(text for text, _ in line).rstrip() for line in rows)

    def line(self, id: str) -> str:
        """What a pane of the screen on top shows."""
        pane = self.console.screen.query_one(f"#{id}", Lines)
        return "\n".join("".join(text for text, _ in line).rstrip() for line in pane.lines)


@asynccontextmanager
async def a_deck(
    *evidence: LockEvidence,
    recover: tuple[str, ...] = ("/nowhere/spooldeck",),
    armed: bool = True,
    size: tuple[int, int] = (80, 24),
    look: Callable[[], LockEvidence] | None = None,
    **console: object,
) -> AsyncIterator[Deck]:
    """A console on a queue in memory whose lock is as the evidence says."""
    clock = Clock()
    place = a_place(a_memory(some_tasks()), lock=look or (lambda: evidence[0]), recover=recover)
    deck = a_console(place, clock=clock, start_armed=armed, **console)
    async with deck.run_test(size=size) as pilot:
        await loaded(pilot)
        yield Deck(deck, pilot, clock)


def wired(root: Path) -> Place:
    """A queue on disk as the console is told of it."""
    settings = root.parent / "spooldeck.yaml"
    settings.write_text("queue: {syslog: ''}\n")
    found = config.load(str(settings), {})
    return _place(Setup(found, config.queue_for(found, str(root), {})), str(root))


def at_length(place: Place, root: Path, seconds: float) -> Place:
    """The place as its lock is examined and recovered so many seconds from now."""
    path, command = str(root / "run" / "queue.lock"), place.recover
    return place._replace(
        lock=lambda: locks.examine(path, 1200.0, **later(seconds)),
        recover=(*cli_later(seconds), *command[command.index("--root") :]),
    )


@asynccontextmanager
async def on_disk(root: Path, silent: float = 0.0) -> AsyncIterator[Deck]:
    """An armed console on a queue on disk, wired as the command wires it; its lock is looked at
    `silent` seconds from now.
    """
    place = at_length(await asyncio.to_thread(wired, root), root, silent)
    console = Console([place], host="mx1", start_armed=True, first=keys.LIST)
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        yield Deck(console, pilot)


def tasks_in(root: Path) -> list[Task]:
    """What stands in a queue on disk, each once; fails on what is no task."""
    store = open_store(str(root))
    found = {getattr(seen, "id", seen): seen for seen in store.look()}
    store.close()
    assert all(isinstance(seen, Task) for seen in found.values()), found
    return [seen for seen in found.values() if isinstance(seen, Task)]


def leaves_a_trace(trace: Path) -> tuple[str, ...]:
    """A command that writes down the lock it was told to free."""
    return ("/bin/sh", "-c", f'printf %s "$0" > {shlex.quote(str(trace))}; echo "freed $0"')


# ---- freeing it


async def test_a_stuck_holder_is_ended_and_its_task_is_back(tmp_path: Path, start: Starter) -> None:
    """Typing the PID of a stuck holder ends it, frees the lock, and its task waits again."""
    root = tmp_path / "data"
    make_spool(root, [a_task(2)])
    async with on_disk(root, SILENT) as deck:
        holder = start(HOLDER, str(root))
        await until(deck.pilot, lambda: "! CRIT stuck" in deck.line("lock"))
        assert f"PID {holder.pid}" in deck.line("lock")

        await deck.open()
        await deck.until_said("scope if you act now: PID")
        assert f"STUCK 21m  PID {holder.pid}" in deck.line("title")
        assert f"spooldeck--root{root}" in "".join(deck.page.split())
        await deck.press(*str(holder.pid))
        await deck.until_said("the lock is free again")

        assert holder.wait() == -signal.SIGTERM
        await until(deck.pilot, lambda: "FREE" in deck.line("title"))
        await deck.press("escape")
        assert "unlock: the lock is free again" in deck.line("hints")
    assert [
        (task.id, task.state, task.attempts) for task in await asyncio.to_thread(tasks_in, root)
    ] == [(a_task(2).id, State.PENDING, 1)]


async def test_a_lock_that_nobody_holds_is_freed_by_y(tmp_path: Path, start: Starter) -> None:
    """Where the holder is gone, `y` frees the lock and its task waits again; no PID is asked."""
    root = tmp_path / "data"
    make_spool(root, [a_task(2)])
    holder = start(HOLDER, str(root))
    holder.kill()
    holder.wait()
    async with on_disk(root) as deck:
        await deck.open()
        assert deck.line("title").startswith(" lock  STALE")
        assert "scope if you act now: the lock; 1 in work" in deck.page
        await deck.press(*str(holder.pid))
        assert "asks for no PID: y applies" in deck.page
        await deck.press("y")
        await deck.until_said("the lock is free again")

    assert [(task.state, task.attempts) for task in await asyncio.to_thread(tasks_in, root)] == [
        (State.PENDING, 1)
    ]


async def test_another_pid_frees_nothing(tmp_path: Path) -> None:
    """Digits that are not the holder's PID do nothing, nor do `y` and Enter; the right ones do."""
    trace = tmp_path / "trace"
    async with a_deck(a_stuck_lock(), recover=leaves_a_trace(trace)) as deck:
        await deck.open()
        await deck.press("4", "7", "1", "2")
        assert "4712 is not the PID: nothing was done" in deck.page
        await looked_again(deck)
        assert "4712 is not the PID: nothing was done" in deck.page
        await deck.press("y", "enter", "4", "7", "1", "9")
        await deck.press("4", "7", "2", "4", "7", "1", "backspace")
        assert "[ 47__ ]" in deck.page
        assert not trace.exists()

        await deck.press("1", "1")
        await deck.until_said("the lock is free again")

    assert trace.read_text() == a_stuck_lock().seen


def forge(lock: Path, pid: int) -> None:
    """Let a lock file say that a process took it."""
    lock.write_bytes(lockfile.compose(true_claim(pid)))


async def test_an_innocent_process_is_named_and_left_alone(tmp_path: Path, start: Starter) -> None:
    """A lock that names a process which never took it: the screen says why nothing is offered."""
    root = tmp_path / "data"
    make_spool(root, [a_task(2)])
    lock = root / "run" / "queue.lock"
    lock.touch()
    innocent, forger = start(INNOCENT), start(INNOCENT, str(lock))  # which has the flock
    await asyncio.to_thread(forge, lock, innocent.pid)
    async with on_disk(root, SILENT) as deck:
        await until(deck.pilot, lambda: "! CRIT stuck" in deck.line("lock"))
        await deck.open()
        await deck.until_said("nothing will be signalled")
        assert f"ps -o pid,user,lstart,args -p {innocent.pid}" in " ".join(deck.page.split())
        assert "scope if you act now: nothing" in deck.page
        await deck.press(*str(innocent.pid), "y")
        assert "nothing will be signalled" in deck.page
        assert not queue_of(deck.console).live.recovery.running

    assert is_unharmed(innocent)
    assert is_unharmed(forger)


async def looked_again(deck: Deck) -> None:
    """Let the screen look at the lock once more."""
    screen = deck.console.screen
    assert isinstance(screen, LockScreen)
    await screen._look()


async def test_the_pid_is_that_of_who_would_be_signalled(tmp_path: Path) -> None:
    """Where the holder is gone and its children have the lock, one of those is asked for."""
    trace = tmp_path / "trace"
    orphaned = a_stuck_lock()._replace(holders=(4712, 4713))
    async with a_deck(orphaned, recover=leaves_a_trace(trace)) as deck:
        await deck.open()
        assert "scope if you act now: PID 4712, 4713; 1 in active" in deck.page
        await deck.press(*"4711")
        assert "4711 is not the PID" in deck.page
        assert not trace.exists()
        await deck.press(*"4712")

        await deck.until_said("the lock is free again")


# ---- never something else than what was seen


CHANGED = {
    "another holder": a_stuck_lock()._replace(pid=815, seen="2.bb"),
    "the same PID, taken again": a_stuck_lock()._replace(seen="2.bb"),
    "free": LockEvidence(Verdict.FREE, reason="no lock file"),
    "at work again": a_stuck_lock()._replace(verdict=Verdict.HELD),
    "doubtful": a_stuck_lock()._replace(doubt="PID 4711 runs under several uids"),
}


@pytest.mark.parametrize("now", CHANGED.values(), ids=CHANGED)
async def test_a_lock_that_changes_under_a_plan(tmp_path: Path, now: LockEvidence) -> None:
    """A plan is withdrawn once its lock is not what was seen, and what was typed is dropped."""
    trace, evidence = tmp_path / "trace", [a_stuck_lock()]
    recover = leaves_a_trace(trace)
    async with a_deck(look=lambda: evidence[-1], recover=recover) as deck:
        await deck.open()
        await deck.press("4", "7", "1")
        evidence.append(now)
        await deck.until_said("plan withdrawn: " + difference(a_stuck_lock(), now))
        assert "scope if you act now: PID" not in deck.page

        evidence.append(a_stuck_lock())  # back again: the plan is not
        await until(deck.pilot, lambda: "STUCK 47m  PID 4711" in deck.line("title"))
        await deck.press("1", "4", "7", "1", "1", "y")
        assert "plan" in deck.line("word")
        assert "withdrawn" in deck.line("word")

    assert not trace.exists()


async def test_evidence_that_only_grows_older_keeps_the_plan() -> None:
    """The age goes on while it is looked at, and what was typed stays."""
    evidence = [a_stuck_lock()]
    async with a_deck(look=lambda: evidence[-1]) as deck:
        await deck.open()
        await deck.press("4", "7")
        evidence.append(a_stuck_lock()._replace(age=2880.0, reason="silent for 2880 s"))
        await deck.until_said("STUCK 48m")

        assert "[ 47__ ]" in deck.page


# ---- where nothing is offered


async def test_observe_shows_the_plan_and_applies_nothing(tmp_path: Path) -> None:
    """In OBSERVE the plan is there to be read; `!` arms, it stays, and then it can be applied."""
    trace = tmp_path / "trace"
    async with a_deck(a_stuck_lock(), recover=leaves_a_trace(trace), armed=False) as deck:
        await deck.open()
        assert "SIGTERM" in deck.page
        assert "OBSERVE: this plan cannot be applied; ! arms, and the plan stays" in deck.page
        await deck.press(*str(PID))
        assert "OBSERVE: press ! first" in deck.page
        assert not trace.exists()

        await deck.press("!", *str(PID))
        await deck.until_said("the lock is free again")
        assert deck.console.queue(1)._arming.left == 900


async def test_read_only_has_no_such_key() -> None:
    """With --read-only the lock line names no key, and `U` opens nothing."""
    async with a_deck(a_stuck_lock(), read_only=True, armed=False) as deck:
        assert "! CRIT" in deck.line("lock")
        assert " U" not in deck.line("lock")
        assert "unlock" not in deck.line("hints")
        await deck.press("U")

        assert "read only" in deck.line("hints")
        assert not isinstance(deck.console.screen, LockScreen)


@pytest.mark.parametrize(
    ("place", "why"),
    [({"recover": ()}, "no command is known"), ({"lock": None}, "this place has no lock")],
)
async def test_a_place_whose_lock_cannot_be_freed(place: dict[str, object], why: str) -> None:
    """Where there is no lock, or no command for it, `U` is grey and says why."""
    shown = a_place(a_memory([]), **({"lock": a_stuck_lock, "recover": ("true",)} | place))
    console = a_console(shown)
    async with console.run_test() as pilot:
        await loaded(pilot)
        deck = Deck(console, pilot)
        assert "unlock" in queue_of(console)._grey()
        assert " U" not in deck.line("lock")
        await deck.press("U")

        assert why in deck.line("hints")


NOTHING = {
    "nobody holds the lock": LockEvidence(Verdict.FREE, reason="no lock file"),
    "its holder is at work": a_stuck_lock()._replace(verdict=Verdict.HELD, age=3.0),
    "who holds the lock is not known": LockEvidence(
        Verdict.UNKNOWN, reason="queue.lock: Permission denied"
    ),
}


@pytest.mark.parametrize("why", NOTHING)
async def test_a_lock_that_needs_nothing(why: str) -> None:
    """A lock that is free, at work or unreadable is shown with its evidence, and without a plan."""
    async with a_deck(NOTHING[why]) as deck:
        await deck.open()

        assert why in deck.line("word")
        assert NOTHING[why].reason in " ".join(deck.page.split())
        assert "scope if you act now: PID" not in deck.page
        assert "plan, nothing is done yet" not in deck.page
        await deck.press("1", "y")
        assert why in deck.line("word")


# ---- the child


SAYS = {
    "echo freed; exit 0": ("the lock is free again", "freed"),
    "echo PID 4711 took it up again; exit 2": ("the lock was left alone", "took it up again"),
    "echo 'no such queue' >&2; exit 69": ("its command ended with 69", "no such queue"),
    "echo half; kill -9 $$": ("its command was ended by SIGKILL", "half"),
    "printf 'a\\033]0;b\\007\\n'; exit 3": ("its command ended with 3", "a\ufffd]0;b\ufffd"),
}


@pytest.mark.parametrize("script", SAYS)
async def test_what_the_child_says_is_shown(script: str) -> None:
    """The child's words are on screen, made safe, and what its exit code means."""
    outcome, words = SAYS[script]
    async with a_deck(a_stuck_lock(), recover=("/bin/sh", "-c", script)) as deck:
        await deck.open()
        await deck.press(*str(PID))
        await deck.until_said(outcome)

        assert outcome in deck.line("word")
        assert words in deck.page
        assert "\x1b" not in deck.page
        await deck.press("1", "y")
        assert "this has been done: Esc closes" in deck.page
        await deck.press("escape")
        assert f"unlock: {outcome}" in deck.line("hints")


async def test_a_child_that_does_not_start() -> None:
    """What went wrong is said, and that nothing was done."""
    async with a_deck(a_stuck_lock(), recover=("/nowhere/spooldeck",)) as deck:
        await deck.open()
        await deck.press(*str(PID))

        await deck.until_said("nothing was done, its command did not start")


@pytest.fixture
def held_up(tmp_path: Path) -> tuple[tuple[str, ...], Path, Path]:
    """A command that waits for the first pipe, and says so in the second when it has ended.

    It says "began" if it leads a session of its own: no closing terminal ends it.
    """
    go, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    os.mkfifo(done)
    session = 'read pid name state parent group session rest < /proc/$$/stat; [ "$session" = $$ ]'
    script = f"{session} && echo began; read x < {go}; echo ended; echo y > {done}"
    return ("/bin/sh", "-c", script), go, done


async def test_esc_leaves_it_running(held_up: tuple[tuple[str, ...], Path, Path]) -> None:
    """While the child runs Esc leads back and it goes on; `U` shows it again; its end is said."""
    recover, go, done = held_up
    async with a_deck(a_stuck_lock(), recover=recover) as deck:
        await deck.open()
        await deck.press(*str(PID))
        await deck.until_said("began")
        assert "freeing the lock" in deck.line("word")
        await deck.press("escape")
        await deck.open()
        assert "began" in deck.page
        assert "freeing the lock" in deck.line("word")
        await deck.press(*str(PID))
        assert "it runs already" in deck.page
        await deck.press("escape")

        await asyncio.to_thread(let_go, go, done)
        await until(deck.pilot, lambda: "unlock: the lock is free" in deck.line("hints"))


async def test_a_run_says_nothing_of_the_one_before(
    held_up: tuple[tuple[str, ...], Path, Path],
) -> None:
    """While the lock is freed a second time, what came of the first time is not on screen."""
    recover, go, done = held_up
    async with a_deck(a_stuck_lock(), recover=recover) as deck:
        for _ in range(2):
            await deck.open()
            await deck.press(*str(PID))
            assert "freeing the lock" in deck.line("word")
            assert "\n  ended" not in deck.page
            await deck.until_said("began")
            await asyncio.to_thread(let_go, go, done)
            await deck.until_said("the lock is free again")
            await deck.press("escape")


async def test_it_goes_on_without_the_console(held_up: tuple[tuple[str, ...], Path, Path]) -> None:
    """The child is in a session of its own, and outlives a console that is closed meanwhile."""
    recover, go, done = held_up
    async with a_deck(a_stuck_lock(), recover=recover) as deck:
        await deck.open()
        await deck.press(*str(PID))
        await deck.until_said("began")

    let_go(go, done)


def let_go(go: Path, done: Path) -> None:
    """Let the held-up child go on, and see that it reached its end."""
    go.write_text("x\n")
    with done.open("rb") as end:
        assert select.select([end], [], [], 30)[0]
        assert end.read() == b"y\n"


# ---- how it looks


async def test_the_list_names_the_key() -> None:
    """The lock line says `U unlock` where a plan can be had, and `U why` where only doubts can."""
    for size, unlock, why in (((80, 24), "U unlock", "U why"), ((40, 10), " U", " U")):
        for evidence, key in (
            (a_stuck_lock(), unlock),
            (a_stuck_lock()._replace(verdict=Verdict.STALE), unlock),
            (a_stuck_lock()._replace(doubt="PID 4711 is this process"), why),
        ):
            async with a_deck(evidence, size=size) as deck:
                assert deck.line("lock").endswith(key)
                assert len(deck.line("lock")) <= size[0]
                assert evidence.verdict in deck.line("lock")


async def test_all_of_it_fits() -> None:
    """On a screen of 120x40 verdict, plan, evidence, tasks and question are seen at once."""
    async with a_deck(a_stuck_lock(), size=(120, 40)) as deck:
        await deck.open()
        text = deck.console.screen.query_one("#text", Lines)

        assert len(text.lines) <= text.size.height
        assert max(map(len, deck.page.splitlines())) <= 120


async def test_what_the_reference_screen_shows_first() -> None:
    """At 80x24 verdict, plan, tasks in work, scope and question are seen without moving."""
    async with a_deck(a_stuck_lock(), size=(80, 24)) as deck:
        await deck.open()
        await deck.until_said("no log speaks of it")
        screen = text_of(deck.console.screen)

        for words in (
            *("STUCK (likely): PID 4711 lives", "behind it: 40 in pending", "SIGKILL to PID 4711"),
            *("or spooldeck", "1 task in work", "scope if you act now: PID 4711"),
            *("type the PID, 4711", "holder  PID 4711"),
        ):
            assert words in screen
        assert max(map(len, screen.splitlines())) <= 80


async def test_a_tiny_screen_keeps_verdict_scope_and_question() -> None:
    """At 40x10 the verdict, whom it is about, and the question are whole; the rest is below."""
    async with a_deck(a_stuck_lock(), size=(40, 10)) as deck:
        await deck.open()

        assert "STUCK 47m  PID 4711" in deck.line("title")
        assert deck.line("scope").startswith(" scope: PID 4711; 1 in active ")
        assert deck.line("scope").endswith(" more")
        assert deck.line("word") == " type the PID: [ ____ ]"
        await deck.press("G")
        assert deck.line("scope") == " scope: PID 4711; 1 in active"


def test_the_twin_asks_for_the_pid_itself() -> None:
    """The command that is shown does the same, without the words that answer for the operator."""
    assert twin(recover_command()) == "spooldeck --root /var/lib/nftban queue recover"
    assert "--yes" not in twin(("recover", "--yes", "--seen"))


def test_a_recovery_that_never_ran_has_said_nothing() -> None:
    """Before the first run there is no line and no outcome."""
    recovery = Recovery(("true",))

    assert not recovery.running
    assert (recovery.lines, recovery.outcome) == ((), ("", ""))


def test_a_place_needs_no_command() -> None:
    """Without a command nothing is offered, and a console is made all the same."""
    place = Place("/var/lib/nftban", lambda: 1 / 0)  # type: ignore[arg-type, return-value]

    assert a_console(place).queue(1).place.recover == ()
