"""What becomes of mail when a transport is suspended, or resumed, in words."""

from __future__ import annotations

from collections.abc import Mapping

from engine.monitor.transport_health import Routes, Stopped, Use
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line, Run

TASKS_WAIT = "its tasks stay where they are, and no attempt of theirs is counted"
OWN_PROGRAM = "mail_send tasks run the configured program, which picks its transport itself"
GIVEN = (
    "what `mail send-with-retry` is given is kept in the mail spool and queued; `mail send`, "
    "which tries but once, fails"
)
"""What becomes of mail that no transport takes."""


def waits(delivers: bool) -> str:
    """The same in whole; `delivers`: whether its tasks are sent by these transports."""
    tasks = f"{TASKS_WAIT}; " if delivers else ""
    return f"{_mail(delivers)} waits: {tasks}{GIVEN}"


def _mail(delivers: bool) -> str:
    """The mail that a suspension concerns."""
    return "mail" if delivers else "mail that spooldeck sends"


def result(name: str, routes: Routes | None, delivers: bool) -> str:
    """What was done to a transport, and by which way mail goes now."""
    by = f"goes by {shown(routes.selected)}" if routes and routes.selected else "waits"
    done = "suspended" if routes and name in routes.stopped else "resumed"
    return f"{shown(name)} is {done}: {_mail(delivers)} {by}"


def changed(routes: Routes, name: str, stop: Stopped | None) -> Mapping[str, Stopped]:
    """What is suspended after that one is, or after it is resumed."""
    rest = {other: each for other, each in routes.stopped.items() if other != name}
    return rest if stop is None else {**rest, name: stop}


def becomes(name: str, before: Routes, after: Routes, delivers: bool = True) -> str:
    """By which way mail goes once it is done; `delivers`: whether its tasks do, too."""
    if name in before.stopped:
        return _resumed(name, before, after, delivers)
    chosen = shown(after.selected)
    if not chosen:
        if before.use(name) in (Use.ABSENT, Use.BARRED) or not before.selected:
            return f"no transport can be used, now and then: {waits(delivers)}"
        if after.forced:
            forced = shown(after.forced)
            alone = f"the configuration forces {forced} (mail.method)"
            return f"{alone} and no other, so {waits(delivers)}"
        return f"there is no other that can be used, so {waits(delivers)}"
    if before.selected == name:
        return f"{_mail(delivers)} goes by {chosen} meanwhile, the next that can be used"
    by = f"{_mail(delivers)} goes by {chosen}, as it does now"
    return f"{by}; {shown(name)} would not take over from it"


def _resumed(name: str, before: Routes, after: Routes, delivers: bool) -> str:
    if after.selected == name:
        waited = "" if before.selected else "; what waits is sent by the next runs of the queue"
        return f"{_mail(delivers)} goes by it again{waited}"
    if after.selected:
        by = f"{_mail(delivers)} goes by {shown(after.selected)}"
        return f"{by}, as it does now, which comes first"
    why = after.why_not.get(name, "")
    said = f" ({shown(why)})" if why else ""
    return f"no transport can be used even then{said}: {waits(delivers)}"


def plan(
    name: str,
    before: Routes,
    after: Routes | None,
    delivers: bool,
    waiting: int | None,
    now: float,
    width: int,
) -> list[Line]:
    """What would happen; `waiting` tasks are there that send mail, None while not counted.

    `delivers`: whether these are sent by the transports, and not by a program of their own.
    """
    room = max(8, width - 3)
    stop = before.stopped.get(name)
    lines: list[Line] = [present.heading("what would happen", width)]
    sends = "nothing is sent" if delivers else "spooldeck sends nothing"
    what = f"{sends} by it until an operator resumes it: S again, or `mail resume`"
    if stop is not None:
        what = "it is used again wherever its turn comes"
    said: list[Run] = [(f"{shown(name)}: {what}.", "strong")]
    if after is None:
        said.append(("By which way mail goes then is being looked at ...", "dim"))
    else:
        words = becomes(name, before, after, delivers)
        look = "" if after.selected else "warning"
        said.append((words[0].upper() + words[1:] + ".", look))
        if not delivers:
            said.append((f"{OWN_PROGRAM}.", ""))
    if waiting:
        many = f"{waiting:,} tasks that send mail are"
        said.append((f"{'1 task that sends mail is' if waiting == 1 else many} pending now.", ""))
    for text, look in said:
        lines += [((f"  {piece}", look),) for piece in present.folded(text, room)]
    if stop is not None:
        lines += [BLANK, present.heading("as it is", width)]
        text = stopped_words(stop, now)
        lines += [((f"  {piece}", "warning"),) for piece in present.folded(text, room)]
    return lines


def stopped_words(stop: Stopped, now: float) -> str:
    """By whom, since when and why."""
    why = f": {shown(stop.why)}" if stop.why else ", no reason given"
    return f"suspended by {shown(stop.who)} since {present.moment(stop.since, now)}{why}"


def others(name: str, routes: Routes, width: int) -> list[Line]:
    """Every other transport: whether it is used now, and why not."""
    lines: list[Line] = [present.heading("the others, in their order", width)]
    for other in routes.order:
        if other == name:
            continue
        use = routes.use(other)
        why = routes.why_not.get(other, "") if use in (Use.ABSENT, Use.SUSPENDED) else ""
        why = f"{routes.forced} is forced" if use is Use.BARRED else why
        row = f"  {present.fit(shown(other), 9)} {present.fit(use.value, 9)} {shown(why)}"
        lines.append(present.cut(((row.rstrip(), ""),), width))
    return lines
