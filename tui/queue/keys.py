"""The keys of the queue screen in the order of their hints: what each does, when it is refused.

To add a key, add a row here. Its action is a function of the parts that returns what it changed."""

from __future__ import annotations

from functools import partial

from tui.plan import refusals
from tui.plan.refusals import control_refusal, pause_control, verb_row
from tui.queue import actions
from tui.queue.parts import Change, QueueParts
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.target import Target
from tui.text import keys

Row = KeyRow[QueueParts, Change]


def _only_tasks(parts: QueueParts) -> str | None:
    return "" if parts.tabs.on_problems else None


def _log_label(parts: QueueParts) -> str | None:
    return "" if parts.session.no_log else _only_tasks(parts)


make = RowMaker[QueueParts, Change](keys.LIST, Change.NOTHING)
own, key = make.own, make.key
on_tasks = partial(own, label=_only_tasks)


def _other_verbs(parts: QueueParts) -> str:
    if parts.tabs.on_problems or parts.filter.error or parts.is_empty:
        return ""
    verbs = (row.key for row in ROWS if row.key.verb)
    return refusals.other_verbs(
        parts.session, parts.context, verbs, parts.state, parts.selected_task
    )


def _verb(verb: str) -> Row:
    return verb_row(key(f"plan('{verb}')", is_minor=False), actions.plan, _other_verbs)


def _no_problem(parts: QueueParts) -> str:
    return "no problem to open" if parts.tabs.on_problems and not parts.problems else ""


def _place(words: str, step: int) -> Row:
    return own(
        words,
        partial(actions.to_place, step=step),
        is_absent=lambda parts: parts.context.places == 1,
    )


ROWS: tuple[Row, ...] = (
    *make.moves(lambda parts, how: parts.screen.move(how)),
    own(
        "open | enter d | Enter | open | View | the task in full; on the problem "
        "line: all problems",
        actions.open_task,
        refusal=_no_problem,
        label=lambda parts: "details" if parts.tabs.on_problems else "open",
    ),
    own(
        "pane(1) | tab shift+tab | Tab | - | View | scroll the details; again: to the rows",
        lambda parts: parts.screen.switch_pane(),
    ),
    on_tasks(
        "filter | / | / | filter | View | show only matching tasks; Enter keeps the "
        "filter, Esc clears it",
        actions.open_filter,
    ),
    own(
        "tab | left h right l | h l | tabs | View +key +minor | previous, next tab (state); also "
        "Left, Right",
        actions.tab,
    ),
    own(
        "graph_range | z | z | - | View | graph: the last 10 minutes, hour or day",
        lambda parts: parts.screen.next_graph_range(),
    ),
    on_tasks(
        "clusters | c | c | clusters | View | errors of these tasks, grouped into clusters",
        partial(actions.go, target=Target(keys.CLUSTERS)),
    ),
    on_tasks("order | o | o | order | View +minor | sort by another column", actions.order),
    KeyRow(key("log", is_minor=True), actions.open_log, label=_log_label),
    _place("next_place | ] | ] | - | View | next place", 1),
    _place("previous_place | [ | [ | - | View | previous place", -1),
    on_tasks(
        "show('wide') | w | w | wide | View +minor | error column with the room of the others, "
        "or not",
        partial(actions.show, what="wide"),
    ),
    on_tasks(
        "show('ids') | i | i | full ids | View +minor | full ids, or their last 8 characters",
        partial(actions.show, what="ids"),
    ),
    on_tasks(
        "groups | b | b | groups | View +minor | these tasks by queue, kind, sender ...",
        partial(actions.go, target=Target(keys.GROUPS)),
    ),
    KeyRow(key("reread", keys.SHARED), actions.reread),
    make.digits(label=""),  # they are in the titles of the panes
    make.repaint(),
    on_tasks(
        "mark | space | Space | mark | Mark +minor | mark or unmark the task",
        actions.mark,
        is_absent=is_read_only,
    ),
    on_tasks(
        "range | v | v | range | Mark +minor | mark a range: from here to the row of the next v",
        actions.mark_range,
    ),
    on_tasks(
        "mark_all | * | * | all | Mark +minor | act on all matching tasks, not on one row",
        actions.mark_all,
        is_absent=is_read_only,
    ),
    on_tasks(
        "unmark | \\ | \\ | clear marks | Mark +minor | unmark all tasks",
        actions.unmark,
        is_absent=is_read_only,
    ),
    make.asks(key("yank")),
    make.asks(key("export", keys.PLAN)),
    make.asks(key("plain")),
    *map(_verb, ("retry", "purge", "hold", "release", "promote")),
    *map(_verb, ("edit", "kill", "reroute", "expire")),
    make.goes(key("operations", keys.PROBLEMS), Target(keys.OPERATIONS)),
    KeyRow(
        key("unlock", is_minor=True),
        partial(actions.go, target=Target(keys.LOCK)),
        refusal=lambda parts: parts.place.why_no_unlock(is_read_only(parts)),
        is_absent=lambda parts: is_read_only(parts) or parts.place.has_leases,
    ),
    KeyRow(
        key("controls", keys.SHARED),
        partial(actions.go, target=Target(keys.CONTROLS)),
        is_absent=lambda parts: not parts.session.has_queue_figures,
    ),
    KeyRow(
        key("pause_queue", keys.SHARED),
        actions.pause_queue,
        refusal=lambda parts: control_refusal(
            parts.session, parts.context, pause_control(parts.session)
        ),
        is_absent=lambda parts: is_read_only(parts) or not parts.inspector.controls,
    ),
    KeyRow(key("note", is_minor=True), actions.note, is_absent=is_read_only),
    make.arm(Change.SCOPE | Change.HEADER),
    KeyRow(
        key("worker", is_minor=True),
        actions.worker,
        is_absent=lambda parts: is_read_only(parts) or not parts.place.worker_command,
    ),
    make.asks(key("palette", is_minor=True)),
    make.asks(key("help")),
    own(
        "back | escape | Esc | clear | Quit +minor | clear the range, then the filter; then back "
        "to the overview",
        actions.back,
    ),
    make.asks(make.own_key("leave | q | q | back | Quit | back to the overview; there: quit")),
    make.app(key("app.cancel", keys.SHARED)),
    make.app(key("app.freeze")),
    make.app(key("app.suspend_process")),
)
