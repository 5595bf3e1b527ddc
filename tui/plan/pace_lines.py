"""The form of a replay's pace: its fields as they are typed, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.model import State
from engine.replay.settings import FASTEST, RemainderPolicy, ReplayPace, Stops
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line, Run

MOST = 7
"""Characters of a number at most."""


class Number(NamedTuple):
    """What is typed into a field must be such a number."""

    least: float
    most: float
    whole: bool = True

    def wrong(self, text: str) -> str:
        """What is wrong with it; "" when nothing is."""
        kind = "a whole number" if self.whole else "a number"
        expected = f"expected {kind} from {self.least:,g} to {self.most:,g}"
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            return f"{text!r}: {expected}" if text else f"empty: {expected}"
        return "" if self.least <= value <= self.most else f"{text}: {expected}"


class PaceField(NamedTuple):
    """One thing that can be changed: a number, or whether something is so."""

    name: str
    before: str
    """What stands in front of it."""
    after: str = ""
    number: Number | None = None
    """None: it is switched on and off."""
    switch: str = ""
    """The field that must be on for this one to mean something."""


PLACES = 1_000_000
SECONDS = Number(1, 86400)

FIELDS: tuple[tuple[PaceField, ...], ...] = (
    (PaceField("canary", "start with", "tasks, and wait for their outcomes", Number(0, 1000)),),
    (PaceField("next", "then with", "tasks, and wait for theirs", Number(0, 1000)),),
    (
        PaceField("paced", "the others"),
        PaceField("rate", "at", "a second (off: at once)", Number(0.02, FASTEST, False), "paced"),
    ),
    (PaceField("timeout", "wait", "seconds for an outcome at most", SECONDS),),
    (
        PaceField("same_on", "stop when"),
        PaceField("same", "the same error comes back", "times", Number(1, PLACES), "same_on"),
    ),
    (
        PaceField("share_on", ""),
        PaceField("share", "more than", "%", Number(0, 100), "share_on"),
        PaceField("last", "of the last", "fail", Number(1, 1000), "share_on"),
    ),
    (
        PaceField("pending_on", ""),
        PaceField(
            "pending", "more than", "tasks wait in {pending}", Number(0, PLACES), "pending_on"
        ),
    ),
    (PaceField("hold", "then", "hold the rest (off: it stays in {dead})"),),
)
"""Line by line."""

ALL: tuple[PaceField, ...] = tuple(field for line in FIELDS for field in line)
_BY_NAME: Mapping[str, PaceField] = {field.name: field for field in ALL}
ON, OFF = "x", " "


class PaceForm(NamedTuple):
    """The fields as they stand."""

    values: Mapping[str, str]
    at: int = 0
    """Which of `ALL` the cursor is on."""
    fresh: bool = True
    """Whether nothing was typed since the cursor came: the first digit replaces what stands there.
    """

    @property
    def field(self) -> PaceField:
        """The one under the cursor."""
        return ALL[self.at]

    def moved(self, by: int) -> PaceForm:
        """With the cursor on the next field that means something, or the one before."""
        at = (self.at + by) % len(ALL)
        while not self.means(ALL[at]):
            at = (at + by) % len(ALL)
        return self._replace(at=at, fresh=True)

    def means(self, field: PaceField) -> bool:
        """Whether the rule that a field belongs to is on."""
        return not field.switch or self.values[field.switch] == ON

    def typed(self, character: str) -> PaceForm:
        """With one more character in the number under the cursor."""
        field = self.field
        if field.number is None or (character == "." and field.number.whole):
            return self
        before = "" if self.fresh else self.values[field.name]
        if character == "." and "." in before:
            return self
        return self._with(field.name, (before + character)[:MOST])

    def rubbed_out(self) -> PaceForm:
        """Without the last character of the number under the cursor."""
        field = self.field
        return (
            self if field.number is None else self._with(field.name, self.values[field.name][:-1])
        )

    def toggled(self) -> PaceForm:
        """With the rule under the cursor, or the one that its number belongs to, the other way."""
        name = self.field.switch or self.field.name
        if _BY_NAME[name].number is not None:
            return self
        form = self._with(name, OFF if self.values[name] == ON else ON)
        return form._replace(at=ALL.index(_BY_NAME[name]), fresh=True)

    def _with(self, name: str, value: str) -> PaceForm:
        return self._replace(values={**self.values, name: value}, fresh=False)

    @property
    def wrong(self) -> tuple[str, str]:
        """The first field with something wrong, by its name, and what; both "" when all is well."""
        for field in ALL:
            number = field.number if self.means(field) else None
            if number is not None and (words := number.wrong(self.values[field.name])):
                return field.name, words
        return "", ""


def form_of(pace: ReplayPace) -> PaceForm:
    """A pace as it is put into the form."""
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


def pace_of(form: PaceForm, before: ReplayPace) -> ReplayPace:
    """The pace that a form without anything wrong says; what it does not ask for is as before."""
    value = form.values

    def number(name: str) -> int | None:
        return int(value[name]) if form.means(_BY_NAME[name]) else None

    share = number("share")
    stops = Stops(
        number("same"),
        None if share is None else share / 100,
        before.stops.last if share is None else int(value["last"]),
        number("pending"),
        RemainderPolicy.HOLD if value["hold"] == ON else RemainderPolicy.STAY,
    )
    rate = float(value["rate"]) if value["paced"] == ON else None
    canary = (int(value["canary"]), int(value["next"]), *before.canary[2:])
    return before._replace(rate=rate, canary=canary, timeout=float(value["timeout"]), stops=stops)


NAMES = 12
"""Cells for what stands in front of a line."""


def lines(
    form: PaceForm, sentences: Sequence[str], states: Mapping[State, str], width: int
) -> list[Line]:
    """The form, and below it what the pace means, in words."""
    words = {"pending": "pending", "dead": "the dead-letter queue"}
    for state, name in ((State.PENDING, "pending"), (State.DEAD, "dead")):
        words[name] = shown(states.get(state, words[name]))
    found = [present.heading("how the replay goes", width)]
    found += [present.cut(_line(form, fields, words), width) for fields in FIELDS]
    found.append(BLANK)
    for sentence in sentences:
        pieces = present.folded(shown(sentence), max(8, width - 2))
        found += [((f" {piece}", "dim"),) for piece in pieces]
    return found


def _line(form: PaceForm, fields: Sequence[PaceField], words: Mapping[str, str]) -> Line:
    wrong, _ = form.wrong
    runs: list[Run] = []
    for nth, field in enumerate(fields):
        here, means = field is form.field, form.means(field)
        look = "" if means else "dim"
        before = field.before.format(**words)
        runs.append((present.fit(f" {before}", NAMES) if nth == 0 else f" {before} ", look))
        value = form.values[field.name]
        box = f"[{value}]" if field.number is None else f"[{value:<4}]"
        bad = field.name == wrong
        runs.append((box, "cursor" if here else "bad" if bad else "strong" if means else "dim"))
        runs.append((f" {field.after.format(**words)}" if field.after else "", look))
    return tuple(runs)
