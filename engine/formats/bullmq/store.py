"""The BullMQ store: each change is one Lua script that compares the job with the seen one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from engine.formats.bullmq import controls
from engine.formats.bullmq.change_feed import ChangeFeed, MarkerWatch
from engine.formats.bullmq.claims import JobClaims
from engine.formats.bullmq.connection import READ_ONLY_REPLICA, Connection, ScriptCall, script
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.moves import ACTIONS, EDGES, UNKNOWN_NUMBER, Action, JobMoves
from engine.formats.bullmq.place import RedisPlace, task_id
from engine.formats.bullmq.reading import JobReader
from engine.formats.bullmq.repeats import Repeats
from engine.formats.bullmq.row import STATES, WORDS, own_retry_policy
from engine.formats.bullmq.scan import KnownQueues, QueueCounts, RedisScan
from engine.model import (
    ChangeSource,
    Edges,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    Relatives,
    State,
    Task,
)
from engine.override import override
from engine.store import (
    ClaimFilter,
    ClaimRules,
    Control,
    SeenTask,
    Store,
    StoreError,
    StoreSample,
    Unsupported,
    accept_all,
    refuse_all,
)

RECONNECT_SECONDS = 1.0
"""Seconds until a worker tries to reach the server again: a restart takes a few."""
_FINISHED = frozenset({State.DEAD, State.DONE, State.HELD, State.TRASH})
"""States of one sorted set: a job is found in it by one command."""
_REPLICA_ROLES = ("slave", "replica")
CONTROL_SECONDS = 1.0
"""Seconds for which the controls that were read are current."""

_BULLMQ_COMMANDS = (
    "EVALSHA x 0",
    "HSET {base}1 a b",
    "HDEL {base}1 a",
    "DEL {base}1",
    "LPUSH {base}wait 1",
    "LREM {base}wait 1 1",
    "ZADD {base}failed 1 1",
    "ZREM {base}failed 1",
    "XADD {base}events * a b",
    "RENAME {base}paused {base}wait",
    "LMOVE {base}paused {base}wait LEFT RIGHT",
)
"""Commands of BullMQ's own scripts, and of ours that open a queue for them, each as it is used."""
_COPY, _BRING_BACK = "COPY {base}1 {kept}job:1", "RENAME {kept}job:1 {base}1"
_NOTE_QUEUE, _NOTE_CHANGE = "SADD {queues} x", "XADD {stream} * a b"
_INSERT = ("LTRIM {base}wait 0 1", "RPUSH {base}wait 1")
"""Commands of our scripts besides."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "package": _BULLMQ_COMMANDS,
    "keep": (*_BULLMQ_COMMANDS, _COPY, _NOTE_QUEUE, _NOTE_CHANGE),
    "return": (*_BULLMQ_COMMANDS, _BRING_BACK, *_INSERT, _NOTE_CHANGE),
    "move": (*_BULLMQ_COMMANDS, *_INSERT, _NOTE_CHANGE),
    "forget": (
        "EVALSHA x 0",
        "DEL {kept}job:1",
        "ZREM {kept}trash 1",
        "HDEL {kept}place 1",
        _NOTE_CHANGE,
    ),
}
"""The commands that each action of `relocate.lua` needs, and BullMQ's script with it."""
_ALL_COMMANDS = tuple(dict.fromkeys(text for texts in _NEEDED.values() for text in texts))


class BullmqStore(Store):
    """Jobs of all queues in one database of a Redis or Valkey server."""

    states: Mapping[State, str] = STATES
    words: Mapping[str, State] = WORDS
    max_verified = 500
    """A job needs no file descriptor; their images are saved with one fsync."""

    def __init__(self, place: RedisPlace, clock: Callable[[], float] = time.time) -> None:
        """Connect.

        Raises:
            Unavailable: the server cannot be used, or a package is missing.
        """
        self.place, self._clock = place, clock
        self._connection = Connection(place)
        try:
            reader = self._reader = JobReader(self._connection, place, clock)
            self._moves = JobMoves(self._connection, place)
            self._queues = KnownQueues(self._connection, place)
            names = self.queue_names = self._queues.names
            repeats = Repeats(self._connection, place)
            connection, moves = self._connection, self._moves
            self._claims = JobClaims(connection, place, moves, repeats, names, clock=clock)
            self.claim_gate = repeats.gate
            self.claim_rules = ClaimRules(
                own_retry_policy,
                lambda task: self._claims.take_data(task) or reader.read_data(task),
                State.DONE,
                RECONNECT_SECONDS,
                claims_lots=True,
                swap_and_take=self._claims.swap_and_take,
                return_abandoned=self._claims.return_stalled,
                keeps_reports=True,
                limit_ends=self._claims.limit_ends,
            )
            self._refusal, self.edges = permitted_edges(EDGES, self._connection, place)
            self.controls = controls.LazyControls(self._list_controls)
            self._controls_due = 0.0
            feed = ChangeFeed(self._connection, place, self._queues)
            self.changes = ChangeSource(wait=feed.wait, counts=feed.counts)
        except BaseException:
            self.close()
            raise

    @override
    def close(self) -> None:
        self._connection.close()

    def _leave_replica(self) -> None:
        """Connect again if the server is a replica now: the address may name the primary."""
        connection = self._connection
        if connection.read_facts().role in _REPLICA_ROLES:
            connection.reset()
        connection.server = connection.read_facts()
        if self._refusal or connection.server.role in _REPLICA_ROLES:
            self._refusal, self.edges = permitted_edges(EDGES, connection, self.place)

    # ---- scanning

    @override
    def count_tasks(self) -> Mapping[State, int]:
        return QueueCounts(self._connection, self.place, self._queues.names()).by_state()

    @override
    def sample(self, number: int) -> StoreSample:
        counts = QueueCounts(self._connection, self.place, self._queues.names())
        scan = RedisScan(self._connection, self.place, self._clock())
        return StoreSample(counts.by_state(), counts.by_word(), scan.sample_ends(counts, number))

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        now = self._clock()
        scan = RedisScan(self._connection, self.place, now)
        if touched is None:
            self._leave_replica()
            for names in self._queues.find():
                yield from scan.preview(QueueCounts(self._connection, self.place, names))
            self.controls = self._list_controls()
            counts = QueueCounts(self._connection, self.place, self._queues.names())
            for item in scan.everything(counts, self._queues.others):
                self.expected_tasks = scan.expected_tasks
                yield item
            return
        if time.monotonic() >= self._controls_due:
            self.controls = controls.LazyControls(self._list_controls)
            self._controls_due = time.monotonic() + CONTROL_SECONDS
        by_word = {word: state for state, word in STATES.items()}
        for word in {*by_word, *WORDS}.intersection(touched):
            finer = word if word in WORDS else ""
            state = WORDS[word] if finer else by_word[word]
            yield from scan.in_state(self._queues.names(), state, finer)
        yield from scan.find(name for name in touched if name not in by_word and name not in WORDS)

    @override
    def scan_failed(self, state_names: Collection[str]) -> Iterator[Task | Missing | Problem]:
        """Yield the jobs of these states with a reason of failure; the server reads the others."""
        scan = RedisScan(self._connection, self.place, self._clock(), failed_only=True)
        for state, word in STATES.items():
            if word in state_names:
                yield from scan.in_state(self._queues.names(), state)

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        expected = set(known_tasks)
        if self._refusal:
            self._leave_replica()
        scan = RedisScan(self._connection, self.place, self._clock())
        for state in {w[1] for w in expected}:
            if state in _FINISHED:
                known = {(ident, rev) for ident, its_state, rev in expected if its_state is state}
                yield from self._reader.verify(state, known)
                continue
            for item in scan.find(w[0] for w in expected if w[1] is state):
                if isinstance(item, Task) and (item.id, item.state, item.rev) in expected:
                    yield item  # a job may be wanted in several states, of which it has one

    def _list_controls(self) -> Mapping[str, Control]:
        queues = self._queues.names()
        return controls.list_controls(self._connection, self.place, queues, self._refusal)

    # ---- reading

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        return self._reader.parts(task)

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        return self._reader.read(task, part)

    @override
    def read_all(self, tasks: Iterable[Task]) -> Iterator[bytes | StoreError]:
        return self._reader.read_all(tasks)

    @override
    def relatives(self, task: Task, limit: int) -> Relatives:
        return self._reader.relatives(task, limit)

    @override
    def preview_problem(self, problem: Problem) -> bytes:
        return self._reader.preview_problem(problem)

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        return self._reader.restore_image(task, image, state)

    # ---- claiming

    @override
    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        """Claim by BullMQ's own script, queue by queue; `wants` gets no group.

        Afterwards `changes.next_due` is the time of the next delayed job or of the end of a rate
        limit, if all jobs that are due were claimed.

        Raises:
            Unsupported: the server is a read-only replica.
            Unavailable: the server cannot be reached.
        """
        if self._refusal:
            self._leave_replica()
        if self._refusal:
            raise Unsupported(self._refusal)
        if limit > 0:
            yield from self._claims.take(now, owner, limit, wants)
            self.changes = self.changes._replace(next_due=self._claims.next_due)

    @override
    def renew(self, tasks: Iterable[Task], until: float) -> Iterator[Outcome]:
        return self._claims.renew(tasks, until)

    def watch_markers(self, worker: str, wake: Callable[[], None]) -> MarkerWatch:
        """Wake a worker of the place's queues as soon as there is a job to claim, until stopped;
        `take` does not ask a queue again until then."""
        self._claims.markers = MarkerWatch(self.place, self.place.queues, worker, wake)
        self._claims.markers.start()
        return self._claims.markers

    # ---- changing

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        for outcomes in self._moves.apply_all(self.edges, moves, self._clock):
            self._note_queues(outcomes)
            yield from outcomes

    def add_job(self, new: NewJob) -> Task:
        """Add a job, its queue too if it is new; return it as a pending task.

        Raises:
            Gone: the id exists already.
            Unsupported: a value cannot be stored.
            Full, Unavailable: see `swap`.
        """
        now = self._clock()
        task = new.as_task(task_id(new.queue, new.id or UNKNOWN_NUMBER), now)
        image = new.as_image(task.id)
        if not new.id:
            task = self._moves.add_numbered(new.queue, task, image, now)
            self._queues.add({new.queue})
            return task
        (outcome,) = self.swap_all([Move(None, task, image.encode())])
        if outcome.error is not None:
            raise outcome.error
        return task._replace(rev=outcome.rev)

    def _note_queues(self, outcomes: list[Outcome]) -> None:
        """Note which queues moves may have given another job to claim, and which they have made."""
        for outcome in outcomes:
            old = outcome.move.old
            if old is not None and old.state is State.ACTIVE:
                self._claims.end_rest(old.kind)
        added = {o.move.new.kind for o in outcomes if not o.error and not o.move.old and o.move.new}
        self._queues.add(added)

    # ---- the queues as a whole

    @override
    def control(self, name: str, target: str = "", value: str = "") -> str:
        present = self._list_controls()
        done = controls.run_control(
            self._connection, self.place, present, name=name, queue=target, value=value
        )
        self._connection.confirm_changes()
        self._queues.names(fresh=True)
        self.controls = self._list_controls()
        return done


def permitted_edges(edges: Edges, connection: Connection, place: RedisPlace) -> tuple[str, Edges]:
    """Why nothing may be changed, "" if something may; and the edges, each with a refusal if it
    needs a command which the user may not run."""
    if connection.server.role in _REPLICA_ROLES:
        return READ_ONLY_REPLICA, refuse_all(edges, READ_ONLY_REPLICA)
    names = {"base": place.base("x"), "kept": place.kept_prefix("x"), "stream": place.stream}
    texts = [text.format(queues=place.queues_key, **names) for text in _ALL_COMMANDS]
    try:
        numbers = connection.run(ScriptCall(script("permissions", reads_only=True), [], texts))
    except StoreError:
        return "", edges  # unknown: a change says it
    refused = {_ALL_COMMANDS[number - 1] for number in numbers}
    return "", {
        states: edge._replace(refusal=_refusal(states, refused, place) or edge.refusal)
        for states, edge in edges.items()
    }


def _refusal(
    states: tuple[State | None, State | None], refused: Collection[str], place: RedisPlace
) -> str:
    start, end = states
    action = Action("package") if start is None else ACTIONS.get((start, end), Action("package"))
    needed = (text.partition(" ")[0] for text in _NEEDED[action.name] if text in refused)
    missing = [*dict.fromkeys(needed)]
    if not missing:
        return ""
    return f"the server does not permit {', '.join(missing)} (keys {place.acl_keys})"
