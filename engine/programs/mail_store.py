"""The store of a mail server that is reached through its programs: listings, two looks before a
message counts as gone, and changes in batches whose outcome is what the program printed.

It has no task of its own and no worker: the server delivers. Only the records of the last listing
are kept, as the program printed them; a task is made of a record when it is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from engine.model import ChangeSource, Missing, Move, Outcome, Part, Problem, State, Task
from engine.override import override
from engine.programs.mail_accounts import IDS_PER_LOOK, LOOKS_PER_POLL, RETRY_SECONDS
from engine.programs.mail_log import MailFacts, MailLog
from engine.programs.mail_server import (
    UNSURE,
    ActResult,
    MailServer,
    MailSummary,
    describe_later,
)
from engine.programs.server_watch import LoggedLooks
from engine.store import (
    Gone,
    Outlook,
    SeenTask,
    Store,
    StoreError,
    StoreSample,
    Unavailable,
    Unsupported,
    require_edge,
)

SAMPLE_TASKS = 200
"""Tasks of the first lines that a full scan yields before all in order."""
COST_FACTOR = 20
"""Least time from one listing to the next, in multiples of its duration: the server spends at most
5 % of its time on listings."""
SYNC_COST_FACTOR = 4
"""`engine.live.index_sync` spaces full scans by this multiple of their cost."""
RESCAN_SECONDS = 600.0
"""Seconds between full scans: `revisions` finds each change in between."""
RECHECK_FACTOR = 2
"""Least time between lookups of the rows on the screen, in multiples of `poll_seconds`: each call
may write a line into the log of the server, and listings find all changes."""
ACTS_PER_LOOK = 2
"""Acts of a plan whose messages are looked at together: each look starts a program."""
VERIFIED_SECONDS = 10.0
"""Seconds for which a message counts as looked at just before, if the name of its queue is enough
for the act to change no other one."""
SHARE_QUEUE = (State.HELD, State.TRASH)
"""States that may be one queue of the server: its name does not tell them apart."""
NOT_NAMED = "the program did not name it; does it get standard input? (see doctor)"
"""Why an act that ended well has not changed a message."""
ACCOUNT_READ = "/account"
"""Ends a name of `scan`: the account of this message is known now, nothing else has changed."""
GOES_ON = (State.PENDING, State.DEAD, State.DONE)
"""The server may deliver or return a message in these states, so one that is missing may have been
there."""
LOGGED = "/logged"
"""Ends a name of `scan`: a new line of the log names this message."""
LOG_SECONDS = 1.0
"""Least time between reads of the log."""
LISTINGS_TO_MISS = 2
"""Listings in a row without a message after which it is gone: one may miss what is moving."""


def identity(rev: str) -> str:
    """The part of a revision that a failed attempt does not change."""
    return rev.rpartition(".")[0]


class MailStore(Store):
    """The messages of one server."""

    def __init__(
        self,
        server: MailServer,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        *,
        listed: Callable[[float, int], None] = lambda now, moved: None,
        log: MailLog | None = None,
        logged: LoggedLooks | None = None,
    ) -> None:
        """`clock` has epoch seconds UTC, `steady` monotonic ones; `listed` gets the time of each
        listing, also of one that has shown no change, and how many messages moved during it.
        Between listings, the messages that new lines of `log` name are looked at, if it is a file
        of this host; `logged` is one for all stores of a place."""
        self._log = None if log is None or log.prefix.words else MailFacts(_file_only(log), most=1)
        self._logged = logged or LoggedLooks()
        self._log_due, self._delay = float("-inf"), 0.0
        self._listed = listed
        self._server, self._clock, self._steady, self._pause = server, clock, steady, pause
        self.states, self.words = server.states, server.words
        self.max_verified = ACTS_PER_LOOK * server.ids_per_act
        self.expected_tasks = 0
        self.changes = ChangeSource(
            wait=self._wait,
            rescan_seconds=RESCAN_SECONDS,
            revisions=self._revisions,
            can_interleave=True,
        )
        self._records: dict[str, bytes] = {}
        self._problems: dict[str, Problem] = {}
        """By the last part of their names, as they are looked up."""
        self._absent: dict[str, int] = {}
        """Messages that were listed, with the number of listings in a row without them."""
        self._moved: set[str] = set()
        """Messages that the last listing had twice, or missed though they are there."""
        self._changed: set[str] = set()
        """Messages that are other ones in the last listing, and were not looked up since."""
        self._acted: set[str] = set()
        """Messages that an act has moved since the last listing: their records are outdated."""
        self._looked_at: set[str] = set()
        """Messages that were looked at since the last listing began: more is known of them than
        their records have."""
        self._reads_accounts, self._accounts_due = False, 0.0
        self._is_listing, self._listed_at, self._cost = False, -1.0, 0.0
        self._last_listed = 0.0
        self._poll_at, self._fingerprint = -1.0, b""
        self._verified: dict[str, Task] = {}
        self._verified_at = 0.0
        self._copy_facts()

    @override
    def close(self) -> None:
        self._server.close()
        if self._log is not None:
            self._log.close()

    # ---- listings

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        if touched is None:
            yield from self._scan_all()
            return
        words = {word for word in touched if word in self.words or word in self.states.values()}
        if words:
            self._list()
            self._read_accounts_first()
            for ident, its in self._summaries():
                if self.states[its.state] in words or its.word in words:
                    yield self._server.task_of(ident, self._records[ident])
        yield from self._look_up({*touched} - words)

    def _scan_all(self) -> Iterator[Task | Problem]:
        yield from self._listing(SAMPLE_TASKS)
        self._read_accounts_first()
        self.expected_tasks, records = len(self._records), self._records
        self._changed.clear()
        task_of = self._server.task_of
        for ident in sorted(records):
            yield task_of(ident, records[ident])
        yield from self._problems.values()

    def _list(self) -> None:
        for _ in self._listing(0):
            continue

    def _listing(self, sample: int) -> Iterator[Task | Problem]:
        """Read a listing to its end, and keep its records; yield the tasks of its first lines."""
        began, records, before = self._steady(), dict[str, bytes](), self._records
        moved = set[str]()
        problems = list[Problem]()
        self._is_listing = True
        self._looked_at.clear()
        try:
            for item in self._server.list_mails():
                if isinstance(item, Problem):
                    problems.append(item)
                    continue
                ident, record = item
                if len(records) < sample:
                    yield self._server.task_of(ident, record)
                if before and (known := before.get(ident, b"")).startswith(record):
                    record = known  # not in memory twice; `complete` sees to what follows
                if ident in records:
                    moved.add(ident)
                records[ident] = record  # of two lines, the later one
            problems += self._server.complete(records)
        finally:
            self._is_listing = False
            self._listed_at = self._steady()
            self._cost = self._listed_at - began
            self.changes = self.changes._replace(
                scan_cost=COST_FACTOR * self._cost / SYNC_COST_FACTOR,
                recheck_seconds=RECHECK_FACTOR * self._server.poll_seconds,
            )
            self._copy_facts()
        self._compare(records)
        self._records, self._moved = records, moved
        if self._server.accounts is not None:
            self._server.accounts.note_listing(records)
        self._note_listed()
        self._acted.clear()
        self._problems = {one.where.rpartition("/")[2]: one for one in problems}

    def _compare(self, records: Mapping[str, bytes]) -> None:
        """Note which messages differ from the listing before, and which are missing."""
        before = self._records
        if before:  # of the first listing, none is looked up
            self._changed = {i for i, record in records.items() if before.get(i) is not record}
        times = {each: n + 1 for each, n in self._absent.items() if n < LISTINGS_TO_MISS}
        times |= {each: 1 for each in before if each not in self._absent}
        self._absent = {each: n for each, n in times.items() if each not in records}

    def _summaries(self) -> Iterator[tuple[str, MailSummary]]:
        summarize = self._server.summarize
        for ident, record in self._records.items():
            yield ident, summarize(ident, record)

    def _revisions(self) -> Iterator[tuple[str, State, str]]:
        """See `ChangeSource.revisions`: a listing, whose lines are not parsed."""
        self._list()
        for ident, (state, _, rev) in self._summaries():
            yield ident, state, rev

    def _wait(self, seconds: float) -> Collection[str] | None:
        """See `ChangeSource.wait`: no server reports its changes, so listings are compared. What
        follows None is one more listing, which counts too."""
        now = self._steady()
        if self._poll_at < 0:
            self._poll_at = self._accounts_due = now + self._server.poll_seconds
        for seconds_looked in self._logged.take_costs():
            delay = min(COST_FACTOR * seconds_looked, self._server.poll_seconds)
            self._delay += delay
            self._poll_at += delay
        if now < self._poll_at:
            if now >= self._accounts_due and (names := self._read_accounts()):
                return names
            if self._log is not None and now >= self._log_due and (names := self._read_log(now)):
                return names
            self._pause(min(seconds, self._poll_at - now))
            return ()
        before, self._fingerprint = self._fingerprint, self._server.fingerprint()
        ended, has_changed = self._steady(), before != self._fingerprint
        rest = COST_FACTOR * (ended - now) * (2 if has_changed else 1)
        self._poll_at, self._delay = ended + max(self._server.poll_seconds, rest), 0.0
        if has_changed:
            return None
        self._moved.clear()
        self._note_listed()
        return ()

    def _read_log(self, now: float) -> Collection[str]:
        """Names of what new lines of the log name. Each look at them delays the next listing, by
        `poll_seconds` at most; there is none once it was delayed for longer than these in all."""
        assert self._log is not None
        waiting = self._log.read_waiting(IDS_PER_LOOK)
        if not waiting or self._delay >= self._server.poll_seconds:
            self._log_due = now + LOG_SECONDS
            return ()
        self._log_due = now + self._server.poll_seconds
        self._logged.reasons.update(waiting)
        # Rows may come that no listing has: the next one is compared in any case.
        self._fingerprint = b""
        return [f"{ident}{LOGGED}" for ident in waiting]

    def _note_listed(self) -> None:
        self._last_listed = self._clock()
        self._listed(self._last_listed, len(self._moved))

    @override
    def read_accounts_first(self) -> None:
        self._reads_accounts = True

    def _read_accounts_first(self) -> None:
        """Read those of `LOOKS_PER_POLL` looks, if that is wanted."""
        for _ in range(LOOKS_PER_POLL if self._reads_accounts else 0):
            if not self._read_accounts():
                break

    def _read_accounts(self) -> Collection[str]:
        """Read the accounts of the next messages; return the names of those that changed by it."""
        server, accounts, began = self._server, self._server.accounts, self._steady()
        if accounts is None or not (ids := accounts.take(server.account_order)):
            return ()
        read, rest = set[str](), server.poll_seconds / LOOKS_PER_POLL
        try:
            read = {f"{ident}{ACCOUNT_READ}" for ident in server.read_accounts(ids)}
        except Unavailable as error:
            accounts.why, rest = str(error), RETRY_SECONDS
        rest = max(rest, COST_FACTOR * (self._steady() - began))
        self._accounts_due = self._steady() + rest
        return read

    def _copy_facts(self) -> None:
        """Listings show what can be done now."""
        self.edges, self.controls = self._server.edges, self._server.controls

    @override
    def count_tasks(self) -> Mapping[State, int]:
        return self.sample(0).counts

    @override
    def sample(self, number: int) -> StoreSample:
        """All of a new listing: to read a part of it saves the server nothing."""
        self._list()
        counts, words = dict.fromkeys(self.states, 0), dict.fromkeys(self.words, 0)
        for _, its in self._summaries():
            counts[its.state] += 1
            if its.word in words:
                words[its.word] += 1
        make = self._server.task_of
        tasks = (make(ident, record) for ident, record in self._records.items())
        return StoreSample(counts, words, chain(tasks, self._problems.values()), is_whole=True)

    @override
    def trash_bytes(self) -> int:
        if self._listed_at < 0 or self._is_listing_due or self._acted:
            self._list()
        trash = (ident for ident, its in self._summaries() if its.state is State.TRASH)
        tasks = (self._server.task_of(ident, self._records[ident]) for ident in trash)
        return sum(task.bytes or 0 for task in tasks if isinstance(task, Task))

    @property
    def _is_listing_due(self) -> bool:
        """True if the server has had its pause after the last listing."""
        return self._steady() >= self._listed_at + COST_FACTOR * self._cost

    # ---- single messages

    def _look_up(self, names: Collection[str]) -> Iterator[Task | Missing | Problem]:
        """Look at single messages: those that the last listing has found changed are in its
        records; then by `MailServer.show`; what is left by a listing, if one is due."""
        ids, logged = set[str](), set[str]()
        for name in names:
            if name.endswith(LOGGED):
                logged.add(name.removesuffix(LOGGED))
            elif name.endswith(ACCOUNT_READ):
                name = name.removesuffix(ACCOUNT_READ)
                if name in self._records and name not in self._looked_at:
                    yield self._server.task_of(name, self._records[name])
            elif name in self._problems:
                yield self._problems[name]
            elif not self._server.is_id(name) or self._absent.get(name, 0) >= LISTINGS_TO_MISS:
                yield Missing(name)
            elif name in self._changed and name in self._records:
                self._changed.discard(name)
                yield self._server.task_of(name, self._records[name])
            else:
                ids.add(name)
        yield from self._look_at_logged(sorted(logged - ids))
        if not ids:
            return
        has_listed = self._listed_at < 0 and not self._is_listing
        if has_listed:  # a new instance: only a listing has all facts
            self._list()
            self._changed -= ids
            listed = [ident for ident in ids if ident in self._records]
            yield from (self._server.task_of(ident, self._records[ident]) for ident in listed)
            ids.difference_update(listed)
        unsure, missing = dict[str, Task](), set[str]()
        for answer in self._server.show(sorted(ids), self._records) if ids else ():
            if isinstance(answer, Missing):
                missing.add(answer.id)
                continue
            ids.discard(ident := answer.id if isinstance(answer, Task) else answer.where)
            self._looked_at.add(ident)
            if self._absent.get(ident) and ident not in self._moved:
                self._moved.add(ident)
                self._listed(self._last_listed, len(self._moved))
            if isinstance(answer, Task) and answer.rev.endswith(UNSURE):
                unsure[answer.id] = answer
            else:
                yield answer
        yield from self._decide(ids | unsure.keys(), unsure, missing, has_listed=has_listed)

    def _look_at_logged(self, ids: Sequence[str]) -> Iterator[Task]:
        """Look at messages that lines of the log name. No listing is run for them: what a look does
        not show is in the next one."""
        reasons = {ident: self._logged.reasons.pop(ident, "") for ident in ids}
        known = [ident for ident in ids if self._server.is_id(ident)]
        if not known or self._listed_at < 0:
            return
        began = self._steady()
        try:
            answers = [*self._server.show(known, self._records)]
        except Unavailable:  # so says the next listing, if it is still so
            return
        finally:
            self._logged.costs.append(self._steady() - began)
        for answer in answers:
            if not isinstance(answer, Task):
                continue
            if answer.rev.endswith(UNSURE):
                if not reasons[answer.id] and answer.state is State.PENDING:
                    continue  # why it waits is not known
                answer = answer._replace(error=reasons[answer.id])
            self._looked_at.add(answer.id)
            if answer.id not in self._records:
                self._absent[answer.id] = 0  # so that listings can miss it
            yield answer

    def _decide(
        self, ids: set[str], unsure: Mapping[str, Task], missing: set[str], *, has_listed: bool
    ) -> Iterator[Task | Missing | Problem]:
        """Look a second time, by a listing, at messages that one look has not shown in full. While
        no listing is due, their rows stay as they are."""
        is_due = self._is_listing_due or not self._acted.isdisjoint(ids - missing)
        if ids and is_due and not has_listed and not self._is_listing:
            self._list()
            has_listed = True
            self._changed -= ids
        for ident in ids:
            if has_listed and ident in self._records:
                yield self._server.task_of(ident, self._records[ident])
            elif ident in unsure:
                yield unsure[ident]
            elif has_listed and ident in missing:
                yield Missing(ident)
            elif not has_listed and ident not in missing | self._acted and ident in self._records:
                yield self._server.task_of(ident, self._records[ident])

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        return self._server.parts(task)

    @override
    def size(self, task: Task) -> int:
        """The bytes of its message; runs no program."""
        if task.bytes is None:
            raise Unavailable(f"{task.id}: its size is not known")
        return task.bytes

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        return self._server.read(task, part)

    # ---- changes

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        """A message with the same state, queue and identity is unchanged, as after a failed
        attempt; it is yielded with the revision that was seen."""
        self._verified, self._verified_at = {}, self._steady()
        for answer in self._unchanged(known_tasks):
            if isinstance(answer, Task):
                self._verified[answer.id] = answer
            yield answer

    def _unchanged(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        expected = {ident: (state, rev) for ident, state, rev in known_tasks}
        for answer in self._current([ident for ident in expected if self._server.is_id(ident)]):
            if isinstance(answer, Problem):
                yield answer
                continue
            state, rev = expected[answer.id]
            if answer.state is state and identity(answer.rev) == identity(rev):
                yield answer._replace(rev=rev)

    def _current(self, ids: Sequence[str]) -> Iterator[Task | Problem]:
        """These messages as they are now; those that a look does not reach, by a listing."""
        remaining = dict.fromkeys(ids)
        for answer in self._server.show(ids, self._records) if ids else ():
            remaining.pop(answer.where if isinstance(answer, Problem) else answer.id, None)
            if not isinstance(answer, Missing):
                yield answer
        if remaining:
            self._list()
            for ident in remaining:
                if ident in self._records:
                    yield self._server.task_of(ident, self._records[ident])

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        waiting = iter(moves)
        while batch := list(islice(waiting, self._server.ids_per_act)):
            yield from self._apply(batch)

    def _apply(self, batch: Sequence[Move]) -> Iterator[Outcome]:
        """Make some changes: one act for all messages with one place and one change."""
        outcomes: dict[int, Outcome] = {}
        groups: dict[tuple[State, State | None, str], dict[int, Task]] = {}
        ids = set[str]()
        for number, move in enumerate(batch):
            try:
                old = self._require(move, ids)
            except StoreError as error:
                outcomes[number] = Outcome(move, error=error)
                continue
            ids.add(old.id)
            end = move.new.state if move.new is not None else None
            queue = identity(old.rev).rpartition(".")[2]
            groups.setdefault((old.state, end, queue), {})[number] = old
        for (state, end, _), olds in groups.items():
            edge, tasks = self.edges[state, end], dict[int, Task]()
            must_look = end is None or not edge.undoable or state in SHARE_QUEUE
            current = self._seen_now([*olds.values()], must_look=must_look)
            for number, old in olds.items():
                move, now = batch[number], current.get(old.id)
                if isinstance(now, Problem):
                    outcomes[number] = Outcome(move, error=Unavailable(now.what))
                elif now is None:
                    outcomes[number] = Outcome(move, error=Gone(f"{old.id}: changed"))
                elif why := edge.bars(now, self._clock()):
                    outcomes[number] = Outcome(move, error=Unsupported(why))
                else:
                    tasks[number] = now
            if tasks:
                some = [batch[number] for number in tasks]
                outcomes |= zip(tasks, self._act(some, [*tasks.values()]), strict=True)
        return iter([outcomes[number] for number in range(len(batch))])

    def _require(self, move: Move, ids: Collection[str]) -> Task:
        """The task of a move that may be made.

        Raises:
            Unsupported: it may not.
            Gone: a move before it, of those with `ids`, has changed the task."""
        old, new = move.old, move.new
        require_edge(self.edges, old, new, self._clock(), whole=bool(move.image))
        if old is None or not self._server.is_id(old.id):
            raise Unsupported("only its server makes a message")
        if old.id in ids:
            raise Gone(f"{old.id}: changed by the move before")
        return old

    def _seen_now(self, olds: Sequence[Task], *, must_look: bool) -> dict[str, Task | Problem]:
        """Those of these tasks that are unchanged, as they are now; unless they must be, not looked
        at again if `verify` has just done it."""
        seen, unknown = dict[str, Task | Problem](), list[Task]()
        is_fresh = not must_look and self._steady() < self._verified_at + VERIFIED_SECONDS
        for old in olds:
            now = self._verified.pop(old.id, None)
            if is_fresh and now is not None and (now.state, now.rev) == (old.state, old.rev):
                seen[old.id] = now
            else:
                unknown.append(old)
        try:
            for answer in self._unchanged((old.id, old.state, old.rev) for old in unknown):
                seen[answer.id if isinstance(answer, Task) else answer.where] = answer
        except Unavailable as error:  # what an act before it has done has its outcome all the same
            seen |= {old.id: Problem(old.id, str(error)) for old in unknown}
        return seen

    def _act(self, moves: Sequence[Move], tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Run one act; the outcome of each move, in order."""
        new = moves[0].new
        try:
            result = self._server.act(tasks, new)
        except Unavailable as error:
            result = ActResult(why=str(error))
        acted = {task.id for task in tasks}
        self._changed -= acted
        self._acted |= acted
        open_ids = [task.id for task in tasks if task.id not in {*result.done, *result.refused}]
        is_exact = self.edges[tasks[0].state, None if new is None else new.state].exact
        later: dict[str, Task | Problem] | None = {} if is_exact else None
        # Also after a complete run: a prefix may pass on no standard input. No look shows whether a
        # request has arrived.
        if open_ids and is_exact:
            try:
                answers = self._current(open_ids)
                later = {one.id if isinstance(one, Task) else one.where: one for one in answers}
            except Unavailable as error:
                later, result = (
                    None,
                    result._replace(why=f"{result.why}; {error}".removeprefix("; ")),
                )
        for move, task in zip(moves, tasks, strict=True):
            if task.id in result.done:
                note = result.notes.get(task.id, "")
                yield Outcome(move, rev=result.done[task.id], note=note)
            elif why := result.refused.get(task.id):
                yield Outcome(move, error=Unsupported(why))
            elif later is None:
                yield Outcome(move, error=Unavailable(f"unknown: {result.why or NOT_NAMED}"))
            elif result.is_complete and not _is_still(task, later.get(task.id)):
                where = self._server.queue_of(task)
                yield Outcome(move, error=Gone(f"not in {where} any more"))
            else:
                why = result.why or NOT_NAMED
                yield _outcome_later(move, task, later.get(task.id), why)

    @override
    def find_new_ids(self, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        return self._server.find_new_ids(ids, seconds)

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        """The task in that state: its message never changes, and nothing of it is written."""
        if not image.startswith(f"id: {task.id}\n".encode()):
            raise Unsupported(f"the image is not of {task.id}")
        return task._replace(state=state, lease=None)

    @override
    def control(self, name: str, target: str = "", value: str = "") -> str:
        self._require_control(name, target)
        return self._server.control(name, target, value)

    @override
    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        self._require_control(name, target)
        return self._server.forecast(name, target, value)

    def _require_control(self, name: str, target: str) -> None:
        if name not in self.controls:
            raise Unsupported(f"no control {name!r} here")
        if why := self.controls[name].for_target(target).refusal:
            raise Unsupported(why)


def _file_only(log: MailLog) -> MailLog:
    """A log without the journal: to read that takes a program each time."""
    return log._replace(journal=())


def _is_still(old: Task, now: Task | Problem | None) -> bool:
    """True if a message is unchanged, or cannot be looked at."""
    if not isinstance(now, Task):
        return now is not None
    return now.state is old.state and identity(now.rev) == identity(old.rev)


def _outcome_later(move: Move, old: Task, now: Task | Problem | None, why: str) -> Outcome:
    """The outcome of a move whose act ended without a line for it, by another look."""
    new = move.new
    if isinstance(now, Problem):
        return Outcome(move, error=Unavailable(f"unknown: {why}; {now.what}"))
    if now is None:
        if new is None:
            return Outcome(move, note=describe_later(why, "not there any more"))
        if new.state in GOES_ON:
            text = describe_later(why, "not there any more")
            return Outcome(move, error=Unavailable(f"unknown: {text}"))
        return Outcome(move, error=Gone("not there any more"))
    if _is_still(old, now):
        return Outcome(move, error=Unavailable(describe_later(why, "unchanged")))
    is_taken = new is not None and new.state is State.PENDING and now.state is State.ACTIVE
    if new is not None and old.state is not now.state and (now.state is new.state or is_taken):
        return Outcome(move, rev=now.rev, note=describe_later(why, "done"))
    return Outcome(move, error=Gone("changed meanwhile"))
