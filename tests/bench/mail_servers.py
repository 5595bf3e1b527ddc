"""The rows of mail servers that are reached through their programs: a real Postfix and a real Exim,
beside the same programs called plainly."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from engine.config.place_address import Address, places_folder
from engine.config.queue_config import Config
from engine.formats.exim import server as exim_server
from engine.formats.known_formats import setup_for
from engine.formats.postfix import server as postfix_server
from engine.model import Task
from engine.programs.mail_accounts import IDS_PER_LOOK
from engine.store import Store
from engine.system.run_program import find_program
from tests.bench.console import FIRST_FRAME, FIRST_ROWS
from tests.bench.measure import (
    PYTHON,
    ROOT,
    Bench,
    Cost,
    Figure,
    Figures,
    Unmeasurable,
    compare,
    interleave,
    measured,
    plan_for,
    scratch,
)
from tests.bench.terminal import Screen, console, running
from tests.exim_server import SPOOL, EximServer, running_overlay
from tests.postfix_server import PostfixInstance, running_instance

FILL_SECONDS = 300.0
SENDER, RECIPIENT = b"s0000@mx1.example.test", b"u0@far00.example.test"
REASON = "connect to mx%02d.far.example.test[192.0.2.%d]:25: Connection timed out"
LOAD_SECONDS = 60.0
"""For how long an idle console is watched; twice as long with one line a minute allowed."""
TRASH = "spooldeck-trash"


# ---- Postfix


@contextmanager
def _postfix(bench: Bench, number: int) -> Iterator[PostfixInstance]:
    """A running Postfix with so many deferred messages."""
    if os.geteuid() or not find_program("postfix"):
        raise Unmeasurable("needs root and Postfix")
    with ExitStack() as stack:
        with bench.outside_budget(FILL_SECONDS):
            postfix = stack.enter_context(running_instance())
            _fill(postfix, number)
        try:
            yield postfix
        finally:
            with bench.outside_budget(FILL_SECONDS):
                stack.close()


def _fill(postfix: PostfixInstance, number: int) -> None:
    """Make so many deferred messages: copies of one, named as Postfix does, of other addresses."""
    domain = RECIPIENT.partition(b"@")[2].decode()
    (first,) = postfix.deferred(1, sender=SENDER.decode(), domain=domain)
    path = next(postfix.queue.glob(f"deferred/*/{first}"))
    message, log = path.read_bytes(), (postfix.queue / f"defer/{first[0]}/{first}").read_bytes()
    for kind in ("deferred", "defer"):
        for digit in "0123456789ABCDEF":
            folder = postfix.queue / kind / digit
            folder.mkdir(mode=0o700, exist_ok=True)
            shutil.chown(folder, "postfix", "root")
    owner, due = path.stat(), time.time() + 86400
    for n in range(number - 1):
        draft = f"{postfix.queue}/deferred/draft"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        ident = f"{n * 37 % 1_000_000:05X}{os.fstat(fd).st_ino:X}"
        if len(ident) != len(first):
            raise Unmeasurable("inodes of different lengths: no copy of a queue file is right")
        named = message.replace(first.encode(), ident.encode())
        sender = b"s%04d" % (n % 1000 if n % 4 else 0)
        recipient = b"u%d@far%02d" % (n % 10, n % 100)
        os.write(fd, named.replace(b"s0000", sender).replace(b"u0@far00", recipient))
        os.fchmod(fd, 0o700)
        os.fchown(fd, owner.st_uid, owner.st_gid)
        os.utime(fd, (due, due + n % 3600))
        os.close(fd)
        reason = (REASON % (n % 100, n % 250)).encode()
        noted = log.replace(b"deferred transport", reason).replace(b"u0@far00", recipient)
        fd = os.open(f"{postfix.queue}/defer/{ident[0]}/{ident}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, noted)
        os.fchown(fd, owner.st_uid, owner.st_gid)
        os.close(fd)
        os.rename(draft, f"{postfix.queue}/deferred/{ident[0]}/{ident}")


def postfix_scan(bench: Bench) -> Figures:
    """A full scan and a later one, beside `json.loads` and the listing itself; and their memory."""
    for number in (2_000, 5_000) if bench.quick else (20_000, 50_000):
        with _postfix(bench, number) as postfix:
            yield from _scan_rows(bench, postfix, number)


def _scan_rows(bench: Bench, postfix: PostfixInstance, number: int) -> Figures:
    argv = ["/usr/sbin/postqueue", "-c", str(postfix.config), "-j"]
    lines = subprocess.run(argv, capture_output=True, check=True).stdout.splitlines()
    assert len(lines) == number, f"{len(lines)} of {number} listed"

    def scan(store: Store) -> None:
        assert sum(isinstance(item, Task) for item in store.scan()) >= number

    def first() -> Cost:
        with closing(postfix.store()) as store:
            return measured(partial(scan, store))

    with closing(postfix.store()) as store:
        scan(store)
        revisions, server = store.changes.revisions, postfix.server()
        assert revisions is not None and store.changes.wait is not None
        server.fingerprint()
        ways: dict[str, Callable[[], object]] = {
            "loads": lambda: [json.loads(line) for line in lines],
            "postqueue": partial(subprocess.run, argv, stdout=subprocess.PIPE, check=True),
            "revisions": lambda: sum(1 for _ in revisions()),
            "same": server.fingerprint,
        }
        timed = {name: partial(measured, way) for name, way in ways.items()}
        costs = interleave({"first": first} | timed, bench.rounds)
    cpu = {name: [cost.cpu for cost in of] for name, of in costs.items()}
    wall = {name: [cost.wall for cost in of] for name, of in costs.items()}
    what, beside = f"first full scan of {number:,}", f"json.loads, {PYTHON}"
    for words, name, limit in (
        (what, "first", 2.5),
        ("a later look, nothing changed", "same", 0.6),
        ("a later listing, compared by revision", "revisions", None),
    ):
        yield compare(words, "ms CPU", (cpu[name], cpu["loads"]), beside, limit)
    yield compare(what, "ms wall", (wall["first"], wall["postqueue"]), "postqueue -j", 1.2)
    grown = [_grown(postfix) for _ in range(min(3, bench.rounds))]
    for words, values in zip(("after it", "at most"), zip(*grown, strict=True), strict=True):
        yield Figure(f"memory more, {words}", median(values), "MiB", 25.0)


_GROWN = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from engine.formats.postfix.instance import open_instance
from engine.formats.postfix.marks import Marks
from engine.formats.postfix.server import PostfixServer
from engine.programs.mail_store import MailStore

def memory(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

store = MailStore(PostfixServer(open_instance(sys.argv[2]), Marks(sys.argv[3])))
before = memory("VmRSS")
for task in store.scan():
    pass
print(memory("VmRSS") - before, memory("VmHWM") - before)
"""
"""Prints the MiB that a full scan leaves in memory, and that it took at most."""


def _grown(postfix: PostfixInstance) -> tuple[float, float]:
    """The MiB by which a new process grows with a full scan: at its end, and at most."""
    words = [sys.executable, "-c", _GROWN, str(ROOT), str(postfix.config), str(postfix.marks)]
    end, most = subprocess.run(words, capture_output=True, check=True).stdout.split()
    return float(end), float(most)


def postfix_accounts(bench: Bench) -> Figures:
    """The accounts of all messages, without pauses, beside postcat(1) in calls of the same size."""
    number = 2_000 if bench.quick else 20_000
    with _postfix(bench, number) as postfix:
        ids, server = sorted(postfix.listed()), postfix.server()

        def ours() -> None:
            assert sum(len(server.read_accounts(some)) for some in _batches(ids, IDS_PER_LOOK))

        def bare() -> None:
            for some in _batches(ids, IDS_PER_LOOK):
                assert postfix.run("postcat", "-eq", *some).returncode == 0

        ways = {"ours": partial(measured, ours), "bare": partial(measured, bare)}
        costs = interleave(ways, bench.rounds)
        assert len(ids) == number and server.accounts.get(ids[0], "") is None
    floor = f"postcat by {IDS_PER_LOOK}"
    yield from _compare_acts(f"accounts of {number:,}", costs, floor, 2.0)


def _by_plan(store: Store, verb: str, folder: str, number: int) -> Cost:
    """The cost of a plan for all tasks: journaled and carried out."""
    tasks = [task for task in store.scan() if isinstance(task, Task)][-number:]
    return measured(plan_for(store, tasks, verb, folder))


def _batches(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _compare_acts(what: str, costs: dict[str, list[Cost]], floor: str, limit: float) -> Figures:
    walls = [cost.wall for cost in costs["ours"]], [cost.wall for cost in costs["bare"]]
    yield compare(what, "ms wall", walls, floor, limit)
    yield Figure("the same, our process alone", median(x.cpu for x in costs["ours"]), "ms CPU")


def postfix_hold(bench: Bench) -> Figures:
    """Hold of many messages by a plan, beside the same programs with the same ids."""
    number = 600 if bench.quick else 3_000
    with _postfix(bench, number) as postfix, scratch() as folder:
        ids = sorted(postfix.listed())

        def ours() -> Cost:
            with closing(postfix.store()) as store:
                return _by_plan(store, "hold", folder, number)

        def bare() -> None:
            for some in _batches(ids, postfix_server.IDS_PER_ACT):
                seen = postfix.run("postcat", "-eq", *some)
                assert seen.returncode == 0, seen.stderr
                text = "".join(f"{ident}\n" for ident in some)
                postfix.run("postsuper", "-h", "-", "deferred", stdin=text)

        def released(way: Callable[[], Cost]) -> Cost:
            cost = way()
            assert {*postfix.listed().values()} == {"hold"}
            postfix.run("postsuper", "-H", "ALL")
            return cost

        ways = {"ours": partial(released, ours)}
        ways |= {"bare": partial(released, partial(measured, bare))}
        costs = interleave(ways, bench.rounds)
        floor = f"postcat, postsuper by {postfix_server.IDS_PER_ACT}"
        yield from _compare_acts(f"hold {number:,} by a plan", costs, floor, 1.5)


# ---- Exim


@contextmanager
def _exim(bench: Bench) -> Iterator[EximServer]:
    """A real Exim with an empty queue."""
    with scratch() as folder, ExitStack() as stack:
        try:
            with bench.outside_budget(FILL_SECONDS):
                exim = stack.enter_context(running_overlay(Path(folder)))
        except (pytest.skip.Exception, pytest.fail.Exception) as error:
            raise Unmeasurable(str(error)) from None
        yield exim


def exim_acts(bench: Bench) -> Figures:
    """Hold and purge of many messages by a plan, beside the same calls of Exim."""
    number = 200 if bench.quick else 1_000
    with _exim(bench) as exim, scratch() as folder:
        with bench.outside_budget(FILL_SECONDS):
            ids = exim.submit(number=number)
        config = Config()._replace(via={"jail": exim.prefix})
        setup = setup_for(config, f"exim://jail{SPOOL}", {})._replace(state_folder=folder)

        def ours(verb: str) -> Cost:
            with closing(setup.open_store()) as store:
                return _by_plan(store, verb, folder, number)

        def freeze() -> None:
            for some in _batches(ids, exim_server.IDS_PER_ACT):
                exim.run("-bpru", *some)
                exim.run("-Mf", *some)

        def move() -> None:
            for some in _batches(ids, exim_server.IDS_PER_ACT):
                exim.run("-bpru", *some)
                exim.run("-MG", TRASH, *some)
                exim.run("-bpru", f"-qG{TRASH}", *some)

        def undone(way: Callable[[], Cost], *undo: str) -> Cost:
            cost = way()
            for some in _batches(ids, 500):
                exim.run(*undo, *some)
            assert len(exim.ids()) == number
            return cost

        for verb, what, bare, undo in (
            ("hold", "-Mf, -bpru", freeze, ("-Mt",)),
            ("purge", "-MG, 2 x -bpru", move, (f"-qG{TRASH}", "-MG", "")),
        ):
            ways = {
                "ours": partial(undone, partial(ours, verb), *undo),
                "bare": partial(undone, partial(measured, bare), *undo),
            }
            costs = interleave(ways, bench.rounds)
            floor = f"{what} by {exim_server.IDS_PER_ACT}"
            yield from _compare_acts(f"{verb} {number:,} by a plan", costs, floor, 1.3)


# ---- the console

NOTES_CALLS = """#!/bin/sh
began=$(date +%s.%N)
case " $* " in
*"postqueue "*" -j "*)
    "$@" | {
        IFS= read -r line
        date +%s.%N >>"$0.first"
        printf '%s\\n' "$line"
        cat
    } ;;
*) "$@" ;;
esac
status=$?
printf '%s %s %s\\n' "$began" "$(date +%s.%N)" "$*" >>"$0.calls"
exit $status
"""
"""A prefix that notes when a listing printed its first line, and when each call began and ended."""


class NotedCalls:
    """A configuration with a prefix that notes its calls."""

    def __init__(self, folder: str, prefix: Sequence[str] = ()) -> None:
        """Calls are run with `prefix`."""
        self._script, self.config = f"{folder}/noted", f"{folder}/config.yaml"
        Path(self._script).write_text(NOTES_CALLS)
        os.chmod(self._script, 0o755)
        words = ", ".join(map(json.dumps, (self._script, *prefix)))
        Path(self.config).write_text(f"via: {{noted: [{words}]}}\nvia_quoting: {{noted: 0}}\n")
        os.chmod(folder, 0o755)

    def first_lines(self) -> list[float]:
        """When listings printed their first line, epoch seconds."""
        return [float(line) for line in Path(f"{self._script}.first").read_text().split()]

    def clear(self) -> None:
        """Forget the calls."""
        for kind in ("first", "calls"):
            Path(f"{self._script}.{kind}").write_text("")

    def share(self, option: str, seconds: float) -> float:
        """Percent of the time from the first call to the last in which one with an option ran."""
        lines = Path(f"{self._script}.calls").read_text().splitlines()
        calls = [line.split() for line in lines]
        times = [(float(began), float(end)) for began, end, *words in calls if option in words]
        if len(times) > 2:
            seconds = times.pop()[0] - times[0][0]
        return 100 * sum(end - began for began, end in times) / seconds


@contextmanager
def _console(place: str, config: str = "") -> Iterator[Screen]:
    """The console on a place; what root keeps of it is removed."""
    words = ["--config", config] if config else []
    try:
        with running(console(*words, "--open", "queue", place)) as screen:
            yield screen
    finally:
        shutil.rmtree(places_folder(Address(place), {}, 0), ignore_errors=True)


def mail_keys(bench: Bench) -> Figures:
    """First rows, and processor time of a key, at a real Postfix with a long queue."""
    number = 5_000 if bench.quick else 50_000
    with _postfix(bench, number) as postfix, scratch() as folder:
        noted, waits = NotedCalls(folder), []
        for _ in range(bench.rounds):
            noted.clear()
            with _console(f"postfix://noted{postfix.config}", noted.config) as screen:
                screen.until(FIRST_FRAME)
                painted = time.time()
                screen.until(FIRST_ROWS)
                began = max(painted, noted.first_lines()[0])
                waits.append(1000 * (time.time() - began))
        yield Figure("first rows after first line and first frame", median(waits), "ms wall", 250.0)
        with _console(str(postfix.config)) as screen:
            screen.until(FIRST_ROWS)
            busy = list[float]()
            for _ in range(15):
                before = screen.spent()
                screen.send("j")
                screen.watch(0.1)
                busy.append(screen.spent().since(before).main)
            yield Figure("a key while they are listed, UI", median(busy), "ms CPU", 3.0)
            screen.idle(seconds=60.0)
            cost = median(screen.key("j").all for _ in range(15))
            yield Figure(f"a key in a list of {number:,}", cost, "ms CPU", 3.0)
            yield Figure("memory", screen.rest_mib, "MiB")


def mail_load(bench: Bench) -> Figures:
    """What an idle console costs the mail server: time of listings, lines in the mail log."""
    number, seconds = (2_000, 30.0) if bench.quick else (20_000, LOAD_SECONDS)
    with _postfix(bench, number) as postfix, scratch() as folder:
        noted, place = NotedCalls(folder), f"postfix://noted{postfix.config}"
        with bench.outside_budget(FILL_SECONDS), _console(place, noted.config) as screen:
            _settle(screen)
            noted.clear()
            before, began = len(postfix.log().splitlines()), time.monotonic()
            screen.watch(seconds)
            passed = time.monotonic() - began
            share, looks = noted.share("-j", passed), noted.share("-eq", passed)
            lines = len(postfix.log().splitlines()) - before
        yield Figure(f"Postfix, {number:,}: share of listings", share, "% wall", 5.0)
        yield Figure("Postfix: share of looks while accounts are read", looks, "% wall", 6.0)
        yield Figure(f"Postfix: lines in its log in {seconds:.0f} s", lines, "lines", 0.0)
    with _exim(bench) as exim, scratch() as folder:
        for more, limit in (("", 0.0), ("log_selector = +arguments", 1.0)):
            with bench.outside_budget(FILL_SECONDS):
                if not more:
                    exim.submit(number=number // 10)
                exim.configure(more)
                noted = NotedCalls(folder, exim.prefix)
                with _console(f"exim://noted{SPOOL}", noted.config) as screen:
                    _settle(screen)
                    noted.clear()
                    before, began = len(exim.log_lines()), time.monotonic()
                    screen.watch(2 * seconds if limit else seconds)
                    passed = time.monotonic() - began
                    lines, share = len(exim.log_lines()) - before, noted.share("-bpru", passed)
            name = f"Exim{' with +arguments' if more else ''}"
            yield Figure(f"{name}: share of listings", share, "% wall", 5.0)
            yield Figure(f"{name}: lines a minute", lines / passed * 60, "lines", limit)


def _settle(screen: Screen) -> None:
    """Wait until the first scan has ended."""
    screen.until(FIRST_ROWS)
    screen.idle(seconds=60.0)
