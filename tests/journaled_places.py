"""Places whose journal is kept, and operations in it, for the console's tests and pictures."""

import calendar
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.model import State, Task
from engine.operations import plans
from engine.operations.execute import PlanRun
from engine.operations.journal import Intent, Journal, Who
from engine.operations.plans import Plan
from engine.places.place import Place
from engine.replay.settings import ReplayPace
from engine.text.typed_json import to_json
from tests.console_places import NOW, disk_place
from tests.engine.task_builders import tasks_in

ANA = Who("root", "ana", "192.0.2.7 50122 192.0.2.1 22", "mx1", 4243)
BEN = Who("ben", "", "", "mx1", 3181)


def a_journaled_place(
    root: Path, clock: Callable[[], float] = lambda: NOW, name: str = ""
) -> Place:
    """A place on disk with a journal."""
    journal = Journal(f"{root}/queue/.spooldeck/journal", str(root), clock)
    return disk_place(root, name, clock)._replace(journal=journal, who=ANA, root=str(root))


def kept(place: Place) -> Journal:
    """The journal of such a place."""
    assert place.journal is not None
    return place.journal


def seen(place: Place, state: State) -> list[Task]:
    """Its tasks in a state, in the order of their ids."""
    with closing(place.open()) as store:
        return tasks_in(store, state)


def carried_out(
    place: Place,
    verb: str,
    tasks: Sequence[Task],
    *,
    at: float = NOW,
    most: int | None = None,
    intent: Intent | None = None,
    pace: ReplayPace | None = None,
    became: dict[str, object] | None = None,
) -> str:
    """Do this to these tasks, or to the first so many of them and then leave it; its name.

    `at` is when, epoch seconds UTC.
    """
    plan: Plan = plans.freeze_plan(verb, tasks, at)
    asked = intent or Intent(verb, place.who)
    if pace is not None:
        asked = asked._replace(pace=to_json(pace))
    store = place.open()
    record = Journal(kept(place).folder, place.root, lambda: at).begin(asked, plan)
    try:
        applying = PlanRun(store, plan, lambda: at, record)
        applying.step(applying.open_rows[:most])
        if became:
            record.write_note("became", **became)
        if most is None:
            applying.finish("")
    finally:
        record.close()
        store.close()
    return record.op


def interrupt(place: Place, amount: int = 8, moved: int = 3, at: float = NOW) -> str:
    """A replay of some dead tasks whose console died on the way; its name."""
    dead = seen(place, State.DEAD)[:amount]
    return carried_out(place, "retry", dead, at=at, most=moved, pace=ReplayPace())


def forget_outcomes(place: Place, op: str) -> None:
    """As if an operation was killed between the moves and the line that says so."""
    path = Path(kept(place).folder, f"{op}.jsonl")
    lines = path.read_text().splitlines(True)
    path.write_text("".join(line for line in lines if '"line": "ends"' not in line))


def make_past(root: Path) -> Journal:
    """A journal of a day, the same each time: its names too, as they are on screen."""
    folder = root / "journal"
    folder.mkdir()
    retried, other = ({"verb": "retry", "pace": to_json(ReplayPace())}, "20261120T080931Z-51c0ffee")
    filtered = {"filter": "kind=mail_send timeout", "reason": "mx7 is back"}
    mark = {"line": "note", "what": "became", "delivered": ["t0", "t1", "t2"], "failed": {}}
    _write(folder, other, BEN, {"verb": "purge", "filter": "age>30d"}, 41, 41)
    _write(folder, "20261120T081502Z-0b5e77ed", ANA, {"verb": "undo", "undoes": other}, 41, 41)
    _write(folder, "20261120T090210Z-7e57ab1e", BEN, {"verb": "expunge", "scope": "5 marked"}, 5, 5)
    _write(folder, "20261120T093555Z-ca11ab1e", ANA, {**retried, **filtered}, 9, 9, mark)
    return Journal(str(folder), str(root), lambda: NOW)


def _write(
    folder: Path, op: str, who: Who, intent: dict[str, object], planned: int, done: int, *notes: Any
) -> None:
    when = float(calendar.timegm(time.strptime(op[:16], "%Y%m%dT%H%M%SZ")))
    ids = [f"t{number}" for number in range(planned)]
    fields = {"done": dict.fromkeys(ids[:done], "1"), "gone": dict.fromkeys(ids[done:], "changed")}
    first = {"line": "intent", "when": when, "op": op, **intent, "who": who._asdict()}
    lines = [
        {**first, "planned": planned},
        {"line": "rows", "rows": [[id, "dead", "1"] for id in ids]},
        {"line": "ends", "when": when + 1, **fields},
        *notes,
        {"line": "end", "when": when + 2, "planned": planned},
    ]
    (folder / f"{op}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / f"{op}.before").write_bytes(b"")
