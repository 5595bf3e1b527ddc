"""Actions on one schedule: run, remove, edit; and the undo of one."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial

from engine.operations.controls import ControlResult, EffectUnknown
from engine.operations.journal import Operation
from engine.places.schedules import (
    EDIT,
    NONE,
    RULE_FIELDS,
    PlaceSchedules,
    Schedule,
    change_options,
)
from engine.store import StoreError
from engine.text.safe import safe_line
from tui.confirm.action_screen import Action, Question, Reason
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line, Run, fact_lines, folded_lines

EDIT_TITLE = "NAME=VALUE, NAME=VALUE; names: " + ", ".join(RULE_FIELDS)


def parse_edit(text: str) -> Mapping[str, str]:
    """The changes in a typed line: `pattern=0 1,13 * * *, tz=none`.

    Raises:
        ValueError: it has another form."""
    head, *pairs = re.split(r"(?:^|,)\s*([a-z]+)=", text.strip())
    changes = dict(zip(pairs[::2], map(str.strip, pairs[1::2]), strict=True))
    if head or not changes or changes.keys() - RULE_FIELDS.keys():
        raise ValueError(f"expected NAME=VALUE, NAME one of {', '.join(RULE_FIELDS)}")
    return changes


def edit_text(one: Schedule) -> str:
    """The rule of a schedule as such a line."""
    is_interval = one.rule.startswith("every ")
    rule = f"every={one.rule.removeprefix('every ')}" if is_interval else f"pattern={one.rule}"
    return rule if is_interval else f"{rule}, tz={one.zone or NONE}"


class ScheduleAction(Action):
    """An act on a schedule; its effect is read from the server."""

    kind = keys.CONTROL
    takes_reason = True

    def __init__(
        self,
        verb: str,
        acts_on: str,
        session: PlaceSession,
        *,
        plan: Callable[[], Sequence[tuple[str, str]]],
        act: Callable[[str], ControlResult],
        command: Sequence[str],
    ) -> None:
        self._verb, self._session, self._plan, self._act = verb, session, plan, act
        self.command = command
        """Words of the command that does the same; empty if it is not complete yet."""
        self._rows: Sequence[tuple[str, str]] = ()
        self._trouble = ""
        self._is_loaded = False
        self.hint, self.acts_on = verb, safe_line(acts_on)
        self.title = ((verb, "title"), (f" {self.acts_on}", "strong"))

    @property
    def prompt(self) -> str:
        return f"{self._verb} {self.acts_on}"

    @property
    def progress(self) -> object:
        return self._rows, self._trouble

    def absent_keys(self) -> set[str]:
        return {"switch"} if self.question() is not None else {"switch", "fill"}

    def refusal(self) -> str:
        return self._trouble or ("" if self._is_loaded else "still loading the effect")

    async def load(self) -> AsyncIterator[None]:
        self._trouble, self._is_loaded = "", False
        try:
            self._rows = await asyncio.to_thread(self._plan)
        except StoreError as error:
            self._rows, self._trouble = (), safe_line(str(error))
        self._is_loaded = True
        yield

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        rows = [("reason", reason.words)]
        if self.command:
            words = ["--reason", reason.text] if reason.text else []
            command = [*self._session.place.command, *self.command, *words, "--apply", "1"]
            rows.append(("cli", safe_line(shlex.join(command))))
        trouble = folded_lines(self._trouble, width, "error") if self._trouble else []
        return [*fact_lines(self._rows, width), *trouble, BLANK_LINE, *fact_lines(rows, width)]

    async def apply(self, reason: str) -> Run:
        try:
            done = await asyncio.to_thread(self._act, reason)
        except EffectUnknown as error:
            return safe_line(str(error)), "warn"
        except StoreError as error:
            self._trouble = safe_line(str(error))
            raise
        return safe_line(done.answer) + (f"; {done.trouble}" if done.trouble else ""), "ok"


def plan_action(
    verb: str, one: Schedule, session: PlaceSession, schedules: PlaceSchedules
) -> ScheduleAction:
    """A verb of `engine.places.schedules.SCHEDULE_VERBS` on a schedule as it was seen."""
    if verb == EDIT:
        return ScheduleEdit(one, session, schedules)
    return ScheduleAction(
        verb,
        one.id,
        session,
        plan=partial(schedules.plan, verb, one, {}),
        act=lambda why: schedules.change(verb, one, {}, why),
        command=[*schedules.command, verb, one.id],
    )


class ScheduleEdit(ScheduleAction):
    """An edit: the operator types what changes, then its plan is shown."""

    def __init__(self, one: Schedule, session: PlaceSession, schedules: PlaceSchedules) -> None:
        self._one, self._schedules = one, schedules
        self._changes: Mapping[str, str] = {}
        plan, act = self._plan_edit, self._apply_edit
        super().__init__(EDIT, one.id, session, plan=plan, act=act, command=())

    def _plan_edit(self) -> Sequence[tuple[str, str]]:
        if not self._changes:
            return ()
        return self._schedules.plan(EDIT, self._one, self._changes)

    def _apply_edit(self, reason: str) -> ControlResult:
        return self._schedules.change(EDIT, self._one, self._changes, reason)

    @property
    def is_incomplete(self) -> bool:
        return not self._changes

    def refusal(self) -> str:
        return super().refusal() or ("" if self._changes else "nothing to change yet: Enter")

    def question(self) -> Question:
        typed = ", ".join(f"{name}={value}" for name, value in self._changes.items())

        def problem(answer: str) -> str:
            try:
                parse_edit(answer)
            except ValueError as error:
                return str(error)
            return ""

        def take(answer: str) -> None:
            self._changes = parse_edit(answer)
            words = change_options(self._changes)
            self.command = [*self._schedules.command, EDIT, self._one.id, *words]

        return Question(EDIT_TITLE, typed or edit_text(self._one), problem, take)


def undo_action(
    operation: Operation, session: PlaceSession, schedules: PlaceSchedules
) -> ScheduleAction:
    """The undo of a change of a schedule."""
    return ScheduleAction(
        "undo",
        str(operation.intent.values.get("target", "")),
        session,
        plan=partial(schedules.plan_undo, operation),
        act=partial(schedules.undo, operation),
        command=["undo", operation.op],
    )
