"""The store over Kannader's spool: each state a folder of links, each move the rename of one."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from engine.model import (
    ChangeSource,
    Edges,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    State,
    Task,
)
from engine.store import (
    GLIMPSE,
    SHOWN,
    Control,
    Gone,
    Outlook,
    Seen,
    StoreError,
    Unavailable,
    Unsupported,
    Wants,
    anything,
    permit,
)
from engine.stores.kannader import damage, enqueue, mail_format, parts, permissions, sidecar
from engine.stores.kannader.claims import MailClaims
from engine.stores.kannader.enqueue import Recipient
from engine.stores.kannader.folder import MODE
from engine.stores.kannader.mail_format import METADATA, LinkTarget, Schedule
from engine.stores.kannader.moves import MailMove, MailMover
from engine.stores.kannader.permissions import CONTROLS
from engine.stores.kannader.permissions import EDGES as EDGES
from engine.stores.kannader.recovery import SpoolRecovery
from engine.stores.kannader.spool import (
    KIND,
    STATES,
    KannaderSpool,
    MailEntry,
    attempts_of,
    described,
    kept,
    read_link,
)
from engine.system import files
from engine.system.files import Refused
from engine.system.sorted_names import SortedNames, storable
from engine.text.safe import shown

FOLDERS = ("data", "queue", "inflight", "cleanup")
"""What a spool is known by, in the order in which Kannader makes them."""

GROUP = 100
"""Changes made durable together."""

PEEK = 200
"""Tasks of each folder that a whole look shows at once, before it knows their order."""

NOTHING = "nothing to recover"
"""The answer of a recovery that finds nothing."""

RECHECK = 1.0
"""Seconds for which it is believed that no Kannader was started or has ended."""


def make_spool(place: str) -> list[str]:
    """Make the folders of a spool that are missing, as Kannader does; says which were made.

    Raises:
        OSError: one could not be made.
    """
    files.make_folders(place, MODE)
    made = [path for word in FOLDERS if not os.path.isdir(path := f"{place}/{word}")]
    for path in made:
        files.make_folder(path, mode=MODE)
    return made


class KannaderStore:
    """Mails as links in queue/, inflight/ and cleanup/, in hold/ beside them, and in our trash."""

    states = STATES
    words: Mapping[str, State] = {}

    def __init__(
        self,
        root: str,
        clock: Callable[[], float] = time.time,
        patience: float = files.PATIENCE,
        *,
        durable: bool = True,
    ) -> None:
        """`patience` is for how many seconds another process may keep us from a change.

        Raises:
            Unavailable: a folder is missing or cannot be opened, or they lie on several systems.
        """
        self._clock = clock
        self._spool = KannaderSpool(root)
        self._open_folders()
        self._desk = MailMover(self._spool, durable=durable, patience=patience)
        self._claims = MailClaims(self._spool, self._desk)
        self._recovery = SpoolRecovery(self._spool, self._desk)
        self._ours: set[str] = set()
        """Ids that this instance has claimed, and not swapped yet."""
        self._checked = float("-inf")
        self.kannaders: tuple[int, ...] = ()
        """PIDs of the Kannaders at work here, when that was last found out."""
        self.edges: Edges = EDGES
        self.controls: Mapping[str, Control] = CONTROLS
        self._refresh()
        self.doorbell = ChangeSource(tuple(folder.path for folder in self._spool.states.values()))
        self.expected = 0

    def _open_folders(self) -> None:
        try:
            self._spool.check()
            devices = {folder.seen.st_dev for folder in self._spool.folders if folder.exists()}
        except Unavailable:
            self._spool.close()
            raise
        if len(devices) > 1:
            self._spool.close()
            # A rename between file systems does not exist; copying is not one step.
            raise Unavailable(f"{self._spool.root}: its folders lie on several file systems")

    def close(self) -> None:
        """Let go of the folders."""
        self._desk.close()
        self._spool.close()

    # ---- what may be done

    def _refresh(self, *, at_once: bool = False) -> None:
        """Find out again what may be done here: that changes with a Kannader's coming and going."""
        now = self._clock()
        if not at_once and 0 <= now - self._checked < RECHECK:
            return
        self._checked = now
        self.edges, self.controls, self.kannaders = permissions.now(
            self._spool, claiming=bool(self._ours)
        )

    def _permit(self, move: Move) -> None:
        old, new, image = move
        foreign = old is not None and old.state is State.ACTIVE and old.id not in self._ours
        ours = old is not None and old.state is State.ACTIVE and not foreign
        self._refresh(at_once=foreign)
        # What we have claimed ourselves is ours to settle, also beside a Kannader that came since.
        edges = EDGES if ours and not permissions.no_writing(self._spool) else self.edges
        permit(edges, old, new, whole=bool(image))
        if foreign and self.kannaders:
            raise Unsupported(permissions.in_hand(self.kannaders))

    # ---- looking

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Everything as a stream, or what is named: ids, or a word for all in a state.

        Raises:
            Unavailable: a folder is missing or cannot be read.
        """
        self._spool.check()
        self._refresh()
        if touched is None:
            yield from self._look_at_all()
            return
        by_word = {word: state for state, word in STATES.items()}
        for name in touched:
            if name in by_word:
                state = by_word[name]
                for entry in sorted(self._spool.states[state].names()):
                    yield from self._look_at(entry, state)
            else:
                yield from self._look_for(name)

    def _look_at_all(self) -> Iterator[Task | Missing | Problem]:
        spool = self._spool
        for state in STATES:
            for name in islice(spool.states[state].names(), PEEK):
                yield from self._look_at(name, state)
        odd: list[tuple[str, State]] = []
        with SortedNames() as names:
            self.expected = sum(
                names.add(state, _sortable(spool.states[state].names(), state, odd))
                for state in STATES
            )
            for state in STATES:
                for name in names.of(state):
                    yield from self._look_at(name, state)
        for name, state in odd:
            yield from self._look_at(name, state)
        for folder in spool.folders:
            if problem := folder.problem():
                yield problem
        known: set[LinkTarget] = set()
        found = damage.find_doubles(spool, known)
        if found:  # or a link has moved past us
            again = set(damage.find_doubles(spool))
            found = [one for one in found if one in again]
        found += [*damage.quarantined(spool, known), *damage.interrupted(spool)]
        known.update(damage.aside_targets(spool))
        found += damage.orphans(spool, known, self._clock())
        yield from {problem.where: problem for problem in (one.problem for one in found)}.values()

    def _look_at(self, name: str, state: State) -> Iterator[Task | Problem]:
        spool = self._spool
        try:
            try:
                yield spool.task(spool.mail(spool.link(name, state)))
            except Refused as refusal:
                found = damage.of_link(spool, name, state)
                where = shown(f"{STATES[state]}/{name}")
                yield found.problem if found else Problem(where, str(refusal), state)
        except FileNotFoundError:
            return  # moved on since its folder was listed; the next look finds it
        except OSError as error:
            where = shown(f"{STATES[state]}/{name}")
            yield Problem(where, f"cannot be read now: {error.strerror}", state)

    def _look_for(self, name: str) -> Iterator[Task | Missing | Problem]:
        found: list[Task | Problem] = []
        if name not in ("", ".", "..") and not set(name) & {"/", "\0"}:
            for state in STATES:
                if self._holds(name, state):
                    found += self._look_at(name, state)
        yield from found
        tasks = [task for task in found if isinstance(task, Task)]
        if len(tasks) > 1:
            words = " and ".join(STATES[task.state] for task in tasks)
            yield Problem(f"{STATES[tasks[-1].state]}/{name}", f"stands in {words} at once")
        elif not found:
            yield Missing(name)

    def _holds(self, name: str, state: State) -> bool:
        try:
            return self._spool.states[state].holds(name)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise Unavailable(f"{STATES[state]}/{shown(name)[:80]}: {error.strerror}") from error

    def still(self, seen: Iterable[Seen]) -> Iterator[Task | Problem]:
        """Those whose link and files are as they were; nothing is kept in hand."""
        self._spool.check()
        for ident, state, rev in seen:
            if state not in STATES or "\0" in ident or "/" in ident or ident in ("", ".", ".."):
                continue
            try:
                mail = self._spool.mail(self._spool.link(ident, state))
                if mail.rev == rev:
                    yield self._spool.task(mail)
            except (FileNotFoundError, Refused):
                continue
            except OSError as error:
                yield Problem(ident, f"cannot be read now: {error.strerror}", state)

    def _held(self, task: Task) -> MailEntry:
        try:
            mail = self._spool.mail(self._spool.link(task.id, task.state))
        except (FileNotFoundError, KeyError):
            raise Gone(task.id) from None
        except Refused as refusal:
            raise Gone(f"{task.id}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{task.id}: {error.strerror}") from error
        if mail.rev != task.rev:
            raise Gone(task.id)
        return mail

    def parts(self, task: Task) -> Iterator[Part]:
        """What is stored of the recipient, and the contents that all recipients share.

        Raises:
            Gone: it is not there as it was seen.
            Unavailable: it cannot be read now.
        """
        yield from parts.of(self._spool, self._held(task))

    def size(self, task: Task) -> int:
        """Bytes of what is stored of the recipient, and of the contents if it is the last one.

        Raises:
            Gone: it is not there as it was seen.
            Unavailable: that cannot be found out now.
        """
        mail = self._held(task)
        own = len(parts.image_of(mail))
        try:
            names = self._spool.shared(mail.link.target.mail)
        except OSError:
            return own  # erased meanwhile
        others = [
            name for name in names if mail_format.is_uuid(name) and name != mail.link.target.dest
        ]
        return own if others or mail.contents is None else own + mail.contents.st_size

    def read(self, task: Task, part: str = "") -> bytes:
        """An image of what is stored of the recipient, or the contents in wire form.

        Raises:
            Gone: it is not there as it was seen.
            Unsupported: that part is not to be read, with the reason.
            Unavailable: it cannot be read now.
        """
        mail = self._held(task)
        if part in ("", parts.TASK):
            return parts.image_of(mail)
        if part != mail_format.CONTENTS:
            raise Gone(f"{task.id} has no part {part!r}")
        return parts.begin(self._open(mail), SHOWN)

    def _open(self, mail: MailEntry) -> int:
        ident = mail.link.id
        try:
            return parts.open_contents(self._spool, mail.link.target.mail)
        except FileNotFoundError:
            raise Gone(f"{ident}: has no contents any more") from None
        except Refused as refusal:
            raise Unsupported(f"{ident}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{ident}: {error.strerror}") from error

    def recall(self, task: Task, image: bytes, state: State) -> Task:
        """What the image says.

        Raises:
            Unsupported: it is no image of that task.
        """
        try:
            was = parts.parse_image(image, task.id)
            schedule = mail_format.parse_schedule(was.schedule)
            envelope = mail_format.parse_metadata(was.metadata)
        except Refused as refusal:
            raise Unsupported(f"{task.id}: {refusal}") from refusal
        return replace(
            task,
            state=state,
            kind=was.note.kind or KIND,
            group=envelope.host,
            due=schedule.due,
            attempts=attempts_of(was.note, schedule),
            description=was.note.description or described(envelope),
            destination=envelope.recipient,
            error=was.note.error,
            lease=None,
        )

    def glimpse(self, problem: Problem) -> bytes:
        """The first bytes of what lies there: of a link what it says, of an orphan its contents.

        Raises:
            Gone: it is not there any more.
            Unsupported: it is nothing of this spool that could be read.
            Unavailable: it cannot be read now.
        """
        try:
            return self._glimpse(problem.where)
        except (FileNotFoundError, NotADirectoryError):
            raise Gone(problem.where) from None
        except Refused as refusal:
            raise Unsupported(f"{problem.where}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{problem.where}: {error.strerror}") from error

    def _glimpse(self, where: str) -> bytes:
        spool = self._spool
        folders = {STATES[state]: folder for state, folder in spool.states.items()}
        folders |= {folder.word: folder for folder in (spool.aside, spool.begun)}
        word, _, name = where.rpartition("/")
        if word in folders:
            if not folders[word].exists() or name in ("", ".", ".."):
                raise FileNotFoundError(where)
            try:
                return os.fsencode(read_link(name, folders[word])[1])
            except Refused:
                return parts.begin(_plain(files.open_guarded(name, folders[word].fd)), GLIMPSE)
        word, *names = where.split("/")
        if word != "data" or not all(map(mail_format.is_uuid, names)):
            raise Refused("nothing in it could be read")
        if len(names) == 1:
            return parts.begin(parts.open_contents(spool, names[0]), GLIMPSE)
        with spool.dest(mail_format.LinkTarget(*names[:2])) as fd:
            return kept(METADATA, fd).data[:GLIMPSE]

    # ---- taking

    def take(self, now: float, owner: str, limit: int, wants: Wants = anything) -> Iterator[Task]:
        """Due mails in the order of their ids, each claimed by a rename as it is asked for.

        Afterwards `doorbell.due` says when the next of those that wait comes due.
        """
        self._refresh()
        if why := permissions.no_writing(self._spool):
            raise Unavailable(why)
        for task in self._claims.take(now, owner, limit, wants):
            self._ours.add(task.id)
            yield task
        self.doorbell = self.doorbell._replace(due=self._claims.due)

    # ---- changing

    def swap(self, old: Task | None, new: Task | None) -> str:
        """One change, durable when it returns.

        Raises:
            Gone: the mail is not there as `old` says; nothing changed.
            Unsupported: no such edge here, or a value that the format cannot hold.
            Unavailable: the disk refused; the mail stands where it stood, or where it is said.
        """
        (outcome,) = self._group([Move(old, new)])
        if outcome.error is not None:
            raise outcome.error
        return outcome.rev

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """Many changes, made durable a hundred at a time."""
        waiting = iter(moves)
        while group := list(islice(waiting, GROUP)):
            yield from self._group(group)

    def _group(self, moves: list[Move]) -> list[Outcome]:
        answers: dict[int, str | Exception] = {}
        changes: list[tuple[int, MailMove]] = []
        for at, move in enumerate(moves):
            try:
                self._permit(move)
                if move.old is None:
                    assert move.new is not None
                    answers[at] = self._add(move.new)
                else:
                    changes.append((at, MailMove(move.old, move.new, move.image)))
            except StoreError as error:
                answers[at] = error
            except Refused as refusal:
                answers[at] = Unsupported(str(refusal))
        if changes:
            done = self._desk.change([change for _, change in changes], self._clock())
            for (at, change), answer in zip(changes, done, strict=True):
                answers[at] = answer
                if isinstance(answer, str):
                    self._ours.discard(change.old.id)
        return [_outcome_of(move, answers[at]) for at, move in enumerate(moves)]

    def _add(self, task: Task) -> str:
        """A mail without a text, whose envelope and outcome the task says.

        Raises:
            Refused: the task says what the format cannot hold, and we do not note.
            Gone: its id is there already.
            Unavailable: the disk refused.
        """
        for name in ("queue", "group", "priority"):
            if getattr(task, name):
                raise Refused(f"{task.id}: a mail has no {name} here")
        if not task.destination:
            raise Refused(f"{task.id}: a mail has a recipient, expected one as its destination")
        if task.payload:
            raise Refused(f"{task.id}: a mail is its own payload, expected none")
        now = self._clock()
        noted = sidecar.AttemptNote(
            task.attempts or None,
            shown(task.error),
            "" if task.kind == KIND else task.kind,
            shown(task.description),
        )
        metadata = mail_format.metadata_bytes("", task.destination)
        each = Recipient(mail_format.require_id(task.id), mail_format.new_uuid(), metadata, noted)
        schedule = mail_format.schedule_bytes(Schedule(mail_format.instant(task.due or now)))
        contents = enqueue.wired(())
        enqueue.enqueue(self._spool, self._desk, [each], contents, schedule, task.created)
        try:
            return self._spool.mail(self._spool.link(task.id, State.PENDING)).rev
        except FileNotFoundError:
            return "claimed"  # somebody was faster; nothing stands in queue/ under this revision

    # ---- beside the seam: what mail needs

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
        """One mail to several recipients, who share its text; the id of each, in their order.

        `text` is the mail in pieces, every byte of which is kept; with `wire` it is in wire form
        already, and kept as it is. "" or "<>" is the null sender. Due at once, or at `due` (epoch
        seconds UTC). Nothing is to be seen before all of it is durable. From the same `seed` come
        the same ids, so that what must be there once is not enqueued twice.

        Raises:
            Gone: what was enqueued with this seed is there already.
            Unsupported: an address is none, or nobody is to receive it.
            Unavailable: the disk refused; nothing is in the queue, or what is there of it is said.
        """
        self._refresh()
        permit(self.edges, None, Task("", KIND, State.PENDING, 0.0))
        if not recipients:
            raise Unsupported("a mail without a recipient is nobody's")
        try:
            made = [
                Recipient(
                    mail_format.uuid_of(f"{seed} {number}") if seed else mail_format.new_uuid(),
                    mail_format.new_uuid(),
                    mail_format.metadata_bytes(sender, address),
                )
                for number, address in enumerate(recipients)
            ]
            schedule = mail_format.schedule_bytes(
                Schedule(mail_format.instant(due or self._clock()))
            )
        except Refused as refusal:
            raise Unsupported(str(refusal)) from refusal
        contents = text if wire else enqueue.wired(text)
        enqueue.enqueue(self._spool, self._desk, made, contents, schedule)
        return [each.id for each in made]

    def find_kannaders(self) -> tuple[int, ...] | None:
        """PIDs of the Kannaders at work here now, by the folders that they have open in /proc; None
        where this user may not look into the processes of the spool's owner.
        """
        self._refresh(at_once=True)
        may_see = os.geteuid() in (0, self._spool.data.seen.st_uid)
        return self.kannaders if self.kannaders or may_see else None

    def require_in_hand(self, task: Task) -> None:
        """Make sure that nobody but us may be sending a mail in flight.

        Raises:
            Unsupported: a Kannader may be, which is at work here.
        """
        if task.id in self._ours:
            return
        self._refresh(at_once=True)
        if self.kannaders:
            raise Unsupported(permissions.in_hand(self.kannaders))

    def envelope(self, task: Task) -> mail_format.Envelope:
        """From whom to whom a mail goes, as it stands now.

        Raises:
            Gone: it is not there as it was seen.
            Unavailable: it cannot be read now.
        """
        try:
            return mail_format.parse_metadata(self._held(task).metadata.data)
        except Refused as refusal:
            raise Unavailable(f"{task.id}: {refusal}") from refusal

    def contents(self, task: Task) -> BinaryIO:
        """The contents of a mail, open to be read, in wire form: as they are to be sent.

        Raises:
            Gone: it is not there as it was seen.
            Unsupported: they are no plain file.
            Unavailable: they cannot be opened now.
        """
        return os.fdopen(self._open(self._held(task)), "rb")

    def recover(self, *, dry: bool = False, anyway: bool = False) -> list[str]:
        """Finish or take back what was interrupted, and mend what can be mended; in words.

        With `dry` nothing is done, and it is said what would be; with `anyway` a Kannader that is
        at work here is no reason not to.

        Raises:
            Unsupported: a Kannader is at work here, or we may not write.
            Unavailable: the spool cannot be read, or another process keeps its lock.
        """
        self._refresh(at_once=True)
        if not dry:
            self._require_recovery(anyway=anyway)
        return self._recovery.recover(self._clock(), dry=dry)

    def _require_recovery(self, *, anyway: bool) -> None:
        if why := permissions.no_writing(self._spool):
            raise Unsupported(why)
        if self.kannaders and not anyway:
            who = permissions.named(self.kannaders)
            raise Unsupported(f"{who} is running, and recovers its own at its start")

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Recover, or decide what recovery leaves to an operator.

        Raises:
            Unsupported: there is no such control, it is refused, or there is no such target.
            Unavailable: the disk refused.
        """
        return "\n".join(self._controlled(name, target, value, dry=False)) or NOTHING

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """What a control would do now, by the same checks. Changes nothing.

        Raises:
            Unsupported, Unavailable: as `control`.
        """
        lines = self._controlled(name, target, value, dry=True)
        return Outlook("\n".join(lines) or NOTHING, len(lines))

    def _controlled(self, name: str, target: str, value: str, *, dry: bool) -> list[str]:
        """A line for each thing that was done, or with `dry` that would be."""
        self._refresh(at_once=True)
        if name not in self.controls:
            raise Unsupported(f"no control {name!r} here")
        if self.controls[name].refused:
            raise Unsupported(self.controls[name].refused)
        if name == "recover":
            if value not in ("", "anyway"):
                raise Unsupported(f'recover {value!r:.40}: expected nothing or "anyway"')
            self._require_recovery(anyway=value == "anyway")
            return self._recovery.recover(self._clock(), dry=dry)
        act = {
            "adopt": self._recovery.adopt,
            "discard": self._recovery.discard,
            "put-back": self._recovery.put_back,
            "repair": self._recovery.repair,
        }[name]
        try:
            return [act(target, self._clock(), dry=dry)]
        except OSError as error:
            raise Unavailable(f"{target}: {error.strerror}") from error


def _sortable(names: Iterable[str], state: State, odd: list[tuple[str, State]]) -> Iterator[str]:
    """The names as they come; `odd` takes those that are no text, and so no id."""
    for name in names:
        if name == storable(name):
            yield name
        else:
            odd.append((name, state))


def _outcome_of(move: Move, answer: str | Exception) -> Outcome:
    if isinstance(answer, Exception):
        return Outcome(move, error=answer)
    return Outcome(move, answer)


def _plain(fd: int) -> int:
    """The same descriptor, if it is of a plain file; closed if not."""
    if why := files.oddity(os.fstat(fd)):
        os.close(fd)
        raise Refused(why)
    return fd
