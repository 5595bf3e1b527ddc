"""What must hold once a command has ended, in whatever way, and the next worker has recovered.

Everything is read from the disk again, by no part of a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.files import Refused
from engine.stores.nftban import form
from tests.crash.verbs import (
    COUNTERS,
    FOLDERS,
    NEW,
    NOWHERE,
    STRANGE,
    STRANGER,
    Scenario,
    Stand,
    added_at,
    name_of,
)
from tests.crash.wrapper import RAN

CODES = {0, 1, 2, 3, 64, 69, 74, 77, 78}
"""The contract's, and those of sysexits.h that the command documents."""

AT_HOME = {".lock", "held", "trash", "twice", "corrupt", "exclusive", "next-due"}
AT_HOME |= {"journal", "swept", "swept-mail", "queued-mail"}
"""What may lie on the desk with nothing under way."""

METRICS = (
    *("tasks_pending", "tasks_working", "tasks_dlq", "oldest_pending_age_seconds"),
    *("tasks_processed_total", "tasks_failed_total", "task_retries_total", "dlq_total"),
    "last_run_timestamp",
)


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int | None
    """Its exit code; None when a signal ended it."""
    signal: int = 0
    out: str = ""
    err: str = ""


def of_the_command(scenario: Scenario, ended: Ended, faulted: bool) -> Iterator[str]:
    """What is wrong with how a command ended that was not killed by us."""
    if ended.signal:
        yield f"hung or crashed: signal {ended.signal}"
        return
    if ended.code not in CODES:
        yield f"exit code {ended.code}, which no manual knows: {ended.err[-200:]!r}"
    if "Traceback" in ended.err or "Exception ignored" in ended.err:
        yield f"traceback: {ended.err[-300:]!r}"
    if not faulted and ended.code != scenario.code:
        yield f"exit code {ended.code}, expected {scenario.code}: {ended.err!r}"


def of_the_place(scenario: Scenario, root: Path, now: float, ended: Ended) -> Iterator[str]:
    """What is wrong with a place that was recovered after `ended`, which began at `now`."""
    there = _tasks(root)
    fates = {added_at(now) if name == NEW else name: f for name, f in scenario.fates.items()}
    ran = _ran(root)
    for ident, fate in fates.items():
        stands = there.pop(ident, [])
        yield from _of_a_task(ident, fate.start, stands)
        stand = stands[0] if stands else NOWHERE
        allowed = fate.may
        if ended.code is not None:
            allowed = fate.said.get(ended.code, fate.may)
        if ident in ended.out and fate.end is not None:
            allowed = frozenset({fate.end})
        if stand not in allowed:
            right = " or ".join(f"{s.word}/{s.attempts}" for s in sorted(allowed))
            said = "it was killed" if ended.code is None else f"exit code {ended.code}"
            yield f"{ident} stands at {stand.word}/{stand.attempts} after {said}, not {right}"
        if ran[ident] > 1:
            yield f"{ident} ran {ran[ident]} times in one run"
        if ran[ident] and scenario.ran and stand == fate.start:
            yield f"{ident} ran, and its attempt was not counted"
    if ended.code == scenario.code and ran.total() != scenario.ran:
        yield f"handlers ran {ran.total()} times before exit code {ended.code}, not {scenario.ran}"
    for ident, stands in there.items():
        yield f"{ident} stands at {stands}, and nobody put it there"
    if scenario.strange:
        yield from _of_the_strange(root)
    yield from _of_the_desk(root)
    yield from _of_numbers(root, scenario.counted)
    yield from _of_the_tokens(root, ran.total())


def _tasks(root: Path) -> dict[str, list[Stand]]:
    """Where each id stands; a file that is no whole task has no attempts but -1."""
    found: dict[str, list[Stand]] = {}
    for word, folder in FOLDERS.items():
        place = root / "queue" / folder
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            if path.name != STRANGER:
                ident = path.name.removesuffix(".task")
                found.setdefault(ident, []).append(_stand(path, ident, word))
    aside = root / "queue/.spooldeck/corrupt"
    for path in sorted(aside.iterdir()) if aside.is_dir() else ():
        if path.read_bytes() != STRANGE and path.suffix != ".why":
            # Under another name, but the file says itself whose it is.
            ident = path.read_text().split('"')[1]
            found.setdefault(ident, []).append(_stand(path, ident, "corrupt"))
    return found


def _stand(path: Path, ident: str, word: str) -> Stand:
    try:
        record = form.parse(path.read_bytes(), ident)
    except Refused:
        return Stand(word, -1)
    whole = record.description == f"the work of {name_of(ident)}"
    payload = not record.payload or Path(record.payload).exists()
    return Stand(word, record.retries if whole and payload else -1)


def _of_a_task(ident: str, start: Stand, stands: list[Stand]) -> Iterator[str]:
    if len(stands) > 1:
        yield f"{ident} stands in {' and '.join(stand.word for stand in stands)}"
    for stand in stands:
        if stand.attempts < 0:
            yield f"{ident} in {stand.word} is not whole"


def _ran(root: Path) -> Counter[str]:
    path = root.parent / RAN
    return Counter(path.read_text().split() if path.exists() else ())


def _of_the_strange(root: Path) -> Iterator[str]:
    files = (path for path in (root / "queue").rglob("*") if path.is_file())
    copies = [path for path in files if path.read_bytes() == STRANGE]
    if len(copies) != 1:
        yield f"what is no task is there {len(copies)} times: {copies}"


def _of_the_desk(root: Path) -> Iterator[str]:
    desk = root / "queue/.spooldeck"
    if not desk.is_dir():
        return
    left = {path.name for path in desk.iterdir()} - AT_HOME
    # A draft of a hint: written anew by the next who looks, believed by nobody under this name.
    left = {name for name in left if not name.startswith("next-due.")}
    twice = desk / "twice"
    left |= {f"twice/{path.name}" for path in (twice.iterdir() if twice.is_dir() else ())}
    if left:
        yield f"left on the desk: {', '.join(sorted(left))}"
    if (root / "run/queue.lock").exists():
        yield "the lock was not released"


def _of_numbers(root: Path, counted: int) -> Iterator[str]:
    for name in COUNTERS:
        path = root / "metrics/counters" / name
        text = path.read_text() if path.exists() else "0"
        # Made and not yet written to, it says nothing, which counts as 0.
        if not (text or "0").strip().isdigit() or not 0 <= int(text or 0) - counted <= 1:
            yield f"counter {name} says {text!r} and said {counted}"
    path = root / "metrics/queue.prom"
    if path.exists():
        yield from _of_metrics(path.read_text())


def _of_the_tokens(root: Path, ran: int) -> Iterator[str]:
    path = root / "run/queue.buckets"
    if not (root / "slow.yaml").exists():
        return
    name, units, stamp = path.read_text().rstrip("\n").split(" ")
    left = int(units) // 3600
    if name or not stamp.isdigit() or left not in (4, 5) or (ran and left != 4):
        yield f"{left} tokens are left of 5 after {ran} runs: {path.read_text()!r}"


def _of_metrics(text: str) -> Iterator[str]:
    lines = [line.split(" ") for line in text.split("\n") if line and not line.startswith("#")]
    said: Mapping[str, str] = {line[0]: line[-1] for line in lines}
    wanted = {f"nftban_queue_{name}" for name in METRICS}
    if set(said) != wanted or not all(value.isdigit() for value in said.values()):
        yield f"queue.prom is not whole: {text!r}"
