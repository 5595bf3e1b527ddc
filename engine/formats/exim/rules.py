"""What may be done with a message of Exim, and why not: edges, and the bars of holding and of
deleting. Pure: from settings and times."""

from __future__ import annotations

from engine.model import Edge, Edges, State, Task, TaskWarning, accept_only_now, bar_no_task
from engine.operations.trash import trashed_at
from engine.text.times import describe_limit, format_rough_duration, format_time
from engine.values import NamedTuple

RUN = "run-queue"
"""The control that tries all messages."""

DAY_SECONDS = 86400.0
"""A message that Exim would cancel within this time is not held."""


def to_time(text: str) -> float | None:
    """A time as `find -printf %C@` prints it, epoch seconds UTC; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


class HoldLimits(NamedTuple):
    """The settings by which Exim ends that a message is frozen, in seconds; 0: never."""

    frozen_after: float
    """timeout_frozen_after: an older message is cancelled, also one frozen just now."""
    bounces_after: float
    """ignore_bounce_errors_after: an older report is thawed, tried and discarded."""
    thaw_after: float
    """auto_thaw: so long after it was frozen, a message is tried again."""

    def end(self, created: float, sender: str) -> tuple[float, str] | None:
        """When Exim ends that a message is frozen, epoch seconds UTC, and how; None: never."""
        ends = []
        if self.frozen_after:
            ends.append((created + self.frozen_after, "cancels frozen mail"))
        if self.bounces_after and sender in ("", "<>"):
            ends.append((created + self.bounces_after, "thaws bounces"))
        return min(ends, default=None)

    def describe_end(self, created: float, sender: str) -> str:
        """When that is, and what Exim does; "" for never."""
        end = self.end(created, sender)
        if end is None:
            return ""
        return f"at the queue run after {format_time(end[0])}: Exim {end[1]} then"


class HoldBar(NamedTuple):
    """Bars holding a message that Exim would cancel or thaw soon."""

    limits: HoldLimits

    def __call__(self, task: Task, now: float) -> str:
        """See `Edge.bars`."""
        why = _why_not_frozen(self.limits, task, now)
        return f"{why}; X moves it to the trash queue instead" if why else ""


def _why_not_frozen(limits: HoldLimits, task: Task, now: float) -> str:
    """Why a message would not stay frozen for a day; "" if it would."""
    end = limits.end(task.created, task.sender)
    if end is None or now < end[0] - DAY_SECONDS:
        return ""
    left = end[0] - now
    when = f"this one in {format_rough_duration(left)}" if left > 0 else "this one is older"
    return f"Exim {end[1]} older than {describe_limit(end[0] - task.created)}: {when}"


class RestoreBar(NamedTuple):
    """Bars restoring a message as frozen that was not frozen, if it would not stay so."""

    limits: HoldLimits

    def __call__(self, task: Task, now: float) -> str:
        """See `Edge.bars`."""
        return "" if "frozen" in task.extra else _why_not_frozen(self.limits, task, now)


class ExpungeBar(NamedTuple):
    """Bars deleting what we did not move to the trash queue, or what is there for a short time."""

    hours: float
    queue: str

    def __call__(self, task: Task, now: float) -> str:
        """See `Edge.bars`."""
        since, by = trashed_at(task), task.extra.get("moved by", "")
        if by != "spooldeck":
            if by:
                return f"moved to {self.queue} by {by}: kept"
            return "cannot prove since when it is there (no `find`): kept"
        if since is None or not now - since >= 0:
            return "the time at which it was moved is unknown, or in the future: kept"
        if now - since < self.hours * 3600:
            rest = format_rough_duration(self.hours * 3600 - (now - since))
            return f"in the trash for less than {self.hours:g}h: in {rest}"
        return ""


def bar_frozen(task: Task, now: float) -> str:
    """Bar restoring a frozen message as another one: it stays frozen."""
    return "it is frozen: restore it as frozen" if "frozen" in task.extra else ""


def bar_bounce_of_bounce(task: Task, now: float) -> str:
    """Bar giving up a report: `-Mg` discards a message without a sender."""
    if task.sender not in ("", "<>"):
        return ""
    return (
        "a bounce has no sender to report to: Exim would delete it; X moves it to the trash queue"
    )


def bar_delivered(task: Task, now: float) -> str:
    """Bar each change of a message that is delivered now: Exim has locked it."""
    owner = task.lease.owner if task.lease is not None else "a process"
    return f"Exim has locked it: {owner} delivers"


class IsOlder(NamedTuple):
    """True for a message that arrived longer ago."""

    seconds: float
    only_bounces: bool = False

    def __call__(self, task: Task, now: float) -> bool:
        """See `TaskWarning.applies`."""
        is_counted = not self.only_bounces or task.sender in ("", "<>")
        return is_counted and now - task.created > self.seconds


MAX_DELIVERED = 100
"""Messages of a plan that are delivered: each takes a process."""

TRASH_WARNING = "moved to the queue spooldeck-trash: exim -bp does not show it"
BOUNCE_WARNING = "the sender gets a report"


def edges(
    limits: HoldLimits, refusal: str, trash_refusal: str, *, hours: float, undo: str
) -> Edges:
    """The edges of a queue. `refusal`: why the user may change nothing; `trash_refusal`: why no
    message can be moved; `hours` are those of the trash; `undo` is the command that moves a message
    back."""
    into_trash = refusal or trash_refusal
    discards = cancels = tuple[TaskWarning, ...]()
    if seconds := limits.bounces_after:
        limit = describe_limit(seconds)
        text = f"{{count}} without a sender older than {limit}: discarded if they fail again"
        discards = (TaskWarning(IsOlder(seconds, only_bounces=True), text),)
    if seconds := limits.frozen_after:
        limit = describe_limit(seconds)
        text = f"{{count}} older than {limit}: cancelled by Exim at its next queue run"
        cancels = (TaskWarning(IsOlder(seconds), text),)
    thaws = f"Exim releases it after {describe_limit(limits.thaw_after)} (auto_thaw)"
    hold = Edge(
        warning=thaws if limits.thaw_after else "",
        bars=HoldBar(limits) if limits.frozen_after or limits.bounces_after else bar_no_task,
        refusal=refusal,
    )
    promote = Edge(
        frozenset({"due"}),
        undoable=False,
        value_problem=accept_only_now,
        exact=False,
        refusal=refusal,
        limit=MAX_DELIVERED,
        instead=f"control {RUN}",
    )
    bounce = Edge(
        frozenset({"error", "due"}),
        undoable=False,
        bars=bar_bounce_of_bounce,
        refusal=refusal,
        verbs=(("bounce", BOUNCE_WARNING),),
    )
    purge = Edge(warning=f"{TRASH_WARNING}; by hand: {undo}", refusal=into_trash)
    restore = Edge(refusal=into_trash)
    pending, held, dead, trash = State.PENDING, State.HELD, State.DEAD, State.TRASH
    return {
        (pending, held): hold,
        (held, pending): Edge(refusal=refusal, warnings=discards),
        (pending, pending): promote,
        (pending, dead): bounce,
        (held, dead): bounce,
        (pending, trash): purge,
        (held, trash): purge,
        (trash, pending): restore._replace(bars=bar_frozen),
        (trash, held): restore._replace(bars=RestoreBar(limits), warnings=cancels),
        (trash, None): Edge(
            undoable=False, bars=ExpungeBar(hours, "spooldeck-trash"), refusal=into_trash
        ),
        (State.ACTIVE, held): Edge(refusal=refusal, bars=bar_delivered),
    }
