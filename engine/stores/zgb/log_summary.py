"""What happens in the queue, as events of its log."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model import Outcome, State, Task
from engine.store import Gone
from engine.stores.zgb import control
from engine.stores.zgb.claims import KeptResult
from engine.stores.zgb.log import Tell
from engine.stores.zgb.row import parsed_id


def kept(tell: Tell, found: KeptResult) -> None:
    """What a take did before its first claim."""
    for ident in found.recovered:
        tell("recovered", **_named(ident))
    for ident in found.orphans:
        tell("orphan_deleted", **_named(ident))
    if found.reset:
        tell("bucket_reset", tokens=found.tokens)
    if found.turned_back:
        tell("clock_backwards", tokens=found.tokens)
    if found.undecidable:
        tell("redirect_blocked", type="user", error="redirect guard undecidable")


def moved(tell: Tell, outcome: Outcome) -> None:
    """What became of a job."""
    old, new = outcome.move.old, outcome.move.new
    if outcome.error is not None:
        if old is not None and old.state is State.ACTIVE and isinstance(outcome.error, Gone):
            tell("lease_lost", **_named(old.id), attempt=(old.attempts or 0) + 1)
        return
    if old is None:
        assert new is not None
        tell("enqueue", **_named(new.id))
    elif new is not None:
        _changed(tell, old, new)


def _changed(tell: Tell, old: Task, new: Task) -> None:
    its = _named(old.id)
    if old.state is State.ACTIVE:
        its["attempt"] = (old.attempts or 0) + 1
        tried = (new.attempts or 0) > (old.attempts or 0)
        event = "failed" if tried else "postponed"
        if new.state is State.DEAD:
            event = "parked"
        due = None if new.state is State.DEAD else int(new.due or 0)
        tell(event, **its, error=new.error, next_attempt_at=due)
    elif new.state is State.DEAD and old.state is State.PENDING:
        tell("parked", **its)
    elif new.state is State.PENDING and old.state is State.DEAD:
        tell("retry_requested", **its)


def pressed(tell: Tell, name: str, value: str, said: str) -> None:
    """What was done to the queue as a whole."""
    tell(_PRESSED.get(name, "config_changed"), key=name, value=value, said=said)


_PRESSED: Mapping[str, str] = {
    control.RETRY: "retry_requested",
    control.ORPHANS: "orphan_deleted",
}


def _named(ident: str) -> dict[str, object]:
    its = parsed_id(ident)
    return {"id": ident} if its is None else {"reg": its[0], "type": its[1]}
