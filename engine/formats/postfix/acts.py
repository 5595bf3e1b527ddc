"""What may be done with the messages of an instance: edges with their warnings and bars, and the
acts of postsuper(1), whose printed lines decide."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from engine.formats.postfix.instance import Instance
from engine.formats.postfix.lines import EXPIRED_KEY, HELD_KEY, QUEUE_KEY, STATES
from engine.model import Edge, Edges, State, Task, TaskWarning, accept_only_now
from engine.operations.trash import SINCE_KEY
from engine.store import Control, refuse_all
from engine.system.run_program import ProgramEnd
from engine.text.safe import safe_line
from engine.text.times import describe_limit, format_duration
from engine.values import NamedTuple

DAY_SECONDS = 86400.0
KEPT_SECONDS = DAY_SECONDS
"""Seconds for which a purged message is never deleted."""

STOPPED = "Postfix is stopped: postfix start"
"""The refusal of attempts."""

FLUSH, FLUSH_SITE = "flush", "flush-site"
"""Names of controls."""


def queue_of(task: Task) -> str:
    """The queue of a message."""
    if QUEUE_KEY in task.extra:
        return task.extra[QUEUE_KEY]
    if task.state in (State.HELD, State.TRASH):
        return "hold"
    if task.state is State.ACTIVE:
        return "active"
    return task.word or STATES[State.PENDING]


def bar_maildrop(task: Task, now: float) -> str:
    """Bar a message that pickup has not taken yet: its id changes then."""
    return "pickup has not taken it yet" if queue_of(task) == "maildrop" else ""


def bar_active(task: Task, now: float) -> str:
    """Bar an expired message that the queue manager is about to return."""
    if queue_of(task) in ("active", "incoming"):
        return "the queue manager has it: it is returned to its sender now"
    return bar_maildrop(task, now)


def bar_unless_deferred(task: Task, now: float) -> str:
    """Bar a message that was not deferred: a requeued one would be delivered twice."""
    queue = queue_of(task)
    return "" if queue in ("deferred", "hold") else f"only from deferred and hold: it is in {queue}"


def bar_promote(task: Task, now: float) -> str:
    """Bar a message for which the queue manager does not wait."""
    queue = queue_of(task)
    return "" if queue == "deferred" else f"only from deferred: it is in {queue}"


def bar_expired(task: Task, now: float) -> str:
    """Bar the restore of an expired message as pending: it would be returned to its sender."""
    return "it is expired: restored as expired" if EXPIRED_KEY in task.extra else ""


def bar_unexpired(task: Task, now: float) -> str:
    """Bar the restore of a message as expired that is not."""
    return "" if EXPIRED_KEY in task.extra else "it is not expired"


def bar_expunge(task: Task, now: float) -> str:
    """Bar the deletion of a message that may have been released since, or was purged lately."""
    if HELD_KEY not in task.extra or SINCE_KEY not in task.extra:
        return "cannot prove that it stayed on hold"
    left = float(task.extra[SINCE_KEY]) + KEPT_SECONDS - now
    return f"kept for {format_duration(left)} more" if left > 0 else ""


_DUE, _ENDED = frozenset({"due"}), frozenset({"due", "error"})
_ORPHANED = frozenset({"due", "attempts"})
"""Fields that verbs change; a message has none of them."""

_TO_SENDER = "the sender gets a report at the next attempt"
_NEW_ID = "its id changes, and its lifetime begins again"
_PURGE = "it stays on hold in Postfix: postsuper -H ID returns it"
_BUSY = TaskWarning(lambda task, now: task.lease is not None, "{count} in delivery: that goes on")
_BUSY_UNKNOWN = "? of them in delivery, that goes on: the locks of its queue are not readable"

_SENT_TWICE = "? of them in delivery, then sent twice: the locks of its queue are not readable"

MAX_PROMOTED = 100
"""Messages of a plan for which an attempt is asked: each takes a call of postqueue."""


class IsPastLifetime(NamedTuple):
    """True for a message that arrived so long ago that its next attempt is its last one, or soon
    will be. Its lifetime begins again when it is requeued, which no listing shows."""

    lifetime: float
    """Seconds."""
    is_bounce: bool
    """True for reports, which have no sender: their lifetime may be shorter."""
    ahead: float = 0.0
    """Seconds before the end of the lifetime that are meant; 0: all the time after it."""

    def __call__(self, task: Task, now: float) -> bool:
        """See `TaskWarning.applies`."""
        is_meant = (task.sender == "<>") is self.is_bounce and task.created > 0
        left = task.created + self.lifetime - now
        is_so = 0 <= left < self.ahead if self.ahead else left < 0
        return is_meant and is_so and bool(task.recipients)  # without any, it is only removed


def _lifetime_warnings(instance: Instance) -> tuple[tuple[TaskWarning, ...], ...]:
    """The warnings of a release, and of a hold, which has both."""
    lifetime = instance.seconds("maximal_queue_lifetime")
    shorter = min(lifetime, instance.seconds("bounce_queue_lifetime"))
    reports = shorter, True, " without a sender", "dropped"
    mails = (lifetime, False, "", "returned"), reports
    past, soon = list[TaskWarning](), list[TaskWarning]()
    for seconds, is_bounce, what, end in mails:
        limit = describe_limit(seconds).removesuffix("00h")
        words = f"{{count}}{what} past the lifetime of {limit}"
        now = f"{words}: {end} after one attempt; Q renews it"
        past.append(TaskWarning(IsPastLifetime(seconds, is_bounce), now))
        is_soon = IsPastLifetime(seconds, is_bounce, DAY_SECONDS)
        soon.append(TaskWarning(is_soon, f"{words} within 24h"))
    return tuple(past), (*past, *soon)


def make_edges(instance: Instance, *, has_locks: bool = True) -> Edges:
    """The edges of an instance; without `has_locks` it is unknown what is in delivery."""
    run = describe_limit(instance.seconds("queue_run_delay"))
    past, soon_past = _lifetime_warnings(instance)
    expire = Edge(_ENDED, undoable=False, bars=bar_maildrop, verbs=(("expire", _TO_SENDER),))
    requeue = Edge(
        frozenset({"error"}),
        undoable=False,
        bars=bar_unless_deferred,
        verbs=(("reroute", _NEW_ID),),
        renames=True,
    )
    return {
        (State.PENDING, State.HELD): Edge(bars=bar_maildrop, warnings=soon_past),
        (State.ACTIVE, State.HELD): Edge(
            _ORPHANED,
            warning="" if has_locks else _BUSY_UNKNOWN,
            undoable=False,
            warnings=(_BUSY, *soon_past),
        ),
        (State.HELD, State.PENDING): Edge(
            warning=f"tried at the next queue run, within {run}; O: now", warnings=past
        ),
        (State.PENDING, State.PENDING): Edge(
            _DUE,
            undoable=False,
            value_problem=accept_only_now,
            exact=False,
            bars=bar_promote,
            limit=MAX_PROMOTED,
            instead=f"control {FLUSH}",
        ),
        (State.PENDING, State.DEAD): expire,
        (State.HELD, State.DEAD): expire._replace(verbs=(("expire", f"{_TO_SENDER}: L first"),)),
        (State.PENDING, State.DONE): requeue,
        (State.HELD, State.DONE): requeue._replace(warning="" if has_locks else _SENT_TWICE),
        (State.DEAD, State.DONE): requeue,
        (State.PENDING, State.TRASH): Edge(warning=_PURGE, bars=bar_maildrop),
        (State.HELD, State.TRASH): Edge(warning=_PURGE),
        (State.DEAD, State.TRASH): Edge(warning=_PURGE, bars=bar_active),
        (State.TRASH, State.PENDING): Edge(bars=bar_expired, warnings=past),
        (State.TRASH, State.HELD): Edge(bars=bar_expired),
        (State.TRASH, State.DEAD): Edge(bars=bar_unexpired),
        (State.TRASH, None): Edge(undoable=False, bars=bar_expunge),
    }


def allow_edges(edges: Edges, refusal: str, *, is_running: bool) -> Edges:
    """The edges as the rights of the user (`Instance.refusal`) and the state of Postfix allow
    them."""
    promote = (State.PENDING, State.PENDING)
    if refusal:
        edges = {**refuse_all(edges, refusal), promote: edges[promote]}
    if not is_running:
        edges = {**edges, promote: edges[promote]._replace(refusal=STOPPED)}
    return edges


def make_controls(instance: Instance, *, is_running: bool) -> dict[str, Control]:
    """The controls of an instance; every user may use them."""
    why = "" if is_running else STOPPED
    flush = "try all deferred mail now; done often, it slows all other mail"
    controls = {FLUSH: Control(flush, refusal=why, has_forecast=True)}
    if instance.settings["fast_flush_domains"]:
        site = "try the mail of one domain of fast_flush_domains now"
        controls[FLUSH_SITE] = Control(site, target="DOMAIN", refusal=why)
    return controls


class Verb(NamedTuple):
    """An act of postsuper."""

    option: str
    done: str
    """In the line of a message."""
    total: str
    """Begins the last line."""
    queue: str
    """Where the messages are afterwards; "" if nowhere, "same" if they do not move."""


HOLD = Verb("-h", "placed on hold", "Placed on hold", "hold")
RELEASE = Verb("-H", "released from hold", "Released from hold", "deferred")
EXPIRE = Verb("-e", "expired", "Force-expired", "same")
REQUEUE = Verb("-r", "requeued", "Requeued", "")
DELETE = Verb("-d", "removed", "Deleted", "")

VERBS: Mapping[tuple[State, State | None], Verb] = {
    (State.PENDING, State.HELD): HOLD,
    (State.ACTIVE, State.HELD): HOLD,
    (State.HELD, State.PENDING): RELEASE,
    (State.PENDING, State.DEAD): EXPIRE,
    (State.HELD, State.DEAD): EXPIRE,
    (State.PENDING, State.DONE): REQUEUE,
    (State.HELD, State.DONE): REQUEUE,
    (State.DEAD, State.DONE): REQUEUE,
    (State.PENDING, State.TRASH): HOLD,
    (State.HELD, State.TRASH): HOLD,
    (State.DEAD, State.TRASH): HOLD,
    (State.TRASH, State.PENDING): RELEASE,
    (State.TRASH, State.HELD): RELEASE,
    (State.TRASH, State.DEAD): RELEASE,
    (State.TRASH, None): DELETE,
}


class VerbEnd(NamedTuple):
    """What a run of postsuper printed."""

    done: Collection[str] = ()
    is_complete: bool = False
    why: str = ""


_find_lines = re.compile(r"^(?:\S*/)?postsuper: ([0-9A-Za-z]+): ([a-z ]+)$", re.M).findall
_find_log = re.compile(r"fatal: open logfile '([^']+)': cannot open file").search
_find_totals = re.compile(r"^(?:\S*/)?postsuper: ([A-Z][a-z -]+): \d+ messages?$", re.M).findall


def parse_end(verb: Verb, end: ProgramEnd, why: str = "") -> VerbEnd:
    """Parse what postsuper printed: the lines decide, its status says nothing of a message. `why`
    is why it failed, if it did."""
    text = end.errors.decode("utf-8", "replace")
    if log := _find_log(text):  # Postfix 3.7, after the first message
        why = f"postsuper cannot write {safe_line(log[1])} while Postfix is stopped"
    done = {ident for ident, word in _find_lines(text) if word == verb.done}
    is_complete = end.status == 0 and not why and verb.total in _find_totals(text)
    return VerbEnd(done, is_complete, "" if is_complete else why or "it printed no last line")


def run_verb(instance: Instance, verb: Verb, queue: str, ids: Sequence[str]) -> VerbEnd:
    """Run an act of postsuper on messages of one queue: its name is the compare-and-swap.

    Raises:
        engine.store.Unavailable: it cannot be started.
    """
    end = instance.act("postsuper", verb.option, "-", queue, ids=ids)
    return parse_end(verb, end, instance.why_failed(end))
