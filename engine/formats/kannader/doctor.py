"""`doctor` for a Kannader spool: what stops mail, and the command that repairs each problem."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from engine.doctor.finding import Finding, bad, count_are, hidden, list_first, ok, run_checks, warn
from engine.doctor.store_checks import OVERDUE_SECONDS, check_overdue, list_problems
from engine.formats.base.format import Setup
from engine.formats.kannader.facts import describe_orphans
from engine.formats.kannader.settings import destination
from engine.formats.kannader.store import KannaderStore
from engine.mail.send import smtp_client
from engine.model import Problem, State, Task
from engine.store import StoreError, Unavailable
from engine.text.figures import format_count
from engine.text.times import format_rough_duration

MAX_SHOWN = 10
"""Maximum findings of one kind that are printed."""


def check_spool(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check a spool; yields the name of each check and a finding. Changes nothing."""
    return run_checks(_checks(setup))


def _checks(setup: Setup) -> Iterator[tuple[str, Iterable[Finding]]]:
    try:
        store = setup.open_store()
    except Unavailable as error:
        yield "server", [_server(setup, ())]
        yield "spool", [bad(str(error), _command(setup, "kannader", "init"))]
        return
    assert isinstance(store, KannaderStore)
    with closing(store):
        yield "server", [_server(setup, store.kannaders)]
        yield "rights", _rights(store)
        yield "exclusive", _exclusive(store)
        try:
            items = list(store.scan(store.states.values()))
            # A full scan starts with a peek, so a problem may be reported twice.
            problems = {item.where: item for item in store.scan() if isinstance(item, Problem)}
            mended = store.recover(dry=True)
        except (StoreError, OSError) as error:
            yield "mails", [hidden(f"cannot read the spool: {error}")]
            return
        tasks = [item for item in items if isinstance(item, Task)]
        yield "mails", [_mails(setup, tasks)]
        yield "inflight", _inflight(setup, store, tasks)
        yield "damage", _damage(setup, [*problems.values()], mended)


def _server(setup: Setup, kannaders: Sequence[int]) -> Finding:
    """Check that our worker could send, if no Kannader does."""
    settings = setup.settings
    why = settings.work_refusal or smtp_client.describe_obstacle(destination(settings))
    if why and kannaders:
        return ok(f"Kannader sends from here; spooldeck's worker could not: {why}")
    if why:
        fix = "set stores.kannader.host in the configuration, or start Kannader"
        return warn(f"spooldeck's worker cannot send from here: {why}", fix)
    return ok(f"mail goes to {settings.host}, port {settings.port}")


def _rights(store: KannaderStore) -> Iterator[Finding]:
    refused = store.edges[State.PENDING, State.HELD].refusal
    fix = "use the account of the spool's owner"
    yield warn(refused, fix) if refused else ok("read and write allowed")


def _exclusive(store: KannaderStore) -> Iterator[Finding]:
    pids = ", ".join(map(str, store.kannaders))
    late = "it sees mail released, added or made due only after its next start"
    running = f"Kannader is running (PID {pids}): {late}"
    yield ok(running if pids else "no Kannader is running here (as far as visible)")


def _mails(setup: Setup, tasks: Sequence[Task]) -> Finding:
    limit = time.time() - OVERDUE_SECONDS
    overdue = [t.due for t in tasks if t.state is State.PENDING and t.due and t.due < limit]
    return check_overdue(overdue, "mail", "sends", _command(setup, "kannader", "work"))


def _inflight(setup: Setup, store: KannaderStore, tasks: Sequence[Task]) -> Iterator[Finding]:
    now = time.time()
    active = [task.lease.since for task in tasks if task.lease is not None]
    lapsed = [t for t in tasks if t.lease is not None and (t.lease.until or now) <= now]
    if lapsed:
        were, whose = ("was", "its") if len(lapsed) == 1 else ("were", "their")
        mails = f"{format_count(len(lapsed), 'mail')} {were}"
        what = f"{mails} being sent when {whose} sender ended, and may have arrived"
        yield warn(what, _command(setup, "kannader", "recover", "--dry-run"))
        return
    orphan_texts, _ = describe_orphans(setup, store)
    release = _command(setup, "release", "--state", "inflight", "--dry-run")
    yield from (warn(words, release) for words in orphan_texts)
    if active and not orphan_texts:
        age = format_rough_duration(now - min(active))
        yield ok(f"{count_are(len(active), 'mail')} being sent, the longest for {age}")
    elif not active:
        yield ok("nothing is being sent")


def _damage(setup: Setup, problems: Sequence[Problem], mended: Sequence[str]) -> Iterator[Finding]:
    recover = _command(setup, "kannader", "recover", "--dry-run")
    yield from list_problems(problems, partial(_repair_commands, setup), MAX_SHOWN)
    yield from list_first(
        mended, lambda step: warn(f"recovery would: {step}", recover), "more", recover, MAX_SHOWN
    )
    if not problems and not mended:
        yield ok("no damage, no interrupted moves")


_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "adopt it (it is sent) or discard it": ("adopt", "discard"),
    "repair makes it due now": ("repair",),
    "put it back, or discard it": ("put-back", "discard"),
    "discard it, or put it back once": ("discard",),
}
"""The controls that repair a problem, by a part of its text."""


def _repair_commands(setup: Setup, problem: Problem) -> str:
    """The commands that repair a problem; "" if no control does."""
    words = next((names for sign, names in _ANSWERS.items() if sign in problem.what), ())
    return ", or: ".join(
        _command(setup, "control", name, "--target", problem.where, "--apply", "1")
        for name in words
    )


def _command(setup: Setup, *words: str) -> str:
    return shlex.join(["spooldeck", "--root", os.path.abspath(setup.place), *words])
