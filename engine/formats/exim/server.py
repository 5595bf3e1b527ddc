"""One Exim as a `MailServer`: listings by `exim -bpru`, acts by `-Mf`, `-Mt`, `-M`, `-Mg`, `-MG`.

Purge moves a message to the named queue `spooldeck-trash`, where no queue runner, timeout or other
operator's command finds it; the way back restores every byte. Exim locks a message while it is
delivered, and refuses each act then: so acts are exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

from engine.formats.exim import lines, rules
from engine.formats.exim.controls import CONTROLS, run_control
from engine.formats.exim.lines import DamagedMail, QueuedMail, SpoolLock
from engine.formats.exim.parts import mail_parts, read_part
from engine.formats.exim.programs import TRASH, TRASH_QUEUE, Exim
from engine.formats.exim.trash_record import TrashRecord, is_ours
from engine.model import WAITS_KEY, Edges, Lease, Missing, Part, Problem, State, Task
from engine.operations.trash import SINCE_KEY
from engine.override import override
from engine.programs.mail_log import MailFacts
from engine.programs.mail_server import ActResult, ListedMail, MailServer, MailSummary
from engine.store import Control, Outlook, Unavailable
from engine.system.run_program import ProgramEnd
from engine.text.safe import clean_error, safe_line
from engine.text.times import format_time
from engine.values import NamedTuple

STATES = {
    State.PENDING: "queued",
    State.ACTIVE: "delivering",
    State.HELD: "frozen",
    State.DEAD: "cancelled",
    State.TRASH: "trash",
}
WORDS = {"done": State.PENDING, "bounce": State.HELD}
"""No recipient is open; frozen, and itself a report to a sender."""

IDS_PER_ACT = 100
POLL_SECONDS, CALL_SECONDS = 10.0, 60.0
"""Least seconds between listings; between calls of Exim, if each writes a line into its log."""
DELIVERIES, DELIVERY_SECONDS = 4, 10.0
"""Deliveries that are started at a time, and for how long each is watched before it is left."""

QUEUED, FROZEN, TRASHED, TRASHED_FROZEN = b"q", b"f", b"t", b"z"
"""The first byte of a record's second line: where the message is, and whether it is frozen."""
_QUEUES = {QUEUED: "input", FROZEN: "input", TRASHED: "trash", TRASHED_FROZEN: "trash-frozen"}
_STATES = {
    QUEUED: State.PENDING,
    FROZEN: State.HELD,
    TRASHED: State.TRASH,
    TRASHED_FROZEN: State.TRASH,
}

MOVED_BY_KEY = "moved by"
"""Key in `Task.extra` of a message in the trash queue."""
BY_US, BY_HAND = "spooldeck", "another program, or by hand"


class MailExtra(NamedTuple):
    """What other programs than the listing show of a message: the first line of its record."""

    pid: str = ""
    """The process that delivers it."""
    since: str = ""
    """When it came into the trash queue, epoch seconds UTC."""
    moved_by: str = ""
    account: str = ""
    failed_at: str = ""
    """When its last attempt failed, epoch seconds UTC."""
    error: str = ""

    def line(self) -> bytes:
        """As the first line of a record."""
        return "\t".join(self).encode() if any(self) else b""


NO_EXTRA = MailExtra()


def record_of(mail: QueuedMail, *, is_trash: bool) -> bytes:
    """The record of a listed message: without its age, which differs in each listing."""
    flag = (QUEUED, FROZEN, TRASHED, TRASHED_FROZEN)[2 * is_trash + mail.is_frozen]
    first = flag + b"\t".join((mail.size, mail.login, mail.sender))
    return b"\n".join((b"", first, *mail.recipients))


class EximServer(MailServer):
    """The queue of one Exim."""

    states: Mapping[State, str] = STATES
    words: Mapping[str, State] = WORDS
    ids_per_act = IDS_PER_ACT

    def __init__(
        self,
        exim: Exim,
        record: TrashRecord,
        facts: MailFacts | None = None,
        *,
        trash_hours: float = 24.0,
        clock: Callable[[], float] = time.time,
        listed: Callable[[Mapping[str, bytes]], None] = lambda records: None,
    ) -> None:
        """`facts` are those of its main log; `listed` gets the records of each listing."""
        self._exim, self._record, self._facts = exim, record, facts
        self._clock, self._listed = clock, listed
        self._pids: Mapping[str, str] = {}
        self._locked: dict[SpoolLock, str] = {}
        """The message of each lock; "" for a lock that is not on a message of this spool."""
        self._in_trash: frozenset[str] = frozenset()
        self.poll_seconds = POLL_SECONDS
        self._set_poll_seconds()
        self._limits = exim.limits
        self.edges: Edges = rules.edges(
            self._limits,
            exim.refusal,
            exim.trash_refusal,
            hours=trash_hours,
            undo=" ".join((exim.words[0], TRASH, "-MG", "''", "ID")),
        )
        self.controls: Mapping[str, Control] = {
            name: one._replace(refusal=exim.refusal) for name, one in CONTROLS.items()
        }

    # ---- listings

    @override
    def list_mails(self) -> Iterator[ListedMail | Problem]:
        if self._exim.list_refusal:
            raise Unavailable(self._exim.list_refusal)
        yield from self._listing(self._exim.stream("-bpru"), is_trash=False)
        if not self._exim.trash_refusal and not self._is_trash_empty():
            yield from self._listing(self._exim.stream(TRASH, "-bpru"), is_trash=True)

    def _listing(
        self, output: Iterable[bytes], *, is_trash: bool
    ) -> Iterator[ListedMail | Problem]:
        for number, item in enumerate(lines.parse_listing(output), 1):
            if isinstance(item, QueuedMail):
                yield ListedMail(item.id, record_of(item, is_trash=is_trash))
            elif isinstance(item, bytes):
                text = safe_line(item[:200].decode("utf-8", "replace"))
                yield Problem(f"listing, entry {number}", f"not a line of a listing: {text}")
            elif item.why:  # else it has left the queue since its name was read
                yield Problem(f"{self._exim.spool}/{item.id}", item.why)

    @override
    def complete(self, records: dict[str, bytes]) -> Sequence[Problem]:
        """Add PIDs of deliveries, times in the trash, and what the main log has; the facts of other
        programs may be missing, then they are unknown."""
        if self._facts is not None:
            self._facts.read_on()
        self._pids = self._read_pids()
        in_trash = [ident for ident, record in records.items() if record[1:2] in b"tz"]
        self._in_trash = frozenset(in_trash)
        self._set_poll_seconds()
        times = self._read_trash(in_trash)
        for ident, record in records.items():
            extra = times.get(ident, NO_EXTRA) if ident in self._in_trash else self._extra(ident)
            records[ident] = extra.line() + record
        self._listed(records)
        return ()

    def _set_poll_seconds(self) -> None:
        """A listing is one call of Exim, or two with messages in the trash queue."""
        if self._exim.has_argument_log:
            self.poll_seconds = CALL_SECONDS * (2 if self._in_trash else 1)

    def _extra(self, ident: str) -> MailExtra:
        """What is known of a message in the default queue."""
        pid = self._pids.get(ident, "")
        if self._facts is None:
            return MailExtra(pid) if pid else NO_EXTRA
        reason, account = self._facts.reason(ident), self._facts.account(ident)
        if reason is None:
            return MailExtra(pid, account=account)
        when = "" if reason.when is None else f"{reason.when:.0f}"
        return MailExtra(pid, account=account, failed_at=when, error=reason.text.replace("\t", " "))

    def _read_pids(self) -> Mapping[str, str]:
        """The processes that deliver, by message: locks on data files. The spool is only searched
        for a lock that was not there before."""
        locks = lines.parse_locks(self._exim.other("cat", "/proc/locks"))
        if not all(lock in self._locked for lock in locks):
            folder, names = f"{self._exim.spool}/input", ("-name", "*-D")
            found = self._exim.other("find", folder, *names, "-printf", "%i %f\\n")
            inodes = (line.decode("utf-8", "replace").partition(" ")[::2] for line in found)
            by_inode = {inode: name.removesuffix("-D") for inode, name in inodes}
            self._locked = {lock: by_inode.get(str(lock.inode), "") for lock in locks}
        return {ident: str(lock.pid) for lock in locks if (ident := self._locked[lock])}

    @override
    def fingerprint(self) -> bytes:
        """The names and change times of header files, journals and message logs: Exim is not run.
        Without the right to see them, a listing."""
        spool = self._exim.spool
        what = ("-type", "f", "-not", "-name", "*-D", "-printf", "%f %C@\\n")
        digest, pids = blake2b(), self._read_pids()
        for number, folder in enumerate(("input", "msglog", TRASH_QUEUE)):
            found, end = self._exim.helpers.run(("find", f"{spool}/{folder}", *what))
            if number == 0 and (end.status or self._exim.helpers.why_failed(end)):
                return super().fingerprint()
            digest.update(b"\n".join((*sorted(found), b"")))
        digest.update(repr(sorted(pids.items())).encode())
        return digest.digest()

    def _find_in_trash(self) -> tuple[list[bytes], ProgramEnd]:
        """The change time and the name of each header file in the trash queue."""
        folder, names = f"{self._exim.spool}/{TRASH_QUEUE}/input", ("-name", "*-H")
        return self._exim.helpers.run(("find", folder, *names, "-printf", "%C@ %f\\n"))

    def _is_trash_empty(self) -> bool:
        """True only if the files show it: this saves a call of Exim for each listing."""
        found, end = self._find_in_trash()
        if end.status == 0:
            return not found
        return end.last_error.endswith("No such file or directory")

    def _read_trash(self, ids: Sequence[str]) -> Mapping[str, MailExtra]:
        """When messages came into the trash queue, and whether we moved them."""
        if not ids:
            return {}
        found, _ = self._find_in_trash()
        pairs = (line.decode("utf-8", "replace").partition(" ")[::2] for line in found)
        changed = {name.removesuffix("-H"): rules.to_time(moment) for moment, name in pairs}
        moved = self._record.read()
        extras = {}
        for ident in ids:
            since, at = changed.get(ident), moved.get(ident)
            if since is None:
                by, shown = "", at
            else:
                by, shown = (BY_US if is_ours(at, since) else BY_HAND), since
            when = "" if shown is None else f"{shown:.0f}"
            extras[ident] = self._extra(ident)._replace(pid="", since=when, moved_by=by)
        return extras

    @override
    def summarize(self, ident: str, record: bytes) -> MailSummary:
        extra, _, rest = record.partition(b"\n")
        flag = rest[:1]
        state = _STATES[flag]
        if extra and flag == QUEUED and extra[:1] != b"\t":
            state = State.ACTIVE
        word = ""
        if flag == QUEUED and state is State.PENDING and b"\n" not in rest:
            word = "done"
        elif flag == FROZEN and rest.partition(b"\n")[0].endswith(b"\t"):
            word = "bounce"
        detail = _hash(extra) if flag == QUEUED else "0"
        return MailSummary(state, word, f"{_hash(rest[1:])}.{_QUEUES[flag]}.{detail}")

    @override
    def task_of(self, ident: str, record: bytes) -> Task | Problem:
        state, word, rev = self.summarize(ident, record)
        first, envelope, *addresses = record.decode("utf-8", "replace").split("\n")
        known = MailExtra(*first.split("\t")) if first else NO_EXTRA
        size, login, sender = envelope[1:].split("\t", 2)
        recipients = tuple(map(safe_line, addresses))
        created, to = lines.arrival_time(ident), recipients[0] if recipients else ""
        facts: dict[str, str] = {}
        if login:
            facts["login"] = safe_line(login)
        if not size:
            facts["damage"] = "its data file is missing"
        elif size[-1] in "KM":
            facts["size"] = f"{size}, rounded by Exim"
        if known.failed_at:
            facts["failed at"] = format_time(float(known.failed_at))
        end = self._limits.describe_end(created, sender) if state is State.HELD else ""
        if end:
            facts["frozen until"] = end
        if state in (State.PENDING, State.HELD):
            facts[WAITS_KEY] = _WAITS[word or STATES[state]]
        elif state is State.TRASH:
            facts |= {SINCE_KEY: known.since} if known.since else {}
            facts |= {MOVED_BY_KEY: known.moved_by} if known.moved_by else {}
            facts |= {"frozen": "yes"} if envelope[:1] == "z" else {}
        return Task(
            id=ident,
            kind="mail",
            state=state,
            word=word,
            created=created,
            due=None,
            attempts=None,
            group=to.rpartition("@")[2].lower(),
            description=f"{len(recipients):,} recipient{'s' * (len(recipients) != 1)}",
            destination=to,
            sender=safe_line(sender) or "<>",
            recipients=recipients,
            account=known.account or facts.get("login", ""),
            bytes=lines.parse_size(size),
            error=clean_error(known.error) if known.error else "",
            lease=Lease(f"PID {known.pid}", 0.0) if state is State.ACTIVE else None,
            rev=rev,
            extra=facts,
        )

    # ---- single messages

    @override
    def is_id(self, text: str) -> bool:
        return lines.is_id(text)

    @override
    def show(
        self, ids: Sequence[str], records: Mapping[str, bytes]
    ) -> Iterator[Task | Missing | Problem]:
        """Look in the default queue, in the trash queue, and in the default queue again: a message
        may be moved from there to here in between."""
        if self._facts is not None and not self._exim.prefix.words:
            self._facts.read_on()
        waiting, found = list(ids), dict[str, bytes]()
        for is_trash in (False, True, False):
            if not waiting or (is_trash and self._exim.trash_refusal):
                continue
            options = ("-bpru", TRASH, *waiting) if is_trash else ("-bpru", *waiting)
            for item in lines.parse_listing(self._run_listing(options)):
                if isinstance(item, QueuedMail):
                    found[item.id] = record_of(item, is_trash=is_trash)
                elif isinstance(item, DamagedMail) and item.why:
                    yield Problem(item.id, item.why)
                    waiting.remove(item.id)
            waiting = [ident for ident in waiting if ident not in found]
        in_trash = [ident for ident, record in found.items() if record[1:2] in b"tz"]
        trash = self._read_trash(in_trash)
        if len(in_trash) < len(found):
            self._pids = self._read_pids()
        for ident, record in found.items():
            extra = trash[ident] if ident in trash else self._extra(ident)
            yield self.task_of(ident, extra.line() + record)
        yield from map(Missing, waiting)

    def _run_listing(self, options: Sequence[str]) -> list[bytes]:
        """The lines of a listing of some messages.

        Raises:
            Unavailable: it was refused, or did not run to its end.
        """
        out, end = self._exim.run(*options)
        if end.status:
            raise Unavailable(end.last_error or f"exim -bpru ended with status {end.status}")
        return out

    @override
    def queue_of(self, task: Task) -> str:
        return task.rev.split(".")[1]

    # ---- acts

    @override
    def act(self, olds: Sequence[Task], new: Task | None) -> ActResult:
        ids = [task.id for task in olds]
        end, start = None if new is None else new.state, olds[0].state
        if end is None:
            return self._expunge(olds)
        if end is State.TRASH:
            return self._purge(olds)
        if start is State.TRASH:
            return self._restore(olds, end)
        if end is State.DEAD:
            return self._bounce(olds)
        if end is start:
            return self._deliver(ids, olds)
        option, words = ("-Mf", "is now frozen") if end is State.HELD else ("-Mt", _THAWED)
        flag = FROZEN if end is State.HELD else QUEUED
        answers = self._answers(option, *ids)
        done = {
            task.id: self._rev_after(task, flag) for task in olds if answers.get(task.id) == words
        }
        return self._result(olds, answers, done)

    def _answers(self, *options: str) -> dict[str, str]:
        """Run an act; what it printed about each message.

        Raises:
            Unavailable: it did nothing, as a line about no message says; or its end is unknown.
        """
        out, end = self._exim.run(*options, is_act=True)
        answers = lines.parse_answers(out)
        if not answers and end.status:
            text = end.last_error or safe_line(b" ".join(out).decode("utf-8", "replace"))
            raise Unavailable(text or f"exim ended with status {end.status}")
        return answers

    def _result(
        self, olds: Sequence[Task], answers: Mapping[str, str], done: Mapping[str, str]
    ) -> ActResult:
        """The result of an act, from what was printed: a locked message is in delivery; one without
        an answer, or one that is not as it was, is looked at again."""
        locked = [task.id for task in olds if answers.get(task.id) == "is locked"]
        pids = self._read_pids() if locked else {}
        refused = {
            ident: _locked_by(pids[ident])
            if ident in pids
            else "in delivery: another process has locked it"
            for ident in locked
        }
        others = {
            text
            for ident, text in answers.items()
            if ident not in done and ident not in refused and text
        }
        why = ", ".join(sorted(others)) or "no answer of Exim"
        return ActResult(done, refused, why=safe_line(why))

    def _rev_after(self, task: Task, flag: bytes) -> str:
        """The revision of a task after an act: its envelope is the same."""
        identity = task.rev.partition(".")[0]
        detail = _hash(self._extra(task.id).line()) if flag == QUEUED else "0"
        return f"{identity}.{_QUEUES[flag]}.{detail}"

    def _purge(self, olds: Sequence[Task]) -> ActResult:
        ids = [task.id for task in olds]
        self._record.add(ids, self._exim.now(self._clock()), self._in_trash)
        answers = self._answers("-MG", TRASH_QUEUE, *ids)
        return self._moved(olds, answers, ids, is_trash=True)

    def _restore(self, olds: Sequence[Task], end: State) -> ActResult:
        ids, is_frozen = [task.id for task in olds], "frozen" in olds[0].extra
        if end is State.HELD and not is_frozen:
            frozen = self._answers(TRASH, "-Mf", *ids)
            ids = [each for each in ids if frozen.get(each) in ("is now frozen", _FROZEN_ALREADY)]
            if not ids:
                return self._result(olds, frozen, {})
        answers = self._answers(TRASH, "-MG", "", *ids)
        result = self._moved(olds, answers, ids, is_trash=False)
        self._record.remove([*result.done])
        return result

    def _moved(
        self,
        olds: Sequence[Task],
        answers: Mapping[str, str],
        ids: Sequence[str],
        *,
        is_trash: bool,
    ) -> ActResult:
        """The result of `-MG`, which prints no word for a message that it has moved: the listing of
        the queue where it should be decides, also whether it is frozen, as it may be since."""
        moved = [ident for ident in ids if answers.get(ident) == ""]
        options = ("-bpru", TRASH) if is_trash else ("-bpru",)
        there = (
            {
                item.id: item.is_frozen
                for item in lines.parse_listing(self._run_listing((*options, *moved)))
                if isinstance(item, QueuedMail)
            }
            if moved
            else {}
        )
        flags = (TRASHED, TRASHED_FROZEN) if is_trash else (QUEUED, FROZEN)
        done = {t.id: self._rev_after(t, flags[there[t.id]]) for t in olds if t.id in there}
        return self._result(olds, answers, done)

    def _expunge(self, olds: Sequence[Task]) -> ActResult:
        answers = self._answers(TRASH, "-Mrm", *(task.id for task in olds))
        done = {t.id: "" for t in olds if answers.get(t.id) == "has been removed"}
        self._record.remove([*done])
        return self._result(olds, answers, done)

    def _bounce(self, olds: Sequence[Task]) -> ActResult:
        """Give up messages. It prints nothing: those that are still in the queue were locked, if
        a process has locked them now."""
        ids = [task.id for task in olds]
        _, end = self._exim.run("-Mg", *ids, is_act=True)
        gone = {one.id for one in self.show(ids, {}) if isinstance(one, Missing)}
        why = _NO_REASON
        if end.status and not gone:
            why = end.last_error or f"exim -Mg ended with status {end.status}"
        refused = {
            ident: _locked_by(pid) if (pid := self._pids.get(ident)) else why
            for ident in ids
            if ident not in gone
        }
        return ActResult({ident: "" for ident in ids if ident in gone}, refused)

    def _deliver(self, ids: Sequence[str], olds: Sequence[Task]) -> ActResult:
        """Start a delivery of each message, some at a time. They are never ended. `-M` thaws: so
        each is looked at just before, as it may have waited for minutes."""

        running, lost = set[str](), dict[str, str]()

        def start(ident: str) -> str:
            argv = (*self._exim.words, "-M", ident)
            try:
                now = lines.parse_listing(self._run_listing(("-bpru", ident)))
                if not any(isinstance(one, QueuedMail) and not one.is_frozen for one in now):
                    return "changed: not queued any more"
                end = self._exim.prefix.start_detached(argv, DELIVERY_SECONDS)
            except Unavailable as error:
                return str(error)
            if end is None:
                running.add(ident)
                return ""
            if why := self._exim.prefix.why_failed(end):
                lost[ident] = why  # it may go on
                return ""
            return end.last_error or f"status {end.status}" if end.status else ""

        with ThreadPoolExecutor(DELIVERIES) as pool:
            whys = dict(zip(ids, pool.map(start, ids), strict=True))
        done = {task.id: task.rev for task in olds if not (whys[task.id] or task.id in lost)}
        notes = {ident: "still delivering" if ident in running else "ended" for ident in done}
        refused, why = {ident: why for ident, why in whys.items() if why}, [*lost.values()][:1]
        return ActResult(done, refused, notes=notes, why="".join(why))

    # ---- parts and controls

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        return mail_parts(self._exim, task)

    @override
    def read(self, task: Task, part: str) -> bytes:
        return read_part(self._exim, task, part)

    @override
    def control(self, name: str, target: str, value: str) -> str:
        return run_control(self._exim, name, target)

    @override
    def forecast(self, name: str, target: str, value: str) -> Outlook:
        """Count the waiting messages that a queue run would take, by a listing."""
        count = 0
        for item in lines.parse_listing(self._exim.stream("-bpru")):
            if isinstance(item, QueuedMail) and not item.is_frozen:
                wanted = target.lower().encode()
                count += any(wanted in one.lower() for one in item.recipients) or not target
        return Outlook(f"{count:,} waiting messages: Exim tries them one after the other", count)

    @override
    def close(self) -> None:
        if self._facts is not None:
            self._facts.close()


_WAITS = {
    "queued": "Exim decides by host: part retry has the next try",
    "done": "no recipient is open: Exim removes it at its next queue run",
    "frozen": "frozen by an operator or a rule of Exim until released",
    "bounce": "frozen by Exim, as it cannot be delivered to the sender, or by an operator",
}
"""Why a message is not tried now, by its word."""

_THAWED, _FROZEN_ALREADY = "is no longer frozen", "is already frozen"


_NO_REASON = "still in the queue: Exim names no reason, see its main log"


def _locked_by(pid: str) -> str:
    return f"in delivery: PID {pid} has locked it"


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
