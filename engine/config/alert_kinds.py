"""The subjects of alerts, and the warnings that an operator accepts (`alerts.accepted`)."""

from enum import StrEnum
from typing import Annotated

from engine.config import validators
from engine.config.validators import ConfigLocation
from engine.values import NamedTuple


class AlertKind(StrEnum):
    """Subject of an alert, the most urgent first. The values are stored by the flight recorder."""

    STUCK = "stuck lock"
    UNREADABLE = "unreadable"
    FULL = "a full disk"
    LIMIT = "a full limit"
    IDLE = "nothing runs"
    STALE = "stale lock"
    UNKNOWN_LOCK = "unknown lock"
    ABANDONED = "in work without a worker"
    INTERRUPTED = "an interrupted operation"
    GROWING = "more dead tasks"
    DEAD = "dead tasks"
    OLDEST = "an old task"
    FLOOD = "most mail of one sender"
    BLOCKED = "tasks that no worker can run"
    LACKING = "workers that lack something"
    TRANSPORT = "a failing transport"
    SUSPENDED = "a suspended transport"
    UNHEALTHY = "an unhealthy destination"
    RECOVERED = "failed tasks that can be sent again"
    LOST = "mail without a task"
    REFUSED = "refused mail"
    CLOCK = "a clock that was set"
    WARNED = "a warning of the queue"
    PROBLEMS = "problems"
    CONTRADICTION = "metrics that contradict"
    OLD_METRICS = "old metrics"
    BAD_METRICS = "unreadable metrics"


_CRITICAL = {AlertKind.STUCK, AlertKind.UNREADABLE, AlertKind.FULL, AlertKind.IDLE}
_check_kind = validators.choice_check(*(str(kind) for kind in AlertKind if kind not in _CRITICAL))


class AcceptedAlert(NamedTuple):
    """A warning that stays visible and needs no attention."""

    kind: Annotated[str, _check_kind]
    """As `what` in `overview --json`."""
    place: Annotated[str, validators.check_text] = ""
    """As in `places` or on the command line; "" for all places."""
    text: Annotated[str, validators.check_text] = ""
    """How the text of the alert begins; "" for each alert of the kind."""


def check_accepted(value: object, at: ConfigLocation) -> AcceptedAlert:
    """An item of `alerts.accepted`."""
    fields = validators.check_mapping(value, at, validators.checks_of(AcceptedAlert))
    if "kind" not in fields:
        raise at.wrong_value("kind, and place or text if it is not for all", value)
    return AcceptedAlert(**fields)
