"""The keys of the screens of groups and of clusters in the order of their hints."""

from __future__ import annotations

from typing import Any, TypeAlias

from tui.groups import actions
from tui.groups.parts import GroupParts
from tui.plan import refusals
from tui.plan.verb_row import verb_row
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.rows_parts import Change
from tui.screens.target import Target
from tui.text import keys

Parts: TypeAlias = GroupParts[Any]
Row: TypeAlias = KeyRow[Parts, Change]


def _rows(screen: str, noun: str, *verbs: str) -> tuple[Row, ...]:
    make = RowMaker[Parts, Change](screen, Change.NOTHING)
    key = make.key
    own_keys = {}
    if screen == keys.CLUSTERS:
        replay = "replay | Act | plan a replay: a retry of all of it, at a rate"
        own_keys["retry"] = make.own_key(f"plan('retry') | R | R | {replay}")

    def other_verbs(parts: Parts) -> str:
        offered = (row.key for row in rows if row.key.verb)
        return refusals.other_verbs(parts.session, parts.context, offered, parts.query.state)

    def verb(name: str) -> Row:
        return verb_row(own_keys.get(name) or key(f"plan('{name}')"), actions.plan, other_verbs)

    turn = make.own(
        "grouping | left h right l | h l | group by | View +key | previous, next grouping; also "
        "Left, Right",
        actions.group_by,
    )
    rows: tuple[Row, ...] = (
        *make.moves(lambda parts, how: parts.move(how)),
        make.own(
            f"open | enter | Enter | show these | View | the queue, filtered by this {noun}",
            actions.open_list,
        ),
        KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
        *[turn] * (screen == keys.GROUPS),
        *make.views(),
        *map(verb, verbs),
        make.goes(key("operations"), Target(keys.OPERATIONS)),
        make.arm(Change.EDGES),
        *make.ends(),
    )
    return rows


CLUSTER_ROWS = _rows(keys.CLUSTERS, "error", "retry", "purge", "hold")
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
"""All keys; pressing one is the Textual action `key` of the screen."""
