"""Form for a replay's rate, canary and stop rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult

from engine.model import State
from engine.replay import estimate
from engine.replay.settings import MAX_RATE, RemainderPolicy, ReplayPace, StopRules
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.screens.base import key_bindings
from tui.session.place_session import PlaceSession
from tui.session.running_operations import find_worker
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.hints import hint_lines
from tui.text.lines import BLANK_LINE, Line, Run, cut_line, fit_text, folded_lines, heading_line
from tui.text.styles import ON_CURSOR
from tui.widgets.line_widgets import Lines

MAX_NUMBER_LENGTH = 7


class NumberRange(NamedTuple):
    """Range of a number field."""

    least: float
    most: float
    whole: bool = True

    def find_error(self, text: str) -> str:
        """Error for this text; "" if it is valid."""
        kind = "a whole number" if self.whole else "a number"
        expected = f"expected {kind} from {self.least:,g} to {self.most:,g}"
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            return f"{text!r}: {expected}" if text else f"empty: {expected}"
        return "" if self.least <= value <= self.most else f"{text}: {expected}"


class PaceField(NamedTuple):
    """One input: a number, or a switch."""

    name: str
    before: str
    after: str = ""
    number: NumberRange | None = None
    """None: a switch."""
    switch: str = ""
    """Name of the switch that must be on for this field to apply."""


COUNT_RANGE, RATE_RANGE = NumberRange(0, 1_000_000), NumberRange(0.02, MAX_RATE, False)
TIMEOUT_SECONDS_RANGE = NumberRange(1, 86400)

FIELDS: tuple[tuple[PaceField, ...], ...] = (
    (PaceField("canary", "start with", "tasks, then wait for results", NumberRange(0, 1000)),),
    (PaceField("next", "then with", "tasks, then wait again", NumberRange(0, 1000)),),
    (
        PaceField("paced", "rest:"),
        PaceField("rate", "", "per second (off: all now)", RATE_RANGE, "paced"),
    ),
    (PaceField("timeout", "wait", "seconds at most for a result", TIMEOUT_SECONDS_RANGE),),
    (
        PaceField("same_on", "stop when"),
        PaceField("same", "the same error occurs", "times", NumberRange(1, 1_000_000), "same_on"),
    ),
    (
        PaceField("share_on", ""),
        PaceField("share", "more than", "%", NumberRange(0, 100), "share_on"),
        PaceField("last", "of the last", "fail", NumberRange(1, 1000), "share_on"),
    ),
    (
        PaceField("pending_on", ""),
        PaceField("pending", "more than", "tasks wait in {pending}", COUNT_RANGE, "pending_on"),
    ),
    (PaceField("hold", "then", "hold the rest (off: stays where it is)"),),
)

ALL_FIELDS: tuple[PaceField, ...] = tuple(field for line in FIELDS for field in line)
_BY_NAME: Mapping[str, PaceField] = {field.name: field for field in ALL_FIELDS}
ON, OFF = "x", " "


class PaceForm(NamedTuple):
    """The form's present input."""

    values: Mapping[str, str]
    at: int = 0
    """Index in `ALL_FIELDS` of the field under the cursor."""
    is_untouched: bool = True
    """True until a key is typed into the field: the first digit replaces the old value."""

    @property
    def field(self) -> PaceField:
        """The field under the cursor."""
        return ALL_FIELDS[self.at]

    def moved(self, by: int) -> PaceForm:
        """Move the cursor to the next (or previous) active field."""
        at = (self.at + by) % len(ALL_FIELDS)
        while not self.is_active(ALL_FIELDS[at]):
            at = (at + by) % len(ALL_FIELDS)
        return self._replace(at=at, is_untouched=True)

    def is_active(self, field: PaceField) -> bool:
        """True if the rule of this field is on."""
        return not field.switch or self.values[field.switch] == ON

    def typed(self, character: str) -> PaceForm:
        """Append a character to the number under the cursor."""
        field = self.field
        if field.number is None or (character == "." and field.number.whole):
            return self
        before = "" if self.is_untouched else self.values[field.name]
        if character == "." and "." in before:
            return self
        return self._with(field.name, (before + character)[:MAX_NUMBER_LENGTH])

    def rubbed_out(self) -> PaceForm:
        """Delete the last character of the number under the cursor."""
        name = self.field.name
        return self if self.field.number is None else self._with(name, self.values[name][:-1])

    def toggled(self) -> PaceForm:
        """Toggle the rule under the cursor, or the rule of the number under it."""
        name = self.field.switch or self.field.name
        if _BY_NAME[name].number is not None:
            return self
        form = self._with(name, OFF if self.values[name] == ON else ON)
        return form._replace(at=ALL_FIELDS.index(_BY_NAME[name]), is_untouched=True)

    def _with(self, name: str, value: str) -> PaceForm:
        return self._replace(values={**self.values, name: value}, is_untouched=False)

    @property
    def first_error(self) -> tuple[str, str]:
        """Name and error of the first invalid field; both "" if all are valid."""
        for field in ALL_FIELDS:
            number = field.number if self.is_active(field) else None
            if number is not None and (words := number.find_error(self.values[field.name])):
                return field.name, words
        return "", ""


def form_from_pace(pace: ReplayPace) -> PaceForm:
    """The form for a pace."""
    stops = pace.stops
    first, then = (*pace.canary, 0, 0)[:2]
    return PaceForm(
        {
            "canary": str(first),
            "next": str(then),
            "paced": OFF if pace.rate is None else ON,
            "rate": f"{ReplayPace().rate if pace.rate is None else pace.rate:g}",
            "timeout": f"{pace.timeout:g}",
            "same_on": OFF if stops.same is None else ON,
            "same": str(2 if stops.same is None else stops.same),
            "share_on": OFF if stops.share is None else ON,
            "share": f"{100 * (0.1 if stops.share is None else stops.share):g}",
            "last": str(stops.last),
            "pending_on": OFF if stops.pending is None else ON,
            "pending": str(1000 if stops.pending is None else stops.pending),
            "hold": ON if stops.rest is RemainderPolicy.HOLD else OFF,
        }
    )


def pace_from_form(form: PaceForm, before: ReplayPace) -> ReplayPace:
    """The pace of a valid form; settings without a field are copied from `before`."""
    value = form.values

    def number(name: str) -> int | None:
        return int(value[name]) if form.is_active(_BY_NAME[name]) else None

    share = number("share")
    stops = StopRules(
        number("same"),
        None if share is None else share / 100,
        before.stops.last if share is None else int(value["last"]),
        number("pending"),
        RemainderPolicy.HOLD if value["hold"] == ON else RemainderPolicy.STAY,
    )
    rate = float(value["rate"]) if value["paced"] == ON else None
    canary = (int(value["canary"]), int(value["next"]), *before.canary[2:])
    return before._replace(rate=rate, canary=canary, timeout=float(value["timeout"]), stops=stops)


LABEL_CELLS = 12


def _form_lines(
    form: PaceForm, sentences: Sequence[str], states: Mapping[State, str], width: int
) -> list[Line]:
    words = {"pending": safe_line(states.get(State.PENDING, "pending"))}
    lines = [heading_line("Replay settings", width)]
    lines += [cut_line(_line(form, fields, words), width) for fields in FIELDS]
    lines.append(BLANK_LINE)
    for sentence in sentences:
        lines += folded_lines(sentence, width, "muted", ((" ", ""),))
    return lines


def _line(form: PaceForm, fields: Sequence[PaceField], words: Mapping[str, str]) -> Line:
    wrong, _ = form.first_error
    runs: list[Run] = []
    for nth, field in enumerate(fields):
        focused, means = field is form.field, form.is_active(field)
        style = "" if means else "muted"
        before = field.before.format(**words)
        runs.append((fit_text(f" {before}", LABEL_CELLS) if nth == 0 else f" {before} ", style))
        value = form.values[field.name]
        box = f"[{value}]" if field.number is None else f"[{value:<4}]"
        look = "error" if field.name == wrong else "strong" if means else "muted"
        runs.append((box, ON_CURSOR if focused else look))
        runs.append((f" {field.after.format(**words)}" if field.after else "", style))
    return tuple(runs)


class PaceScreen(SizedModalScreen[ReplayPace | None]):
    """Return the pace that was typed, or None if cancelled."""

    BINDINGS = key_bindings(keys.PACE)

    def __init__(self, pace: ReplayPace, amount: int, session: PlaceSession) -> None:
        """`amount` is the number of tasks to replay."""
        super().__init__()
        self._pace, self._amount, self._session = pace, amount, session
        self._form = form_from_pace(pace)
        # Read once: the set of workers is not refreshed while the form is open.
        self._working = find_worker(
            session.readings.lock, session.readings.queue_figures, session.events(), session.clock()
        )

    def compose(self) -> ComposeResult:
        yield Lines(id="menu")

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        width = self.size.width
        _, wrong = self._form.first_error
        sentences: tuple[str, ...] = ()
        if not wrong:
            pace = pace_from_form(self._form, self._pace)
            sentences = estimate.estimate_replay(self._amount, pace, self._working).sentences
        form = _form_lines(self._form, sentences, self._session.inspector.states, width)
        hints = hint_lines(keys.hints_of(keys.PACE), width, 1)
        # The error takes as many lines as the forecast, so that nothing jumps.
        errors = [((f" {wrong}", "warn"),)] if wrong else []
        self.query_one(Lines).show([*form, *(cut_line(row, width) for row in errors), *hints])

    def _change(self, form: PaceForm) -> None:
        self._form = form
        self._show()

    def action_next(self) -> None:
        self._change(self._form.moved(1))

    def action_previous(self) -> None:
        self._change(self._form.moved(-1))

    def action_switch(self) -> None:
        self._change(self._form.toggled())

    def action_type(self, pressed: str) -> None:
        self._change(self._form.typed("." if pressed == "full_stop" else pressed))

    def action_rub_out(self) -> None:
        self._change(self._form.rubbed_out())

    def action_take(self) -> None:
        if not self._form.first_error[1]:
            self.dismiss(pace_from_form(self._form, self._pace))

    def action_back(self) -> None:
        self.dismiss(None)
