"""The keys of the queue screen in the order of their hints: what each does, when it is refused.

To add a key, add a row here. Its action is a function of the parts that returns what it changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.verbs import edges_of
from tui.plan import planning, refusals
from tui.plan.refusals import control_refusal, pause_control
from tui.queue import actions
from tui.queue.parts import QueueParts
from tui.screens.key_rows import Change, KeyRow, never, no_words, own_label
from tui.screens.target import SCREEN_TARGETS, Target
from tui.text import keys
from tui.text.keys import Key

Row = KeyRow[QueueParts]


def _only_tasks(parts: QueueParts) -> str | None:
    """No hint on the problems."""
    return "" if parts.tabs.on_problems else None


def _own(
    words: str,
    description: str,
    act: Callable[..., Change],
    *,
    refusal: Callable[[QueueParts], str] = no_words,
    is_absent: Callable[[QueueParts], bool] = never,
    label: Callable[[QueueParts], str | None] = own_label,
) -> Row:
    """A key that only this screen has. `words`: action, keys, keys as shown, hint, heading of the
    help and flags, as in the text table of `tui.text.keys`.
    """
    key = _called(keys.key_of_row(f"{words} | {description}"))
    return KeyRow(key, act, refusal, is_absent=is_absent, label=label)


def _shared(action: str, screen: str = keys.TASK, *, is_minor: bool | None = None) -> Key:
    """A key that another screen has, too, with its words."""
    key = keys.key_on(screen, action)
    return _called(key if is_minor is None else key._replace(is_minor=is_minor))


def _called(key: Key) -> Key:
    return key._replace(call=f"key({key.keys[0]!r})", screens=frozenset({keys.LIST}))


def _is_read_only(parts: QueueParts) -> bool:
    return parts.context.arming.read_only


def _move(how: str) -> Row:
    return KeyRow(_shared(f"move('{how}')"), lambda parts: parts.screen.move(how))


def _global(what: str, key: Key) -> Row:
    return KeyRow(key, partial(actions.request, what=what))


def _verb(verb: str) -> Row:
    """A key that plans a verb, or what it means in this state and store."""
    key = _shared(f"plan('{verb}')", is_minor=False)

    def label(parts: QueueParts) -> str:
        edges, state = parts.inspector.edges, parts.state
        meant = planning.verb_in_state(verb, state, edges)
        if state is None or not edges_of(edges, meant, state):
            return ""  # for tasks in other states: it would displace those that work here
        return key.hint if meant == verb else meant

    return KeyRow(
        key,
        partial(actions.plan, verb=verb),
        refusal=lambda parts: parts.verb_refusal(verb),
        advice=_other_verbs,
        is_absent=lambda parts: _is_read_only(parts) or key.action in parts.absent_verbs,
        label=label,
    )


def _other_verbs(parts: QueueParts) -> str:
    if parts.tabs.on_problems or parts.filter.error:
        return ""
    verbs = (row.key for row in ROWS if row.key.verb)
    return refusals.other_verbs(
        parts.session, parts.context, verbs, parts.state, parts.selected_task
    )


def _no_problem(parts: QueueParts) -> str:
    return "no problem to open" if parts.tabs.on_problems and not parts.problems else ""


def _place(words: str, description: str, step: int) -> Row:
    return _own(
        words,
        description,
        partial(actions.to_place, step=step),
        is_absent=lambda parts: parts.context.places == 1,
    )


def _app(action: str, screen: str = keys.TASK) -> Row:
    """A key whose action is the app's."""
    return KeyRow(_shared(action, screen)._replace(call=""), lambda parts: Change.NOTHING)


ROWS: tuple[Row, ...] = (
    *map(_move, ("down", "up", "page_down", "page_up", "half_down", "half_up", "first", "last")),
    _own(
        "open | enter d | Enter | open | View | -",
        "the task in full; on the problem line: all problems",
        actions.open_task,
        refusal=_no_problem,
        label=lambda parts: "details" if parts.tabs.on_problems else "open",
    ),
    _own(
        "pane(1) | tab shift+tab | Tab | - | View | -",
        "scroll the details; again: to the rows",
        lambda parts: parts.screen.switch_pane(),
    ),
    _own(
        "filter | / | / | filter | View | -",
        "show only matching tasks; Enter keeps the filter, Esc clears it",
        actions.open_filter,
        label=_only_tasks,
    ),
    _own(
        "tab | left h right l | h l | tabs | View | +key +minor",
        "previous, next tab (state); also Left, Right",
        actions.tab,
    ),
    _own(
        "graph_range | z | z | - | View | -",
        "graph: the last 10 minutes, hour or day",
        lambda parts: parts.screen.next_graph_range(),
    ),
    _own(
        "clusters | c | c | clusters | View | -",
        "errors of these tasks, grouped into clusters",
        partial(actions.go, target=Target(keys.CLUSTERS)),
        label=_only_tasks,
    ),
    _own(
        "order | o | o | order | View | +minor",
        "sort by another column",
        actions.order,
        label=_only_tasks,
    ),
    KeyRow(_shared("log", is_minor=True), actions.open_log, label=_only_tasks),
    _place("next_place | ] | ] | - | View | -", "next place", 1),
    _place("previous_place | [ | [ | - | View | -", "previous place", -1),
    _own(
        "show('wide') | w | w | wide | View | +minor",
        "error column with the room of the others, or not",
        partial(actions.show, what="wide"),
        label=_only_tasks,
    ),
    _own(
        "show('ids') | i | i | full ids | View | +minor",
        "full ids, or their last 8 characters",
        partial(actions.show, what="ids"),
        label=_only_tasks,
    ),
    _own(
        "groups | b | b | groups | View | +minor",
        "these tasks by queue, kind, group or destination",
        partial(actions.go, target=Target(keys.GROUPS)),
        label=_only_tasks,
    ),
    KeyRow(_shared("reread", keys.LOCKS, is_minor=True), actions.reread),
    KeyRow(
        _shared("screen"),
        lambda parts, digit: actions.go(parts, SCREEN_TARGETS[digit]),
        label=lambda parts: "",  # the digits are in the titles of the panes
    ),
    KeyRow(_shared("repaint"), actions.repaint),
    _own(
        "mark | space | Space | mark | Mark | +minor",
        "mark or unmark the task",
        actions.mark,
        label=_only_tasks,
        is_absent=_is_read_only,
    ),
    _own(
        "range | v | v | range | Mark | +minor",
        "mark a range: from here to the row of the next v",
        actions.mark_range,
        label=_only_tasks,
    ),
    _own(
        "mark_all | * | * | all | Mark | +minor",
        "act on all matching tasks, not on one row",
        actions.mark_all,
        label=_only_tasks,
        is_absent=_is_read_only,
    ),
    _own(
        "unmark | \\ | \\ | clear marks | Mark | +minor",
        "unmark all tasks",
        actions.unmark,
        label=_only_tasks,
        is_absent=_is_read_only,
    ),
    _global("yank", _shared("yank")),
    _global("export", _shared("export", keys.OVERVIEW)),
    _global("plain", _shared("plain")),
    *map(_verb, ("retry", "purge", "hold", "release", "promote")),
    *map(_verb, ("edit", "kill", "reroute", "expire")),
    KeyRow(_shared("operations", keys.LOG), partial(actions.go, target=Target(keys.OPERATIONS))),
    KeyRow(
        _shared("unlock", keys.LOCKS, is_minor=True),
        partial(actions.go, target=Target(keys.LOCK)),
        refusal=lambda parts: parts.place.why_no_unlock(_is_read_only(parts)),
        is_absent=lambda parts: _is_read_only(parts) or parts.place.has_leases,
    ),
    KeyRow(
        _shared("controls", keys.OVERVIEW),
        partial(actions.go, target=Target(keys.CONTROLS)),
        is_absent=lambda parts: not parts.session.has_queue_figures,
    ),
    KeyRow(
        _shared("pause_queue", keys.CONTROLS, is_minor=True),
        actions.pause_queue,
        refusal=lambda parts: control_refusal(
            parts.session, parts.context, pause_control(parts.session)
        ),
        is_absent=lambda parts: _is_read_only(parts) or not parts.inspector.controls,
    ),
    KeyRow(_shared("note", is_minor=True), actions.note, is_absent=_is_read_only),
    KeyRow(
        _shared("arm"),
        actions.arm,
        is_absent=_is_read_only,
        label=lambda parts: keys.arm_hint(parts.context.arming.is_armed),
    ),
    KeyRow(
        _shared("worker", keys.LOCKS, is_minor=True),
        actions.worker,
        is_absent=lambda parts: _is_read_only(parts) or not parts.place.worker_command,
    ),
    _global("palette", _shared("palette", is_minor=True)),
    _global("help", _shared("help")),
    _own(
        "back | escape | Esc | clear | Quit | +minor",
        "clear the range, then the filter; then back to the overview",
        actions.back,
    ),
    _own(
        "leave | q | q | back | Quit | -",
        "back to the overview; there: quit",
        partial(actions.request, what="leave"),
    ),
    _app("app.cancel", keys.OVERVIEW),
    _app("app.suspend_process"),
)
"""All keys; pressing one is the Textual action `key` of the screen."""
