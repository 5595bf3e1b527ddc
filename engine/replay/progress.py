"""Progress of a replay: an immutable value for polling, in which every row is counted once."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from engine.model import State
from engine.replay.scheduler import Canary, ReplayCounts, ReplayState, StopRuleState
from engine.replay.settings import ReplayPace
from engine.values import NamedTuple

MAX_PROBLEMS, MAX_LATEST = 1000, 200
"""Results kept for display: of tasks that failed or were skipped, and the latest of the others."""


class Phase(StrEnum):
    """Phase of a replay."""

    STARTING = "starting"
    SENDING = "sending"
    WAITING = "waiting"
    """Waits for the outcome of a canary."""
    PAUSED = "paused"
    ASKING = "asking"
    """Waits for an operator to decide whether to continue; `why` has the question."""
    ENDING = "ending"
    """Nothing more is sent; waits for the remaining outcomes."""
    OVER = "over"
    LEFT = "left"
    """Its process detached before the end: it can be continued from the journal."""


class TaskProgress(NamedTuple):
    """What last happened to one task of a replay, for display."""

    when: float
    """Epoch seconds UTC."""
    id: str
    result: str
    """A `ReplayOutcome` value, or sent, gone, refused, undone."""
    detail: str
    """Safe to show."""
    seconds: float | None = None
    """From sending to this result; None if it was not sent."""

    @property
    def is_problem(self) -> bool:
        """True if an operator may want to look at the task."""
        return self.result not in ("sent", "waiting", "running", "delivered", "undone")


_NONE: Mapping[str, int] = MappingProxyType({})


class ReplayProgress(NamedTuple):
    """A replay at one moment; every row of its plan is in exactly one of the counts."""

    phase: Phase = Phase.STARTING
    op: str = ""
    """Operation id in the journal; "" if none."""
    began: float = 0.0
    """Epoch seconds UTC."""
    now: float = 0.0
    """Time of this value, epoch seconds UTC."""
    planned: int = 0
    tally: ReplayCounts = ReplayCounts()
    skipped: int = 0
    """Rows skipped because their task had changed since the plan."""
    refused: int = 0
    """Rows whose task could not be changed."""
    excluded: int = 0
    pulled_back: int = 0
    """Sent tasks that were moved back."""
    held: int = 0
    """Unsent tasks that are now held."""
    unsent: int = 0
    """Unsent tasks that have not moved: to be sent later, or never."""
    failures: Mapping[str, int] = _NONE
    """Failures by fingerprint, the most frequent first."""
    pace: ReplayPace = ReplayPace()
    """Settings; the rate is the present one."""
    canaries: tuple[Canary, ...] = ()
    """Canaries in the order of `pace.canary`."""
    rules: tuple[StopRuleState, ...] = ()
    eta: float | None = None
    """Seconds until all is sent, at this rate; None if not known."""
    why: str = ""
    """What it waits for, or why it is paused or stopped; "" if neither."""
    stopped: str = ""
    """Why the remaining tasks were not sent; "" if all were."""
    trouble: str = ""
    """Problems not about tasks: a log, a token bucket, the journal; "" if none."""
    results: tuple[TaskProgress, ...] = ()
    """One for each task as far as kept: problems first, then the others; the latest first."""
    source: State = State.DEAD
    """Where the tasks were before they were sent."""

    @property
    def sent(self) -> int:
        """Number of sent tasks, including those moved back."""
        return self.tally.sent + self.pulled_back

    @property
    def accounted(self) -> int:
        """Number of rows in all counts: always all planned rows."""
        return self.sent + self.skipped + self.refused + self.excluded + self.held + self.unsent

    @property
    def is_over(self) -> bool:
        """True if the replay has ended or is detached."""
        return self.phase in (Phase.OVER, Phase.LEFT)


def estimate_seconds_left(course: ReplayState) -> float | None:
    """Return the seconds until all is sent at the present rate; None while it is paused or stopped,
    and during canaries, whose duration is not known."""
    if course.paused or course.stopped or course.total_sent < sum(course.pace.canary):
        return None
    return 0.0 if course.pace.rate is None else course.unsent / course.pace.rate
