"""Compute the edges and controls allowed now, by write permission and running Kannaders."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping, Set

from engine.formats.kannader import mail_format
from engine.formats.kannader.folder import MailFolder
from engine.formats.kannader.spool import KANNADER_STATES, KannaderSpool
from engine.model import Edge, Edges, State, Task
from engine.store import Control
from engine.system.files import Refused
from engine.values import NamedTuple

_OUTCOME_FIELDS = frozenset({"attempts", "due", "error"})
_GIVEN_UP_FIELDS = frozenset({"attempts", "error"})
_EDITABLE_FIELDS = frozenset({"due", "destination"})


def _check_edited_value(name: str, value: object, now: float) -> str:
    """Return why an edited recipient is not a valid address; "" if it is."""
    try:
        if name == "destination":
            mail_format.encode_address(str(value))
    except Refused as refusal:
        return str(refusal)
    return ""


_CLAIMED_WARNING = "its worker may still be sending it: then it is sent twice"

EDGES: Edges = {
    (None, State.PENDING): Edge(),
    (State.ACTIVE, None): Edge(undoable=False),
    (State.ACTIVE, State.DONE): Edge(_GIVEN_UP_FIELDS, undoable=False),
    (State.ACTIVE, State.PENDING): Edge(_OUTCOME_FIELDS, warning=_CLAIMED_WARNING),
    (State.ACTIVE, State.HELD): Edge(_OUTCOME_FIELDS, warning=_CLAIMED_WARNING),
    (State.PENDING, State.PENDING): Edge(_EDITABLE_FIELDS, value_problem=_check_edited_value),
    (State.PENDING, State.HELD): Edge(),
    (State.PENDING, State.DONE): Edge(_GIVEN_UP_FIELDS, undoable=False),
    (State.PENDING, State.TRASH): Edge(),
    (State.HELD, State.HELD): Edge(_EDITABLE_FIELDS, value_problem=_check_edited_value),
    (State.HELD, State.PENDING): Edge(frozenset({"due"})),
    (State.HELD, State.TRASH): Edge(),
    (State.TRASH, State.PENDING): Edge(),
    (State.TRASH, State.HELD): Edge(),
    (State.TRASH, None): Edge(undoable=False),
    (State.DONE, None): Edge(undoable=False),
}

_LATER_WARNING = "{} is running and sees this only at its next start"
_OWN_COPY_WARNING = (
    "{} is running and uses its own copy of the schedule until its next start, and may overwrite "
    "this one; a changed recipient counts from the next attempt on"
)
_IN_FLIGHT_WARNING = "{} is running and may be sending it: it could be sent twice or lost"

WARNINGS: Mapping[tuple[State | None, State | None], str] = {
    (None, State.PENDING): _LATER_WARNING,
    (State.HELD, State.PENDING): _LATER_WARNING,
    (State.TRASH, State.PENDING): _LATER_WARNING,
    (State.PENDING, State.PENDING): _OWN_COPY_WARNING,
}
"""Warnings for changes that a running Kannader does not notice (Kannader spool, section 6)."""

CONTROLS: Mapping[str, Control] = {
    "recover": Control(
        "recover interrupted mail, repair what is safe",
        value='"anyway": even while Kannader is running',
        choices=(("", "unless a Kannader is running"), ("anyway", "even while one is running")),
        has_forecast=True,
    ),
    "adopt": Control(
        "send an orphaned mail (complete)", "data/<mail>/<recipient>", has_forecast=True
    ),
    "discard": Control(
        "delete an orphaned mail, or a quarantined link and its own data",
        "data/<mail>[/<recipient>] or .spooldeck/aside/<name>",
        has_forecast=True,
    ),
    "put-back": Control(
        "move a quarantined link back to its folder", ".spooldeck/aside/<name>", has_forecast=True
    ),
    "repair": Control("unreadable schedule: retry now", "queue/<id>", has_forecast=True),
}


class _InFlightBar(NamedTuple):
    """An `Edge.bars` for mails in flight that a running Kannader may be sending."""

    who: str
    claimed_ids: Set[str]
    """Ids of the mails that the caller itself has claimed; they are not barred."""

    def __call__(self, task: Task, now: float) -> str:
        """Return why this mail must stay; "" if the caller has claimed it."""
        return "" if task.id in self.claimed_ids else _IN_FLIGHT_WARNING.format(self.who)


def current_rights(
    spool: KannaderSpool, claimed_ids: Set[str]
) -> tuple[Edges, Mapping[str, Control], tuple[int, ...]]:
    """Compute the edges and controls that are allowed now; and the PIDs of the Kannader processes
    that use the spool. `claimed_ids` has the ids of the mails that the caller has claimed, also
    when it changes later."""
    pids = find_kannaders(tuple(spool.states[state] for state in KANNADER_STATES))
    why, who = write_refusal(spool), name_kannaders(pids)
    if not why and not who:
        return EDGES, CONTROLS, pids
    edges = {
        states: _edge_now(states, edge, why, who, claimed_ids) for states, edge in EDGES.items()
    }
    busy = _IN_FLIGHT_WARNING.format(who) if who else ""
    controls = {
        name: control._replace(refusal=why or (busy if name == "discard" else ""))
        for name, control in CONTROLS.items()
    }
    return edges, controls, pids


def _edge_now(
    states: tuple[State | None, State | None], edge: Edge, why: str, who: str, claimed_ids: Set[str]
) -> Edge:
    edge = edge._replace(refusal=why)
    if not who:
        return edge
    if states[0] is State.ACTIVE:
        return edge._replace(bars=_InFlightBar(who, claimed_ids))
    return edge._replace(warning=WARNINGS[states].format(who)) if states in WARNINGS else edge


def name_kannaders(pids: tuple[int, ...]) -> str:
    """Return "Kannader (PID 1, 2)"; "" for no PIDs."""
    return f"Kannader (PID {', '.join(map(str, pids))})" if pids else ""


def write_refusal(spool: KannaderSpool) -> str:
    """Return why this user may not write to the spool; "" if writes are allowed."""
    needed = [folder.path for folder in spool.folders if folder.exists()]
    if not spool.staging.exists():
        needed.append(spool.root)
    for path in needed:
        if not os.access(path, os.W_OK | os.X_OK):
            return f"Permission denied: cannot write to {path}"
    for folder in (spool.data, *(spool.states[state] for state in KANNADER_STATES)):
        folder_stat = folder.status
        if folder_stat.st_mode & stat.S_IWOTH:
            return f"{folder.path} is world-writable: run chmod o-w {shlex.quote(folder.path)}"
        if os.geteuid() not in (0, folder_stat.st_uid):
            # Kannader could not read files that another user creates.
            return f"{folder.path} belongs to UID {folder_stat.st_uid}, not to this user"
    return ""


def find_kannaders(folders: tuple[MailFolder, ...]) -> tuple[int, ...]:
    """PIDs of the processes that hold O_PATH descriptors of all these folders.

    Processes of other users cannot be inspected. That is enough: who may write to the spool is its
    owner or root, and can inspect the processes that matter.
    """
    stats = [folder.status for folder in folders]
    folder_ids = {(folder_stat.st_dev, folder_stat.st_ino) for folder_stat in stats}
    pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()} - {os.getpid()}
    return tuple(pid for pid in sorted(pids) if folder_ids <= _held_path_folders(pid, folder_ids))


def _held_path_folders(pid: int, folder_ids: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Which of these folders a process holds open with O_PATH."""
    held_ids: set[tuple[int, int]] = set()
    place = f"/proc/{pid}/fd"
    try:
        names = os.listdir(place)
    except OSError:
        return held_ids  # it has exited, or belongs to another user
    for name in names:
        try:
            descriptor_stat = os.stat(f"{place}/{name}")
            key = descriptor_stat.st_dev, descriptor_stat.st_ino
            if key in folder_ids and _is_path_descriptor(pid, name):
                held_ids.add(key)
        except OSError:
            continue  # closed since it was listed
    return held_ids


def _is_path_descriptor(pid: int, name: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as info:
        for line in info:
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & os.O_PATH)
    return False
