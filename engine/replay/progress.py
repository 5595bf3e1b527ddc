"""How a replay stands: a value that whoever shows it polls, and in which every task is counted."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from engine.replay.scheduler import Canary, ReplayCounts, ReplayState, Rule
from engine.replay.settings import ReplayPace

LINES = 50
"""Last lines that are kept to be shown."""


class Phase(StrEnum):
    """What a replay is doing."""

    STARTING = "starting"
    SENDING = "sending"
    WAITING = "waiting"
    """For the outcome of a canary."""
    PAUSED = "paused"
    ASKING = "asking"
    """For somebody to say whether to go on; `why` says about what."""
    ENDING = "ending"
    """All is sent that will be; what becomes of it is waited for."""
    OVER = "over"
    LEFT = "left"
    """Its process let go of it before it was over: it can be gone on with from the journal."""


class ProgressText(NamedTuple):
    """One line of what happened."""

    when: float
    """Epoch seconds UTC."""
    id: str
    result: str
    """A fate's word, or sent, gone, failed, taken back."""
    detail: str
    """Safe to show."""


_NONE: Mapping[str, int] = MappingProxyType({})


class ReplayProgress(NamedTuple):
    """A replay at one moment; every row of its plan is in exactly one of the counts."""

    phase: Phase = Phase.STARTING
    op: str = ""
    """The operation in the journal; "" where there is none."""
    began: float = 0.0
    """Epoch seconds UTC."""
    now: float = 0.0
    """When this was so, epoch seconds UTC."""
    planned: int = 0
    tally: ReplayCounts = ReplayCounts()
    """Of those that were sent."""
    gone: int = 0
    """Rows whose task was not as it had been seen."""
    refused: int = 0
    """Rows whose task could not be changed."""
    excluded: int = 0
    pulled: int = 0
    """How many that were sent were taken back."""
    held: int = 0
    """How many of those that were not sent are held now."""
    rest: int = 0
    """How many are where they were: still to be sent, or never to be."""
    failures: Mapping[str, int] = _NONE
    """Those that failed, by fingerprint, the most frequent first."""
    pace: ReplayPace = ReplayPace()
    """Its rate is the one that holds now."""
    canaries: tuple[Canary, ...] = ()
    """In the order of `pace.canary`."""
    rules: tuple[Rule, ...] = ()
    eta: float | None = None
    """Seconds until all is sent, at this rate; None when that is not to be said."""
    why: str = ""
    """What it waits for, why it is paused or stopped; "" when nothing is to be said."""
    stopped: str = ""
    """Why the rest was not sent; "" when all was."""
    trouble: str = ""
    """What goes wrong beside the tasks: a log, a bucket, the journal; "" where nothing does."""
    lines: tuple[ProgressText, ...] = ()
    """The last ones, the latest last."""

    @property
    def sent(self) -> int:
        """How many were sent, those that were taken back included."""
        return self.tally.sent + self.pulled

    @property
    def accounted(self) -> int:
        """How many rows are in the counts: all that were planned, always."""
        return self.sent + self.gone + self.refused + self.excluded + self.held + self.rest

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in (Phase.OVER, Phase.LEFT)


def time_left(course: ReplayState) -> float | None:
    """Seconds until all is sent at the course's rate; None while it stands still, and while
    canaries are waited for, which takes as long as it takes."""
    if course.paused or course.stopped or course.ever < sum(course.pace.canary):
        return None
    return 0.0 if course.pace.rate is None else course.rest / course.pace.rate
