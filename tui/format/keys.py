"""The one table of keys: bindings, hints and help are all made from it, so none can disagree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from textual.binding import Binding, BindingType


class Key(NamedTuple):
    """Something the operator can press, and everything that is said about it."""

    action: str
    """What it does, as the screens name it."""
    keys: tuple[str, ...]
    """The keys, as the terminal library names them."""
    shown: str
    """The keys, as hints and help print them."""
    hint: str
    """A word or two for the hint lines; "" when it has no place there."""
    about: str
    """A sentence for the help."""
    group: str
    """Under which heading the help lists it."""
    screens: frozenset[str]
    """On which screens it works."""
    verb: str = ""
    """The verb that it plans; "" when it plans none."""
    each: bool = False
    """Whether the action is told which of the keys it was."""
    minor: bool = False
    """Whether its hint goes first where there is no room for all."""


class Hint(NamedTuple):
    """A key as the hint lines show it."""

    shown: str
    words: str
    grey: bool = False
    """Whether it is refused now; pressing it says why."""
    minor: bool = False
    """Whether it goes first where there is no room for all."""


OVERVIEW, LIST, TASK, PROBLEMS, CLUSTERS = "overview", "list", "task", "problems", "clusters"
LOCKS, LOCK, TRANSPORTS, LOG = "locks", "lock", "transports", "log"
PLAN, HELP, PALETTE, QUIT = "plan", "help", "palette", "quit"
MENU, PROGRESS = "menu", "progress"
OPERATIONS, OPERATION, RECORD, PACE = "operations", "operation", "record", "pace"
DROP, WORKER = "drop", "worker"
EDIT = "edit"
SUSPEND, TRIAL, FAILURES = "suspend", "trial", "failures"
CONTROLS, CONTROL = "controls", "control"

_BOARDS = frozenset({OVERVIEW, LOCKS, TRANSPORTS, LOG, OPERATIONS, CONTROLS})
"""From each of these a digit leads to the others."""
_MAIL = frozenset({SUSPEND, TRIAL})
"""What is done about a transport."""
_TEXTS = frozenset({TASK, PROBLEMS, PLAN, LOCK, OPERATION, RECORD, DROP, WORKER, CONTROL}) | _MAIL
_CHOOSING = frozenset({PALETTE, HELP})
"""Where letters are typed, and only the other keys move."""
_LIST = frozenset({LIST})
_OVER = frozenset({OVERVIEW})
_LOG = frozenset({LOG})
_TASK = frozenset({TASK})
_ACTS = _LIST | _TASK
"""Where verbs are for one task, or for those that are marked."""
_OPS = frozenset({OPERATIONS})
_RUNNING = frozenset({OPERATION})
_PACE = frozenset({PACE})
_CONTROL = frozenset({CONTROL})
_FORMS = _PACE | {EDIT}
_ABOVE = frozenset(
    {TASK, PROBLEMS, CLUSTERS, LOCKS, TRANSPORTS, LOG, OPERATIONS, RECORD, FAILURES, CONTROLS}
)
"""What is opened on top of another screen, to be looked at."""
_MOVING = _LIST | _TEXTS | _BOARDS | {CLUSTERS, FAILURES}
_SHOWN = _BOARDS | _LIST | {TASK, PROBLEMS, CLUSTERS, OPERATION, RECORD, FAILURES}
"""Where there is something to be read, copied and searched for."""

PAGES = tuple("123456789")
DIGITS = tuple("0123456789")
PANES = tuple("1234567")

KEYS: tuple[Key, ...] = (
    Key("move('down')", ("j", "down"), "j", "", "one line down", "Move", _MOVING),
    Key("move('up')", ("k", "up"), "k", "", "one line up", "Move", _MOVING),
    Key("move('page_down')", ("pagedown",), "PgDn", "", "one page down", "Move", _MOVING),
    Key("move('page_up')", ("pageup",), "PgUp", "", "one page up", "Move", _MOVING),
    Key("move('half_down')", ("ctrl+d",), "Ctrl-d", "", "half a page down", "Move", _MOVING),
    Key("move('half_up')", ("ctrl+u",), "Ctrl-u", "", "half a page up", "Move", _MOVING),
    Key("move('first')", ("g", "home"), "g Home", "", "to the first line", "Move", _MOVING),
    Key("move('last')", ("G", "end"), "G End", "", "to the last line", "Move", _MOVING),
    Key("open", ("enter",), "Enter", "open", "the queue, the cell or the alert", "Look", _OVER),
    Key(
        "open",
        ("enter", "d"),
        "Enter",
        "open",
        "the task, or the problems, in full",
        "Look",
        _LIST,
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "show these",
        "the queue, filtered to this error",
        "Look",
        frozenset({CLUSTERS}),
    ),
    Key("open", ("enter",), "Enter", "open", "who has it, in full", "Look", frozenset({LOCKS})),
    Key("open", ("enter",), "Enter", "open", "who did it, why, and each of its rows", "Look", _OPS),
    Key("open", ("enter",), "Enter", "task", "the task that the line speaks of", "Look", _LOG),
    Key(
        "open",
        ("enter",),
        "Enter",
        "errors",
        "its last errors one by one, in the words of the server",
        "Look",
        frozenset({TRANSPORTS}),
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "log",
        "the log at the moment of this error",
        "Look",
        frozenset({FAILURES}),
    ),
    Key(
        "open",
        ("enter",),
        "Enter",
        "plan",
        "plan to use this one: shows what it would do, writes nothing",
        "Look",
        frozenset({CONTROLS}),
    ),
    Key("next_pane", ("tab",), "Tab", "pane", "to the next part of the screen", "Look", _OVER),
    Key("previous_pane", ("shift+tab",), "S-Tab", "", "to the part before", "Look", _OVER),
    Key("rows_by", ("x",), "x", "rows by", "age table: by destination, kind, error", "Look", _OVER),
    Key("left", ("left", "h"), "h", "", "age table: the younger cell", "Look", _OVER),
    Key("right", ("right", "l"), "l", "", "age table: the older cell", "Look", _OVER),
    Key(
        "pane",
        PANES,
        "1-7",
        "panes",
        "1 overview 2 queue 3 work 4 dead 5 locks 6 transports 7 log",
        "Look",
        _BOARDS,
        each=True,
        minor=True,
    ),
    Key(
        "filter",
        ("/",),
        "/",
        "filter",
        "show only tasks that match; Enter keeps it, Esc clears it",
        "Look",
        _LIST,
    ),
    Key("next_tab", ("tab", "right", "l"), "Tab", "", "the next tab", "Look", _LIST),
    Key("previous_tab", ("shift+tab", "left", "h"), "S-Tab", "", "the tab before", "Look", _LIST),
    Key(
        "tab", PAGES, "1-9", "tabs", "the tab of that number", "Look", _LIST, each=True, minor=True
    ),
    Key(
        "part",
        PANES,
        "1-7",
        "parts",
        "the part of that number",
        "Look",
        _TASK,
        each=True,
        minor=True,
    ),
    Key("next_part", ("tab", "right", "l"), "Tab", "", "the next part", "Look", _TASK, minor=True),
    Key("previous_part", ("shift+tab", "left", "h"), "S-Tab", "", "the part before", "Look", _TASK),
    Key("clusters", ("c",), "c", "clusters", "the errors here, alike with alike", "Look", _LIST),
    Key("order", ("o",), "o", "order", "order by another column", "Look", _LIST),
    Key("log", ("t",), "t", "log", "the log lines that speak of it", "Look", _LIST | _TASK),
    Key("next_place", ("]",), "]", "", "the next place", "Look", _LIST),
    Key("previous_place", ("[",), "[", "", "the place before", "Look", _LIST),
    Key("follow", ("f",), "f", "follow", "follow the end again, or stay here", "Look", _LOG),
    Key(
        "search",
        ("/",),
        "/",
        "search",
        "look for words; n the next, N the one before",
        "Look",
        _LOG,
    ),
    Key("search_next", ("n",), "n", "", "the next line found", "Look", _LOG),
    Key("search_previous", ("N",), "N", "", "the line found before", "Look", _LOG),
    Key("only", ("&",), "&", "only", "show only lines that match; Esc shows all", "Look", _LOG),
    Key("level_up", ("+",), "+", "level", "only graver lines", "Look", _LOG),
    Key("level_down", ("-",), "-", "", "less grave ones too", "Look", _LOG),
    Key("next_error", ("e",), "e", "error", "the next error", "Look", _LOG),
    Key(
        "goto_time", ("@",), "@", "time", "go to a time: 14:00, yesterday 18:00, -2h", "Look", _LOG
    ),
    Key("wrap", ("w",), "w", "wrap", "long lines in full, or cut", "Look", _LOG, minor=True),
    Key(
        "stamps", ("i",), "i", "stamps", "times with their date, or none", "Look", _LOG, minor=True
    ),
    Key(
        "reread",
        ("r",),
        "r",
        "re-read",
        "look at everything again, now",
        "Look",
        _LIST | _OVER | {LOCKS, TRANSPORTS, OPERATIONS, CONTROLS},
        minor=True,
    ),
    Key(
        "freeze",
        ("p",),
        "p",
        "freeze",
        "hold the screen and go back in recorded time; again: live",
        "Look",
        _OVER,
    ),
    Key("earlier", ("comma",), ",", "", "while frozen: back in recorded time", "Look", _OVER),
    Key("later", ("full_stop",), ".", "", "while frozen: on in recorded time", "Look", _OVER),
    Key("reread", ("r",), "r", "re-read", "read the task again", "Look", _TASK, minor=True),
    Key("repaint", ("ctrl+l",), "Ctrl-l", "", "paint the whole screen again", "Look", _SHOWN),
    Key("mark", ("space",), "Space", "mark", "mark the task, or take its mark away", "Mark", _LIST),
    Key(
        "range",
        ("v",),
        "v",
        "range",
        "mark from here to where v is pressed again",
        "Mark",
        _LIST,
        minor=True,
    ),
    Key("mark_all", ("*",), "*", "all", "act on all that match, not on one row", "Mark", _LIST),
    Key("unmark", ("\\",), "\\", "no marks", "take all marks away", "Mark", _LIST, minor=True),
    Key(
        "yank",
        ("y",),
        "y",
        "copy",
        "copy the id, the row, JSON or a command",
        "Take",
        _SHOWN,
        minor=True,
    ),
    Key(
        "export",
        ("e",),
        "e",
        "export",
        "write what is shown to a file",
        "Take",
        _LIST | _OVER | {PLAN},
        minor=True,
    ),
    Key(
        "plain",
        ("=",),
        "=",
        "plain",
        "this screen as plain text, to be copied",
        "Take",
        _SHOWN,
        minor=True,
    ),
    Key(
        "plan('retry')",
        ("R",),
        "R",
        "retry",
        "plan to try again; in the trash: to put back",
        "Act",
        _ACTS | {CLUSTERS},
        verb="retry",
    ),
    Key(
        "plan('purge')",
        ("X",),
        "X",
        "purge",
        "plan to put into the trash; in the trash: to delete for good",
        "Act",
        _ACTS | {CLUSTERS},
        verb="purge",
    ),
    Key(
        "plan('hold')",
        ("H",),
        "H",
        "hold",
        "plan to park until released",
        "Act",
        _ACTS | {CLUSTERS},
        verb="hold",
    ),
    Key(
        "plan('release')",
        ("L",),
        "L",
        "release",
        "plan to let run again what is held, or was left behind in work",
        "Act",
        _ACTS,
        verb="release",
        minor=True,
    ),
    Key(
        "plan('promote')",
        ("O",),
        "O",
        "promote",
        "plan to let run once more now, whatever it waits for",
        "Act",
        _ACTS,
        verb="promote",
        minor=True,
    ),
    Key(
        "plan('edit')",
        ("E",),
        "E",
        "edit",
        "plan for another description, due, recipient",
        "Act",
        _ACTS,
        verb="edit",
        minor=True,
    ),
    Key(
        "plan('kill')",
        ("K",),
        "K",
        "kill",
        "plan to give up on what was left behind in work",
        "Act",
        _ACTS,
        verb="kill",
        minor=True,
    ),
    Key(
        "in_or_out",
        ("space",),
        "Space",
        "in/out",
        "leave a task out of the plan, or take one in that looks odd",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "reason",
        ("tab",),
        "Tab",
        "reason",
        "say why: it stands in the journal",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "reason",
        ("tab",),
        "Tab",
        "reason",
        "say why: everybody sees it, and it stands in the log",
        "Act",
        frozenset({SUSPEND}),
    ),
    Key("to", ("tab",), "Tab", "to whom", "name another address", "Act", frozenset({TRIAL})),
    Key(
        "pace",
        ("p",),
        "p",
        "pace",
        "how fast, with which canary, and when it stops by itself",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "pause",
        ("space",),
        "Space",
        "pause",
        "send nothing for now; again: go on, which has to be armed",
        "Act",
        _RUNNING,
    ),
    Key("faster", ("+",), "+", "faster", "twice as many a second", "Act", _RUNNING),
    Key("slower", ("-",), "-", "slower", "half as many a second", "Act", _RUNNING),
    Key("stop", ("s",), "s", "stop", "send nothing any more; what is sent stays", "Act", _RUNNING),
    Key(
        "leave_open",
        ("w",),
        "w",
        "do not wait",
        "end it without the outcomes that are not known yet",
        "Act",
        _RUNNING,
    ),
    Key(
        "take_back",
        ("T",),
        "T",
        "take back",
        "plan to take it back: shows what would come back, and what not, writes nothing",
        "Act",
        _OPS | _RUNNING,
    ),
    Key(
        "go_on",
        ("R",),
        "R",
        "go on",
        "plan to go on with what an interrupted one did not come to",
        "Act",
        _OPS,
    ),
    Key(
        "drop",
        ("D",),
        "D",
        "drop",
        "plan to let an interrupted one be over: its rest stays as it is",
        "Act",
        _OPS,
    ),
    Key(
        "undo",
        ("u",),
        "u",
        "undo",
        "what was done here, by whom, and how to take it back",
        "Act",
        _OVER | {TASK, PLAN, OPERATION, CLUSTERS, LOCKS, CONTROLS},
        minor=True,
    ),
    Key("undo", ("u",), "u", "", "what was done here, and how to take it back", "Act", _LIST),
    Key(
        "unlock",
        ("U",),
        "U",
        "unlock",
        "who has the lock, and a plan to free it",
        "Act",
        _LIST | _OVER | {LOCKS},
    ),
    Key(
        "suspend",
        ("S",),
        "S",
        "suspend",
        "plan to send nothing by this transport, or by it again",
        "Act",
        frozenset({TRANSPORTS}),
    ),
    Key(
        "trial",
        ("M",),
        "M",
        "test mail",
        "plan to send one mail by this transport, and by no other",
        "Act",
        frozenset({TRANSPORTS}),
    ),
    Key(
        "controls",
        ("C",),
        "C",
        "controls",
        "the whole queue: what it says of itself, and its controls",
        "Act",
        _LIST | _OVER,
        minor=True,
    ),
    Key(
        "pause_queue",
        ("P",),
        "P",
        "pause",
        "plan to pause the whole queue, or to let it go on",
        "Act",
        _LIST | {CONTROLS},
        minor=True,
    ),
    Key(
        "fill",
        ("enter",),
        "Enter",
        "type it",
        "type what it is for, or its new value",
        "Act",
        _CONTROL,
    ),
    Key("switch", ("space",), "Space", "other value", "the next of its values", "Act", _CONTROL),
    Key(
        "reason",
        ("tab",),
        "Tab",
        "reason",
        "say why: it stands in the journal",
        "Act",
        _CONTROL,
    ),
    Key(
        "plan('hold')",
        ("H",),
        "H",
        "hold",
        "plan to park a task in work that nobody works on",
        "Act",
        frozenset({LOCK}),
        verb="hold",
    ),
    Key(
        "plan('release')",
        ("L",),
        "L",
        "release",
        "plan to let a task in work that nobody works on run again",
        "Act",
        frozenset({LOCK}),
        verb="release",
    ),
    Key(
        "plan('kill')",
        ("K",),
        "K",
        "kill",
        "plan to give a task in work up that nobody works on",
        "Act",
        frozenset({LOCK}),
        verb="kill",
    ),
    Key(
        "note",
        ("#",),
        "#",
        "note",
        "write a note on the task; a purge leaves noted ones out",
        "Act",
        _ACTS,
        minor=True,
    ),
    Key(
        "arm",
        ("!",),
        "!",
        "arm",
        "allow writes for 15 minutes since the last one; again: forbid them",
        "Act",
        frozenset({OVERVIEW, LIST, TASK, PLAN, LOCK, OPERATIONS, OPERATION, DROP, WORKER, CLUSTERS})
        | _MAIL
        | {TRANSPORTS, CONTROLS, CONTROL},
    ),
    Key(
        "yes",
        ("y",),
        "y",
        "apply",
        "apply a plan for one task, where it asks for no count",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the count",
        "apply any other plan by its count: the last right digit applies",
        "Act",
        frozenset({PLAN}),
        each=True,
    ),
    Key(
        "yes",
        ("y",),
        "y",
        "free it",
        "free a lock whose holder is gone: there is nobody to signal",
        "Act",
        frozenset({LOCK}),
    ),
    Key("yes", ("y",), "y", "do it", "suspend it, or resume it", "Act", frozenset({SUSPEND})),
    Key("yes", ("y",), "y", "do it", "use the control: it can be set back", "Act", _CONTROL),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the count",
        "use a control that cannot be set back: 1, there is but one queue",
        "Act",
        _CONTROL,
        each=True,
    ),
    Key("yes", ("y",), "y", "send it", "send the test mail", "Act", frozenset({TRIAL})),
    Key("yes", ("y",), "y", "do it", "start the worker, or stop it", "Act", frozenset({WORKER})),
    Key("yes", ("y",), "y", "let it be over", "write down that it is", "Act", frozenset({DROP})),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the PID",
        "free a stuck lock by its holder's PID: the last right digit applies",
        "Act",
        frozenset({LOCK}),
        each=True,
    ),
    Key(
        "rub_out",
        ("backspace",),
        "Bksp",
        "",
        "take the last digit back",
        "Act",
        frozenset({PLAN, LOCK, CONTROL}),
    ),
    Key("worker", ("W",), "W", "worker", "plan to start a worker, or to stop it", "Act", _LIST),
    Key(
        "palette",
        (":", "ctrl+p"),
        ":",
        "command",
        "say what to do or where to go; Ctrl-p does the same",
        "Leave",
        _SHOWN,
    ),
    Key(
        "help",
        ("?", "f1"),
        "?",
        "help",
        "this page",
        "Leave",
        _SHOWN | _MAIL | {PLAN, LOCK, DROP, WORKER, CONTROL},
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back to where it was opened; what runs goes on",
        "Leave",
        _RUNNING | {TRIAL, CONTROL},
    ),
    Key("next", ("tab", "down"), "Tab", "next", "the next field", "Move", _FORMS),
    Key("previous", ("shift+tab", "up"), "S-Tab", "", "the field before", "Move", _FORMS),
    Key("switch", ("space",), "Space", "on or off", "switch the rule on or off", "Act", _PACE),
    Key(
        "type",
        (*DIGITS, "full_stop"),
        "0-9",
        "",
        "type the number of the field",
        "Act",
        _PACE,
        each=True,
    ),
    Key("rub_out", ("backspace",), "Bksp", "", "take the last digit back", "Act", _PACE),
    Key("take", ("enter",), "Enter", "take it", "so it is to go", "Leave", _PACE),
    Key("back", ("escape",), "Esc", "as it was", "keep it as it was", "Leave", _PACE),
    Key(
        "back",
        ("escape",),
        "Esc",
        "clear",
        "clear marks of a range or the filter; then back to the overview",
        "Leave",
        _LIST,
        minor=True,
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back to where it was opened",
        "Leave",
        _ABOVE,
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back to the list; what runs goes on",
        "Leave",
        frozenset({LOCK}),
    ),
    Key("back", ("escape",), "Esc", "back", "close the help", "Leave", frozenset({HELP})),
    Key(
        "back", ("escape",), "Esc", "close", "do nothing", "Leave", frozenset({PALETTE, MENU, EDIT})
    ),
    Key("back", ("escape",), "Esc", "stop", "stop it", "Leave", frozenset({PROGRESS})),
    Key("move('down')", ("down",), "Down", "", "one line down", "Move", _CHOOSING),
    Key("move('up')", ("up",), "Up", "", "one line up", "Move", _CHOOSING),
    Key("move('page_down')", ("pagedown",), "PgDn", "", "one page down", "Move", _CHOOSING),
    Key("move('page_up')", ("pageup",), "PgUp", "", "one page up", "Move", _CHOOSING),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "discard",
        "close the plan; what is not applied is dropped",
        "Leave",
        frozenset({PLAN, DROP, WORKER, SUSPEND}),
    ),
    Key("leave", ("q",), "q", "back", "back to the overview; there: leave", "Leave", _LIST),
    Key("back", ("escape",), "Esc", "", "stop the first look at a queue", "Leave", _OVER),
    Key("app.quit", ("q",), "q", "quit", "leave the console", "Leave", _OVER),
    Key(
        "app.cancel",
        ("ctrl+c",),
        "Ctrl-c",
        "",
        "cancel what is typed; twice: leave the console",
        "Leave",
        _LIST | _OVER,
    ),
    Key(
        "app.suspend_process",
        ("ctrl+z",),
        "Ctrl-z",
        "",
        "to the shell; fg comes back",
        "Leave",
        _SHOWN,
    ),
    Key(
        "stop",
        ("s",),
        "s",
        "stop",
        "stop the worker (SIGTERM) and leave",
        "Leave",
        frozenset({QUIT}),
    ),
    Key(
        "keep",
        ("k",),
        "k",
        "keep it",
        "leave, the worker keeps running",
        "Leave",
        frozenset({QUIT}),
    ),
    Key("back", ("escape",), "Esc", "stay", "stay in the console", "Leave", frozenset({QUIT})),
)
"""Every key, in the order in which help and hints list them."""

GROUPS = tuple(dict.fromkeys(key.group for key in KEYS))
"""The headings of the help, in their order."""


def on(screen: str, without: Collection[str] = ()) -> Iterator[Key]:
    """The keys of a screen, but for the actions in `without`."""
    return (key for key in KEYS if screen in key.screens and key.action not in without)


def hints(
    screen: str,
    grey: Collection[str] = (),
    without: Collection[str] = (),
    words: Mapping[str, str] | None = None,
) -> tuple[Hint, ...]:
    """What the hint lines of a screen show; `words` replaces the words of some actions."""
    changed = words or {}
    return tuple(
        Hint(key.shown, changed.get(key.action, key.hint), key.action in grey, key.minor)
        for key in on(screen, without)
        if key.hint
    )


def bindings(screen: str) -> list[BindingType]:
    """The keys of a screen, as the terminal library wants them."""
    return [
        Binding(pressed, f"{key.action}('{pressed}')" if key.each else key.action, show=False)
        for key in on(screen)
        for pressed in key.keys
    ]


def arm_words(armed: bool) -> str:
    """What the arming key would do now, for the hints."""
    return "disarm" if armed else "arm"


def verbs() -> Iterable[Key]:
    """The keys that open a plan."""
    return (key for key in KEYS if key.verb)
