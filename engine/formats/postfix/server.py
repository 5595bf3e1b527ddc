"""A Postfix instance as `engine.programs.mail_store.MailStore` uses it: listed by postqueue(1),
looked at by postcat(1), changed by postsuper(1). Nothing else reads or changes its queue."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b

from engine.formats.postfix import acts, lines, requeued
from engine.formats.postfix.acts import RELEASE, VERBS, Verb, queue_of
from engine.formats.postfix.facts import ListingCounts, count_listing, count_marks, log_of
from engine.formats.postfix.instance import Instance
from engine.formats.postfix.lines import (
    ACCOUNT_READ,
    NULL_SENDER,
    PID_KEY,
    STATES,
    SUSPENDED_KEY,
    WORDS,
    Envelope,
    FileTimes,
    arrival_in,
    count_recipients,
    domain_of,
    extra_of,
    format_recipients,
    inode_of,
    is_queue_id,
    parse_envelopes,
    parse_line,
    parse_times,
    size_in,
    state_of,
    time_in,
    usual_task,
    word_of,
)
from engine.formats.postfix.listing import FileSearch, Listing
from engine.formats.postfix.marks import Mark, Marks
from engine.model import EMPTY, Missing, Part, Problem, State, Task
from engine.override import override
from engine.programs.mail_accounts import MailAccounts
from engine.programs.mail_server import (
    UNSURE,
    ActResult,
    ListedMail,
    MailServer,
    MailSummary,
    describe_later,
)
from engine.store import MAX_PART_BYTES, Control, Gone, Outlook, Unavailable, Unsupported
from engine.system import users
from engine.system.run_program import ProgramEnd

IDS_PER_ACT = 250
"""Half of the rows that a plan writes into its journal together: no call has only the rest."""
MAX_STOPS = 3
"""Unknown ids behind which a look goes on: each of them costs postcat a second."""
LOOK_SECONDS = 5.0
"""Seconds for which an envelope that a look has read is kept, and not read again."""
LOOK_LIMIT_SECONDS = 60.0
"""After these, a run of postcat is ended: it reads a file that is not complete yet without end."""
TIMES_SECONDS = 10.0
"""Seconds for which the times of files of another host are not read again."""

ENVELOPE, HEADERS, BODY, RECIPIENTS, LISTED = "envelope", "headers", "body", "recipients", "listing"
"""Names of parts."""

_SHOWN_ATTRIBUTES = ("sasl_method", "client_name", "client_address", "helo_name", "protocol_name")
"""Named attributes of an envelope that a task shows, besides its account."""

_IS_DOWN = b"Mail system is down"
REQUEUED_KEY = "requeued from"
"""Key in `Task.extra`: the id that a message had before it was requeued."""

_find_unknown = re.compile(
    r"^(?:\S*/)?postcat: fatal: open queue file ([^\n]+): No such file or directory$", re.M
).search

_DELIVERED_FROM = ("active", "hold")
"""Queues with messages that may be in delivery: a hold does not end it."""
_ACTIVE_LINE = b'{"queue_name": "active"'
"""How a line of this queue begins."""


class PostfixServer(MailServer):
    """One instance."""

    states = STATES
    words = WORDS
    ids_per_act = IDS_PER_ACT

    def __init__(
        self,
        instance: Instance,
        marks: Marks,
        clock: Callable[[], float] = time.time,
        listed: Callable[[ListingCounts], None] = lambda counts: None,
        accounts: MailAccounts | None = None,
    ) -> None:
        """`clock` has epoch seconds UTC; `listed` is called with the counts of each listing;
        `accounts` are those of its messages that are known.

        Raises:
            Unavailable: the marks of the trash cannot be read.
        """
        self.instance, self._marks, self._clock, self._listed = instance, marks, clock, listed
        self.accounts: MailAccounts = accounts or MailAccounts()
        self.is_running = True
        """False once a listing has shown that the master process does not run."""
        self.warnings: tuple[str, ...] = ()
        """What its programs printed on standard error though all was well."""
        self.has_times = instance.can_find
        """False if the times of the files cannot be read."""
        self.can_look = True
        """False if postcat may not be used."""
        self._listing: Listing
        """The last one."""
        self._has_locks = instance.device is not None
        """False if the last locks could not be read: what is in delivery is unknown."""
        self._envelopes: dict[str, tuple[Envelope, FileTimes, float]] = {}
        """Of looks, each with the end of its `LOOK_SECONDS` (time.monotonic())."""
        self._far_times: tuple[float, dict[str, FileTimes]] = (-TIMES_SECONDS, {})
        self._records: Mapping[str, bytes] = {}
        self._former_ids: dict[str, Collection[str]] = {}
        """Of the messages whose envelopes a search for new ids has read."""
        self._stale_marks: list[Mark] = []
        """Those whose message the last listing did not have on hold."""
        marks.read()
        self._set_edges()

    def _set_edges(self) -> None:
        self._edges_have_locks = self._has_locks
        edges = acts.make_edges(self.instance, has_locks=self._has_locks)
        self.edges = acts.allow_edges(edges, self.instance.refusal, is_running=self.is_running)
        self.controls: Mapping[str, Control] = acts.make_controls(
            self.instance, is_running=self.is_running
        )

    @override
    def is_id(self, text: str) -> bool:
        return is_queue_id(text) is not None

    # ---- listings

    @override
    def list_mails(self) -> Iterator[ListedMail | Problem]:
        self._marks.read()
        self._listing = Listing(self._start_find())
        program = self.instance.start("postqueue", "-j")
        try:
            yield from self._listing.read(program.lines())
        finally:
            program.close()
        end = program.end
        assert end is not None
        if why := self._why_not_listed(end):
            raise Unavailable(why)
        for skipped in end.long_lines:
            yield Problem(f"postqueue line {skipped}", "longer than 16 MiB: skipped")
        texts = end.errors.decode("utf-8", "replace").splitlines()
        self.warnings = tuple(line for line in texts if line.strip())
        self.is_running = _IS_DOWN not in end.errors

    def _why_not_listed(self, end: ProgramEnd) -> str:
        """Why a listing failed; a stopped Postfix is named first, as it may be the reason."""
        why = self.instance.why_failed(end)
        return f"{acts.STOPPED}; {why}" if why and _IS_DOWN in end.errors else why

    @override
    def complete(self, records: dict[str, bytes]) -> Sequence[Problem]:
        """Add the times of files, and the processes that deliver; return the damaged files."""
        listing = self._listing
        problems = listing.complete(records)
        self.has_times = listing.has_times
        active, held = (
            [ident for ident in listing.others if records[ident].startswith(letter)]
            for letter in (b"a", b"h")
        )
        pids = self._find_delivering([*active, *held])
        for ident in active:
            line, pid = records[ident].partition(b"\n")[0], pids.get(ident, "")
            records[ident] = b"%b\n%b" % (line, pid.encode()) if pid else line
        marks = self._marks.read()
        self._records = records
        self._set_edges()
        in_hold = {*held}
        self._stale_marks = [marks[ident] for ident in {*marks} - in_hold]
        marked = (i for i in marks if i in in_hold)
        trash = {i for i in marked if self.summarize(i, records[i]).state is State.TRASH}
        trashed_at, released_at = count_marks(marks, trash)
        self._listed(
            count_listing(records, listing.others, listing.suspended)._replace(
                trashed_at=trashed_at,
                released_at=released_at,
                damaged=tuple(one.where.rpartition("/")[2] for one in problems),
                held_pids=tuple(pids[ident] for ident in held if ident in pids),
                oldest_due=listing.first_due,
                is_running=self.is_running,
                warnings=self.warnings,
            )
        )
        return problems

    def _start_find(self) -> FileSearch:
        return FileSearch(self.instance)

    def _find_delivering(self, ids: Sequence[str]) -> dict[str, str]:
        """The PIDs of the processes that deliver these active messages: each has a shared lock on
        the file (proc_locks(5)), whose inode is in the id."""
        if not ids or self.instance.device is None:
            return {}
        # With a line of its own, so that no lock at all is an answer too.
        locks = self.instance.ask("cat", "/proc/locks", "/proc/self/comm")
        self._has_locks = bool(locks)
        device = f"{os.major(self.instance.device):02x}:{os.minor(self.instance.device):02x}"
        by_inode = {inode: ident for ident in ids if (inode := inode_of(ident)) is not None}
        delivering = {}
        for line in locks:
            fields = line.decode("ascii", "replace").split()
            if fields[1:2] != ["FLOCK"] or fields[3:4] != ["READ"] or len(fields) < 6:
                continue
            where, _, number = fields[5].rpartition(":")
            if where == device and number.isdecimal() and int(number) in by_inode:
                delivering[by_inode[int(number)]] = fields[4]
        return delivering

    @override
    def fingerprint(self) -> bytes:
        """Of the lines of the listing and of the times of files, which are not parsed."""
        digest, active = blake2b(repr(self._marks.version()).encode()), []
        found = self._start_find()
        program = self.instance.start("postqueue", "-j")
        try:
            for line in program.lines():
                digest.update(line)
                if line.startswith(_ACTIVE_LINE):
                    active.append(line)
        finally:
            program.close()
        end = program.end
        assert end is not None
        if why := self._why_not_listed(end):
            raise Unavailable(why)
        digest.update(repr(_IS_DOWN in end.errors).encode())  # what may be done differs then
        digest.update(b"\n".join(found.lines()))
        parsed = (parse_line(0, line) for line in active)
        ids = [mail.id for mail in parsed if isinstance(mail, ListedMail)]
        digest.update(repr((self._find_delivering(ids), self._has_locks)).encode())
        return digest.digest()

    @override
    def summarize(self, ident: str, record: bytes) -> MailSummary:
        return lines.summarize(
            ident, record, self._marks.is_trash, self.accounts, has_times=self.has_times
        )

    @override
    def task_of(self, ident: str, record: bytes) -> Task | Problem:
        is_trash, accounts = self._marks.is_trash, self.accounts
        if self.has_times and (usual := usual_task(ident, record, is_trash, accounts)) is not None:
            return usual
        mark = self._marks.known.get(ident)
        marked_at = None if mark is None else mark.at
        return lines.parse_task(
            ident, record, is_trash, marked_at, self.accounts, has_times=self.has_times
        )

    # ---- looks

    @override
    def show(
        self, ids: Sequence[str], records: Mapping[str, bytes]
    ) -> Iterator[Task | Missing | Problem]:
        """Run postcat; without the right to it, or to the times of files, look at none."""
        asked, now, kept = {*ids}, time.monotonic(), self._envelopes  # for an act that follows
        self._envelopes = {i: its for i, its in kept.items() if its[2] > now and i not in asked}
        if not (self.can_look and self.has_times):
            return
        self._marks.read()
        answers, envelopes = self._look(ids)
        yield from answers
        times = self._times_of(envelopes)
        delivering = self._find_delivering([e.id for e in envelopes if e.queue in _DELIVERED_FROM])
        for envelope in envelopes:
            if (its := times.get(envelope.id)) is not None and self._note_account(envelope):
                self._envelopes[envelope.id] = envelope, its, time.monotonic() + LOOK_SECONDS
                record = records.get(envelope.id, b"")
                yield self._task_shown(envelope, its, record, delivering.get(envelope.id, ""))

    @override
    def account_order(self, record: bytes) -> int:
        """The newest first; those that are about to leave, and would end postcat, last."""
        waits = record.startswith((b"d", b"h"))
        return arrival_in(record) + (waits << 40)

    @override
    def read_accounts(self, ids: Sequence[str]) -> Collection[str]:
        _, envelopes = self._look(ids)
        if not (envelopes or self.can_look):
            raise Unavailable(f"postcat is not allowed: {self.instance.refusal}")
        return [one.id for one in envelopes if self._note_account(one)]

    def _note_account(self, envelope: Envelope) -> bool:
        """Note the account of a message; False if its envelope is not complete."""
        key = "-".join((*envelope.identity.split("-")[:2], ""))  # arrival and size
        if envelope.identity:
            self.accounts.note(envelope.id, key, envelope.account)
        return bool(envelope.identity)

    def _look(
        self, ids: Sequence[str], deadline: float | None = None
    ) -> tuple[list[Missing | Problem], list[Envelope]]:
        """The envelopes of these messages, and what else is known of them. postcat ends at the
        first id that is unknown or damaged: it is started again behind it, three times at most.
        With a deadline (of time.monotonic()), those that were read until then."""
        answers, envelopes, waiting = list[Missing | Problem](), list[Envelope](), [*ids]
        for _ in range(1 + MAX_STOPS):
            if not waiting:
                break
            until = deadline or time.monotonic() + LOOK_LIMIT_SECONDS
            postcat = self.instance.start("postcat", "-eq", *waiting, deadline=until)
            with closing(postcat):
                shown = parse_envelopes(postcat.lines(), waiting)
            end = postcat.end
            assert end is not None
            if end.status == 0:
                envelopes += shown
                break
            if why := self.instance.prefix.why_failed(end):
                if deadline is None:
                    raise Unavailable(why)
                break
            text = end.errors.decode("utf-8", "replace")
            if "Permission denied" in text and not shown:
                self.can_look = False
                break
            unknown = _find_unknown(text)
            named = unknown[1] if unknown else ""
            if named not in waiting:
                named = next((ident for ident in waiting if f"/{ident}: " in text), "")
            if not named:
                raise Unavailable(self.instance.why_failed(end))
            why = self.instance.why_failed(end)
            answers.append(Missing(named) if unknown else Problem(named, why))
            envelopes += [one for one in shown if one.id != named]
            del waiting[: waiting.index(named) + 1]
        return answers, envelopes

    def _times_of(self, envelopes: Sequence[Envelope]) -> dict[str, FileTimes]:
        if not self.instance.is_local:
            moment, known = self._far_times
            if time.monotonic() > moment + TIMES_SECONDS:
                files = self._start_find().files().values()
                times = (
                    (i.decode(), parse_times(text)) for some in files for i, text in some.items()
                )
                known = {ident: its for ident, its in times if its is not None}
                self._far_times = time.monotonic(), known
            return known
        all_times = {}
        for one in envelopes:
            try:
                its = os.lstat(f"{self.instance.queue_folder}/{one.path}")
            except OSError:
                continue  # moved since, or out of reach: a listing finds it
            all_times[one.id] = FileTimes(int(its.st_mtime), int(its.st_ctime), its.st_mode)
        return all_times

    def _task_shown(self, envelope: Envelope, times: FileTimes, record: bytes, pid: str) -> Task:
        """The task of an envelope. An envelope has no reasons: the reasons of the last listing are
        kept if the time of the file is the same, because each attempt changes it."""
        ident, queue, identity = envelope.id, envelope.queue, envelope.identity
        addresses = tuple(envelope.values(b"recipient"))
        trash = queue == "hold" and self._marks.is_trash(ident, identity, times.ctime)
        state = state_of(queue, is_expired=times.is_expired, is_trash=trash)
        base: Task | Problem | None = None
        listed_at = parse_times(record.partition(b"\n")[2])
        if record:
            base = lines.parse_task(
                ident, record, lambda *mark: False, None, lines.NO_ACCOUNTS, has_times=True
            )
        if not isinstance(base, Task) or not base.rev.startswith(f"{identity}."):
            base = None
        is_filed = queue in ("deferred", "hold")
        # Each attempt sets another time. Without one, it was listed in active or before that: in
        # deferred now, it was tried since; on hold, it came from there, as far as can be known.
        is_same = queue != "deferred" if listed_at is None else listed_at.mtime == times.mtime
        is_sure = base is not None and is_same
        if base is None:
            sender = "".join(envelope.values(b"sender")[:1])
            base = Task(
                ident,
                "mail",
                state,
                float(time_in(envelope.fields[b"message_arrival_time"]) or 0),
                group=domain_of(addresses[0]) if addresses else "",
                attempts=None,
                description=count_recipients(len(addresses)),
                destination=addresses[0] if addresses else "",
                sender=sender if sender not in ("", NULL_SENDER) else "<>",
                recipients=addresses,
                bytes=size_in(envelope.fields),
            )
        detail = str(times.mtime) if is_filed else pid
        extra = {name: its for name in _SHOWN_ATTRIBUTES if (its := envelope.attribute(name))}
        if is_sure and SUSPENDED_KEY in base.extra:
            extra[SUSPENDED_KEY] = base.extra[SUSPENDED_KEY]
        if (old := envelope.attribute("log_ident") or ident) != ident:
            extra[REQUEUED_KEY] = old
        unsure = "" if is_sure or not is_filed else UNSURE
        mark = self._marks.known.get(ident)
        marked_at = None if mark is None else mark.at
        extra |= extra_of(state, queue, times, marked_at, is_expired=times.is_expired)
        if pid:
            extra[PID_KEY] = pid
        return base._replace(
            state=state,
            word=word_of(state, queue, recipients=len(addresses), is_busy=bool(pid)),
            due=float(times.mtime) if is_filed else 0.0,
            account=envelope.account,
            error=base.error if is_sure else "",
            lease=lines.lease_of(pid.encode()) if queue == "active" else None,
            rev=f"{identity}.{queue}.{ACCOUNT_READ}{detail}{unsure}",
            extra=extra or EMPTY,
        )

    # ---- changes

    @override
    def queue_of(self, task: Task) -> str:
        return queue_of(task)

    @override
    def act(self, olds: Sequence[Task], new: Task | None) -> ActResult:
        try:
            return self._act(olds, new)
        finally:
            self._far_times = (-TIMES_SECONDS, {})  # those from before the act

    def _act(self, olds: Sequence[Task], new: Task | None) -> ActResult:
        old = olds[0]
        if new is not None and (old.state, new.state) == (State.PENDING, State.PENDING):
            return self._promote(olds)
        verb = VERBS[old.state, None if new is None else new.state]
        if new is not None and new.state is State.TRASH:
            return self._purge(olds)
        if old.state is State.TRASH:
            return self._leave_trash(olds, verb, new)
        if verb is acts.REQUEUE:
            return self._requeue(olds)
        if verb is acts.HOLD:  # a mark that a purge has left would make trash of it
            self._marks.remove([old.id for old in olds])
        return self._run(olds, verb)

    def _requeue(self, olds: Sequence[Task]) -> ActResult:
        """Requeue those that no process delivers: held or released, they may still be on the way,
        and would be delivered twice."""
        busy = self._find_delivering([old.id for old in olds])
        if self._edges_have_locks and not self._has_locks:  # else the plan has warned
            raise Unavailable("the locks of its queue cannot be read now: some may be in delivery")
        refused = {
            i: f"PID {pid} still delivers it, so it would be sent twice" for i, pid in busy.items()
        }
        result = self._run([old for old in olds if old.id not in busy], acts.REQUEUE)
        if not result.is_complete:  # its former id is missing then, as if it was delivered
            ids = [old.id for old in olds if old.id not in {*busy, *result.done}]
            found = self.find_new_ids(ids, requeued.LOST_SECONDS)
            done = {**result.done, **dict.fromkeys(found, "")}
            notes = dict.fromkeys(found, describe_later(result.why, "done"))
            result = result._replace(done=done, notes=notes)
        return result._replace(refused=refused)

    @override
    def find_new_ids(self, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        until, ids = time.monotonic() + seconds, {*ids}
        deadline = until + requeued.GRACE_SECONDS
        found = requeued.find_in_log(log_of(self.instance), ids, until, deadline)
        # Also if the log is not that of this instance.
        while rest := {ident for ident in ids if not found.get(ident)}:
            try:
                listed = requeued.list_by_delay(self.instance, deadline)
                self._read_former_ids(listed, deadline)
            except Unavailable:
                break
            found |= {ident: "" for ident in rest if listed.get(ident, b"").startswith(b"m")}
            found |= {
                old: ident for ident, olds in self._former_ids.items() for old in rest & {*olds}
            }
            if time.monotonic() >= until:
                break
            time.sleep(requeued.POLL_SECONDS)
        return found

    def _read_former_ids(self, listed: Collection[str], deadline: float) -> None:
        """Read the former ids of the first of these messages that were not read before. Messages
        that leave meanwhile hide no others."""
        known = {ident: self._former_ids[ident] for ident in listed if ident in self._former_ids}
        unread = [ident for ident in listed if ident not in known][: requeued.MAX_ENVELOPES]
        for envelope in self._look(unread, deadline)[1]:
            if envelope.identity:
                known[envelope.id] = requeued.former_ids(envelope)
        self._former_ids = known

    def _run(self, olds: Sequence[Task], verb: Verb) -> ActResult:
        """Run an act of postsuper."""
        if not olds:
            return ActResult(is_complete=True)
        ids, queue = [old.id for old in olds], queue_of(olds[0])
        done, is_complete, why = acts.run_verb(self.instance, verb, queue, ids)
        after = queue if verb.queue == "same" else verb.queue
        revs = {old.id: self._revision(old, after) for old in olds if old.id in done}
        return ActResult(revs, is_complete=is_complete, why=why)

    def _revision(self, old: Task, queue: str) -> str:
        """The revision of a message that an act has moved to a queue: its file's time stays. The
        task of a file that waits has this time as due; of others only a look has it."""
        its, is_filed = self._envelopes.get(old.id), queue in ("deferred", "hold")
        mtime = f"{old.due:.0f}" if old.due else "" if its is None else str(its[1].mtime)
        if not queue or (is_filed and not mtime):
            return ""
        is_read = "" if old.account is None else ACCOUNT_READ
        return f"{old.rev.partition('.')[0]}.{queue}.{is_read}{mtime if is_filed else ''}"

    def _promote(self, olds: Sequence[Task]) -> ActResult:
        """Ask for an attempt of each; the queue manager decides."""
        done, refused, why = dict[str, str](), dict[str, str](), ""
        for old in olds:
            end = self.instance.act("postqueue", "-i", old.id)
            if lost := self.instance.prefix.why_failed(end):
                why = lost
            elif failed := self.instance.why_failed(end):
                refused[old.id] = failed
            else:
                done[old.id] = ""
        return ActResult(done, refused, why=why)

    def _purge(self, olds: Sequence[Task]) -> ActResult:
        """Write the marks, then put the messages on hold."""
        queue, now, who = queue_of(olds[0]), self._now_there(), users.user_name(os.getuid())
        marks = []
        for old in olds:
            identity = old.rev.partition(".")[0]
            marks.append(Mark(old.id, identity, old.sender, queue, at=now, who=who))
        self._marks.add(marks, self._stale_marks)
        if queue == "hold":
            return ActResult(
                {old.id: self._revision(old, "hold") for old in olds}, is_complete=True
            )
        result = self._run(olds, acts.HOLD)
        if result.is_complete:
            self._marks.remove([old.id for old in olds if old.id not in result.done])
        return result

    def _leave_trash(self, olds: Sequence[Task], verb: Verb, new: Task | None) -> ActResult:
        """Release messages or delete them, and remove their marks; one that was on hold before it
        was purged stays there."""
        stays, goes = list[Task](), list[Task]()
        for old in olds:
            mark = self._marks.known.get(old.id)
            was_held = mark is None or mark.queue == "hold"
            is_held = new is not None and (
                new.state is State.HELD or (new.state is State.DEAD and was_held)
            )
            (stays if is_held and verb is RELEASE else goes).append(old)
        result = self._run(goes, verb)
        revs = {old.id: self._revision(old, "hold") for old in stays}
        self._marks.remove([*revs, *result.done])
        return result._replace(done={**result.done, **revs})

    def _now_there(self) -> float:
        """The time by the clock of its host, which also sets the times of its files.

        Raises:
            Unavailable: it cannot be read.
        """
        if self.instance.is_local:
            return self._clock()
        answer = self.instance.ask("date", "+%s")
        if not answer or not answer[-1].isdigit():
            raise Unavailable("the clock of its host cannot be read: date +%s")
        return float(answer[-1])

    @override
    def control(self, name: str, target: str, value: str) -> str:
        if name == acts.FLUSH:
            end, done = self.instance.act("postqueue", "-f"), "asked for all deferred mail"
        elif re.fullmatch(r"[0-9A-Za-z.\[\]:_][0-9A-Za-z.\[\]:_-]*", target):
            end, done = self.instance.act("postqueue", "-s", target), f"asked for mail to {target}"
        else:
            raise Unsupported("expected the name of a domain")
        if why := self.instance.why_failed(end):
            raise Unavailable(why)
        return f"{done}: Postfix decides"

    @override
    def forecast(self, name: str, target: str, value: str) -> Outlook:
        if name != acts.FLUSH:
            raise Unsupported(f"no forecast of {name}")
        mails = (one.record for one in self.list_mails() if isinstance(one, ListedMail))
        amount = sum(record.startswith(b"d") for record in mails)
        return Outlook(f"deferred messages to try: {amount:,}", amount)

    # ---- contents

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        envelope = self._envelope(task)
        where = f"{self.instance.queue_folder}/{envelope.path}"
        yield Part(ENVELOPE, where, len(envelope.image))
        yield Part(HEADERS, where)
        yield Part(BODY, where)
        yield Part(RECIPIENTS, "postqueue -j")
        yield Part(LISTED, "postqueue -j")

    def _envelope(self, task: Task) -> Envelope:
        """The envelope of a message that is still in its state.

        Raises:
            Gone: it is not.
            Unavailable: it cannot be looked at.
        """
        known, queue = self._envelopes.get(task.id), queue_of(task)
        if known is not None and known[0].queue == queue and time.monotonic() < known[2]:
            return known[0]
        for answer in self.show([task.id], {}):
            if isinstance(answer, Task) and answer.state is task.state:
                return self._envelopes[task.id][0]
            if isinstance(answer, Problem):
                raise Unavailable(answer.what)
        if not self.can_look:
            raise Unavailable(f"postcat is not allowed: {self.instance.refusal}")
        raise Gone(f"{task.id}: not in {queue_of(task)} any more")

    @override
    def read(self, task: Task, part: str) -> bytes:
        if part in ("", ENVELOPE):
            return self._envelope(task).image
        if part in (HEADERS, BODY):
            return self._read_text(task, "-hq" if part == HEADERS else "-bq")
        if part not in (RECIPIENTS, LISTED):
            raise Gone(f"{task.id}: no part {part!r}")
        record = self._records.get(task.id, b"")
        if not record:
            mails = (one for one in self.list_mails() if isinstance(one, ListedMail))
            record = next((one.record for one in mails if one.id == task.id), b"")
        if not record:
            raise Gone(f"{task.id}: not listed any more")
        line = lines.line_of(task.id, record)
        return line if part == LISTED else format_recipients(line)

    def _read_text(self, task: Task, option: str) -> bytes:
        """The first bytes of headers or body."""
        self._envelope(task)
        program, lines, size = self.instance.start("postcat", option, task.id), list[bytes](), 0
        try:
            for line in program.lines():
                lines.append(line)
                size += len(line) + 1
                if size > MAX_PART_BYTES:
                    break
        finally:
            program.close()
        if not lines and program.end is not None and program.end.status:
            raise Gone(f"{task.id}: {self.instance.why_failed(program.end)}")
        return b"".join(b"%b\n" % line for line in lines)[:MAX_PART_BYTES]
