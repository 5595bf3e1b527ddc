"""Acts on schedules of BullMQ, with a record in the journal: an extra run, remove, edit, and undo.

Each act is one Lua script (`schedule_write.lua`). It does nothing if the schedule is not as it was
read just before. If only one of its runs has started since, it is read again and the act repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from engine.formats.base.format import Setup
from engine.formats.bullmq import schedule_changes, schedules
from engine.formats.bullmq.connection import Connection, Denied, ScriptCall, pack, script
from engine.formats.bullmq.image import to_bytes
from engine.formats.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.formats.bullmq.place import RedisPlace, parse_place, split_id, task_id
from engine.formats.bullmq.scan import FIND_COST_FACTOR, FIND_SECONDS, KnownQueues
from engine.formats.bullmq.schedule_changes import NewSchedule
from engine.formats.bullmq.schedules import (
    DELAYED,
    MAX_READS,
    MAX_SCHEDULES,
    Rule,
    ScheduleReader,
    StoredSchedule,
    as_schedule,
    read_rule,
    run_ids,
)
from engine.formats.bullmq.store import BullmqStore
from engine.model import State, Task
from engine.operations.controls import (
    CONTROL_VERB,
    SCHEDULE_CONTROL,
    ControlResult,
    EffectUnknown,
    Order,
    run_journaled_action,
)
from engine.operations.journal import Intent, JournalWriter, Operation
from engine.places.schedules import (
    EDIT,
    REMOVE,
    RUN,
    PlaceSchedules,
    Schedule,
    ScheduleChanges,
    ScheduleList,
)
from engine.store import Gone, Unavailable, Unsupported
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.text.typed_json import from_json
from engine.values import NamedTuple

COMMAND = ("bullmq", "schedulers")
_ODD_VALUES = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What is raised for values that BullMQ would not have written."""


class ScheduleImage(NamedTuple):
    """What the journal keeps for an undo."""

    before: StoredSchedule
    after: str = ""
    """The revision that the act leaves; "": the schedule is not there any more."""
    after_key: str = ""
    job: str = ""
    """The id of the job that was added; then the schedule is unchanged."""

    def encode(self) -> bytes:
        """The image as JSON."""
        return to_bytes(json.dumps(self._replace(before=self.before._asdict())._asdict()))  # type: ignore[arg-type]


def parse_image(data: bytes) -> ScheduleImage:
    """The image in bytes that `encode` made.

    Raises:
        Unsupported: it is not one.
    """
    try:
        values = json.loads(data.decode("utf-8", "surrogateescape"))
        return from_json(ScheduleImage, values, "image", exact=True)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"not the image of a schedule: {error}") from error


class Change(NamedTuple):
    """One act on a schedule that was just read."""

    one: StoredSchedule
    new: NewSchedule | None = None
    """What replaces it; None: it is removed, or a job is added."""
    job: str = ""
    """The id of a job to add."""

    @property
    def image(self) -> ScheduleImage:
        """What its undo needs."""
        if self.new is None and not self.job:
            return ScheduleImage(self.one)
        left = self.one if self.new is None else _stored(self.one, self.new)
        return ScheduleImage(self.one, schedules.revision(left), left.key, self.job)


class ScheduleActs:
    """Reads and changes the schedules of a server; a connection for each call."""

    def __init__(self, setup: Setup, clock: Callable[[], float] = time.time) -> None:
        self._setup, self._clock = setup, clock
        self._names: list[str] = []
        self._names_due = 0.0
        """When the names are read again (monotonic clock): a search for them visits all keys."""

    def place_schedules(self) -> PlaceSchedules:
        """These functions for the console and commands."""
        return PlaceSchedules(
            self.read, self.plan, self.change, self.plan_undo, self.undo, command=COMMAND
        )

    def _open_store(self) -> closing[BullmqStore]:
        place = parse_place(self._setup.address, self._setup.settings)
        return closing(BullmqStore(place, self._clock))

    @contextmanager
    def _open(self) -> Iterator[tuple[Connection, RedisPlace, ScheduleReader]]:
        place = parse_place(self._setup.address, self._setup.settings)
        with closing(Connection(place)) as connection:
            yield connection, place, ScheduleReader(connection, place)

    @property
    def _now(self) -> int:
        return round(self._clock() * 1000)

    # ---- reading

    def read(self, most: int) -> ScheduleList:
        """About so many schedules, the next ones of each queue first; large queues are cut."""
        rows, problems = list[Schedule](), list[str]()
        with self._open() as (connection, place, reader):
            start = time.monotonic()
            if start >= self._names_due:
                self._names = KnownQueues(connection, place).names()
                took = time.monotonic() - start
                self._names_due = start + max(FIND_SECONDS, FIND_COST_FACTOR * took)
            counts = reader.count(self._names)
            for n, queue in enumerate(sorted(counts, key=counts.__getitem__)):
                share = max(1, -(-most // (len(counts) - n)))
                most -= min(share, counts[queue])
                try:
                    found = reader.read(queue, share)
                    rows += (as_schedule(one, self._clock()) for one in found)
                except Unsupported as error:
                    problems.append(f"{safe_line(queue)}: {error}")
        rows.sort(key=lambda one: one.queue)
        return ScheduleList(rows, sum(counts.values()) - len(problems), problems)

    def read_all(self, queues: Sequence[str], report: Callable[[str], None]) -> Iterator[Schedule]:
        """All schedules of some queues, or of all; each page as soon as it is read. Queues that
        cannot be read are reported, in one line each.

        Raises:
            Unsupported: there is no such queue.
        """
        with self._open() as (connection, place, reader):
            names = KnownQueues(connection, place).names()
            for queue in queues:
                if queue not in names:
                    raise Unsupported(f"no queue {safe_line(queue)} here")
            for queue in dict.fromkeys(queues or names):
                try:
                    if (count := reader.count([queue]).get(queue, 0)) > MAX_SCHEDULES:
                        report(f"{safe_line(queue)}: {MAX_SCHEDULES:,}+ of {count:,} are listed")
                    yield from (as_schedule(one, self._clock()) for one in reader.read(queue))
                except Unsupported as error:
                    report(f"{safe_line(queue)}: {error}")

    def find(self, ident: str) -> Schedule:
        """The schedule with an id QUEUE/KEY, or with a KEY that only one queue has.

        Raises:
            Gone: there is none, or there are several.
        """
        with self._open() as (connection, place, reader):
            names = KnownQueues(connection, place).names()
            parts = split_id(ident)
            asked = [parts] if parts and parts[0] in names else []
            found = [one for queue, key in asked if (one := reader.find(queue, key)).exists]
            found = found or [one for name in names if (one := reader.find(name, ident)).exists]
        if len(found) > 1:
            named = ", ".join(safe_line(one.id) for one in found[:9])
            raise Gone(
                f"{safe_line(ident)}: {len(found):,} queues have it: expected one of {named}"
            )
        if not found:
            raise Gone(f"{safe_line(ident)}: no such schedule (QUEUE/KEY)")
        return as_schedule(found[0], self._clock())

    # ---- planning

    def plan(
        self, verb: str, seen: Schedule, changes: ScheduleChanges
    ) -> Sequence[tuple[str, str]]:
        """What an act would do, as names and values."""
        with self._open() as (_, _, reader):
            change = self._make(reader, verb, seen, changes, "new")
        return [("schedule", safe_line(seen.id)), *self._describe(verb, change)]

    def _make(
        self,
        reader: ScheduleReader,
        verb: str,
        seen: Schedule,
        changes: ScheduleChanges,
        job: str,
    ) -> Change:
        """The act on a schedule as it is now, if it is as it was seen."""
        parts = split_id(seen.id)
        if parts is None:
            raise Gone(f"{seen.id}: no such schedule")
        one = reader.find(*parts)
        schedule_changes.check_unchanged(one, seen.rev)
        if verb == EDIT:
            values = schedule_changes.parse_changes(changes, self._clock())
            new = self._build(lambda: schedule_changes.edit(one, values, self._now))
            return Change(one, new)
        if verb == RUN:
            self._build(lambda: schedule_changes.extra_job(one))
            return Change(one, job=job)
        return Change(one)

    def _build(self, make: Callable[[], Any]) -> Any:
        """Run a function on stored options; refuse odd ones, which any program may have written."""
        try:
            return make()
        except _ODD_VALUES as error:
            why = f"its options are not as BullMQ writes them: {error_text(error)}"
            raise Unsupported(why) from error

    def _describe(self, verb: str, change: Change) -> Iterator[tuple[str, str]]:
        one, rule = change.one, read_rule(change.one)
        yield "rule", _rule_text(rule)
        following = format_time(one.due / 1000) if one.goes_on else "none: it is stopped"
        if verb == RUN:
            name, data, _ = schedule_changes.extra_job(one)
            size = len(to_bytes(data))
            yield "effect", f"one job {safe_line(name)} is added, with {size:,} bytes of data"
            yield "next run", f"{following}: stays"
        elif change.new is None:
            yield "effect", "the schedule and the job of its next run are removed"
            runs = "is due and not removed: it runs" if one.place == schedules.BEGUN else "removed"
            yield "next run", f"{following}: {runs}" if one.goes_on else following
            yield "note", "a program that sets the schedule at its start adds it again"
        else:
            after = read_rule(_stored(one, change.new))
            yield "new rule", _rule_text(after)
            yield "next run", f"{following} -> {format_time(int(change.new.score) / 1000)}"
            if after.limit is not None and after.number is not None:
                yield "runs left", f"{after.limit - after.number + 1:,}"
            if change.new.key != one.key:
                yield "new key", safe_line(change.new.key)
            if after.pattern and not after.zone:
                yield (
                    "time zone",
                    "none: counted here in that of this machine, by workers in theirs",
                )
            sets = "adds the former one again" if change.new.key != one.key else "sets it back"
            yield "note", f"a program that sets the schedule at its start {sets}"

    # ---- acting

    def change(
        self, verb: str, seen: Schedule, changes: ScheduleChanges, reason: str
    ) -> ControlResult:
        """Run an act on a schedule as it was seen; journaled with its undo."""

        def make(reader: ScheduleReader, op: str) -> Change:
            return self._make(reader, verb, seen, changes, f"run-{op}")

        edits = " ".join(f"{name}={value}" for name, value in changes.items())
        words = {
            RUN: f"{safe_line(seen.id)}: one job is added",
            REMOVE: f"{safe_line(seen.id)} is removed",
            EDIT: f"{safe_line(seen.id)} is changed: {safe_line(edits)}",
        }
        order = Order(SCHEDULE_CONTROL, seen.id, f"{verb} {edits}".strip(), before=seen.rule)
        return self._run(order, make, words[verb], reason)

    def _run(
        self,
        order: Order,
        make: Callable[[ScheduleReader, str], Change],
        done: str,
        reason: str,
        undoes: str = "",
    ) -> ControlResult:
        with self._open() as (connection, place, reader):
            make(reader, "new")  # what is refused is not written down

            def act(writer: JournalWriter) -> str:
                for number in range(MAX_READS):
                    change = make(reader, writer.op)
                    writer.save_images([(str(number), change.image.encode())])
                    with _unknown_if_cut():
                        is_done = self._write(connection, place, change)
                    if is_done:
                        return done + _new_id(change)
                raise Unavailable(f"{order.target}: its runs start too often: nothing was changed")

            return self._record(order, act, reason, undoes)

    def _record(
        self, order: Order, act: Callable[[JournalWriter], str], reason: str, undoes: str
    ) -> ControlResult:
        """Run an act with a record in the journal and a line in the log."""
        setup = self._setup
        setup.require_writable()
        setup.make_folder(setup.state_folder)
        user = setup.current_user()
        intent = Intent(CONTROL_VERB, user, reason, scope="one schedule", undoes=undoes)
        done = run_journaled_action(setup.journal(), intent, order, act, self._clock)
        setup.log_if_allowed("INFO", f"Schedule {safe_line(done.answer)} by {user.name}")
        return done

    def _write(self, connection: Connection, place: RedisPlace, change: Change) -> bool:
        """Apply an act; False if the schedule was moved on meanwhile.

        Raises:
            StoreError: nothing was changed.
        """
        one, base = change.one, place.base(change.one.queue)
        ours: dict[str, Any] = {
            "key": one.key,
            "ids": run_ids(one.key, one.asked),
            "seen": one.seen,
        }
        keys, words, package = list[str](), list[Any](), ""
        if change.job:
            name, data, options = schedule_changes.extra_job(one)
            options |= {"jobId": change.job, "delay": 0}
            package = "addPrioritizedJob" if options.get("priority") else "addStandardJob"
            keys = PACKAGE_SCRIPTS[package].key_names(base)
            job = [base, change.job, name, self._now, None, None, None, None, None]
            words = [pack(job), to_bytes(data), pack(options)]
            ours |= {"is_run": True, "job": change.job}
        elif change.new is not None:
            ours["new"] = change.new.packed()
        written = script("schedule_state", "schedule_write", package=package)
        answer = connection.run(ScriptCall(written, keys, [base, pack(ours), *words]))
        word, *more = answer
        if word == "closed":
            raise Unsupported(f"{safe_line(one.id)}: {more[0]}")
        if word == "taken":
            what = f"{safe_line(str(more[0]))} is there already"
            raise Gone(f"{safe_line(one.id)}: nothing was changed: {what}")
        return bool(word == "done")

    # ---- undo

    def _image(self, operation: Operation) -> ScheduleImage:
        images = self._setup.journal().images(operation.op)
        if not images:
            raise Unsupported(f"{operation.op}: its saved image was deleted, or nothing was done")
        return parse_image(images[max(images, key=int)])  # of the last time that it was read

    def plan_undo(self, operation: Operation) -> Sequence[tuple[str, str]]:
        """What the undo would do, as names and values."""
        image = self._image(operation)
        rows = [
            ("schedule", safe_line(image.before.id)),
            ("rule", _rule_text(read_rule(image.before))),
        ]
        if image.job:
            with self._open_store() as store:
                task = _added_job(store, image)
            return [*rows, ("effect", f"the job {safe_line(task.id)} is removed: it waits still")]
        with self._open() as (_, _, reader):
            change = self._make_undo(reader, image)
        if change.new is None:
            return [*rows, ("effect", "the schedule and the job of its next run are removed")]
        at = format_time(_stored(change.one, change.new).due / 1000)
        stopped = "" if change.new.job or change.one.place else ": it is stopped"
        return [*rows, ("effect", "the schedule is put back"), ("next run", f"{at}{stopped}")]

    def undo(self, operation: Operation, reason: str) -> ControlResult:
        """Undo an act; journaled with its own undo."""
        image = self._image(operation)
        order = Order(SCHEDULE_CONTROL, image.before.id, "undo", before="")
        if not image.job:
            done = f"{safe_line(image.before.id)}: undone"
            return self._run(
                order, lambda reader, _: self._make_undo(reader, image), done, reason, operation.op
            )
        with self._open_store() as store:
            task = _added_job(store, image)

            def act(_: JournalWriter) -> str:
                with _unknown_if_cut():
                    store.swap(task, None)
                return f"{safe_line(task.id)} is removed"

            return self._record(order, act, reason, operation.op)

    def _make_undo(self, reader: ScheduleReader, image: ScheduleImage) -> Change:
        was = image.before
        one = reader.find(was.queue, image.after_key or was.key, was.score)
        if not image.after:
            if one.exists and schedules.revision(one) == schedules.revision(was):
                raise Gone(f"{safe_line(was.id)}: it is there as before")
            if one.exists:
                raise Gone(f"{safe_line(was.id)}: it was added again since")
            return Change(one, self._build(lambda: schedule_changes.put_back(was, one, self._now)))
        schedule_changes.check_unchanged(one, image.after)
        if not was.exists:
            return Change(one)
        return Change(one, self._build(lambda: _edited_back(was, one, self._now)))


@contextmanager
def _unknown_if_cut() -> Iterator[None]:
    """Raise EffectUnknown if the connection is lost while a change is made."""
    try:
        yield
    except Denied:
        raise
    except Unavailable as error:
        unknown = "not known whether it was done: `undo` finds out"
        raise EffectUnknown(f"{error}; {unknown}") from error


def _added_job(store: BullmqStore, image: ScheduleImage) -> Task:
    """The job that an act has added, if it still waits."""
    ident = task_id(image.before.queue, image.job)
    for item in store.scan({ident}):
        if isinstance(item, Task) and item.state is State.PENDING and not item.attempts:
            return item
    raise Gone(f"{safe_line(ident)}: it ran, or was moved")


def _edited_back(was: StoredSchedule, one: StoredSchedule, now: int) -> NewSchedule:
    """A schedule with the rule that it had: exactly as it was, if none of its runs has started."""
    before, present = read_rule(was), read_rule(one)
    is_same_run = before.number == present.number and was.place == one.place == DELAYED
    if is_same_run and was.due > now:
        return schedule_changes.as_it_was(was)
    if not was.goes_on and one.place != schedules.BEGUN:
        return NewSchedule(was.key, was.score, was.hash, "", {})
    at = was.due if was.due > now else schedule_changes.run_after(was, now)
    return schedule_changes.edit(one, schedule_changes.rule_options(before), now, at)


def _new_id(change: Change) -> str:
    if change.new is None or change.new.key == change.one.key:
        return ""
    return f"; it is {safe_line(task_id(change.one.queue, change.new.key))} now"


def _stored(one: StoredSchedule, new: NewSchedule) -> StoredSchedule:
    fields = new.fields or one.fields
    return one._replace(key=new.key, score=new.score, hash=new.hash, fields=fields, broken="")


def _rule_text(rule: Rule) -> str:
    limit = "" if rule.limit is None else f", {rule.limit:,} runs"
    end = "" if rule.end is None else f", until {format_time(rule.end / 1000)}"
    zone = f" {rule.zone}" if rule.zone else ""
    return safe_line(f"{rule.text()}{zone}{limit}{end}")
