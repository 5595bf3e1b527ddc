"""A table of keys: key bindings, hint lines and help of most screens are made from it, and agree.

A screen with key rows of its own (`tui.key_tables`) is not in it, but takes the words of the
keys that it shares with other screens from it. `tui.key_tables` has the keys of all screens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from engine.values import NamedTuple


class Key(NamedTuple):
    """One row of the key table: an action, its keys, its hint and its help text."""

    action: str
    """Name of the Textual action: "action_NAME" of the screen, or of the app after `app.`."""
    keys: tuple[str, ...]
    """The keys, by their Textual names."""
    shown: str
    """The keys, as hints and help print them."""
    hint: str
    """One to three words for the hint lines; "" to leave the key out of them."""
    description: str
    group: str
    screens: frozenset[str]
    """Screens on which the key works."""
    verb: str = ""
    """The verb (`engine.verbs`) that the key plans; "" if it plans none."""
    passes_key: bool = False
    """Pass the pressed key to the action as its argument."""
    is_minor: bool = False
    """Drop its hint first if the hint lines are too narrow."""
    call: str = ""
    """The Textual action that does it, if that is not `action`."""


class Hint(NamedTuple):
    """A key and its words in the hint lines."""

    shown: str
    text: str
    is_refused: bool = False
    """Refused now, so painted grey; pressing the key shows the reason."""
    is_minor: bool = False
    """Dropped first if the hint lines are too narrow."""


OVERVIEW, LIST, TASK, PROBLEMS, CLUSTERS = "overview", "list", "task", "problems", "clusters"
WORKERS, LOCKS, LOCK, TRANSPORTS, LOG = "workers", "locks", "lock", "transports", "log"
PLAN, HELP, PALETTE, QUIT = "plan", "help", "palette", "quit"
MENU, PROGRESS = "menu", "progress"
OPERATIONS, RUNNING_OPERATION, RECORDED_OPERATION, PACE = (
    "operations",
    "operation",
    "record",
    "pace",
)
ABANDON, WORKER = "drop", "worker"
EDIT = "edit"
SUSPEND, TEST_MAIL, FAILURES = "suspend", "trial", "failures"
CONTROLS, CONTROL = "controls", "control"
GROUPS = "groups"
SCHEDULES = "schedules"
SEARCH = "search"
SHARED = "shared"
"""Words of keys for screens with key rows of their own (`tui.key_tables`)."""

_KEY_SETS: Mapping[str, tuple[str, ...]] = {
    "DIGITS": tuple("0123456789"),
    "SCREENS": tuple("123456789"),
}

_CONFIRM = "plan lock drop worker control suspend trial"
_BROWSE = "shared problems record"
_SCREEN_SETS: Mapping[str, str] = {
    "BROWSE": _BROWSE,  # neither a plan nor a form: digits open screens
    "CONFIRM": _CONFIRM,
    "CURSOR": f"{_BROWSE} {_CONFIRM}",
    "TYPING": "palette help",  # with a text input: only keys that are no letters move
    "FORMS": "pace edit",
}

_TABLE = """
move('down') | j down | j | - | Move | CURSOR | one line down
move('up') | k up | k | - | Move | CURSOR | one line up
move('page_down') | pagedown | PgDn | - | Move | CURSOR | one page down
move('page_up') | pageup | PgUp | - | Move | CURSOR | one page up
move('half_down') | ctrl+d | Ctrl-d | - | Move | CURSOR | half a page down
move('half_up') | ctrl+u | Ctrl-u | - | Move | CURSOR | half a page up
move('first') | g home | g Home | - | Move | CURSOR | first line
move('last') | G end | G End | - | Move | CURSOR | last line
pane(1) | tab shift+tab | Tab | pane | View | shared +minor | scroll the details; again: to the rows
graph_range | z | z | range | View | lock +minor | graph: the last 10 minutes, hour or day
log | t | t | log | View | shared | log lines of this task
neighbor(1) | ] | [ ] | rows | View | shared lock +minor | next row of the list
neighbor(-1) | [ | [ | - | View | shared lock | previous row of the list
reread | r | r | re-read | View | shared +minor |
    scan everything again now
screen | SCREENS | 1-9 | screens | View | BROWSE +key +minor | overview tasks workers DLQ locks
    transports log operations controls
repaint | ctrl+l | Ctrl-l | - | View | BROWSE | repaint the whole screen
yank | y | y | copy | Copy | BROWSE +minor | copy the id, the row, JSON or a command
export | e | e | export | Copy | plan +minor | export the shown rows to a file (CSV, JSON
    lines)
plain | = | = | plain | Copy | BROWSE plan +minor | show this screen as plain text, to copy from
plan('retry') | R | R | retry | Act | shared | plan a retry; of many: a replay;
    done: a rerun; trash: a restore
plan('purge') | X | X | purge | Act | shared | plan a move to the trash; in the trash:
    plan to delete (final)
plan('hold') | H | H | hold | Act | shared | plan to hold until released
plan('release') | L | L | release | Act | shared +minor | plan to release held tasks, or active
    tasks without a worker
plan('promote') | O | O | promote | Act | shared +minor | plan to run now, without waiting for
    the due time
plan('edit') | E | E | edit | Act | shared +minor | plan to change description, due time, recipient,
    priority or data
plan('kill') | K | K | kill | Act | shared +minor | plan to mark active tasks without a worker
    as dead
plan('reroute') | Q | Q | reroute | Act | shared +minor | plan to route mail again, as new
    messages
plan('expire') | Z | Z | expire | Act | shared +minor | plan to give up waiting mail as too old
in_or_out | space | Space | exclude | Act | plan | exclude a task from the plan, or include a
    suspicious one
include_all | I | I | include all | Act | plan | include all suspicious tasks, or exclude
    them again
reason | tab | Tab | reason | Act | plan | give a reason (written to the journal)
reason | tab | Tab | reason | Act | suspend | give a reason (shown to all users, written to the log)
to | tab | Tab | to whom | Act | trial | change the recipient address
pace | p | p | rate | Act | plan | set the rate, the canary and the stop rules
plan_undo | u | u | undo | Act | record | plan to undo it: shows which tasks
    can be restored, writes nothing
go_on | R | R | resume | Act | record | plan to resume an interrupted operation with its remaining
    rows
drop | D | D | abandon | Act | record | plan to abandon an interrupted operation: its remaining
    rows stay
operations | u | u | operations | Act | plan shared +minor | operations: who did what; undo
operations | u | u | - | Act | problems | operations: who did what; undo
unlock | U | U | unlock | Act | shared | lock holder, and a plan to free the lock
controls | C | C | controls | Act | shared +minor | the whole queue: its status and its controls
pause_queue | P | P | pause | Act | shared +minor | plan to pause or resume the whole queue
fill | enter | Enter | type it | Act | control | type the target or the new value
switch | space | Space | other value | Act | control | next value
reason | tab | Tab | reason | Act | control | give a reason (written to the journal)
plan('hold') | H | H | hold | Act | lock | plan to hold an active task without a worker
plan('release') | L | L | release | Act | lock | plan to run an active task without a worker again
plan('kill') | K | K | kill | Act | lock | plan to mark an active task without a worker as dead
note | # | # | note | Act | shared +minor | write a note on the task; a purge excludes tasks with
    notes
arm | ! | ! | arm | Act | shared lock plan drop worker suspend trial control
    record | arm writes (15 min, extends on use); again: disarm
yes | y | y | apply | Act | plan | apply a plan for one task that asks for no count
digit | DIGITS | 0-9 | type the count | Act | plan +key | confirm the plan by typing its count; the
    last digit applies it
yes | y | y | free it | Act | lock | free a lock whose holder is gone; no process is signalled
yes | y | y | do it | Act | suspend | suspend or resume it; block, unblock or probe it
yes | y | y | do it | Act | control | apply the control; it can be undone
digit | DIGITS | 0-9 | type the count | Act | control +key | confirm a control that cannot be
    undone: type 1
yes | y | y | send it | Act | trial | send the test mail
yes | y | y | do it | Act | worker | start or stop the worker
yes | y | y | abandon | Act | drop | record the operation as abandoned
digit | DIGITS | 0-9 | type the PID | Act | lock +key | confirm by typing the holder's PID; the last
    digit frees the lock
digit | DIGITS | 0-9 | type the PID | Act | worker +key | confirm a worker that ends a stuck holder:
    type the PID of the holder
rub_out | backspace | Bksp | - | Act | control lock plan worker | delete the last digit
worker | W | W | worker | Act | lock shared | plan to start or stop a worker
palette | : ctrl+p | : | command | Quit | BROWSE | command palette: actions and screens; also Ctrl-p
palette | : ctrl+p | : | - | Quit | CONFIRM | command palette: actions and screens; also Ctrl-p
help | ? f1 | ? | help | Quit | CURSOR | this page
back | escape q | Esc | back | Quit | control trial | back; the operation continues in the
    background
next | tab down | Tab | next | Move | FORMS | next field
previous | shift+tab up | S-Tab | - | Move | FORMS | previous field
switch | space | Space | on or off | Act | pace | turn the rule on or off
type | DIGITS full_stop | 0-9 | - | Act | pace +key | type the value of the field
rub_out | backspace | Bksp | - | Act | pace | delete the last digit
take | enter | Enter | save | Quit | pace | use these settings
back | escape | Esc | cancel | Quit | pace | keep the former settings
back | escape q | Esc | back | Quit | BROWSE | back to the screen before
back | escape q | Esc | back | Quit | lock | back to the list; a running recovery continues
back | escape | Esc | back | Quit | help | close the help
back | escape | Esc | close | Quit | edit menu palette | close without a choice
back | escape | Esc | stop | Quit | progress | cancel the running action
move('down') | down | Down | - | Move | TYPING | one line down
move('up') | up | Up | - | Move | TYPING | one line up
move('page_down') | pagedown | PgDn | - | Move | TYPING | one page down
move('page_up') | pageup | PgUp | - | Move | TYPING | one page up
back | escape q | Esc | discard | Quit | drop plan suspend worker | close the plan without applying
    it
app.cancel | ctrl+c | Ctrl-c | - | Quit | shared | cancel the input; twice: quit the console
app.freeze | p | p | - | View | shared problems record lock | freeze the screen; any key: live
app.suspend_process | ctrl+z | Ctrl-z | - | Quit | BROWSE | suspend to the shell; fg returns
stop | s | s | stop | Quit | quit | stop the worker (SIGTERM) and quit
keep | k | k | keep it | Quit | quit | quit; the worker keeps running
back | escape | Esc | stay | Quit | quit | stay in the console
"""
"""One row for each action on some screens: action, keys, keys as shown, hint ("-": none), heading
of the help, screens and flags, description. `+key` passes the key to the action, and `+minor` drops
its hint first. An indented line continues the row above. The order is that of the hints,
except for `shared` keys."""


def key_of_row(row: str) -> Key:
    """A key from a row of the table."""
    action, keys, shown, hint, group, screens, description = row.split(" | ")
    words = screens.split()
    names = " ".join(_SCREEN_SETS.get(word, word) for word in words if not word.startswith("+"))
    return Key(
        action,
        tuple(key for word in keys.split() for key in _KEY_SETS.get(word, (word,))),
        shown,
        hint="" if hint == "-" else hint,
        description=description,
        group=group,
        screens=frozenset(names.split()),
        verb=action.removeprefix("plan('").removesuffix("')")
        if action.startswith("plan('")
        else "",
        passes_key="+key" in words,
        is_minor="+minor" in words,
    )


KEYS = tuple(map(key_of_row, _TABLE.strip().replace("\n    ", " ").split("\n")))
"""All keys of this table, in the order of the hints."""


KeysOn: TypeAlias = Callable[[str, Collection[str]], Iterable[Key]]
"""Returns the keys of a screen, except some actions."""


def keys_on(screen: str, without: Collection[str] = ()) -> Iterator[Key]:
    """The keys of a screen, except the actions in `without`."""
    return (key for key in KEYS if screen in key.screens and key.action not in without)


def key_on(screen: str, action: str) -> Key:
    """The key of an action on a screen."""
    return next(key for key in KEYS if screen in key.screens and key.action == action)


def hints_of(
    screen: str,
    grey: Collection[str] = (),
    without: Collection[str] = (),
    words: Mapping[str, str] | None = None,
) -> tuple[Hint, ...]:
    """The hints of a screen; `words` maps actions to words that replace theirs."""
    changed = words or {}
    return tuple(
        Hint(key.shown, changed.get(key.action, key.hint), key.action in grey, key.is_minor)
        for key in keys_on(screen, without)
        if key.hint
    )


def step_of(pressed: str) -> int:
    """The step of a key that leads to a neighbour: -1 for Left and h, 1 for Right and l."""
    return -1 if pressed in ("left", "h") else 1


def motion_rows(how: str, page: int) -> int:
    """By how many rows a motion goes down: down, up, page_down, half_up and so on; 0 for others."""
    rows = {"page": page, "half": max(1, page // 2)}.get(how.partition("_")[0], 1)
    return rows if how.endswith("down") else -rows if how.endswith("up") else 0


def arm_hint(armed: bool) -> str:
    """Hint of the arming key: it arms or disarms."""
    return "disarm" if armed else "arm"


def verb_keys() -> Iterable[Key]:
    """The keys that open a plan for a verb."""
    return (key for key in KEYS if key.verb)
