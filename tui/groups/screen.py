"""The screens of a place's tasks in groups: by a common value, and failed ones by their error;
their keys.

They show their parts (`tui.groups.parts`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from engine.index import filter_language
from engine.index.filter_language import BadFilter
from engine.index.schema import Query
from engine.text.safe import safe_line
from tui.groups.parts import ErrorClusters, GroupParts, TaskGroups
from tui.plan import refusals
from tui.plan.open_plan import plan_rows
from tui.plan.planning import VerbRequest, verb_in_state
from tui.plan.refusals import verb_row
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys


def _open_list(parts: GroupParts[Any]) -> Change:
    selected, noun = parts.selected, parts.noun
    if selected is None:
        return parts.say(parts.no_row_reason(f"no {noun} to open"))
    known, text = parts.session.inspector, parts.query_of([selected]).filter.text
    if safe_line(text) != text:
        return parts.say("list not opened: no filter can be typed for control characters")
    try:
        filter_language.parse_filter(text, known.states, parts.context.clock(), known.words)
    except BadFilter as error:
        return parts.say(f"list not opened: {error.message} with the {noun}")
    state = parts.target_state(selected)
    parts.screen.go(Target(keys.LIST, state=state, filter=text))
    return Change.NOTHING


def _plan(parts: GroupParts[Any], verb: str) -> Change:
    chosen, state, noun = parts.chosen, parts.query.state, parts.noun
    if not chosen:
        return parts.say(parts.why_none)
    if not sum(map(parts.count_of, chosen)):
        there = parts.target_state(chosen[0])
        word = "" if there in (None, state) else parts.session.inspector.states[there]
        more = f"; Enter shows those in {word}" if word else ""
        return parts.say(f"no task of this {noun} in {parts.state_word}{more}")
    words = parts.scope_words(chosen)
    verb = verb_in_state(verb, state, parts.session.inspector.edges)
    parts.screen.plan(VerbRequest(verb, None, parts.query_of(chosen), lambda _: words))
    return Change.NOTHING


def _group_by(parts: GroupParts[Any], pressed: str) -> Change:
    assert isinstance(parts, TaskGroups)
    parts.turn(keys.step_of(pressed))
    parts.screen.run("groups", parts.follow)
    return Change.NOTHING


Parts: TypeAlias = GroupParts[Any]
Row: TypeAlias = KeyRow[Parts, Change]


def _with_rows(row: Row) -> Row:
    """The key; if it acts on rows, it has no hint while there are none."""
    needs = row.key.verb or row.key.action in ("open", "mark", "mark_stopped")
    return replace(row, label=lambda parts: "" if needs and parts.is_empty else row.label(parts))


def _rows(screen: str, noun: str, *verbs: str) -> tuple[Row, ...]:
    make = RowMaker[Parts, Change](screen, Change.NOTHING)
    key = make.key

    def other_verbs(parts: Parts) -> str:
        if parts.is_empty:
            return ""
        offered = (row.key for row in rows if row.key.verb)
        return refusals.other_verbs(parts.session, parts.context, offered, parts.query.state)

    def verb(name: str) -> Row:
        return verb_row(key(f"plan('{name}')"), _plan, other_verbs)

    turn = make.own(
        "grouping | left h right l | h l | group by | View +key | previous, next grouping; also "
        "Left, Right",
        _group_by,
    )
    stopped = make.own(
        "mark_stopped | * | * | stopped | Mark | mark the clusters whose error has stopped, "
        "and no others",
        GroupParts.mark_stopped,
        is_absent=is_read_only,
    )
    places = [
        make.own(
            f"{name}_place | {pressed} | {pressed} | - | View | {name} place",
            partial(ErrorClusters.to_place, step=step),
            is_absent=lambda parts: parts.context.places == 1,
        )
        for name, pressed, step in (("next", "]", 1), ("previous", "[", -1))
    ]
    rows: tuple[Row, ...] = (
        *make.moves(lambda parts, how: parts.move(how)),
        make.own(
            f"open | enter | Enter | show | View | the queue, filtered by this {noun}",
            _open_list,
        ),
        KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
        *[turn] * (screen == keys.GROUPS),
        make.own(
            f"mark | space | Space | mark | Mark +minor | mark or unmark the {noun}",
            GroupParts.mark,
            is_absent=is_read_only,
        ),
        *[stopped, *places] * (screen == keys.CLUSTERS),
        make.own(
            "unmark | \\ | \\ | clear marks | Mark +minor | clear all marks",
            GroupParts.unmark,
            is_absent=lambda parts: not parts.marks,
        ),
        *make.views(),
        *map(verb, verbs),
        make.goes(key("operations"), Target(keys.OPERATIONS)),
        make.arm(Change.EDGES),
        *make.ends(),
    )
    return tuple(map(_with_rows, rows))


CLUSTER_ROWS = _rows(keys.CLUSTERS, "cluster", "retry", "purge", "hold")
GROUP_ROWS = _rows(
    keys.GROUPS,
    "group",
    "retry",
    "purge",
    "hold",
    "release",
    "promote",
    "kill",
    "reroute",
    "expire",
)


class GroupsScreen(RowsScreen):
    """The tasks by queue, kind, group, destination, sender or account, and by rings of queues."""

    KIND = keys.GROUPS
    ROWS = GROUP_ROWS
    BINDINGS = row_bindings(GROUP_ROWS)

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, query: Query, aim: str = ""
    ) -> None:
        super().__init__()
        self.panes = ListPanes()
        self.parts = TaskGroups(session, context, self, query, aim)

    def plan(self, asked: VerbRequest) -> None:
        plan_rows(self, self.parts, asked)


class ClustersScreen(RowsScreen):
    """The error clusters, and whether they still happen."""

    KIND = keys.CLUSTERS
    ROWS = CLUSTER_ROWS
    BINDINGS = row_bindings(CLUSTER_ROWS)

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, query: Query, aim: str = ""
    ) -> None:
        super().__init__()
        self.panes = ListPanes()
        self.parts = ErrorClusters(session, context, self, query, aim)

    def plan(self, asked: VerbRequest) -> None:
        plan_rows(self, self.parts, asked)
