"""The time that runs have seen pass, as the only measure of an age with irreversible consequences.

A wrong clock (no battery, a resumed virtual machine, before NTP) makes everything old in a moment.
So an age counts only as far as runs have seen it pass: the time between two runs counts if the
uptime of the system confirms it, or if it is short. Pure functions: no clock, no file."""

from __future__ import annotations

from engine.values import NamedTuple

STEP_SECONDS = 3600.0
"""From this difference between clock and uptime on, the clock was set; an unconfirmed gap between
two runs counts up to this length."""

MAX_STRETCHES = 200
"""Stretches that are kept, the latest ones: one for each start of the system."""


class RunMoment(NamedTuple):
    """When a run was, by the clock and by the uptime of the system."""

    at: float
    """Epoch seconds UTC."""
    uptime: float
    """Seconds since the system started, with its sleep (/proc/uptime)."""
    boot: str
    """Id of this start of the system; "" if unknown."""


class SeenTime(NamedTuple):
    """Stretches of time that runs have seen pass, in order of time."""

    stretches: tuple[tuple[float, float], ...] = ()
    """Start and end of each, epoch seconds UTC."""
    last: RunMoment | None = None
    """The last run; None if none is recorded."""
    stepped_at: float | None = None
    """When a run last found that the clock was set, epoch seconds UTC."""
    step: float = 0.0
    """By how many seconds it was set; negative: back."""

    def age(self, moment: float) -> float:
        """Seconds seen to pass since a moment, epoch seconds UTC."""
        return sum(max(0.0, end - max(start, moment)) for start, end in self.stretches)


def note_run(times: SeenTime, moment: RunMoment) -> SeenTime:
    """Add a run. If the clock was set since the last one, all ages start again from zero: nothing
    irreversible follows for a full period."""
    last, start = times.last, (moment.at, moment.at)
    if last is None:
        return SeenTime((start,), moment)
    passed = moment.at - last.at
    step, is_confirmed = min(0.0, passed), passed <= STEP_SECONDS
    if moment.boot and moment.boot == last.boot and moment.uptime >= last.uptime:
        step, is_confirmed = passed - (moment.uptime - last.uptime), True
    if abs(step) > STEP_SECONDS:
        return SeenTime((start,), moment, moment.at, step)
    if not is_confirmed or not times.stretches:
        # The system was off; or its clock was wrong before it started, or is now.
        return times._replace(stretches=(*times.stretches, start)[-MAX_STRETCHES:], last=moment)
    since, until = times.stretches[-1]
    longer = since, max(until, moment.at)
    return times._replace(stretches=(*times.stretches[:-1], longer), last=moment)
