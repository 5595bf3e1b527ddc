"""Find damage in a Kannader spool: bad links, duplicates, orphans, interrupted enqueues, drafts.

Source: Kannader spool, section 5. A scan reports each finding and recovery acts on it. This module
changes nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Set
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from operator import attrgetter

from engine.formats.kannader import mail_format, sidecar
from engine.formats.kannader.enqueue import EnqueueRecord
from engine.formats.kannader.folder import MailFolder
from engine.formats.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, LinkTarget
from engine.formats.kannader.spool import (
    QUARANTINE_DIR,
    STATES,
    DanglingLink,
    KannaderSpool,
    SpoolLink,
    check_contents,
    parse_file,
    read_link,
    read_spool_file,
)
from engine.model import Problem, State
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused, Untrusted
from engine.system.sorted_names import SortedNames
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

STALE_SECONDS = 60.0
"""Seconds after which an unfinished file counts as left over by a dead process (Kannader spool,
section 5: drafts exist for milliseconds)."""

ORPHAN_GRACE_SECONDS = 3600.0
"""Seconds for which an incomplete mail without a link is kept: Kannader may still be receiving it
(Kannader spool, section 5, "enq1-3")."""

_LINKS_PER_PAGE = 1000


class RepairAction(StrEnum):
    """What recovery does with a finding."""

    REPORT = "left"
    """Report only; an operator must act."""
    QUARANTINE = "quarantined"
    """Move the link to the quarantine folder."""
    DELETE = "erased"
    """Delete: the mail was never accepted."""
    UNREADABLE = "unread"
    """Leave it: it may be intact, but this user may not read it."""
    ASK_OPERATOR = "asked"
    """The mail is complete: an operator decides whether it is sent."""


class Damage(NamedTuple):
    """One finding: its path, a description, and the action of recovery."""

    where: str
    what: str
    action: RepairAction = RepairAction.REPORT
    state: State | None = None
    target: LinkTarget | None = None
    """The orphaned recipient; the mail itself if `dest` is ""."""
    shared: LinkTarget | None = None
    """The recipient that a duplicate link leads to."""

    @property
    def problem(self) -> Problem:
        """The finding as the store yields it.

        A duplicate link is reported at its recipient. At the link itself the next scan of that one
        name would find a good task and so clear the problem.
        """
        what = f"{self.what}{_ENDINGS[self.action]}"
        if self.shared is not None:
            return Problem(f"data/{self.shared.path}", f"{safe_line(self.where)} {what}")
        return Problem(safe_line(self.where), what, self.state)


_ENDINGS = {
    RepairAction.REPORT: "",
    RepairAction.QUARANTINE: "; recovery quarantines it",
    RepairAction.DELETE: "; recovery deletes it",
    RepairAction.UNREADABLE: "; recovery does not touch it",
    RepairAction.ASK_OPERATOR: "; adopt it (it is sent) or discard it",
}


def find_link_damage(spool: KannaderSpool, name: str, state: State) -> Damage | None:
    """Check one entry of a state folder; None if it is good.

    Raises:
        FileNotFoundError: it has moved.
        OSError: it cannot be read now.
    """
    where = f"{STATES[state]}/{name}"
    if count := sum(1 for _ in nested_targets(spool.states[state], name)):
        mails = "a mail" if count == 1 else f"{count:,} mails"
        what = f"a folder with links to {mails}, which Kannader sends: move them to {STATES[state]}"
        return Damage(where, what, RepairAction.REPORT, state)
    try:
        _, text = read_link(name, spool.states[state])
        mail_format.require_id(name)
    except Refused as refusal:
        return Damage(where, str(refusal), RepairAction.REPORT, state)
    try:
        target = mail_format.parse_link_target(text)
        what, fate = _find_target_damage(spool, target, state)
    except Untrusted as refusal:
        what, fate = str(refusal), RepairAction.UNREADABLE
    except Refused as refusal:
        what, fate = str(refusal), RepairAction.QUARANTINE
    except PermissionError as error:
        file = f"{error.filename}: " if isinstance(error.filename, str) else ""
        what, fate = f"{file}cannot be read: {error_text(error)}", RepairAction.UNREADABLE
    if what and read_link(name, spool.states[state])[1] != text:
        raise FileNotFoundError(name)
    return Damage(where, what, fate, state) if what else None


def _find_target_damage(
    spool: KannaderSpool, target: LinkTarget, state: State
) -> tuple[str, RepairAction]:
    """Return what is wrong behind a link to this recipient ("" if nothing) and the action."""
    try:
        with spool.open_mail_and_dest(target) as (mail, fd):
            if state is State.DONE:
                return "", RepairAction.REPORT
            schedule = _file_problem(mail_format.parse_schedule, SCHEDULE, fd)
            unsendable = (
                _file_problem(mail_format.parse_metadata, METADATA, fd) or check_contents(mail)[1]
            )
    except DanglingLink as refusal:
        return ("" if state is State.DONE else str(refusal)), RepairAction.QUARANTINE
    if unsendable:
        return f"can never be sent: {unsendable}", RepairAction.QUARANTINE
    if schedule:
        return f"Kannader ignores it: {schedule}; repair makes it due now", RepairAction.REPORT
    return "", RepairAction.REPORT


def _file_problem(parse: Callable[[bytes], object], name: str, fd: int) -> str:
    """Return why a file of a recipient cannot be parsed; "" if it can.

    Raises:
        Untrusted: it cannot be read for its links or access, which says nothing of its content.
    """
    try:
        parse_file(parse, read_spool_file(name, fd), name)
    except Untrusted:
        raise
    except Refused as refusal:
        return str(refusal)
    return ""


STATE_RANK = (State.DONE, State.ACTIVE, State.HELD, State.PENDING, State.TRASH)
"""Of two links to one recipient the one in the earlier state here is right (section 5, "bad6")."""


def duplicates_among(links: Iterable[SpoolLink]) -> Iterator[Damage]:
    """Yield links to a recipient that a link of higher rank (`STATE_RANK`) has too, and ids in two
    folders."""
    first: dict[LinkTarget, SpoolLink] = {}
    first_links: dict[str, SpoolLink] = {}
    for link in sorted(links, key=lambda one: (STATE_RANK.index(one.state), one.id)):
        before = first.setdefault(link.target, link)
        same = first_links.setdefault(link.id, link)
        if before is not link:
            what = f"leads to the same recipient as {before.where}"
            yield Damage(link.where, what, RepairAction.QUARANTINE, link.state, shared=link.target)
        elif same is not link:
            what = f"is in {STATES[same.state]} and {STATES[link.state]} at the same time"
            yield Damage(link.where, what, RepairAction.REPORT, link.state)


def find_duplicates(spool: KannaderSpool, known: set[LinkTarget] | None = None) -> list[Damage]:
    """Find duplicates among all links of the spool; add every link target to `known`."""
    with SortedNames() as ids, SortedNames() as targets:
        for state in STATES:
            for page in _pages(spool.iter_links((state,))):
                ids.add(state, (link.id for link in page))
                targets.add(state, (link.target.path for link in page))
                if known is not None:
                    known.update(link.target for link in page)
        twice = {name for name, _ in ids.duplicates()}, {path for path, _ in targets.duplicates()}
    if not any(twice):
        return []
    links = (one for one in spool.iter_links() if one.id in twice[0] or one.target.path in twice[1])
    return [*duplicates_among(links)]


def _pages(links: Iterator[SpoolLink]) -> Iterator[list[SpoolLink]]:
    while page := list(islice(links, _LINKS_PER_PAGE)):
        yield page


def find_quarantined(spool: KannaderSpool, known: Set[LinkTarget]) -> Iterator[Damage]:
    """Yield links in quarantine and what can be done about each; `known`: targets of all other
    links."""
    for name in sorted(spool.quarantine.iter_names()):
        try:
            why = restore_refusal(spool, read_quarantined(spool, name), known)
        except FileNotFoundError:
            continue  # put back or discarded since it was listed
        except Refused as refusal:
            why = str(refusal)
        except OSError as error:
            why = f"cannot be read now: {error_text(error)}"
        can = f"{why}; discard it, or put it back once that is repaired" if why else REPAIRED_HINT
        yield Damage(f"{QUARANTINE_DIR}/{name}", f"quarantined link: {can}")


REPAIRED_HINT = "repaired; put it back, or discard it"


def read_quarantined(spool: KannaderSpool, name: str) -> SpoolLink:
    """Read a quarantined link with its former folder and id.

    Raises:
        FileNotFoundError: no link of this name.
        Refused: it is not a link, its target is invalid, or its name does not show its former
            folder.
        OSError: it cannot be read now, or not by this user.
    """
    if not spool.quarantine.exists() or name in ("", ".", "..") or "/" in name:
        raise FileNotFoundError(name)
    file_stat, text = read_link(name, spool.quarantine)
    word, _, ident = name.partition(".")
    state = next((state for state, each in STATES.items() if each == word), None)
    if state is None:
        raise Refused("its name does not show its former folder")
    match = _match_numbered(ident)
    ident = mail_format.require_id(match[1] if match else ident)
    return SpoolLink(ident, state, mail_format.parse_link_target(text), file_stat)


def restore_refusal(spool: KannaderSpool, link: SpoolLink, known: Container[LinkTarget]) -> str:
    """Why a quarantined link cannot be put back; "" if it can. `known`: where other links lead.

    Raises:
        OSError: that cannot be determined now, or not by this user.
    """
    try:
        what, fate = _find_target_damage(spool, link.target, link.state)
    except Refused as refusal:
        return str(refusal)
    if fate is RepairAction.QUARANTINE and what:
        return what
    return "another link leads to the same recipient" if link.target in known else ""


_match_numbered = re.compile(r"(.+)\.\d+").fullmatch
"""Matches the name of a duplicate: Kannader's own names have no dot."""


def find_interrupted(spool: KannaderSpool) -> Iterator[Damage]:
    """Yield mails whose enqueue was interrupted: the flock of their record is free."""
    flocked = files.flocked_inodes()
    for name in sorted(spool.enqueuing.iter_names()):
        try:
            file_stat = os.stat(name, dir_fd=spool.enqueuing.fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if file_stat.st_ino not in flocked:
            what = "enqueuing this mail was interrupted; recovery finishes or deletes it"
            yield Damage(f"{spool.enqueuing.word}/{name}", what)


def quarantined_targets(spool: KannaderSpool, without: str = "") -> Iterator[LinkTarget]:
    """Yield the targets of quarantined links except the one of this name: their data is in use."""
    for name in spool.quarantine.iter_names():
        try:
            if name != without:
                yield mail_format.parse_link_target(read_link(name, spool.quarantine)[1])
        except (FileNotFoundError, Refused):
            continue  # its target is not in this spool


def nested_targets(folder: MailFolder, name: str) -> Iterator[LinkTarget]:
    """Yield the targets of the links in a folder below a state folder: Kannader walks it, and sends
    them."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_mode):
            return
        for _, folders, others, below in os.fwalk(name, dir_fd=folder.fd):
            for each in (*folders, *others):  # a link to a folder is among the folders
                try:
                    target = mail_format.parse_nested_target(os.readlink(each, dir_fd=below))
                except OSError:
                    continue  # no link, or it has moved
                if target is not None:
                    yield target
    except OSError:
        return  # it has moved, or cannot be read: the scan reports that


def hidden_targets(spool: KannaderSpool, without: str = "") -> Iterator[LinkTarget]:
    """Yield the targets of links that are no tasks: those in folders below a state folder, and the
    quarantined ones except that of this name. Their data is in use."""
    for folder in spool.states.values():
        for name in folder.iter_folders():
            yield from nested_targets(folder, name)
    yield from quarantined_targets(spool, without)


def linked_targets(spool: KannaderSpool, without: str = "") -> set[LinkTarget]:
    """Every recipient that a link leads to, without the quarantined link of this name."""
    return {link.target for link in spool.iter_links()} | set(hidden_targets(spool, without))


def sole_target(spool: KannaderSpool, name: str) -> LinkTarget | None:
    """The recipient that only this quarantined link leads to; None if another link does, or it
    leads to none.

    Raises:
        FileNotFoundError: there is no such link.
        Refused: it is not a link.
        OSError: it cannot be read now, or not by this user.
    """
    if not spool.quarantine.exists() or name in ("", ".", "..") or "/" in name:
        raise FileNotFoundError(name)
    _, text = read_link(name, spool.quarantine)
    try:
        target = mail_format.parse_link_target(text)
        with spool.open_dest(target):
            # A second scan: another process may have moved a link past the first one.
            others = (linked_targets(spool, name) for _ in range(2))
            return None if any(target in each for each in others) else target
    except Refused:
        return None


def find_orphans(spool: KannaderSpool, known: Set[LinkTarget], now: float) -> list[Damage]:
    """Find folders in data/ that no link leads to.

    If there are any, links are read a second time: one may have moved during the first scan.
    """
    orphans = sorted(_scan_orphans(spool, known, now), key=attrgetter("where"))
    if not orphans:
        return []
    again = linked_targets(spool)
    return [one for one in orphans if one.target is None or one.target not in again]


def _scan_orphans(spool: KannaderSpool, known: Set[LinkTarget], now: float) -> Iterator[Damage]:
    begun = set(spool.enqueuing.iter_names())
    erasing = {target.mail for target in known}
    for mail in spool.data.iter_names():
        if mail in begun:
            continue  # being enqueued, or an interrupted enqueue
        if not mail_format.is_uuid(mail):
            yield Damage(f"data/{mail}", "not a mail folder: not a UUID")
            continue
        try:
            for orphan in _check_mail(spool, mail, known, now):
                # The last recipient is deleted before its mail, and the link after both.
                if orphan.target is None or orphan.target.dest or mail not in erasing:
                    yield orphan
        except FileNotFoundError:
            continue  # erased since it was listed
        except NotADirectoryError:
            yield Damage(f"data/{mail}", "not a folder, expected a mail folder")
        except OSError as error:
            yield Damage(f"data/{mail}", f"cannot be read now: {error_text(error)}")


def _check_mail(
    spool: KannaderSpool, mail: str, known: Set[LinkTarget], now: float
) -> Iterator[Damage]:
    names = spool.list_mail_folder(mail)
    dests = [name for name in names if mail_format.is_uuid(name)]
    strange = [name for name in names if name != CONTENTS and not mail_format.is_uuid(name)]
    if strange:
        what = f"holds {safe_line(strange[0])!r}, a foreign file that prevents deletion"
        yield Damage(f"data/{mail}", what)
    if not dests and not strange:
        what = "mail without recipients, never accepted"
        age = now - last_write_seconds(spool, LinkTarget(mail, ""))
        yield from _filter_by_age(Damage(f"data/{mail}", what, target=LinkTarget(mail, "")), age)
    for dest in dests:
        target = LinkTarget(mail, dest)
        if target not in known:
            yield from _check_recipient(spool, target, now)


def _check_recipient(spool: KannaderSpool, target: LinkTarget, now: float) -> Iterator[Damage]:
    where, age = f"data/{target.path}", now - last_write_seconds(spool, target)
    why = incomplete_reason(spool, target)
    if why:
        what = f"orphaned mail (incomplete): {why}"
        yield from _filter_by_age(Damage(where, what, target=target), age)
    elif age > STALE_SECONDS:
        what = "orphaned mail (complete)"
        yield Damage(where, what, RepairAction.ASK_OPERATOR, target=target)


def _filter_by_age(damage: Damage, age: float) -> Iterator[Damage]:
    """Delay a finding until `STALE_SECONDS`, and its deletion until `ORPHAN_GRACE_SECONDS`."""
    if age > ORPHAN_GRACE_SECONDS:
        yield damage._replace(action=RepairAction.DELETE)
    elif age > STALE_SECONDS:
        yield damage


def incomplete_reason(spool: KannaderSpool, target: LinkTarget) -> str:
    """Return why a recipient cannot be sent to; "" if its files are complete."""
    try:
        with spool.open_mail_and_dest(target) as (mail, fd):
            return (
                _file_problem(mail_format.parse_schedule, SCHEDULE, fd)
                or _file_problem(mail_format.parse_metadata, METADATA, fd)
                or check_contents(mail)[1]
            )
    except Refused as refusal:
        return str(refusal)


def last_write_seconds(spool: KannaderSpool, target: LinkTarget) -> float:
    """When a recipient or its mail was last written to, epoch seconds UTC.

    Raises:
        OSError: it no longer exists, or cannot be read.
    """
    with closing_fd(files.open_folder(target.mail, spool.data.fd)) as fd:
        times = [os.fstat(fd).st_mtime]
        for folder in [".", target.dest] if target.dest else ["."]:
            with closing_fd(files.open_folder(folder, fd)) as inner:
                times.append(os.fstat(inner).st_mtime)
                times += [file_stat.st_mtime for _, file_stat in files.regular_files(inner)]
    return max(times)


def find_drafts(spool: KannaderSpool, now: float) -> Iterator[tuple[LinkTarget, str]]:
    """Yield draft files of dead writers: `schedule.<uuid>` and `metadata.<uuid>`."""
    for mail in sorted(spool.data.iter_names()):
        if not mail_format.is_uuid(mail):
            continue
        try:
            dests = [name for name in spool.list_mail_folder(mail) if mail_format.is_uuid(name)]
        except OSError:
            continue  # reported with the orphans
        for dest in dests:
            target = LinkTarget(mail, dest)
            try:
                with spool.open_dest(target) as fd:
                    for name, file_stat in files.regular_files(fd, mail_format.is_draft):
                        if now - file_stat.st_mtime > STALE_SECONDS:
                            yield target, name
            except (Refused, OSError):
                continue  # reported with the orphans


def find_idle_notes(spool: KannaderSpool, now: float) -> Iterator[str]:
    """Yield notes of recipients that no longer exist, and left-over drafts of notes."""
    if not spool.notes.exists():
        return
    for name, file_stat in files.regular_files(spool.notes.fd):
        target = sidecar.note_target(name)
        if now - file_stat.st_mtime <= STALE_SECONDS:
            continue
        if target is None:
            if name.startswith("."):
                yield name
            continue
        try:
            with spool.open_dest(target):
                continue
        except Refused:
            yield name
        except OSError:
            continue  # it is unknown whether the recipient exists


def claim_interrupted(spool: KannaderSpool) -> Iterator[tuple[str, EnqueueRecord | None]]:
    """Lock and yield interrupted enqueues: name, and record (None if torn). Each flock is held
    until the next item is requested."""
    for name in sorted(spool.enqueuing.iter_names()):
        try:
            fd = files.open_guarded(name, spool.enqueuing.fd)
        except (FileNotFoundError, Refused):
            continue
        with closing_fd(fd), suppress(Refused):
            if not files.claim_flock(fd):
                continue
            data, _ = files.read_guarded(fd, 1 << 22, dir_fd=spool.enqueuing.fd)
            begun: EnqueueRecord | None = None
            with suppress(Refused):
                begun = EnqueueRecord.parse(data)
            yield name, begun
