"""The key table: key bindings, hint lines and help are all made from it, so they always agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple


class Key(NamedTuple):
    """One row of the key table: an action, its keys, its hint and its help text."""

    action: str
    """Name of the Textual action: `action_NAME` of the screen, or of the app after `app.`."""
    keys: tuple[str, ...]
    """The keys, by their Textual names."""
    shown: str
    """The keys, as hints and help print them."""
    hint: str
    """One to three words for the hint lines; "" to leave the key out of them."""
    description: str
    """Description in the help."""
    group: str
    """Heading in the help."""
    screens: frozenset[str]
    """Screens on which the key works."""
    verb: str = ""
    """The verb (`engine.verbs`) that the key plans; "" if it plans none."""
    passes_key: bool = False
    """Pass the pressed key to the action as its argument."""
    is_minor: bool = False
    """Drop its hint first if the hint lines are too narrow."""


class Hint(NamedTuple):
    """A key and its words in the hint lines."""

    shown: str
    text: str
    is_refused: bool = False
    """Refused now, so painted grey; pressing the key shows the reason."""
    is_minor: bool = False
    """Dropped first if the hint lines are too narrow."""


OVERVIEW, LIST, TASK, PROBLEMS, CLUSTERS = "overview", "list", "task", "problems", "clusters"
LOCKS, LOCK, TRANSPORTS, LOG = "locks", "lock", "transports", "log"
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

_MAIN_SCREENS = frozenset({OVERVIEW, LOCKS, TRANSPORTS, LOG, OPERATIONS, CONTROLS})
"""Main screens: digit keys switch between them."""
_TRANSPORT_DIALOGS = frozenset({SUSPEND, TEST_MAIL})
"""Screens that act on a transport."""
_TEXT_SCREENS = (
    frozenset(
        {
            TASK,
            PROBLEMS,
            PLAN,
            LOCK,
            RUNNING_OPERATION,
            RECORDED_OPERATION,
            ABANDON,
            WORKER,
            CONTROL,
        }
    )
    | _TRANSPORT_DIALOGS
)
_TYPING_SCREENS = frozenset({PALETTE, HELP})
"""Screens with a text input: only keys that are no letters move the cursor."""
_LIST = frozenset({LIST})
_OVERVIEW = frozenset({OVERVIEW})
_LOG = frozenset({LOG})
_TASK = frozenset({TASK})
_VERB_SCREENS = _LIST | _TASK
"""Screens where a verb key plans for one task or for the marked tasks."""
_OPERATIONS = frozenset({OPERATIONS})
_RUNNING = frozenset({RUNNING_OPERATION})
_PACE = frozenset({PACE})
_CONTROL = frozenset({CONTROL})
_FORMS = _PACE | {EDIT}
_READ_ONLY_SCREENS = frozenset(
    {
        TASK,
        PROBLEMS,
        CLUSTERS,
        LOCKS,
        TRANSPORTS,
        LOG,
        OPERATIONS,
        RECORDED_OPERATION,
        FAILURES,
        CONTROLS,
    }
)
"""Read-only screens that open on top of another one; Esc closes them."""
_CURSOR_SCREENS = _LIST | _TEXT_SCREENS | _MAIN_SCREENS | {CLUSTERS, FAILURES}
_COPY_SCREENS = (
    _MAIN_SCREENS
    | _LIST
    | {TASK, PROBLEMS, CLUSTERS, RUNNING_OPERATION, RECORDED_OPERATION, FAILURES}
)
"""Screens with the command palette, and with text to copy."""

TAB_DIGITS = tuple("123456789")
DIGITS = tuple("0123456789")
PANE_DIGITS = tuple("1234567")

KEYS: tuple[Key, ...] = (
    Key("move('down')", ("j", "down"), "j", "", "one line down", "Move", _CURSOR_SCREENS),
    Key("move('up')", ("k", "up"), "k", "", "one line up", "Move", _CURSOR_SCREENS),
    Key("move('page_down')", ("pagedown",), "PgDn", "", "one page down", "Move", _CURSOR_SCREENS),
    Key("move('page_up')", ("pageup",), "PgUp", "", "one page up", "Move", _CURSOR_SCREENS),
    Key(
        "move('half_down')", ("ctrl+d",), "Ctrl-d", "", "half a page down", "Move", _CURSOR_SCREENS
    ),
    Key("move('half_up')", ("ctrl+u",), "Ctrl-u", "", "half a page up", "Move", _CURSOR_SCREENS),
    Key("move('first')", ("g", "home"), "g Home", "", "first line", "Move", _CURSOR_SCREENS),
    Key("move('last')", ("G", "end"), "G End", "", "last line", "Move", _CURSOR_SCREENS),
    Key("open", ("enter",), "Enter", "open", "the queue, the cell or the alert", "View", _OVERVIEW),
    Key(
        "open",
        ("enter", "d"),
        "Enter",
        "open",
        "the task in full; on the problem line: all problems",
        "View",
        _LIST,
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "show these",
        "the queue, filtered by this error",
        "View",
        frozenset({CLUSTERS}),
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "open",
        "lock details: holder, evidence, recovery",
        "View",
        frozenset({LOCKS}),
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "open",
        "operation details: who, why, every row",
        "View",
        _OPERATIONS,
    ),
    Key("open", ("enter",), "Enter", "task", "the task of this log line", "View", _LOG),
    Key(
        "open",
        ("enter",),
        "Enter",
        "errors",
        "latest errors one by one, with the server's reply",
        "View",
        frozenset({TRANSPORTS}),
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "log",
        "the log at the time of this error",
        "View",
        frozenset({FAILURES}),
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "plan",
        "plan this control: shows its effect, writes nothing",
        "View",
        frozenset({CONTROLS}),
    ),
    Key("next_pane", ("tab",), "Tab", "pane", "next pane of the screen", "View", _OVERVIEW),
    Key("previous_pane", ("shift+tab",), "S-Tab", "", "previous pane", "View", _OVERVIEW),
    Key(
        "rows_by",
        ("x",),
        "x",
        "rows by",
        "age table: group by destination, kind or error",
        "View",
        _OVERVIEW,
    ),
    Key("left", ("left", "h"), "h", "", "age table: younger cell", "View", _OVERVIEW),
    Key("right", ("right", "l"), "l", "", "age table: older cell", "View", _OVERVIEW),
    Key(
        "pane",
        PANE_DIGITS,
        "1-7",
        "panes",
        "1 overview 2 queue 3 active 4 DLQ 5 locks 6 transports 7 log",
        "View",
        _MAIN_SCREENS,
        passes_key=True,
        is_minor=True,
    ),
    Key(
        "filter",
        ("/",),
        "/",
        "filter",
        "show only matching tasks; Enter keeps the filter, Esc clears it",
        "View",
        _LIST,
    ),
    Key("next_tab", ("tab", "right", "l"), "Tab", "", "next tab", "View", _LIST),
    Key("previous_tab", ("shift+tab", "left", "h"), "S-Tab", "", "previous tab", "View", _LIST),
    Key(
        "tab",
        TAB_DIGITS,
        "1-9",
        "tabs",
        "tab by number",
        "View",
        _LIST,
        passes_key=True,
        is_minor=True,
    ),
    Key(
        "part",
        PANE_DIGITS,
        "1-7",
        "parts",
        "part by number",
        "View",
        _TASK,
        passes_key=True,
        is_minor=True,
    ),
    Key("next_part", ("tab", "right", "l"), "Tab", "", "next part", "View", _TASK, is_minor=True),
    Key("previous_part", ("shift+tab", "left", "h"), "S-Tab", "", "previous part", "View", _TASK),
    Key(
        "clusters",
        ("c",),
        "c",
        "clusters",
        "errors of these tasks, grouped into clusters",
        "View",
        _LIST,
    ),
    Key("order", ("o",), "o", "order", "sort by another column", "View", _LIST),
    Key("log", ("t",), "t", "log", "log lines of this task", "View", _LIST | _TASK),
    Key("next_place", ("]",), "]", "", "next place", "View", _LIST),
    Key("previous_place", ("[",), "[", "", "previous place", "View", _LIST),
    Key("follow", ("f",), "f", "follow", "follow new lines, or stop following", "View", _LOG),
    Key(
        "search",
        ("/",),
        "/",
        "search",
        "search for text; n next match, N previous match",
        "View",
        _LOG,
    ),
    Key("search_next", ("n",), "n", "", "next match", "View", _LOG),
    Key("search_previous", ("N",), "N", "", "previous match", "View", _LOG),
    Key("only", ("&",), "&", "filter", "show only matching lines; Esc shows all", "View", _LOG),
    Key("level_up", ("+",), "+", "level", "raise the minimum level", "View", _LOG),
    Key("level_down", ("-",), "-", "", "lower the minimum level", "View", _LOG),
    Key("next_error", ("e",), "e", "error", "next error", "View", _LOG),
    Key(
        "goto_time", ("@",), "@", "time", "go to a time: 14:00, yesterday 18:00, -2h", "View", _LOG
    ),
    Key("wrap", ("w",), "w", "wrap", "wrap long lines, or cut them", "View", _LOG, is_minor=True),
    Key(
        "stamps",
        ("i",),
        "i",
        "stamps",
        "time stamps: with date, time only, none",
        "View",
        _LOG,
        is_minor=True,
    ),
    Key(
        "reread",
        ("r",),
        "r",
        "re-read",
        "scan everything again now",
        "View",
        _LIST | _OVERVIEW | {LOCKS, TRANSPORTS, OPERATIONS, CONTROLS},
        is_minor=True,
    ),
    Key(
        "freeze",
        ("p",),
        "p",
        "freeze",
        "freeze the screen to go back in history; again: live",
        "View",
        _OVERVIEW,
    ),
    Key("earlier", ("comma",), ",", "", "frozen: back in history", "View", _OVERVIEW),
    Key("later", ("full_stop",), ".", "", "frozen: forward in history", "View", _OVERVIEW),
    Key("reread", ("r",), "r", "re-read", "re-read the task", "View", _TASK, is_minor=True),
    Key("repaint", ("ctrl+l",), "Ctrl-l", "", "repaint the whole screen", "View", _COPY_SCREENS),
    Key("mark", ("space",), "Space", "mark", "mark or unmark the task", "Mark", _LIST),
    Key(
        "range",
        ("v",),
        "v",
        "range",
        "mark a range: from here to the row of the next v",
        "Mark",
        _LIST,
        is_minor=True,
    ),
    Key("mark_all", ("*",), "*", "all", "act on all matching tasks, not on one row", "Mark", _LIST),
    Key("unmark", ("\\",), "\\", "clear marks", "unmark all tasks", "Mark", _LIST, is_minor=True),
    Key(
        "yank",
        ("y",),
        "y",
        "copy",
        "copy the id, the row, JSON or a command",
        "Copy",
        _COPY_SCREENS,
        is_minor=True,
    ),
    Key(
        "export",
        ("e",),
        "e",
        "export",
        "export the shown rows to a file (CSV, JSON lines)",
        "Copy",
        _LIST | _OVERVIEW | {PLAN},
        is_minor=True,
    ),
    Key(
        "plain",
        ("=",),
        "=",
        "plain",
        "show this screen as plain text, to copy from",
        "Copy",
        _COPY_SCREENS,
        is_minor=True,
    ),
    Key(
        "plan('retry')",
        ("R",),
        "R",
        "retry",
        "plan a retry; in the trash: plan a restore",
        "Act",
        _VERB_SCREENS | {CLUSTERS},
        verb="retry",
    ),
    Key(
        "plan('purge')",
        ("X",),
        "X",
        "purge",
        "plan a move to the trash; in the trash: plan to delete (final)",
        "Act",
        _VERB_SCREENS | {CLUSTERS},
        verb="purge",
    ),
    Key(
        "plan('hold')",
        ("H",),
        "H",
        "hold",
        "plan to hold until released",
        "Act",
        _VERB_SCREENS | {CLUSTERS},
        verb="hold",
    ),
    Key(
        "plan('release')",
        ("L",),
        "L",
        "release",
        "plan to release held tasks, or active tasks without a worker",
        "Act",
        _VERB_SCREENS,
        verb="release",
        is_minor=True,
    ),
    Key(
        "plan('promote')",
        ("O",),
        "O",
        "promote",
        "plan to run now, without waiting for the due time",
        "Act",
        _VERB_SCREENS,
        verb="promote",
        is_minor=True,
    ),
    Key(
        "plan('edit')",
        ("E",),
        "E",
        "edit",
        "plan to change description, due time or recipient",
        "Act",
        _VERB_SCREENS,
        verb="edit",
        is_minor=True,
    ),
    Key(
        "plan('kill')",
        ("K",),
        "K",
        "kill",
        "plan to mark active tasks without a worker as dead",
        "Act",
        _VERB_SCREENS,
        verb="kill",
        is_minor=True,
    ),
    Key(
        "in_or_out",
        ("space",),
        "Space",
        "in/out",
        "exclude a task from the plan, or include a suspicious one",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "reason",
        ("tab",),
        "Tab",
        "reason",
        "give a reason (written to the journal)",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "reason",
        ("tab",),
        "Tab",
        "reason",
        "give a reason (shown to all users, written to the log)",
        "Act",
        frozenset({SUSPEND}),
    ),
    Key(
        "to",
        ("tab",),
        "Tab",
        "to whom",
        "change the recipient address",
        "Act",
        frozenset({TEST_MAIL}),
    ),
    Key(
        "pace",
        ("p",),
        "p",
        "pace",
        "set the rate, the canary and the stop rules",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "pause",
        ("space",),
        "Space",
        "pause",
        "pause the replay; again: resume (needs write mode)",
        "Act",
        _RUNNING,
    ),
    Key("faster", ("+",), "+", "faster", "double the rate", "Act", _RUNNING),
    Key("slower", ("-",), "-", "slower", "halve the rate", "Act", _RUNNING),
    Key("stop", ("s",), "s", "stop", "stop the replay; sent tasks stay sent", "Act", _RUNNING),
    Key(
        "leave_open",
        ("w",),
        "w",
        "do not wait",
        "end the replay without waiting for the missing outcomes",
        "Act",
        _RUNNING,
    ),
    Key(
        "plan_undo",
        ("T",),
        "T",
        "undo this",
        "plan to undo it: shows which tasks can be restored, writes nothing",
        "Act",
        _OPERATIONS | _RUNNING,
    ),
    Key(
        "go_on",
        ("R",),
        "R",
        "resume",
        "plan to resume an interrupted operation with its remaining rows",
        "Act",
        _OPERATIONS,
    ),
    Key(
        "drop",
        ("D",),
        "D",
        "abandon",
        "plan to abandon an interrupted operation: its remaining rows stay",
        "Act",
        _OPERATIONS,
    ),
    Key(
        "undo",
        ("u",),
        "u",
        "undo",
        "operations: who did what; undo",
        "Act",
        _OVERVIEW | {TASK, PLAN, RUNNING_OPERATION, CLUSTERS, LOCKS, CONTROLS},
        is_minor=True,
    ),
    Key("undo", ("u",), "u", "", "operations: who did what; undo", "Act", _LIST),
    Key(
        "unlock",
        ("U",),
        "U",
        "unlock",
        "lock holder, and a plan to free the lock",
        "Act",
        _LIST | _OVERVIEW | {LOCKS},
    ),
    Key(
        "suspend",
        ("S",),
        "S",
        "suspend",
        "plan to suspend or resume this transport",
        "Act",
        frozenset({TRANSPORTS}),
    ),
    Key(
        "trial",
        ("M",),
        "M",
        "test mail",
        "plan one test mail via this transport only",
        "Act",
        frozenset({TRANSPORTS}),
    ),
    Key(
        "controls",
        ("C",),
        "C",
        "controls",
        "the whole queue: its status and its controls",
        "Act",
        _LIST | _OVERVIEW,
        is_minor=True,
    ),
    Key(
        "pause_queue",
        ("P",),
        "P",
        "pause",
        "plan to pause or resume the whole queue",
        "Act",
        _LIST | {CONTROLS},
        is_minor=True,
    ),
    Key(
        "fill",
        ("enter",),
        "Enter",
        "type it",
        "type the target or the new value",
        "Act",
        _CONTROL,
    ),
    Key("switch", ("space",), "Space", "other value", "next value", "Act", _CONTROL),
    Key(
        "reason",
        ("tab",),
        "Tab",
        "reason",
        "give a reason (written to the journal)",
        "Act",
        _CONTROL,
    ),
    Key(
        "plan('hold')",
        ("H",),
        "H",
        "hold",
        "plan to hold an active task without a worker",
        "Act",
        frozenset({LOCK}),
        verb="hold",
    ),
    Key(
        "plan('release')",
        ("L",),
        "L",
        "release",
        "plan to run an active task without a worker again",
        "Act",
        frozenset({LOCK}),
        verb="release",
    ),
    Key(
        "plan('kill')",
        ("K",),
        "K",
        "kill",
        "plan to mark an active task without a worker as dead",
        "Act",
        frozenset({LOCK}),
        verb="kill",
    ),
    Key(
        "note",
        ("#",),
        "#",
        "note",
        "write a note on the task; a purge excludes tasks with notes",
        "Act",
        _VERB_SCREENS,
        is_minor=True,
    ),
    Key(
        "arm",
        ("!",),
        "!",
        "arm",
        "arm writes (15 min, extends on use); again: disarm",
        "Act",
        frozenset(
            {
                OVERVIEW,
                LIST,
                TASK,
                PLAN,
                LOCK,
                OPERATIONS,
                RUNNING_OPERATION,
                ABANDON,
                WORKER,
                CLUSTERS,
            }
        )
        | _TRANSPORT_DIALOGS
        | {TRANSPORTS, CONTROLS, CONTROL},
    ),
    Key(
        "yes",
        ("y",),
        "y",
        "apply",
        "apply a plan for one task that asks for no count",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the count",
        "confirm the plan by typing its count; the last digit applies it",
        "Act",
        frozenset({PLAN}),
        passes_key=True,
    ),
    Key(
        "yes",
        ("y",),
        "y",
        "free it",
        "free a lock whose holder is gone; no process is signalled",
        "Act",
        frozenset({LOCK}),
    ),
    Key(
        "yes", ("y",), "y", "do it", "suspend or resume the transport", "Act", frozenset({SUSPEND})
    ),
    Key("yes", ("y",), "y", "do it", "apply the control; it can be undone", "Act", _CONTROL),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the count",
        "confirm a control that cannot be undone: type 1",
        "Act",
        _CONTROL,
        passes_key=True,
    ),
    Key("yes", ("y",), "y", "send it", "send the test mail", "Act", frozenset({TEST_MAIL})),
    Key("yes", ("y",), "y", "do it", "start or stop the worker", "Act", frozenset({WORKER})),
    Key(
        "yes",
        ("y",),
        "y",
        "abandon",
        "record the operation as abandoned",
        "Act",
        frozenset({ABANDON}),
    ),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the PID",
        "confirm by typing the holder's PID; the last digit frees the lock",
        "Act",
        frozenset({LOCK}),
        passes_key=True,
    ),
    Key(
        "rub_out",
        ("backspace",),
        "Bksp",
        "",
        "delete the last digit",
        "Act",
        frozenset({PLAN, LOCK, CONTROL}),
    ),
    Key("worker", ("W",), "W", "worker", "plan to start or stop a worker", "Act", _LIST),
    Key(
        "palette",
        (":", "ctrl+p"),
        ":",
        "command",
        "command palette: actions and screens; also Ctrl-p",
        "Quit",
        _COPY_SCREENS,
    ),
    Key(
        "help",
        ("?", "f1"),
        "?",
        "help",
        "this page",
        "Quit",
        _COPY_SCREENS | _TRANSPORT_DIALOGS | {PLAN, LOCK, ABANDON, WORKER, CONTROL},
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back; the operation continues in the background",
        "Quit",
        _RUNNING | {TEST_MAIL, CONTROL},
    ),
    Key("next", ("tab", "down"), "Tab", "next", "next field", "Move", _FORMS),
    Key("previous", ("shift+tab", "up"), "S-Tab", "", "previous field", "Move", _FORMS),
    Key("switch", ("space",), "Space", "on or off", "turn the rule on or off", "Act", _PACE),
    Key(
        "type",
        (*DIGITS, "full_stop"),
        "0-9",
        "",
        "type the value of the field",
        "Act",
        _PACE,
        passes_key=True,
    ),
    Key("rub_out", ("backspace",), "Bksp", "", "delete the last digit", "Act", _PACE),
    Key("take", ("enter",), "Enter", "save", "use these settings", "Quit", _PACE),
    Key("back", ("escape",), "Esc", "cancel", "keep the former settings", "Quit", _PACE),
    Key(
        "back",
        ("escape",),
        "Esc",
        "clear",
        "clear the range, then the filter; then back to the overview",
        "Quit",
        _LIST,
        is_minor=True,
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back to the screen before",
        "Quit",
        _READ_ONLY_SCREENS,
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back to the list; a running recovery continues",
        "Quit",
        frozenset({LOCK}),
    ),
    Key("back", ("escape",), "Esc", "back", "close the help", "Quit", frozenset({HELP})),
    Key(
        "back",
        ("escape",),
        "Esc",
        "close",
        "close without a choice",
        "Quit",
        frozenset({PALETTE, MENU, EDIT}),
    ),
    Key(
        "back",
        ("escape",),
        "Esc",
        "stop",
        "cancel the running action",
        "Quit",
        frozenset({PROGRESS}),
    ),
    Key("move('down')", ("down",), "Down", "", "one line down", "Move", _TYPING_SCREENS),
    Key("move('up')", ("up",), "Up", "", "one line up", "Move", _TYPING_SCREENS),
    Key("move('page_down')", ("pagedown",), "PgDn", "", "one page down", "Move", _TYPING_SCREENS),
    Key("move('page_up')", ("pageup",), "PgUp", "", "one page up", "Move", _TYPING_SCREENS),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "discard",
        "close the plan without applying it",
        "Quit",
        frozenset({PLAN, ABANDON, WORKER, SUSPEND}),
    ),
    Key("leave", ("q",), "q", "back", "back to the overview; there: quit", "Quit", _LIST),
    Key("back", ("escape",), "Esc", "", "stop the first scan of a queue", "Quit", _OVERVIEW),
    Key("app.quit", ("q",), "q", "quit", "quit the console", "Quit", _OVERVIEW),
    Key(
        "app.cancel",
        ("ctrl+c",),
        "Ctrl-c",
        "",
        "cancel the input; twice: quit the console",
        "Quit",
        _LIST | _OVERVIEW,
    ),
    Key(
        "app.suspend_process",
        ("ctrl+z",),
        "Ctrl-z",
        "",
        "suspend to the shell; fg returns",
        "Quit",
        _COPY_SCREENS,
    ),
    Key(
        "stop",
        ("s",),
        "s",
        "stop",
        "stop the worker (SIGTERM) and quit",
        "Quit",
        frozenset({QUIT}),
    ),
    Key(
        "keep",
        ("k",),
        "k",
        "keep it",
        "quit; the worker keeps running",
        "Quit",
        frozenset({QUIT}),
    ),
    Key("back", ("escape",), "Esc", "stay", "stay in the console", "Quit", frozenset({QUIT})),
)
"""All keys, in the order of help and hints."""

GROUPS = tuple(dict.fromkeys(key.group for key in KEYS))
"""Headings of the help, in order."""


def keys_on(screen: str, without: Collection[str] = ()) -> Iterator[Key]:
    """The keys of a screen, except the actions in `without`."""
    return (key for key in KEYS if screen in key.screens and key.action not in without)


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


def arm_hint(armed: bool) -> str:
    """Hint of the arming key: it toggles the write mode."""
    return "disarm" if armed else "arm"


def verb_keys() -> Iterable[Key]:
    """The keys that open a plan for a verb."""
    return (key for key in KEYS if key.verb)
