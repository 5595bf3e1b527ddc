"""The keys of the task screen in the order of their hints: what each does, when it is refused."""

from __future__ import annotations

import asyncio
from functools import partial

from engine.index.schema import Query
from tui.plan import planning, refusals
from tui.plan.planning import VerbRequest
from tui.plan.refusals import TASK_JUST_CHANGED
from tui.plan.verb_row import verb_row
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.target import Target
from tui.task.parts import Change, TaskParts
from tui.text import keys
from tui.widgets.task_rows import SEEN_SECONDS

Row = KeyRow[TaskParts, Change]


def _open_relative(parts: TaskParts) -> Change:
    details, id = parts.reader.details, parts.screen.relative_key
    family = () if details is None else (details.relatives.parent, *details.relatives.children)
    relative = next((one for one in family if one is not None and one.id == id), None)
    if relative is None:
        return parts.say("no parent and no children")
    if not relative.is_here:
        return parts.say(f"{id} is not in this place, or no longer")
    parts.screen.go(Target(keys.TASK, id=id))
    return Change.NOTHING


def _turn(parts: TaskParts, pressed: str) -> Change:
    titles = parts.tab_titles()
    parts.tab = titles[(titles.index(parts.tab) + keys.step_of(pressed)) % len(titles)]
    return Change.EDGES | Change.TEXT


def _open_log(parts: TaskParts) -> Change:
    parts.screen.go(Target(keys.LOG, id=parts.reader.id))
    return Change.NOTHING


def _neighbor(parts: TaskParts, by: int) -> Change:
    parts.screen.open(lambda screen: screen.action_neighbor(by))
    return Change.NOTHING


def _reread(parts: TaskParts) -> Change:
    parts.screen.run("reread", parts.reread)
    return Change.NOTHING


def _plan(parts: TaskParts, verb: str) -> Change:
    task = parts.task
    assert task is not None  # else the row is refused
    if asyncio.get_running_loop().time() - parts.reader.altered_at < SEEN_SECONDS:
        return parts.say(TASK_JUST_CHANGED)
    meant = planning.verb_in_state(verb, task.state, parts.session.inspector.edges)
    asked = VerbRequest(meant, {task.id}, Query(task.state), lambda _: f"task {task.id}")
    parts.screen.plan(asked, task)
    return Change.NOTHING


def _other_verbs(parts: TaskParts) -> str:
    if parts.verb_state is None:
        return ""
    verbs = (row.key for row in ROWS if row.key.verb)
    return refusals.other_verbs(parts.session, parts.context, verbs, parts.verb_state, parts.task)


def _note(parts: TaskParts) -> Change:
    from tui.plan.note_prompt import prompt_for_note

    session, context, task = parts.session, parts.context, parts.task
    parts.screen.open(lambda screen: prompt_for_note(screen, session, context, task))
    return Change.NOTHING


make = RowMaker[TaskParts, Change](keys.TASK, Change.NOTHING)
own, key = make.own, make.key


def _verb(verb: str) -> Row:
    return verb_row(key(f"plan('{verb}')"), _plan, _other_verbs)


ROWS: tuple[Row, ...] = (
    *make.moves(lambda parts, how: parts.screen.move(how)),
    own(
        "open | enter | Enter | relative | View | the parent or the child under the cursor",
        _open_relative,
        is_absent=lambda parts: not parts.has_relatives,
    ),
    own(
        "part | left h right l | h l | parts | View +key +minor | previous, next part; also Left, "
        "Right",
        _turn,
    ),
    KeyRow(key("log"), _open_log),
    KeyRow(key("neighbor(1)"), partial(_neighbor, by=1)),
    KeyRow(key("neighbor(-1)"), partial(_neighbor, by=-1)),
    own("reread | r | r | re-read | View +minor | re-read the task", _reread),
    *make.views(),
    *map(_verb, ("retry", "purge", "hold", "release", "promote")),
    *map(_verb, ("edit", "kill", "reroute", "expire")),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    KeyRow(key("note"), _note, is_absent=is_read_only),
    make.arm(Change.EDGES),
    *make.ends(),
)
