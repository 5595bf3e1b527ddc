"""`doctor` for a Kannader spool: what stops mail, and the command that repairs each problem."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from engine.doctor.finding import Finding, Grade
from engine.doctor.store_checks import OVERDUE_SECONDS, check_overdue, list_problems
from engine.formats.base.format import Setup
from engine.formats.kannader.facts import describe_orphans
from engine.formats.kannader.settings import destination
from engine.formats.kannader.store import KannaderStore
from engine.mail.send import smtp_client
from engine.model import Problem, State, Task
from engine.store import StoreError, Unavailable
from engine.text.times import format_rough_duration

MAX_SHOWN = 10
"""Maximum findings of one kind that are printed."""


def check_spool(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check a spool; yields the name of each check and a finding. Changes nothing."""
    try:
        store = setup.open_store()
    except Unavailable as error:
        yield "server", _server(setup, ())
        yield "spool", Finding(Grade.BAD, str(error), _command(setup, "kannader", "init"))
        return
    assert isinstance(store, KannaderStore)
    with closing(store):
        yield "server", _server(setup, store.kannaders)
        yield "rights", _rights(store)
        yield "exclusive", _exclusive(store)
        try:
            items = list(store.scan(store.states.values()))
            # A full scan starts with a peek, so a problem may be reported twice.
            problem_by_path = {
                item.where: item for item in store.scan() if isinstance(item, Problem)
            }
            problems = list(problem_by_path.values())
            mended = store.recover(dry=True)
        except (StoreError, OSError) as error:
            yield "mails", Finding(Grade.HIDDEN, f"cannot read the spool: {error}")
            return
        tasks = [item for item in items if isinstance(item, Task)]
        yield "mails", _mails(setup, tasks)
        yield from (("inflight", finding) for finding in _inflight(setup, store, tasks))
        yield from (("damage", finding) for finding in _damage(setup, problems, mended))


def _server(setup: Setup, kannaders: Sequence[int]) -> Finding:
    """Check that our worker could send, if no Kannader does."""
    settings = setup.settings
    why = settings.work_refusal or smtp_client.describe_obstacle(destination(settings))
    if why and kannaders:
        return Finding(Grade.OK, f"Kannader sends from here; spooldeck's worker could not: {why}")
    if why:
        fix = "set stores.kannader.host in the configuration, or start Kannader"
        return Finding(Grade.WARN, f"spooldeck's worker cannot send from here: {why}", fix)
    return Finding(Grade.OK, f"mail goes to {settings.host}, port {settings.port}")


def _rights(store: KannaderStore) -> Finding:
    refused = store.edges[State.PENDING, State.HELD].refusal
    if refused:
        return Finding(Grade.WARN, refused, "use the account of the spool's owner")
    return Finding(Grade.OK, "read and write allowed")


def _exclusive(store: KannaderStore) -> Finding:
    if not store.kannaders:
        return Finding(Grade.OK, "no Kannader is running here (as far as visible)")
    pids = ", ".join(map(str, store.kannaders))
    return Finding(
        Grade.OK,
        f"Kannader is running (PID {pids}): it sees mail released, added or made due only after "
        "its next start",
    )


def _mails(setup: Setup, tasks: Sequence[Task]) -> Finding:
    limit = time.time() - OVERDUE_SECONDS
    overdue = [t.due for t in tasks if t.state is State.PENDING and t.due and t.due < limit]
    return check_overdue(overdue, "mail", "sends", _command(setup, "kannader", "work"))


def _inflight(setup: Setup, store: KannaderStore, tasks: Sequence[Task]) -> Iterator[Finding]:
    now = time.time()
    active = [task.lease.since for task in tasks if task.lease is not None]
    lapsed = [t for t in tasks if t.lease is not None and (t.lease.until or now) <= now]
    if lapsed:
        mails = "1 mail was" if len(lapsed) == 1 else f"{len(lapsed):,} mails were"
        whose = "its" if len(lapsed) == 1 else "their"
        what = f"{mails} being sent when {whose} sender ended, and may have arrived"
        yield Finding(Grade.WARN, what, _command(setup, "kannader", "recover", "--dry-run"))
        return
    orphan_texts, _ = describe_orphans(setup, store)
    release = _command(setup, "release", "--state", "inflight", "--dry-run")
    yield from (Finding(Grade.WARN, words, release) for words in orphan_texts)
    if active and not orphan_texts:
        age = format_rough_duration(now - min(active))
        yield Finding(Grade.OK, f"{_mails_are(len(active))} being sent, the longest for {age}")
    elif not active:
        yield Finding(Grade.OK, "nothing is being sent")


def _mails_are(number: int) -> str:
    return "1 mail is" if number == 1 else f"{number:,} mails are"


def _damage(setup: Setup, problems: Sequence[Problem], mended: Sequence[str]) -> Iterator[Finding]:
    recover = _command(setup, "kannader", "recover", "--dry-run")
    yield from list_problems(problems, partial(_repair_commands, setup), MAX_SHOWN)
    for step in mended[:MAX_SHOWN]:
        yield Finding(Grade.WARN, f"recovery would: {step}", recover)
    if len(mended) > MAX_SHOWN:
        yield Finding(Grade.WARN, f"and {len(mended) - MAX_SHOWN:,} more", recover)
    if not problems and not mended:
        yield Finding(Grade.OK, "no damage, no interrupted moves")


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
