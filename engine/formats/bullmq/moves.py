"""Each change of a job as one script: our guard, a script of BullMQ, our own part.

The guard (`guard.lua`) compares revision, lock and place of the job with what was scanned; if one
differs, nothing changes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import groupby, islice
from typing import Any

from engine.formats.bullmq.connection import (
    Connection,
    Denied,
    Script,
    ScriptCall,
    nothing,
    pack,
    script,
)
from engine.formats.bullmq.image import LONG_FIELD_BYTES, JobImage, parse_image, to_bytes
from engine.formats.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.formats.bullmq.place import RedisPlace, split_id, task_id
from engine.formats.bullmq.row import BACKOFF_KEY, CUSTOM, OUR_TOKEN, STATES, make_token, place_of
from engine.formats.bullmq.scan import QueueCounts
from engine.model import AttemptReport, Edge, Edges, Move, Outcome, State, Task, attempts_allowed
from engine.store import Gone, StoreError, Unavailable, Unsupported, require_edge
from engine.text.json_text import compact_json
from engine.text.times import format_time
from engine.values import NamedTuple

TYPE_CHECK_SECONDS = 1.0
"""Seconds between two checks of the types of a queue's keys."""

MOVES_PER_PIPELINE = 100
"""Changes that are sent at a time."""

CHANGES_PER_CALL = 25
"""Jobs that one script changes at most: some 2 ms."""

MAX_PRIORITY = 2**21
"""BullMQ's PRIORITY_LIMIT; a larger one is a score that is not exact."""

UNKNOWN_NUMBER = "0"
"""The id of a new job whose number the server gives."""

CLAIMED_WARNING = "its worker may still be running it: the result will not be stored"


def bar_leaving(task: Task, now: float) -> str:
    """Why a job cannot be taken out of its place."""
    if task.word == "waiting-children":
        return "waits for its children"
    if "parent waits" in task.extra:
        return f"child of a waiting parent: {task.extra.get('parent', '?')}"
    if "next run" in task.extra:
        return f"next run of scheduler {task.extra.get('scheduler', '?')}: remove the scheduler"
    return ""


def bar_waiting_parent(task: Task, now: float) -> str:
    """Why a job cannot be changed where it is."""
    return "waits for its children" if task.word == "waiting-children" else ""


def bar_locked(task: Task, now: float) -> str:
    """Why a claimed job cannot be changed by us."""
    lease = task.lease
    if lease is None or lease.token.startswith(OUR_TOKEN):
        return ""
    remaining = "" if lease.until is None else f" for {max(0.0, lease.until - now):.0f} s"
    return f"locked by {lease.owner}{remaining}"


def check_value(name: str, value: object, now: float) -> str:
    """What is wrong with a new value of a field; "" if it is valid."""
    if name == "priority" and not (isinstance(value, int) and 0 <= value <= MAX_PRIORITY):
        return f"priority {value!r:.40}, expected 0 (first) to {MAX_PRIORITY:,}"
    if name != "data":
        return ""
    text = str(value)
    if (size := len(to_bytes(text))) > LONG_FIELD_BYTES:
        return f"data of {size:,} bytes, expected at most {LONG_FIELD_BYTES:,}"
    try:
        compact_json(text)
    except ValueError as error:
        return f"data: {error}"
    return ""


_leaving = Edge(bars=bar_leaving)
_deleting = Edge(undoable=False, bars=bar_leaving)
_retrying = Edge(frozenset({"attempts", "error"}))
_failing = Edge(frozenset({"attempts", "error"}), warning=CLAIMED_WARNING, bars=bar_locked)

EDGES: Edges = {
    (None, State.PENDING): Edge(),
    (State.ACTIVE, None): Edge(undoable=False, bars=bar_locked),
    (State.ACTIVE, State.DONE): Edge(frozenset({"attempts"}), bars=bar_locked),
    (State.ACTIVE, State.DEAD): _failing,
    (State.ACTIVE, State.PENDING): _failing._replace(
        fields=frozenset({"attempts", "error", "due"})
    ),
    (State.PENDING, State.PENDING): Edge(
        frozenset({"due", "priority", "data"}), value_problem=check_value, bars=bar_waiting_parent
    ),
    (State.PENDING, State.HELD): _leaving,
    (State.PENDING, State.DEAD): _leaving,
    (State.PENDING, State.DONE): _leaving,
    (State.PENDING, State.TRASH): _leaving,
    (State.PENDING, None): _deleting,
    (State.HELD, State.PENDING): Edge(),
    (State.HELD, State.DEAD): Edge(),
    (State.HELD, State.TRASH): Edge(),
    (State.DEAD, State.PENDING): _retrying,
    (State.DEAD, State.HELD): _leaving,
    (State.DEAD, State.TRASH): _leaving,
    (State.DEAD, None): _deleting,
    (State.DONE, State.PENDING): _retrying,
    (State.DONE, State.TRASH): _leaving,
    (State.DONE, None): _deleting,
    (State.TRASH, State.PENDING): Edge(),
    (State.TRASH, State.HELD): Edge(),
    (State.TRASH, State.DEAD): Edge(),
    (State.TRASH, State.DONE): Edge(),
    (State.TRASH, None): Edge(undoable=False),
}
"""BullMQ has no due time for a failed job, so a retried one is always due now."""

NOTHING_CHANGED: Mapping[str, Callable[..., StoreError]] = {
    "gone": lambda ident: Gone(f"{ident} has changed"),
    "closed": lambda ident, what: Unsupported(f"{ident}: {what}"),
    "exists": lambda ident: Gone(f"{ident} is there already"),
    "locked": lambda ident: Gone(f"{ident} was locked or its lock was lost"),
    "refused": lambda ident, answer: Gone(f"{ident}: BullMQ's script refused the change"),
    "needed": lambda ident: Unsupported(f"{ident} is a child of a waiting parent"),
    "next-run": lambda ident: Unsupported(f"{ident} is the next run of a scheduler"),
    "taken": lambda ident: Unsupported(f"{ident}: another job has this id now"),
    "long-data": lambda ident: Unsupported(f"{ident}: its data is too long to be edited"),
    "too-many-fields": lambda ident: Unsupported(f"{ident} has too many fields to restore them"),
}
"""The store error for each reason of the guard."""


class Action(NamedTuple):
    """What our part of the script does along a way."""

    name: str
    """`package`: only BullMQ's script; keep, return, move, edit, forget: see `relocate.lua`."""
    script: str = ""
    """The script of BullMQ."""
    target: str = ""
    """The place that the script is given as its target."""
    enters: bool = False
    """True if our part puts the job into its new place."""


class Change(NamedTuple):
    """A change of one job; those that are equal but for `script_values` may share a script call."""

    queue: str
    action: Action
    target: str
    script_values: dict[str, Any]
    """What the script gets for this job besides what is common to all; see `guard.lua`."""


class _Prepared(NamedTuple):
    """Moves that are sent together."""

    moves: Sequence[Move]
    changes: Sequence[Change | StoreError]
    """The change of each move, or why it is not allowed."""
    now: float


_keep = Action("keep", "removeJob")
_return = Action("return", enters=True)
_move = Action("move", enters=True)
_ADOPT = Action("adopt", enters=True)
"""A job that is in no list of its queue."""
_EDIT = Action("edit")
"""Only fields change, as by BullMQ's updateData: the job stays where it is."""
_PACKAGE = Action("package")
_RENEW = Action("renew", "extendLock")

ACTIONS: Mapping[tuple[State, State | None], Action] = {
    (State.ACTIVE, None): Action("package", "moveToFinished", "completed"),
    (State.ACTIVE, State.DONE): Action("package", "moveToFinished", "completed"),
    (State.ACTIVE, State.DEAD): Action("package", "moveToFinished", "failed"),
    (State.PENDING, State.PENDING): _move,
    (State.PENDING, State.HELD): _keep,
    (State.PENDING, State.DEAD): _move,
    (State.PENDING, State.DONE): _move,
    (State.PENDING, State.TRASH): _keep,
    (State.PENDING, None): Action("package", "removeJob"),
    (State.HELD, State.PENDING): _return,
    (State.HELD, State.DEAD): _return,
    (State.HELD, State.TRASH): _move,
    (State.DEAD, State.PENDING): Action("package", "reprocessJob", "failed"),
    (State.DEAD, State.HELD): _keep,
    (State.DEAD, State.TRASH): _keep,
    (State.DEAD, None): Action("package", "removeJob"),
    (State.DONE, State.PENDING): Action("package", "reprocessJob", "completed"),
    (State.DONE, State.TRASH): _keep,
    (State.DONE, None): Action("package", "removeJob"),
    (State.TRASH, State.PENDING): _return,
    (State.TRASH, State.HELD): _move,
    (State.TRASH, State.DEAD): _return,
    (State.TRASH, State.DONE): _return,
    (State.TRASH, None): Action("forget"),
}


def _arguments(
    action: Action,
    old: Task,
    new: Task | None,
    base: str,
    job: str,
    now: float,
    report: AttemptReport | None,
) -> list[Any]:
    """The arguments of BullMQ's script, True for the job's id; `finish.lua` fills in what
    depends on the options of the job."""
    stamp = str(round(now * 1000))
    token = old.lease.token if old.lease is not None else "0"
    error, due = ("", 0.0) if new is None else (new.error, new.due or 0.0)
    match action.script:
        case "removeJob":
            return [True, "0", base]
        case "reprocessJob":
            keeps_error = old.state is State.DONE or bool(error)
            field = "returnvalue" if keeps_error else "failedReason"
            return [True, "LPUSH", field, action.target, "0", "0"]
        case "promote":
            return [base, True]
        case "moveToFinished":
            is_failed = action.target == "failed"
            result = (report and report.result) or "null"
            outcome_field = ("failedReason", error) if is_failed else ("returnvalue", result)
            return [True, stamp, *outcome_field, action.target, "", base, ""]
        case "moveToDelayed":
            # Never 0: the same script would claim the job again, with its old values.
            delay = round(due * 1000) - round(now * 1000)
            return [base, stamp, True, token, str(delay), "1", "", "0"]
        case "retryJob":
            return [base, stamp, "LPUSH", True, token]
        case "moveJobFromActiveToWait":
            return [True, token, base + job]
    return []


_FETCH_ARGUMENTS = {"moveToFinished": 5, "moveToDelayed": 7}
"""The index of the argument that is "1" if the script also claims the next job of the queue."""
_PUSH_ARGUMENTS = {"reprocessJob": 2, "retryJob": 3}
"""The number of the argument that is LPUSH, or RPUSH for a job that goes to the front."""


@cache
def _change_script(action: Action) -> Script:
    parts = ("guard", "finish") if action.name in ("package", "renew") else _ALL_PARTS
    return script(*parts, package=action.script)


_ALL_PARTS = ("guard", "relocate", "finish")


class JobMoves:
    """Makes the script calls of moves, and reads their answers."""

    def __init__(self, connection: Connection, place: RedisPlace) -> None:
        self._connection, self._place = connection, place
        self._check_due: dict[str, float] = {}
        """When the types of a queue's keys are checked again, by the monotonic clock."""

    def apply(self, edges: Edges, moves: Sequence[Move], now: float) -> list[Outcome]:
        """Make the moves that their edges allow in one pipeline; an outcome for each, in order."""
        return [outcome for outcome, _ in self.apply_and_claim(edges, moves, now)]

    def apply_all(
        self, edges: Edges, moves: Iterable[Move], clock: Callable[[], float]
    ) -> Iterator[list[Outcome]]:
        """Like `apply` for any number of moves, `MOVES_PER_PIPELINE` in each pipeline; yield its
        outcomes. The changes of the next one are made while the server works."""
        waiting = iter(moves)

        def prepare(some: list[Move]) -> _Prepared:
            now = clock()
            return _Prepared(some, [self._allowed_change(edges, move, now) for move in some], now)

        prepared = prepare(list(islice(waiting, MOVES_PER_PIPELINE)))
        while prepared.moves:
            # Take the next moves first: what makes them may use the connection. `cache` prepares
            # them once, or raises again below, once the outcomes of what was sent are known.
            following = cache(partial(prepare, list(islice(waiting, MOVES_PER_PIPELINE))))

            def prepare_early(prepare_next: Callable[[], object] = following) -> None:
                with suppress(Exception):
                    prepare_next()

            answers = self._send(prepared, prepare_early)
            yield [outcome for outcome, _ in answers]
            prepared = following()

    def apply_and_claim(
        self,
        edges: Edges,
        moves: Sequence[Move],
        now: float,
        claims: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> list[tuple[Outcome, Any]]:
        """Like `apply`; with the options of a claim for some moves, whose scripts also claim the
        next job of the queue, if they can. Each outcome is with the answer to its claim, or None.
        """
        pairs = zip(moves, claims or [None] * len(moves), strict=True)
        changes = [self._allowed_change(edges, move, now, claim) for move, claim in pairs]
        return self._send(_Prepared(moves, changes, now))

    def _send(
        self, prepared: _Prepared, meanwhile: Callable[[], object] = nothing
    ) -> list[tuple[Outcome, Any]]:
        """Make changes; an outcome for each move, in order, and the answer to its claim."""
        moves, changes, now = prepared
        try:
            self._check_keys(moves)
        except (Unavailable, Unsupported) as error:
            return [(Outcome(move, error=error), None) for move in moves]
        allowed = [change for change in changes if isinstance(change, Change)]
        answers = iter(self._run(allowed, now, meanwhile))
        outcomes = []
        for move, change in zip(moves, changes, strict=True):
            answer = next(answers) if isinstance(change, Change) else change
            claimed = answer[2] if isinstance(answer, list) and len(answer) > 2 else None
            outcomes.append((_outcome(move, answer), claimed))
        if all(one.error for one, _ in outcomes):
            return outcomes
        try:
            note = self._connection.confirm_changes()
        except Unavailable as error:
            return [(one._replace(error=one.error or error), None) for one, _ in outcomes]
        return [(o if o.error else o._replace(note=note), claimed) for o, claimed in outcomes]

    def _run(
        self, changes: Sequence[Change], now: float, meanwhile: Callable[[], object] = nothing
    ) -> list[Any]:
        """Send changes in pipelines of scripts, each for many jobs; the answer to each, in order.

        A script that has cost much ends early: its other jobs are sent again. `meanwhile` is called
        at most once, and must not use the connection.
        """
        answers: list[Any] = [None] * len(changes)
        waiting = list(range(len(changes)))
        while waiting:
            lots = []
            for _, some in groupby(waiting, lambda at: changes[at][:3]):
                while lot := list(islice(some, CHANGES_PER_CALL)):
                    lots.append(lot)
            calls = [self._call([changes[at] for at in lot], now) for lot in lots]
            try:
                lot_answers = self._connection.run_all(calls, meanwhile)
            except Unavailable as error:
                lot_answers = [error] * len(calls)
            meanwhile = nothing
            waiting = []
            for lot, those in zip(lots, lot_answers, strict=True):
                if isinstance(those, StoreError):
                    those = [those] * len(lot)
                for at, answer in zip(lot, those, strict=False):
                    is_error = isinstance(answer, list) and answer[0] == "error"
                    answers[at] = self._connection.explain(answer[1]) if is_error else answer
                waiting += lot[len(those) :]
        return answers

    def _call(self, changes: Sequence[Change], now: float) -> ScriptCall:
        """The script call of changes that are equal but for their jobs."""
        queue, action, target, _ = changes[0]
        package = PACKAGE_SCRIPTS.get(action.script)
        first, *others = values_of_jobs = [change.script_values for change in changes]
        equal = {
            name: value
            for name, value in first.items()
            if all(name in one and one[name] == value for one in others)
        }
        common = equal | {
            "prefix": self._place.prefix,
            "queue": queue,
            "now": round(now * 1000),
            "metrics": self._place.settings.metrics or None,
            "action": action.name,
            "script": action.script or None,
            "push": _PUSH_ARGUMENTS.get(action.script),
            "enters": action.enters,
            "returns": action.name == "return",
            "keys": [key.format(id="{id}", target=target) for key in package.keys]
            if package
            else [],
            "changes": [{k: v for k, v in one.items() if k not in equal} for one in values_of_jobs],
        }
        return ScriptCall(_change_script(action), [], [pack(common)])

    def _check_keys(self, moves: Sequence[Move]) -> None:
        """Check that no key of the queues has a type that stops BullMQ's scripts half-way.

        Raises:
            Unsupported: one has.
        """
        ids = {task.id.partition("/")[0] for old, new, *_ in moves if (task := old or new)}
        queues = {parts[0] for ident in ids if (parts := split_id(f"{ident}/x"))}
        moment = time.monotonic()
        unchecked = sorted(q for q in queues if self._check_due.get(q, 0.0) <= moment)
        if not unchecked:
            return
        for queue, name in QueueCounts(self._connection, self._place, unchecked).odd_keys():
            raise Unsupported(f"{self._place.base(queue)}{name} has another type than BullMQ's")
        self._check_due |= dict.fromkeys(unchecked, moment + TYPE_CHECK_SECONDS)

    def _allowed_change(
        self, edges: Edges, move: Move, now: float, claim: Mapping[str, Any] | None = None
    ) -> Change | StoreError:
        try:
            require_edge(edges, move.old, move.new, now, whole=bool(move.image))
            return self._change_for(move, now, claim)
        except (Unsupported, Gone) as error:
            return error

    def _change_for(self, move: Move, now: float, claim: Mapping[str, Any] | None) -> Change:
        """The change of an allowed move; it also claims, if it can, with the given options.

        Raises:
            Unsupported: a value cannot be stored, or the image is of another job.
            Gone: the id has no form of a job.
        """
        old, new, data, report = move
        if new is not None and (why := _value_problem(new, now)):
            raise Unsupported(why)
        image = parse_image(data) if data else None
        if old is None:
            assert new is not None
            return self._addition(new, image, now)
        queue, job = _split(old.id)
        if image is not None and image.id != old.id:
            raise Unsupported(f"the image is not of {old.id}")
        end = None if new is None else new.state
        action = ACTIONS.get((old.state, end), _PACKAGE)
        if image is not None and (old.state, end) in _RERUNS:
            action = _move
        if old.state is State.ACTIVE and new is not None and new.state is State.PENDING:
            action = Action("package", _unclaim_script(old, new, now))
        elif old.state is State.PENDING and new is not None and _is_promotion(old, new, image):
            action = Action("package", "promote")
        elif new is not None and image is None and _stays(old, new):
            action = _EDIT
        script_values = _guard(old, job)
        target = _target(new, image, now)
        script_values["to"] = script_values["place"] if action is _EDIT else target
        if end is not State.PENDING and old.state in _LEAVING:
            script_values["leaves"] = True
        if new is not None:
            script_values |= self._values(old, new, image)
            if line := _attempt_line(old, new, now):
                script_values["log"] = line
            if action.script == "moveToFinished" and new.attempts == (old.attempts or 0) + 1:
                # The script itself counts the attempt and writes the reason.
                script_values["set"] = None
        if report is not None and report.trace:
            script_values["trace"] = report.trace
        arguments = _arguments(
            action, old, new, base=self._place.base(queue), job=job, now=now, report=report
        )
        if claim is not None and action.script in _FETCH_ARGUMENTS:
            arguments[_FETCH_ARGUMENTS[action.script]] = "1"
            arguments += [pack(claim)] if action.script == "moveToDelayed" else []
            script_values["claim"] = claim
        script_values["arguments"] = arguments
        return Change(queue, action, action.target, script_values)

    def renew(
        self, tasks: Sequence[Task], until: float, now: float
    ) -> list[tuple[Task, StoreError | None]]:
        """Extend the claims of tasks; each with its new lease and revision, or with the error."""
        changes, renewed, errors = dict[int, Change](), list(tasks), list[StoreError | None]()
        for at, task in enumerate(tasks):
            parts, lease = split_id(task.id), task.lease
            if lease is None or parts is None or not lease.token.startswith(OUR_TOKEN):
                continue
            token = make_token(lease.owner, lease.since, until, secrets.token_hex(8))
            milliseconds = str(max(1, round((until - now) * 1000)))
            script_values = _guard(task, parts[1])
            script_values |= {"to": "active", "token": token, "ms": milliseconds}
            script_values["arguments"] = [token, milliseconds, True]
            changes[at] = Change(parts[0], _RENEW, "", script_values)
            renewed[at] = task._replace(rev=token, lease=lease._replace(until=until, token=token))
        answers = dict(zip(changes, self._run([*changes.values()], now), strict=True))
        for at, new in enumerate(renewed):
            rev: str | StoreError = Gone(f"{new.id} is not claimed by us")
            rev = read_answer(new.id, answers[at]) if at in answers else rev
            errors.append(rev if isinstance(rev, StoreError) else None)
        unknown = [at for at, error in enumerate(errors) if isinstance(error, Unavailable)]
        held_tokens = self._held_tokens([renewed[at].id for at in unknown])
        for at, token in zip(unknown, held_tokens, strict=False):
            if token == renewed[at].rev:  # only the answer was lost
                errors[at] = None
        return list(zip(renewed, errors, strict=True))

    def _held_tokens(self, idents: Sequence[str]) -> list[Any]:
        """The tokens of the locks of jobs; [] if the server cannot be reached."""
        keys = [f"{self._place.base(q)}{job}:lock" for q, job in map(_split, idents)]
        try:
            return self._connection.call_all([("GET", key) for key in keys]) if keys else []
        except Unavailable:
            return []

    def _values(self, old: Task, new: Task, image: JobImage | None) -> dict[str, Any]:
        """What our part writes: fields, due time, position."""
        due = round((new.due or 0.0) * 1000)
        if image is not None:
            written: dict[str, Any] = {"image": image.flat_fields}
            written["unchanged"] = dict(image.long_fields)
            written["priority"], written["due"] = new.priority, due
            if image.state is new.state:
                written["where"] = image.position
            elif new.state in (State.HELD, State.TRASH):
                written["was"] = f"{image.place} {image.position}"
            return written
        fields, unset = list[str](), list[str]()
        is_claimed, reruns = old.state is State.ACTIVE, (old.state, new.state) in _RERUNS
        if reruns and not new.attempts:
            unset += ["atm", "ats", "attemptsMade"]
        elif is_claimed or new.attempts != old.attempts:
            fields += ["atm", str(new.attempts or 0)]
        if new.error != old.error and (new.error or is_claimed):
            fields += ["failedReason", new.error]
        elif new.error != old.error or (old.state is State.DONE and reruns):
            unset.append("failedReason")
        if new.state is State.PENDING is old.state and not _stays(old, new):
            delay = max(0, due - round(new.created * 1000))
            fields += ["priority", str(new.priority), "delay", str(delay)]
        written = {"priority": new.priority, "due": due}
        if new.data is not None:
            fields += ["data", new.data]
            written["data_limit"] = LONG_FIELD_BYTES
        written |= {"set": fields} if fields else {}
        return written | ({"unset": unset} if unset else {})

    def put_back(self, queue: str, jobs: Sequence[str], now: float) -> list[StoreError | None]:
        """Put jobs of a queue that are in none of its lists where they belong; an error for each
        that was not, in order.

        Raises:
            StoreError: none was.
        """
        changes = [
            Change(queue, _ADOPT, "", {"id": job, "to": "wait", "arguments": []}) for job in jobs
        ]
        answers = (read_answer(queue, each) for each in self._run(changes, now))
        return [each if isinstance(each, StoreError) else None for each in answers]

    def add_numbered(self, queue: str, new: Task, image: JobImage, now: float) -> Task:
        """Add a job whose id is the next number of its queue; return it with id and revision.

        Raises:
            StoreError: it was not added; after Unavailable it may be there.
        """
        self._check_keys([Move(None, new)])
        change = self._addition(new, image, now, is_numbered=True)
        (answer,) = self._run([change], now)
        rev = read_answer(new.id, answer)
        if isinstance(rev, StoreError):
            raise rev
        self._connection.confirm_changes()
        return new._replace(id=task_id(queue, answer[2]), rev=rev)

    def _addition(
        self, new: Task, image: JobImage | None, now: float, *, is_numbered: bool = False
    ) -> Change:
        """The change that adds a job: data and options are those of the image, if there is one."""
        queue, job = _split(new.id)
        if new.kind != queue:
            raise Unsupported(f"{new.id}: its kind is {new.kind}, expected its queue {queue}")
        if job.isdecimal() and not is_numbered:
            raise Unsupported(f"{new.id}: the id is a number, which BullMQ gives itself")
        if ":" in job:
            raise Unsupported(f"{new.id}: the id has a colon, which BullMQ refuses")
        fields = {} if image is None else image.fields
        options = _options_of(fields.get("opts", "{}"))
        due, stamp = round((new.due or 0.0) * 1000), round(new.created * 1000)
        delay = max(0, due - stamp) if due > now * 1000 else 0
        options |= {"delay": delay, "priority": new.priority}
        options |= {} if is_numbered else {"jobId": job}
        where = "delayed" if delay else "prioritized" if new.priority else "wait"
        base = self._place.base(queue)
        packed = [base, "" if is_numbered else job, new.group, stamp, None, None, None, None, None]
        values = list[str]()
        if new.attempts:
            values += ["atm", str(new.attempts)]
        if new.error:
            values += ["failedReason", new.error]
        script_values = {
            "id": job,
            "is_new": True,
            "is_numbered": is_numbered or None,
            "to": where,
            "set": values,
            "arguments": [pack(packed), fields.get("data", "{}"), pack(options)],
        }
        return Change(queue, Action("package", _ADDING[where]), "", script_values)


_ADDING = {"delayed": "addDelayedJob", "prioritized": "addPrioritizedJob", "wait": "addStandardJob"}


def _split(ident: str) -> tuple[str, str]:
    parts = split_id(ident)
    if parts is None:
        raise Gone(f"{ident}: no such job")
    return parts


def _target(new: Task | None, image: JobImage | None, now: float) -> str:
    """The place that the job goes to; "" if it is deleted."""
    if new is None:
        return ""
    if image is not None and image.state is new.state:
        return image.place
    if new.state is not State.PENDING:
        return STATES[new.state]
    if new.due is not None and new.due > now:
        return "delayed"
    return "prioritized" if new.priority > 0 else "wait"


def _guard(old: Task, job: str) -> dict[str, Any]:
    """What the job must be."""
    lock = old.lease.token if old.lease is not None else ""
    return {"id": job, "place": place_of(old), "rev": old.rev, "lock": lock}


_LEAVING = frozenset({State.PENDING, State.DEAD, State.DONE})
"""States of a job that its parent or scheduler may still need; the end of a claimed one is for
BullMQ's script, which informs the parent."""
_RERUNS = frozenset({(State.DEAD, State.PENDING), (State.DONE, State.PENDING)})
"""Ways on which a finished job runs again."""


def _unclaim_script(old: Task, new: Task, now: float) -> str:
    """The script that returns a claimed job: delayed, at the end of the line or at its start.

    A wait of a millisecond is the difference of two clocks, ours and the server's: as a delayed job
    it would not be due yet when a run until idle looks for the next one.
    """
    if new.due is not None and round(new.due * 1000) - round(now * 1000) > 1:
        return "moveToDelayed"
    return "moveJobFromActiveToWait" if new.attempts == old.attempts else "retryJob"


def _is_promotion(old: Task, new: Task, image: JobImage | None) -> bool:
    is_due = new.state is State.PENDING and new.due == 0.0 and old.word == "delayed"
    return is_due and image is None and new.priority == old.priority


def _stays(old: Task, new: Task) -> bool:
    """True if a waiting job keeps its place."""
    is_waiting = old.state is State.PENDING is new.state
    return is_waiting and (new.due, new.priority) == (old.due, old.priority)


def _value_problem(new: Task, now: float) -> str:
    """Why a new value cannot be stored; "" if all can."""
    why = check_value("priority", new.priority, now)
    return why or ("" if new.data is None else check_value("data", new.data, now))


def _attempt_line(old: Task, new: Task, now: float) -> str:
    """The line in a job's log about an attempt that has ended; "" if none has."""
    if old.lease is None or (new.attempts or 0) <= (old.attempts or 0):
        return ""
    most = attempts_allowed(old, None)
    tried = f"attempt {new.attempts}{f' of {most}' if most else ''} by {old.lease.owner}"
    if new.state is State.DONE:
        outcome_text = "completed"
    elif new.state is State.DEAD:
        backoff = old.extra.get(BACKOFF_KEY, "")
        is_early = (new.attempts or 0) < (most or 0) and backoff.startswith(CUSTOM)
        why = f": only its program knows the delay {backoff.removeprefix(CUSTOM)}"
        outcome_text = f"failed: {new.error}; given up{why if is_early else ''}"
    else:
        outcome_text = f"failed: {new.error}; next attempt {format_time(max(now, new.due or 0.0))}"
    return f"{format_time(now)} {tried}: {outcome_text}"


def _options_of(text: str) -> dict[str, Any]:
    import json

    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"the options are not JSON: {error}") from error
    if not isinstance(options, dict):
        raise Unsupported("the options are not a JSON object")
    return options


def read_answer(ident: str, answer: Any) -> str | StoreError:
    """The new revision that a change answers, or why nothing changed."""
    if isinstance(answer, StoreError):
        return answer
    if answer[0] == "done":
        return str(answer[1])
    why = NOTHING_CHANGED.get(answer[0])
    if why is None:
        return Unavailable(f"{ident}: unexpected answer {answer!r:.100}")
    return why(ident, *answer[1:])


def _outcome(move: Move, answer: Any) -> Outcome:
    task = move.new if move.old is None else move.old
    if isinstance(answer, Denied):
        answer = Unsupported(str(answer))
    rev = read_answer(task.id if task else "", answer)
    return Outcome(move, error=rev) if isinstance(rev, StoreError) else Outcome(move, rev)
