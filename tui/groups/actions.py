"""What the keys of the screens of groups do to their parts; each returns what it changed."""

from __future__ import annotations

from typing import Any

from engine.index import filter_language
from engine.index.filter_language import BadFilter
from engine.text.safe import safe_line
from tui.groups.parts import GroupParts
from tui.groups.task_groups import TaskGroups
from tui.plan.planning import VerbRequest, verb_in_state
from tui.screens.rows_parts import Change
from tui.screens.target import Target
from tui.text import keys


def open_list(parts: GroupParts[Any]) -> Change:
    """Open the task list filtered for the group under the cursor."""
    selected, noun = parts.selected, parts.grouping.noun
    if selected is None:
        return parts.say(parts.no_row_reason(f"no {noun} to open"))
    known, text = parts.session.inspector, parts.query_of(selected).filter.text
    if safe_line(text) != text:
        return parts.say("list not opened: no filter can be typed for control characters")
    try:
        filter_language.parse_filter(text, known.states, parts.context.clock(), known.words)
    except BadFilter as error:
        return parts.say(f"list not opened: {error.message} with the {noun}")
    state = parts.grouping.target_state(selected)
    parts.screen.go(Target(keys.LIST, state=state, filter=text))
    return Change.NOTHING


def plan(parts: GroupParts[Any], verb: str) -> Change:
    """Open the plan for all tasks of the group under the cursor."""
    selected, state, noun = parts.selected, parts.query.state, parts.grouping.noun
    if selected is None:
        return parts.say(parts.no_row_reason(f"no {noun} selected"))
    if not parts.grouping.count_of(selected):
        return parts.say(f"no task of this {noun} in {parts.state_word}")
    words = parts.grouping.scope_words(selected)
    verb = verb_in_state(verb, state, parts.session.inspector.edges)
    parts.screen.plan(VerbRequest(verb, None, parts.query_of(selected), lambda _: words))
    return Change.NOTHING


def group_by(parts: GroupParts[Any], pressed: str) -> Change:
    """Group by the previous or next column."""
    assert isinstance(parts.grouping, TaskGroups)
    parts.grouping.turn(keys.step_of(pressed))
    parts.screen.run("groups", parts.follow)
    return Change.NOTHING
