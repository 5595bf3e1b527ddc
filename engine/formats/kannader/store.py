"""The Kannader store: one folder of symbolic links per state; a state change is a rename(2)."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import BinaryIO

from engine.formats.base.folder import outcome_of
from engine.formats.kannader import damage, enqueue, mail_format, parts, permissions, sidecar
from engine.formats.kannader.claims import MailClaims
from engine.formats.kannader.enqueue import Recipient
from engine.formats.kannader.folder import FOLDER_MODE
from engine.formats.kannader.mail_format import METADATA, LinkTarget, MailSchedule
from engine.formats.kannader.moves import MailMover, SpoolLock, gone_if_changed, read_unchanged
from engine.formats.kannader.permissions import CONTROLS, EDGES
from engine.formats.kannader.recovery import SpoolRecovery, SpoolRepairs
from engine.formats.kannader.spool import (
    MAIL_KIND,
    STATES,
    KannaderSpool,
    MailEntry,
    SpoolLink,
    count_attempts,
    describe_mail,
    mail_fields,
    read_link,
    read_spool_file,
)
from engine.model import ChangeSource, Missing, Move, Outcome, Part, Problem, State, Task
from engine.override import override
from engine.store import (
    MAX_PART_BYTES,
    PREVIEW_BYTES,
    ClaimFilter,
    Gone,
    Outlook,
    SeenTask,
    Store,
    StoreError,
    Unavailable,
    Unsupported,
    accept_all,
    require_edge,
)
from engine.system import files
from engine.system.files import Refused
from engine.system.sorted_names import SortedNames
from engine.text.decode import utf8_name
from engine.text.error_text import error_text
from engine.text.safe import safe_line

FOLDERS = ("data", "queue", "inflight", "cleanup")
"""The folders that identify a spool, in the order in which Kannader creates them."""

MOVES_PER_SYNC = 100
"""Moves in one batch: fsync runs once per batch."""

PREVIEW_COUNT = 200
"""Tasks of each folder that a full scan yields first, unsorted."""

NOTHING_TO_RECOVER = "nothing to recover"
"""The result of a recovery that finds nothing."""

RECHECK_SECONDS = 1.0
"""Seconds for which the list of running Kannader processes is cached."""

_CONTENTS_BUFFER_BYTES = 1 << 16


def make_spool(place: str) -> list[str]:
    """Create the missing folders of a spool, with Kannader's mode; return the created paths.

    Raises:
        OSError: one could not be created.
    """
    files.make_folders(place, FOLDER_MODE)
    made = [path for word in FOLDERS if not os.path.isdir(path := f"{place}/{word}")]
    for path in made:
        files.make_folder(path, mode=FOLDER_MODE)
    return made


class KannaderStore(Store):
    """Mails as links in queue/, inflight/, cleanup/, and in our hold/ and .spooldeck/trash/."""

    states = STATES

    def __init__(
        self,
        root: str,
        clock: Callable[[], float] = time.time,
        patience: float = files.FLOCK_TIMEOUT_SECONDS,
        *,
        durable: bool = True,
        age: Callable[[float, float], float] = lambda moment, now: now - moment,
    ) -> None:
        """`patience`: seconds to wait for the spool lock of another process; `age`: seconds that
        runs have seen pass between two times, for what recovery deletes.

        Raises:
            Unavailable: a folder is missing or cannot be opened, or they are on several file
                systems.
        """
        self._clock = clock
        self._spool = KannaderSpool(root)
        self._open_folders()
        self._lock = SpoolLock(self._spool, patience)
        self._mover = MailMover(self._spool, self._lock, durable=durable)
        self._claims = MailClaims(self._spool, self._mover)
        self._recovery = SpoolRecovery(self._spool, self._mover, age)
        self._repairs = SpoolRepairs(self._spool, self._lock)
        self._claimed_ids: set[str] = set()
        """Ids that this instance has claimed and not yet swapped."""
        self._checked = float("-inf")
        self.kannaders: tuple[int, ...] = ()
        """PIDs of the Kannader processes that use this spool, as of the last check."""
        self.edges, self.controls = EDGES, CONTROLS
        self._refresh()
        self.changes = ChangeSource(tuple(folder.path for folder in self._spool.states.values()))

    def _open_folders(self) -> None:
        try:
            self._spool.check()
            devices = {folder.status.st_dev for folder in self._spool.folders if folder.exists()}
        except Unavailable:
            self._spool.close()
            raise
        if len(devices) > 1:
            self._spool.close()
            # rename(2) does not work between file systems, and a copy is not atomic.
            what = "its folders are on several file systems, expected one"
            raise Unavailable(f"{self._spool.root}: {what}")

    @override
    def close(self) -> None:
        self._lock.close()
        self._spool.close()

    # ---- permissions

    def _refresh(self, *, force: bool = False) -> None:
        """Compute edges and controls again: they depend on whether a Kannader is running."""
        now = self._clock()
        if not force and 0 <= now - self._checked < RECHECK_SECONDS:
            return
        self._checked = now
        self.edges, self.controls, self.kannaders = permissions.current_rights(
            self._spool, self._claimed_ids
        )

    def _permit(self, move: Move) -> None:
        old, new, image = move[:3]
        in_flight = old is not None and old.state is State.ACTIVE
        # A running Kannader bars no mail that this instance has claimed, so /proc is not scanned.
        if not (in_flight and old is not None and old.id in self._claimed_ids):
            self._refresh(force=in_flight)
        require_edge(self.edges, old, new, self._clock(), whole=bool(image))

    # ---- scanning

    @override
    def count_tasks(self) -> dict[State, int]:
        self._spool.check()
        return {state: folder.count_links() for state, folder in self._spool.states.items()}

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        self._spool.check()
        self._refresh()
        if touched is None:
            yield from self._scan_all()
            return
        by_word = {word: state for state, word in STATES.items()}
        for name in touched:
            if name in by_word:
                state = by_word[name]
                for entry in sorted(self._spool.states[state].iter_names()):
                    yield from self._scan_entry(entry, state)
            else:
                yield from self._find_id(name)

    def _scan_all(self) -> Iterator[Task | Missing | Problem]:
        spool = self._spool
        for state in STATES:
            for name in islice(spool.states[state].iter_names(), PREVIEW_COUNT):
                yield from self._scan_entry(name, state)
        undecodable: list[tuple[str, State]] = []
        with SortedNames() as names:
            self.expected_tasks = sum(
                names.add(state, _valid_names(spool.states[state].iter_names(), state, undecodable))
                for state in STATES
            )
            for state in STATES:
                for name in names.names_in(state):
                    yield from self._scan_entry(name, state)
        for name, state in undecodable:
            yield from self._scan_entry(name, state)
        for folder in spool.folders:
            if problem := folder.problem():
                yield problem
        known: set[LinkTarget] = set()
        damages = damage.find_duplicates(spool, known)
        if damages:  # recheck: a link may have moved during the scan
            again = set(damage.find_duplicates(spool))
            damages = [one for one in damages if one in again]
        damages += [*damage.find_quarantined(spool, known), *damage.find_interrupted(spool)]
        known.update(damage.hidden_targets(spool))
        damages += damage.find_orphans(spool, known, self._clock())
        yield from {problem.where: problem for problem in (one.problem for one in damages)}.values()

    def _scan_entry(self, name: str, state: State) -> Iterator[Task | Problem]:
        spool = self._spool
        try:
            try:
                yield spool.build_task(spool.read_mail(spool.find_link(name, state)))
            except Refused as refusal:
                link_damage = damage.find_link_damage(spool, name, state)
                where = safe_line(f"{STATES[state]}/{name}")
                yield link_damage.problem if link_damage else Problem(where, str(refusal), state)
        except FileNotFoundError:
            return  # moved since its folder was listed; the next scan finds it
        except OSError as error:
            where = safe_line(f"{STATES[state]}/{name}")
            yield Problem(where, f"cannot be read now: {error_text(error)}", state)

    def _find_id(self, name: str) -> Iterator[Task | Missing | Problem]:
        scanned: list[Task | Problem] = []
        if name not in ("", ".", "..") and not set(name) & {"/", "\0"}:
            for state in STATES:
                if self._exists_in(name, state):
                    scanned += self._scan_entry(name, state)
        yield from scanned
        tasks = [task for task in scanned if isinstance(task, Task)]
        if len(tasks) > 1:
            words = " and ".join(STATES[task.state] for task in tasks)
            yield Problem(f"{STATES[tasks[-1].state]}/{name}", f"is in {words} at the same time")
        elif not scanned:
            yield Missing(name)

    def _exists_in(self, name: str, state: State) -> bool:
        try:
            return self._spool.states[state].contains(name)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            where = f"{STATES[state]}/{safe_line(name)[:80]}"
            raise Unavailable(f"{where}: {error_text(error)}") from error

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        """Yield the tasks whose link and files are unchanged. Keeps nothing open."""
        self._spool.check()
        for ident, state, rev in known_tasks:
            if state not in STATES or "\0" in ident or "/" in ident or ident in ("", ".", ".."):
                continue
            try:
                mail = self._spool.read_mail(self._spool.find_link(ident, state))
                if mail.rev == rev:
                    yield self._spool.build_task(mail)
            except (FileNotFoundError, Refused):
                continue
            except OSError as error:
                yield Problem(ident, f"cannot be read now: {error_text(error)}", state)

    def _read_unchanged(self, task: Task) -> MailEntry:
        try:
            return read_unchanged(self._spool, task)
        except OSError as error:
            raise Unavailable(f"{task.id}: {error_text(error)}") from error

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        yield from parts.list_parts(self._spool, self._read_unchanged(task))

    @override
    def size(self, task: Task) -> int:
        """Bytes stored for this recipient, plus the contents if it is the only recipient left."""
        mail = self._read_unchanged(task)
        image_size = len(parts.build_image(mail))
        try:
            names = self._spool.list_mail_folder(mail.link.target.mail)
        except OSError:
            return image_size  # deleted in between
        others = {name for name in names if mail_format.is_uuid(name)} - {mail.link.target.dest}
        return image_size if others or mail.contents is None else image_size + mail.contents.st_size

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        mail = self._read_unchanged(task)
        if part in ("", parts.TASK_PART):
            return parts.build_image(mail)
        if part != mail_format.CONTENTS:
            raise Gone(f"{task.id} has no part {part!r}")
        return parts.read_start(self._open(mail.link), MAX_PART_BYTES)

    def _open(self, link: SpoolLink) -> int:
        ident = link.id
        try:
            return parts.open_contents(self._spool, link.target.mail)
        except FileNotFoundError:
            raise Gone(f"{ident}: its contents are gone") from None
        except Refused as refusal:
            raise Unsupported(f"{ident}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{ident}: {error_text(error)}") from error

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        try:
            was = parts.parse_image(image, task.id)
            schedule = mail_format.parse_schedule(was.schedule)
            envelope = mail_format.parse_metadata(was.metadata)
        except Refused as refusal:
            raise Unsupported(f"{task.id}: {refusal}") from refusal
        return task._replace(
            state=state,
            kind=was.note.kind or MAIL_KIND,
            group=envelope.host,
            due=schedule.due,
            attempts=count_attempts(was.note, schedule),
            description=was.note.description or describe_mail(envelope),
            destination=envelope.recipient,
            **mail_fields(envelope),
            error=was.note.error,
            lease=None,
        )

    @override
    def preview_problem(self, problem: Problem) -> bytes:
        try:
            return self._read_preview(problem.where)
        except (FileNotFoundError, NotADirectoryError):
            raise Gone(problem.where) from None
        except Refused as refusal:
            raise Unsupported(f"{problem.where}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{problem.where}: {error_text(error)}") from error

    def _read_preview(self, where: str) -> bytes:
        spool = self._spool
        folders = {STATES[state]: folder for state, folder in spool.states.items()}
        folders |= {folder.word: folder for folder in (spool.quarantine, spool.enqueuing)}
        word, _, name = where.rpartition("/")
        if word in folders:
            if not folders[word].exists() or name in ("", ".", ".."):
                raise FileNotFoundError(where)
            try:
                return os.fsencode(read_link(name, folders[word])[1])
            except Refused:
                return parts.read_start(_open_plain_file(name, folders[word].fd), PREVIEW_BYTES)
        word, *names = where.split("/")
        if word != "data" or not all(map(mail_format.is_uuid, names)):
            raise Refused("it cannot be previewed")
        if len(names) == 1:
            return parts.read_start(parts.open_contents(spool, names[0]), PREVIEW_BYTES)
        with spool.open_dest(mail_format.LinkTarget(*names[:2])) as fd:
            return read_spool_file(METADATA, fd).data[:PREVIEW_BYTES]

    # ---- claiming

    @override
    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        """Claim by a rename each, in the order of ids.

        Afterwards `changes.next_due` is the time when the next waiting mail is due.
        """
        if why := permissions.write_refusal(self._spool):
            raise Unavailable(why)
        for task in self._claims.take(now, owner, limit, wants):
            self._claimed_ids.add(task.id)
            yield task
        self.changes = self.changes._replace(next_due=self._claims.due)

    # ---- changing

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        waiting = iter(moves)
        while group := list(islice(waiting, MOVES_PER_SYNC)):
            yield from self._apply_batch(group)

    def _apply_batch(self, moves: list[Move]) -> list[Outcome]:
        answers: dict[int, str | Exception] = {}
        changes: list[tuple[int, Move]] = []
        for at, move in enumerate(moves):
            try:
                self._permit(move)
                if move.old is None:
                    assert move.new is not None
                    answers[at] = self._enqueue_task(move.new)
                else:
                    changes.append((at, move))
            except StoreError as error:
                answers[at] = error
            except Refused as refusal:
                answers[at] = Unsupported(str(refusal))
        if changes:
            done = self._mover.apply_moves([change for _, change in changes], self._clock())
            for (at, change), answer in zip(changes, done, strict=True):
                answers[at] = answer
                if isinstance(answer, str) and change.old is not None:
                    self._claimed_ids.discard(change.old.id)
        return [outcome_of(move, answers[at]) for at, move in enumerate(moves)]

    def _enqueue_task(self, task: Task) -> str:
        """Enqueue a mail without text, with the envelope and attempt data of a task.

        Raises:
            Refused: the task has a field that neither the format nor our notes can hold.
            Gone: its id exists already.
            Unavailable: the disk refused.
        """
        for name in ("queue", "group", "priority"):
            if getattr(task, name):
                raise Refused(f"{task.id}: a mail has no {name} here")
        if not task.destination:
            raise Refused(f"{task.id}: no destination, expected the address of the recipient")
        if task.payload:
            raise Refused(f"{task.id}: payload given, expected none: the mail is the payload")
        note = sidecar.AttemptNote(
            task.attempts or None,
            safe_line(task.error),
            "" if task.kind == MAIL_KIND else task.kind,
            safe_line(task.description),
        )
        metadata = mail_format.render_metadata(task.sender, task.destination)
        each = Recipient(mail_format.require_id(task.id), mail_format.new_uuid(), metadata, note)
        schedule = MailSchedule(mail_format.to_nanoseconds(task.due or self._clock()))
        enqueue.enqueue(
            self._spool,
            self._mover,
            [each],
            contents=enqueue.wire_chunks(()),
            schedule=mail_format.render_schedule(schedule),
            created=task.created,
        )
        try:
            return self._spool.read_mail(self._spool.find_link(task.id, State.PENDING)).rev
        except FileNotFoundError:
            return "claimed"  # another process was faster: no link in queue/ has this revision

    # ---- beyond the Store protocol: mail

    def enqueue(
        self,
        sender: str,
        recipients: Collection[str],
        text: Iterable[bytes],
        due: float = 0.0,
        *,
        wire: bool = False,
        seed: str = "",
    ) -> list[str]:
        """Enqueue one mail to several recipients, who share its text; return one id per recipient.

        `text` is the mail in pieces; every byte is kept. With `wire` it is in wire form already. A
        `sender` of "" or "<>" is the null sender. `due` is in epoch seconds UTC; 0 means now. No
        link is visible before all data is durable. The same `seed` gives the same ids, so that a
        repeated call does not enqueue the mail twice.

        Raises:
            Gone: a mail with this seed exists already.
            Unsupported: an address is invalid, or there are no recipients.
            Unavailable: the disk refused; nothing was queued, or the message names what was.
        """
        self._refresh()
        new = Task("", MAIL_KIND, State.PENDING, 0.0)
        require_edge(self.edges, None, new, self._clock())
        if not recipients:
            raise Unsupported("no recipients, expected at least one")
        try:
            made = [
                Recipient(
                    mail_format.seeded_uuid(f"{seed} {number}") if seed else mail_format.new_uuid(),
                    mail_format.new_uuid(),
                    mail_format.render_metadata(sender, address),
                )
                for number, address in enumerate(recipients)
            ]
            schedule = MailSchedule(mail_format.to_nanoseconds(due or self._clock()))
        except Refused as refusal:
            raise Unsupported(str(refusal)) from refusal
        contents = text if wire else enqueue.wire_chunks(text)
        data = mail_format.render_schedule(schedule)
        enqueue.enqueue(self._spool, self._mover, made, contents, data)
        return [each.id for each in made]

    def find_kannaders(self) -> tuple[int, ...] | None:
        """PIDs of the Kannader processes that hold this spool open, from /proc/PID/fd; None if this
        user may not inspect the processes of the spool's owner."""
        self._refresh(force=True)
        may_see = os.geteuid() in (0, self._spool.data.status.st_uid)
        return self.kannaders if self.kannaders or may_see else None

    def require_no_kannader(self, task: Task) -> None:
        """Check that no Kannader can be sending a mail in flight.

        Raises:
            Unsupported: a Kannader is running on this spool and may be sending it.
        """
        self._refresh(force=True)
        if why := self.edges[State.ACTIVE, State.DONE].bars(task, self._clock()):
            raise Unsupported(why)

    def open_message(self, task: Task) -> tuple[mail_format.Envelope, BinaryIO]:
        """The present envelope of a mail in flight, and its contents opened for reading, in wire
        form.

        Raises:
            Gone: the mail has changed or moved.
            Unsupported: the contents are not a plain file.
            Unavailable: it cannot be read now.
        """
        spool = self._spool
        try:
            with gone_if_changed(task):
                # In flight only the link is the revision: schedule and note are not read.
                link = spool.find_link(task.id, State.ACTIVE)
                with spool.open_dest(link.target) as dest:
                    metadata = read_spool_file(METADATA, dest)
                unchanged = spool.is_unchanged(link)
        except OSError as error:
            raise Unavailable(f"{task.id}: {error_text(error)}") from error
        if not unchanged or files.file_revision(link.file_stat) != task.rev:
            raise Gone(task.id)
        try:
            envelope = mail_format.parse_metadata(metadata.data)
        except Refused as refusal:
            raise Unavailable(f"{task.id}: {refusal}") from refusal
        return envelope, os.fdopen(self._open(link), "rb", _CONTENTS_BUFFER_BYTES)

    def recover(self, *, dry: bool = False, anyway: bool = False) -> list[str]:
        """Complete or roll back interrupted work, repair what is safe; return one line per action.

        With `dry`, only report what would be done. With `anyway`, run even while a Kannader is
        running.

        Raises:
            Unsupported: a Kannader is running, or the spool is not writable.
            Unavailable: the spool cannot be read, or another process holds its lock.
        """
        self._refresh(force=True)
        if not dry:
            self._require_recovery(anyway=anyway)
        return self._recovery.recover(self._clock(), dry=dry)

    def _require_recovery(self, *, anyway: bool) -> None:
        if why := permissions.write_refusal(self._spool):
            raise Unsupported(why)
        if self.kannaders and not anyway:
            who = permissions.name_kannaders(self.kannaders)
            raise Unsupported(f"{who} is running: it recovers its mails at its next start")

    @override
    def control(self, name: str, target: str = "", value: str = "") -> str:
        return "\n".join(self._run_control(name, target, value, dry=False)) or NOTHING_TO_RECOVER

    @override
    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        lines = self._run_control(name, target, value, dry=True)
        return Outlook("\n".join(lines) or NOTHING_TO_RECOVER, len(lines))

    def _run_control(self, name: str, target: str, value: str, *, dry: bool) -> list[str]:
        """Run a control; return one line per action, done or (with `dry`) planned."""
        self._refresh(force=True)
        if name not in self.controls:
            raise Unsupported(f"no control {name!r} here")
        if self.controls[name].refusal:
            raise Unsupported(self.controls[name].refusal)
        if name == "recover":
            if value not in ("", "anyway"):
                raise Unsupported(f'recover {value!r:.40}: expected nothing or "anyway"')
            self._require_recovery(anyway=value == "anyway")
            return self._recovery.recover(self._clock(), dry=dry)
        act = {
            "adopt": self._repairs.adopt,
            "discard": self._repairs.discard,
            "put-back": self._repairs.put_back,
            "repair": self._repairs.repair,
        }[name]
        try:
            return [act(target, self._clock(), dry=dry)]
        except OSError as error:
            raise Unavailable(f"{target}: {error_text(error)}") from error


def _valid_names(
    names: Iterable[str], state: State, undecodable: list[tuple[str, State]]
) -> Iterator[str]:
    """Yield the names that are valid text; append the others to `undecodable`."""
    for name in names:
        if name == utf8_name(name):
            yield name
        else:
            undecodable.append((name, state))


def _open_plain_file(name: str, folder: int) -> int:
    """Open a plain file; raise Refused if it is not one."""
    fd = files.open_guarded(name, folder)
    if why := files.file_problem(os.fstat(fd), os.fstat(folder)):
        os.close(fd)
        raise Refused(why)
    return fd
