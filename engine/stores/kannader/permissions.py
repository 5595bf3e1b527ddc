"""What may be done in a spool now: by whose it is, and by whether a Kannader is at work on it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from engine.model import Edge, Edges, State
from engine.store import Control
from engine.stores.kannader import mail_format, running
from engine.stores.kannader.spool import KANNADERS, KannaderSpool
from engine.system.files import Refused

_outcome = frozenset({"attempts", "due", "error"})
_given_up = frozenset({"attempts", "error"})
_edited = frozenset({"due", "destination"})


def _wrong(name: str, value: object, now: float) -> str:
    """Why a recipient is none that an envelope could name."""
    try:
        if name == "destination":
            mail_format.email_of(str(value))
    except Refused as refusal:
        return str(refusal)
    return ""


_CLAIMED = "whoever took it may be sending it still: then it is sent twice"

EDGES: Edges = {
    (None, State.PENDING): Edge(),
    (State.ACTIVE, None): Edge(undoable=False),
    (State.ACTIVE, State.DONE): Edge(_given_up, undoable=False),
    (State.ACTIVE, State.PENDING): Edge(_outcome, warning=_CLAIMED),
    (State.ACTIVE, State.HELD): Edge(_outcome, warning=_CLAIMED),
    (State.PENDING, State.PENDING): Edge(_edited, wrong=_wrong),
    (State.PENDING, State.HELD): Edge(),
    (State.PENDING, State.DONE): Edge(_given_up, undoable=False),
    (State.PENDING, State.TRASH): Edge(),
    (State.HELD, State.HELD): Edge(_edited, wrong=_wrong),
    (State.HELD, State.PENDING): Edge(frozenset({"due"})),
    (State.HELD, State.TRASH): Edge(),
    (State.TRASH, State.PENDING): Edge(),
    (State.TRASH, State.HELD): Edge(),
    (State.TRASH, None): Edge(undoable=False),
    (State.DONE, None): Edge(undoable=False),
}

_LATER = "{} is running and sees this at its next start only"
_OWN_COPY = (
    "{} is running and goes by its own copy of the schedule until its next start, when it may have "
    "written over this one; another recipient counts from its next attempt on"
)
_IN_HAND = "{} is running and may be sending it: it could be sent twice, or lost to it"

WARNINGS: Mapping[tuple[State | None, State | None], str] = {
    (None, State.PENDING): _LATER,
    (State.HELD, State.PENDING): _LATER,
    (State.TRASH, State.PENDING): _LATER,
    (State.PENDING, State.PENDING): _OWN_COPY,
}
"""What a Kannader that is at work makes of a change (Kannader spool, section 6)."""

CONTROLS: Mapping[str, Control] = {
    "recover": Control(
        "end what was interrupted and mend what can be mended",
        value='"anyway" does not mind a running Kannader',
        choices=(("", "unless a Kannader is running"), ("anyway", "even while one is running")),
        foretells=True,
    ),
    "adopt": Control(
        "send a whole mail that no link leads to", "data/<mail>/<recipient>", foretells=True
    ),
    "discard": Control(
        "delete a mail that no link leads to, or a quarantined link and what only it leads to",
        "data/<mail>[/<recipient>] or .spooldeck/aside/<name>",
        foretells=True,
    ),
    "put-back": Control(
        "move a quarantined link back to its folder", ".spooldeck/aside/<name>", foretells=True
    ),
    "repair": Control(
        "make a mail due now whose schedule cannot be read", "queue/<id>", foretells=True
    ),
}


class Rights(NamedTuple):
    """What may be done at a moment."""

    edges: Edges
    controls: Mapping[str, Control]
    kannaders: tuple[int, ...]
    """PIDs of the Kannaders that are at work there."""


def now(spool: KannaderSpool, *, claiming: bool) -> Rights:
    """What may be done there now; `claiming` is whether whoever asks has claimed mails itself."""
    pids = running.kannaders(tuple(spool.states[state] for state in KANNADERS))
    why, who = no_writing(spool), named(pids)
    if not why and not who:
        return Rights(EDGES, CONTROLS, pids)
    edges = {way: _edge(way, edge, why, who, claiming) for way, edge in EDGES.items()}
    busy = in_hand(pids) if who else ""
    controls = {
        name: control._replace(refused=why or (busy if name == "discard" else ""))
        for name, control in CONTROLS.items()
    }
    return Rights(edges, controls, pids)


def _edge(
    way: tuple[State | None, State | None], edge: Edge, why: str, who: str, claiming: bool
) -> Edge:
    if why or not who:
        return edge._replace(refused=why)
    if way[0] is State.ACTIVE:
        # What this instance has claimed is its own, whoever else is at work.
        words = _IN_HAND.format(who)
        return edge._replace(warning=words) if claiming else edge._replace(refused=words)
    return edge._replace(warning=WARNINGS[way].format(who)) if way in WARNINGS else edge


def named(pids: tuple[int, ...]) -> str:
    """The Kannaders of these PIDs, in words; "" for none."""
    return f"Kannader (PID {', '.join(map(str, pids))})" if pids else ""


def in_hand(pids: tuple[int, ...]) -> str:
    """Why what they may be sending is left to them."""
    return _IN_HAND.format(named(pids))


def no_writing(spool: KannaderSpool) -> str:
    """Why nothing may be changed there by us; "" when it may."""
    needed = [folder.path for folder in spool.folders if folder.exists()]
    if not spool.desk.exists():
        needed.append(spool.root)
    for path in needed:
        if not os.access(path, os.W_OK | os.X_OK):
            return f"{path} is not writable for us"
    for folder in (spool.data, *(spool.states[state] for state in KANNADERS)):
        seen = folder.seen
        if seen.st_mode & stat.S_IWOTH:
            return f"{folder.path} may be written by everybody: use chmod o-w {folder.path}"
        if os.geteuid() not in (0, seen.st_uid):
            # What we make there Kannader could not read.
            return f"{folder.path} belongs to user {seen.st_uid}, not to us"
    return ""
