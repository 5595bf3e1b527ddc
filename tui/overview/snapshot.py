"""Everything the overview says of one place: as it is now, or as it was written down.

What is shown of the past comes from here alone, so that nothing of now can stand among it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.locks.token_buckets import Left
from engine.model import LockEvidence, State
from engine.monitor.alerts import Alert, is_stalled
from engine.monitor.forecast import Basis, Forecast, agreed, expected
from engine.monitor.recorded_history import MissingSpan, RecordedHistory
from engine.monitor.sample_codec import RecordedSample
from engine.monitor.throughput import Drain, Trend, spell
from engine.monitor.transport_health import Sending
from engine.text.safe import shown
from tui.format import present
from tui.format.present import Line
from tui.overview import lines
from tui.overview.lines import PlaceLine
from tui.session.place import Place
from tui.session.place_session import PlaceSession

NOTHING = "nothing recorded"


class PlaceSnapshot(NamedTuple):
    """What is said of one place; each field's default is that it is not known."""

    queue: PlaceLine
    alerts: tuple[Alert, ...] = ()
    lock: LockEvidence | None = None
    has_lock: bool = True
    sending: Sending | None = None
    tokens: Sequence[Left] | str = "not recorded"
    forecasts: tuple[Forecast, ...] = ()
    found: RecordedSample | MissingSpan | None = None
    """What was written down; None: it is as it is now."""
    worker: int | None = None
    """PID of the worker that this console started where no lock would tell of it."""


def now_of(live: PlaceSession, now: float, cells: int) -> PlaceSnapshot:
    """A place as it is known now, with so many cells of its last ten minutes."""
    signs = live.signs
    return PlaceSnapshot(
        lines.seen(live, now, cells),
        live.alerts,
        signs.lock,
        live.place.lock is not None,
        signs.sending,
        signs.tokens,
        live.forecasts(),
        worker=live.worker.pid if live.place.leases else None,
    )


def then_of(
    place: Place, number: int, tape: RecordedHistory, at: float, cells: int
) -> PlaceSnapshot:
    """A place as it was written down at a moment (epoch seconds UTC)."""
    found = tape.at(at)
    if isinstance(found, MissingSpan):
        return PlaceSnapshot(PlaceLine(number, place.name, unavailable=NOTHING), found=found)
    past = tape.lately(at)
    growth = past.growth(State.DEAD, at)
    stalled = bool(found.due) and is_stalled(found.alerts)
    pace = Drain(Trend.STALLED) if stalled else past.drain(at)
    basis = Basis(
        *(found.counts, found.words, pace, growth, found.died, found.tokens),
        undated="it was not recorded when they died",
    )
    known = found.complete and not found.unavailable
    forecasts = expected(basis, place.alerts, place.retention_days, at)
    queue = PlaceLine(
        number,
        place.name,
        found.words,
        found.counts,
        found.complete,
        found.unavailable,
        found.due if known else None,
        found.oldest if known else None,
        found.rates if known else None,
        agreed(basis.pace, forecasts) if known else Drain(Trend.UNKNOWN),
        past.spark(at, cells),
        found.alerts[0].level if found.alerts else "",
    )
    return PlaceSnapshot(
        queue,
        found.alerts,
        found.lock,
        place.lock is not None,
        Sending(tape.transports(found)),
        found.tokens,
        forecasts if known else (),
        found,
    )


# As lines


KEYS: Line = (("  , back . on p live ", "dim"),)


def notice(at: float, now: float, here: PlaceSnapshot, width: int) -> Line:
    """That the screen is frozen, at which moment, and who wrote down what it shows; and where there
    is room, how to go on from there."""
    found = here.found
    when = f" at {_time(at, now)}, {spell(now - at)} ago"
    lead: Line = ((" FROZEN ", "armed"), (when, "strong"))
    if isinstance(found, MissingSpan):
        said: Line = (*lead, (f": {gap_words(found, now)}", "warning"))
    else:
        by = f", recorded by {shown(found.by)}" if found is not None and found.by else ""
        said = (*lead, (by, "dim"))
    room = present.width_of(said) + present.width_of(KEYS) <= width
    return present.join(said, KEYS, width) if room else present.cut(said, width)


def as_it_was(at: float, now: float) -> Line:
    """Which moment a page is of."""
    return ((f" as it was at {_time(at, now)}, {spell(now - at)} ago", "strong"),)


def gap_words(gap: MissingSpan, now: float) -> str:
    """Of which time nothing is recorded."""
    if gap.after is None and gap.before is None:
        return NOTHING
    if gap.before is None:
        return f"{NOTHING} since {_time(gap.after or 0.0, now)}"
    if gap.after is None:
        return f"{NOTHING} before {_time(gap.before, now)}"
    return f"{NOTHING} {_time(gap.after, now)} to {_time(gap.before, now)}"


def _time(when: float, now: float) -> str:
    return present.moment(when, now).split(" (")[0]


def forecast_lines(forecasts: Sequence[Forecast], width: int, height: int) -> list[Line]:
    """What is to be expected: in one line in brief, on more of them in full."""
    title = (" forecast  ", "title")
    if not forecasts:
        return [(title, ("?", "unknown"))] if height else []
    if height < len(forecasts):
        parts: list[Line] = [
            (title,),
            *(((f"{each.brief}   ", _look(each)),) for each in forecasts),
        ]
        return [present.cut(present.whole_ones(parts, width), width)]
    leads = [title] + [(" " * len(title[0]), "")] * (len(forecasts) - 1)
    return [
        present.cut((lead, (each.sentence, _look(each))), width)
        for lead, each in zip(leads, forecasts, strict=True)
    ]


def _look(each: Forecast) -> str:
    return "unknown" if each.unknown else "warning" if each.grave else ""


def as_row(here: PlaceSnapshot, at: float, now: float) -> dict[str, object]:
    """The past for programs: when it was written down, and by whom; None where nothing was."""
    found = here.found
    sample = found if isinstance(found, RecordedSample) else None
    return {
        "at": at,
        "recorded": None if sample is None else sample.when,
        "by": None if sample is None else sample.by,
        "gap": {"after": found.after, "before": found.before}
        if isinstance(found, MissingSpan)
        else None,
        "ago": round(now - at, 1),
    }
