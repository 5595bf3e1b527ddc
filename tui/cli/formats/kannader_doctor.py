"""`doctor` for a Kannader spool: what keeps mail from going, each reason with what mends it."""

from __future__ import annotations

import os
import shlex
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from engine.doctor.finding import Finding, Grade, line, needs_act
from engine.mail.send import smtp_client
from engine.model import Problem, State, Task
from engine.policy import HOUR, at, lasting
from engine.store import StoreError, Unavailable
from engine.stores import detect
from engine.stores.kannader import KannaderStore
from tui.cli.formats.kannader import destination, left_behind
from tui.cli.setup.setup import Setup

WELL, ATTENTION = 0, 1

LATE = HOUR
"""Seconds for which a mail may be due before somebody should look why nobody sends it."""

SHOWN = 10
"""Things of one sort that are told one by one."""


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Look, and say what was found; exit 0 when nobody has to act, else 1. Changes nothing."""
    findings = []
    for name, finding in _examined(setup):
        print("\n".join(line(name, finding)))
        findings.append(finding)
    return ATTENTION if needs_act(findings) else WELL


def _examined(setup: Setup) -> Iterator[tuple[str, Finding]]:
    try:
        store = setup.store()
    except Unavailable as error:
        yield "server", _server(setup, ())
        yield "spool", Finding(Grade.BAD, str(error), _command(setup, "kannader", "init"))
        return
    assert isinstance(store, KannaderStore)
    with closing(store):
        yield "server", _server(setup, store.kannaders)
        yield "rights", _rights(store)
        yield "beside", _beside(store)
        try:
            items = list(store.look(store.states.values()))
            # A whole look begins with a peek: what is wrong there is said twice.
            found = {item.where: item for item in store.look() if isinstance(item, Problem)}
            problems = list(found.values())
            mended = store.recover(dry=True)
        except (StoreError, OSError) as error:
            yield "mails", Finding(Grade.HIDDEN, f"the spool cannot be looked at: {error}")
            return
        tasks = [item for item in items if isinstance(item, Task)]
        yield "mails", _mails(setup, tasks)
        yield from (("inflight", finding) for finding in _inflight(setup, store, tasks))
        yield from (("damage", finding) for finding in _damage(setup, problems, mended))


def _server(setup: Setup, kannaders: Sequence[int]) -> Finding:
    """Whether our own worker could hand mail to somebody, where nobody else does."""
    if setup.site is None or setup.site.name != detect.KANNADER:
        return Finding(Grade.BAD, f"{setup.place} is no Kannader spool")
    settings = setup.site.settings
    why = settings.unworkable or smtp_client.unusable(destination(settings))
    if why and kannaders:
        return Finding(Grade.OK, f"Kannader sends from here; our own worker could not: {why}")
    if why:
        mend = "set stores.kannader.host in the configuration, or let Kannader itself send"
        return Finding(Grade.WARN, f"our worker cannot send from here: {why}", mend)
    return Finding(Grade.OK, f"mail goes to {settings.host}, port {settings.port}")


def _rights(store: KannaderStore) -> Finding:
    refused = store.edges[State.PENDING, State.HELD].refused
    if refused:
        return Finding(Grade.WARN, refused, "use the account that the spool belongs to")
    return Finding(Grade.OK, "we may look and change")


def _beside(store: KannaderStore) -> Finding:
    if not store.kannaders:
        return Finding(Grade.OK, "no Kannader is at work here, as far as we may see")
    pids = ", ".join(map(str, store.kannaders))
    return Finding(
        Grade.OK,
        f"Kannader is at work here (PID {pids}): it sees what is released, enqueued or due anew at "
        "its next start only",
    )


def _mails(setup: Setup, tasks: Sequence[Task]) -> Finding:
    now = time.time()
    late = [t for t in tasks if t.state is State.PENDING and (t.due or now) < now - LATE]
    if not late:
        return Finding(Grade.OK, "no mail is overdue")
    first = min(task.due or now for task in late)
    what = f"{_mails_are(len(late))} overdue, the first since {at(first)}: nobody sends "
    what += "it" if len(late) == 1 else "them"
    return Finding(Grade.WARN, what, _command(setup, "kannader", "work"))


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
    left = left_behind(setup, store)
    release = _command(setup, "release", "--state", "inflight", "--dry-run")
    yield from (Finding(Grade.WARN, words, release) for words in left)
    if active and not left:
        age = lasting(now - min(active))
        yield Finding(Grade.OK, f"{_mails_are(len(active))} being sent, the longest for {age}")
    elif not active:
        yield Finding(Grade.OK, "nothing is being sent")


def _mails_are(number: int) -> str:
    return "1 mail is" if number == 1 else f"{number:,} mails are"


def _damage(setup: Setup, problems: Sequence[Problem], mended: Sequence[str]) -> Iterator[Finding]:
    recover = _command(setup, "kannader", "recover", "--dry-run")
    for problem in problems[:SHOWN]:
        yield Finding(Grade.BAD, f"{problem.where}: {problem.what}", _mend(setup, problem))
    if len(problems) > SHOWN:
        yield Finding(Grade.BAD, f"and {len(problems) - SHOWN:,} more")
    for said in mended[:SHOWN]:
        yield Finding(Grade.WARN, f"recovery would: {said}", recover)
    if len(mended) > SHOWN:
        yield Finding(Grade.WARN, f"and {len(mended) - SHOWN:,} more", recover)
    if not problems and not mended:
        yield Finding(Grade.OK, "nothing is damaged, and nothing was left half done")


_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "adopt it, and it is sent, or discard it": ("adopt", "discard"),
    "repaired, it is due at once": ("repair",),
    "put it back, or discard it": ("put-back", "discard"),
    "discard it, or put it back once": ("discard",),
}
"""By what a problem says can be done about it: the controls that do it, or one of which does."""


def _mend(setup: Setup, problem: Problem) -> str:
    """The command for each of the answers to a problem; "" where none of them is a control's."""
    words = next((names for sign, names in _ANSWERS.items() if sign in problem.what), ())
    return ", or: ".join(
        _command(setup, "control", name, "--target", problem.where, "--apply", "1")
        for name in words
    )


def _command(setup: Setup, *words: str) -> str:
    return shlex.join(["spooldeck", "--root", os.path.abspath(setup.place), *words])
