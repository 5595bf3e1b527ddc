"""What lies in a Kannader spool as it should not, and what becomes of it.

Kannader spool, section 5. Looking names it, recovery acts on it, both from what is found here;
nothing here changes anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Set
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from engine.model import Problem, State
from engine.stores.kannader import mail_format, sidecar
from engine.stores.kannader.enqueue import Begun
from engine.stores.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, LinkTarget
from engine.stores.kannader.spool import (
    ASIDE,
    STATES,
    Dangling,
    KannaderSpool,
    Link,
    contents_in,
    kept,
    read_link,
)
from engine.system import files
from engine.system.files import Refused
from engine.system.sorted_names import SortedNames
from engine.text.safe import shown

STALE = 60.0
"""Seconds after which what somebody may still be writing is taken for left behind (Kannader spool,
section 5: drafts are there for milliseconds)."""

GRACE = 3600.0
"""Seconds for which a mail that nothing leads to is left alone: somebody may be receiving it
(Kannader spool, section 5, "enq1-3")."""


_PAGE = 1000


class RepairAction(StrEnum):
    """What becomes of something damaged."""

    LEFT = "left"
    """It is named, and nobody but an operator touches it."""
    ASIDE = "quarantined"
    """Its link is kept where nobody follows it."""
    ERASED = "erased"
    """It is deleted: nobody was ever told that it was taken."""
    UNREAD = "unread"
    """It may be whole: somebody has to let us read it, and until then nobody touches it."""
    ASKED = "asked"
    """It could be sent: an operator says whether it is."""


class Damage(NamedTuple):
    """One thing, where it lies, and what becomes of it."""

    where: str
    what: str
    fate: RepairAction = RepairAction.LEFT
    state: State | None = None
    target: LinkTarget | None = None
    """The recipient of a mail that nothing leads to, or its mail where `dest` is ""."""
    shared: LinkTarget | None = None
    """The recipient that a further link leads to."""

    @property
    def problem(self) -> Problem:
        """As the store yields it, for the operator.

        A further link is a problem of its recipient. At the link itself the next scan of that one
        name would find a good task, and so take the problem for mended.
        """
        what = f"{self.what}{_ENDINGS[self.fate]}"
        if self.shared is not None:
            return Problem(f"data/{self.shared.path}", f"{shown(self.where)} {what}")
        return Problem(shown(self.where), what, self.state)


_ENDINGS = {
    RepairAction.LEFT: "",
    RepairAction.ASIDE: "; recovery quarantines it",
    RepairAction.ERASED: "; recovery deletes it",
    RepairAction.UNREAD: "; recovery leaves it as it is",
    RepairAction.ASKED: "; adopt it, and it is sent, or discard it",
}


def of_link(spool: KannaderSpool, name: str, state: State) -> Damage | None:
    """What is wrong with an entry of a state's folder; None where nothing is.

    Raises:
        FileNotFoundError: it has moved on.
        OSError: it cannot be looked at now.
    """
    where = f"{STATES[state]}/{name}"
    try:
        _, text = read_link(name, spool.states[state])
        mail_format.require_id(name)
    except Refused as refusal:
        return Damage(where, str(refusal), RepairAction.LEFT, state)
    try:
        target = mail_format.target_of(text)
        what, fate = _behind(spool, target, state)
    except Refused as refusal:
        what, fate = str(refusal), RepairAction.ASIDE
    except PermissionError as error:
        what, fate = f"{_name(error)}cannot be read by us: {error.strerror}", RepairAction.UNREAD
    if what and read_link(name, spool.states[state])[1] != text:
        raise FileNotFoundError(name)
    return Damage(where, what, fate, state) if what else None


def _name(error: OSError) -> str:
    return f"{error.filename}: " if isinstance(error.filename, str) else ""


def _behind(spool: KannaderSpool, target: LinkTarget, state: State) -> tuple[str, RepairAction]:
    """What is wrong behind a link that leads to this recipient; "" where nothing is."""
    try:
        with spool.both(target) as (mail, fd):
            if state is State.DONE:
                return "", RepairAction.LEFT
            schedule = _said(mail_format.parse_schedule, SCHEDULE, fd)
            unsendable = _said(mail_format.parse_metadata, METADATA, fd) or contents_in(mail)[1]
    except Dangling as refusal:
        return ("" if state is State.DONE else str(refusal)), RepairAction.ASIDE
    if unsendable:
        return f"can never be sent: {unsendable}", RepairAction.ASIDE
    if schedule:
        return f"Kannader passes it by: {schedule}; repaired, it is due at once", RepairAction.LEFT
    return "", RepairAction.LEFT


def _said(parse: Callable[[bytes], object], name: str, fd: int) -> str:
    """Why a recipient's file cannot be read; "" where it can."""
    try:
        found = kept(name, fd)
    except Refused as refusal:
        return str(refusal)
    if found.seen is None:
        return f"{name}: missing"
    try:
        parse(found.data)
    except Refused as refusal:
        return f"{name}: {refusal}"
    return ""


RANK = (State.DONE, State.ACTIVE, State.HELD, State.PENDING, State.TRASH)
"""Of two links to one recipient the one that is further on is right (section 5, "bad6")."""


def doubles(links: list[Link]) -> Iterator[Damage]:
    """Links that lead where one that is further on does, and ids that stand in two places."""
    first: dict[LinkTarget, Link] = {}
    seen: dict[str, Link] = {}
    for link in sorted(links, key=lambda one: (RANK.index(one.state), one.id)):
        before = first.setdefault(link.target, link)
        same = seen.setdefault(link.id, link)
        if before is not link:
            what = f"leads to the same recipient as {before.where}"
            yield Damage(link.where, what, RepairAction.ASIDE, link.state, shared=link.target)
        elif same is not link:
            words = f"{STATES[same.state]} and {STATES[link.state]}"
            yield Damage(link.where, f"stands in {words} at once", RepairAction.LEFT, link.state)


def find_doubles(spool: KannaderSpool, known: set[LinkTarget] | None = None) -> list[Damage]:
    """The same of all that is linked now; `known` takes in where the links lead."""
    with SortedNames() as ids, SortedNames() as targets:
        for state in STATES:
            for page in _pages(spool.links((state,))):
                ids.add(state, (link.id for link in page))
                targets.add(state, (link.target.path for link in page))
                if known is not None:
                    known.update(link.target for link in page)
        twice = {name for name, _ in ids.doubles()}, {path for path, _ in targets.doubles()}
    if not any(twice):
        return []
    return list(
        doubles([one for one in spool.links() if one.id in twice[0] or one.target.path in twice[1]])
    )


def _pages(links: Iterator[Link]) -> Iterator[list[Link]]:
    while page := list(islice(links, _PAGE)):
        yield page


def quarantined(spool: KannaderSpool, known: Set[LinkTarget]) -> Iterator[Damage]:
    """Links in quarantine, each with what can be done about it; `known` is where all other links
    lead.
    """
    for name in sorted(spool.aside.names()):
        try:
            why = why_kept(spool, held_back(spool, name), known)
        except FileNotFoundError:
            continue  # put back or discarded since it was listed
        except Refused as refusal:
            why = str(refusal)
        except OSError as error:
            why = f"cannot be read now: {error.strerror}"
        can = f"{why}; discard it, or put it back once that is mended" if why else BACK
        yield Damage(f"{ASIDE}/{name}", f"quarantined link: {can}")


BACK = "mended; put it back, or discard it"


def held_back(spool: KannaderSpool, name: str) -> Link:
    """A quarantined link as it was in its former folder.

    Raises:
        FileNotFoundError: there is none of this name.
        Refused: it is no link, leads elsewhere, or its name does not tell its former folder.
        OSError: it cannot be read now, or not by this user.
    """
    if not spool.aside.exists() or name in ("", ".", "..") or "/" in name:
        raise FileNotFoundError(name)
    seen, text = read_link(name, spool.aside)
    word, _, ident = name.partition(".")
    state = next((state for state, each in STATES.items() if each == word), None)
    if state is None:
        raise Refused("its name does not tell from which folder it is")
    found = _numbered(ident)
    ident = mail_format.require_id(found[1] if found else ident)
    return Link(ident, state, mail_format.target_of(text), seen)


def why_kept(spool: KannaderSpool, link: Link, known: Container[LinkTarget]) -> str:
    """Why a quarantined link cannot be put back; "" if it can. `known`: where other links lead.

    Raises:
        OSError: that cannot be determined now, or not by this user.
    """
    try:
        what, fate = _behind(spool, link.target, link.state)
    except Refused as refusal:
        return str(refusal)
    if fate is RepairAction.ASIDE and what:
        return what
    return "another link leads to the same recipient" if link.target in known else ""


_numbered = re.compile(r"(.+)\.\d+").fullmatch
"""One of several that had one name in one folder; Kannader's own names have no dot in them."""


def interrupted(spool: KannaderSpool) -> Iterator[Damage]:
    """Mails whose enqueuing ended with its process."""
    held = files.flocked()
    for name in sorted(spool.begun.names()):
        try:
            seen = os.stat(name, dir_fd=spool.begun.fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if seen.st_ino not in held:
            what = "enqueuing this mail was interrupted; recovery finishes it or takes it away"
            yield Damage(f"{spool.begun.word}/{name}", what)


def aside_targets(spool: KannaderSpool, without: str = "") -> Iterator[LinkTarget]:
    """Where quarantined links lead, but for the one of this name: their data is in use."""
    for name in spool.aside.names():
        try:
            if name != without:
                yield mail_format.target_of(read_link(name, spool.aside)[1])
        except (FileNotFoundError, Refused):
            continue  # leads nowhere in this spool


def linked(spool: KannaderSpool, without: str = "") -> set[LinkTarget]:
    """Every recipient that a link leads to, but for the quarantined link of this name."""
    return {link.target for link in spool.links()} | set(aside_targets(spool, without))


def only_behind(spool: KannaderSpool, name: str) -> LinkTarget | None:
    """The recipient that only this quarantined link leads to; None if another link does, or it
    leads to none.

    Raises:
        FileNotFoundError: there is no such link.
        Refused: something else has that name.
        OSError: it cannot be read now, or not by this user.
    """
    if not spool.aside.exists() or name in ("", ".", "..") or "/" in name:
        raise FileNotFoundError(name)
    _, text = read_link(name, spool.aside)
    try:
        target = mail_format.target_of(text)
        with spool.dest(target):
            # A second scan: another process may have moved a link past the first one.
            others = (linked(spool, name) for _ in range(2))
            return None if any(target in each for each in others) else target
    except Refused:
        return None


def orphans(spool: KannaderSpool, known: Set[LinkTarget], now: float) -> list[Damage]:
    """What lies in data/ and nothing leads to.

    Looked at once more where something seems to be: a link may have moved past us meanwhile.
    """
    found = sorted(_orphans(spool, known, now), key=attrgetter("where"))
    if not found:
        return []
    again = linked(spool)
    return [one for one in found if one.target is None or one.target not in again]


def _orphans(spool: KannaderSpool, known: Set[LinkTarget], now: float) -> Iterator[Damage]:
    begun = set(spool.begun.names())
    erasing = {target.mail for target in known}
    for mail in spool.data.names():
        if mail in begun:
            continue  # it is being enqueued, or that was interrupted
        if not mail_format.is_uuid(mail):
            yield Damage(f"data/{mail}", "is no mail's folder: not a UUID")
            continue
        try:
            for found in _in_mail(spool, mail, known, now):
                # The last recipient is gone before its mail, and the link after both.
                if found.target is None or found.target.dest or mail not in erasing:
                    yield found
        except FileNotFoundError:
            continue  # erased since it was listed
        except NotADirectoryError:
            yield Damage(f"data/{mail}", "is no folder, expected a mail's")
        except OSError as error:
            yield Damage(f"data/{mail}", f"cannot be read now: {error.strerror}")


def _in_mail(
    spool: KannaderSpool, mail: str, known: Set[LinkTarget], now: float
) -> Iterator[Damage]:
    names = spool.shared(mail)
    dests = [name for name in names if mail_format.is_uuid(name)]
    strange = [name for name in names if name != CONTENTS and not mail_format.is_uuid(name)]
    if strange:
        what = f"holds {shown(strange[0])!r}, which is nobody's and keeps it from being erased"
        yield Damage(f"data/{mail}", what)
    if not dests and not strange:
        what = "is a mail without a recipient, never accepted"
        age = now - newest(spool, LinkTarget(mail, ""))
        yield from _aged(Damage(f"data/{mail}", what, target=LinkTarget(mail, "")), age)
    for dest in dests:
        target = LinkTarget(mail, dest)
        if target not in known:
            yield from _orphan(spool, target, now)


def _orphan(spool: KannaderSpool, target: LinkTarget, now: float) -> Iterator[Damage]:
    where, age = f"data/{target.path}", now - newest(spool, target)
    why = torn(spool, target)
    if why:
        what = f"is a recipient that nothing leads to, and no whole one: {why}"
        yield from _aged(Damage(where, what, target=target), age)
    elif age > STALE:
        what = "is a whole mail to a recipient that nothing leads to"
        yield Damage(where, what, RepairAction.ASKED, target=target)


def _aged(damage: Damage, age: float) -> Iterator[Damage]:
    """As it is while it is young, and with its end once it is old."""
    if age > GRACE:
        yield damage._replace(fate=RepairAction.ERASED)
    elif age > STALE:
        yield damage


def torn(spool: KannaderSpool, target: LinkTarget) -> str:
    """Why a recipient could not be sent to; "" where all is there that is needed."""
    try:
        with spool.both(target) as (mail, fd):
            return (
                _said(mail_format.parse_schedule, SCHEDULE, fd)
                or _said(mail_format.parse_metadata, METADATA, fd)
                or contents_in(mail)[1]
            )
    except Refused as refusal:
        return str(refusal)


def newest(spool: KannaderSpool, target: LinkTarget) -> float:
    """When a recipient or its mail was last written to, epoch seconds UTC.

    Raises:
        OSError: it is not there any more, or cannot be looked at.
    """
    fd = files.open_folder(target.mail, spool.data.fd)
    try:
        times = [os.fstat(fd).st_mtime]
        folders = [".", target.dest] if target.dest else ["."]
        for folder in folders:
            inner = files.open_folder(folder, fd)
            try:
                times.append(os.fstat(inner).st_mtime)
                times += [seen.st_mtime for _, seen in files.plain_files(inner)]
            finally:
                os.close(inner)
    finally:
        os.close(fd)
    return max(times)


def drafts(spool: KannaderSpool, now: float) -> Iterator[tuple[LinkTarget, str]]:
    """Drafts of files that their writers did not live to put in place."""
    for mail in sorted(spool.data.names()):
        if not mail_format.is_uuid(mail):
            continue
        try:
            dests = [name for name in spool.shared(mail) if mail_format.is_uuid(name)]
        except OSError:
            continue  # named among the orphans
        for dest in dests:
            target = LinkTarget(mail, dest)
            try:
                with spool.dest(target) as fd:
                    for name, seen in files.plain_files(fd):
                        if mail_format.is_draft(name) and now - seen.st_mtime > STALE:
                            yield target, name
            except (Refused, OSError):
                continue  # the same


def idle_notes(spool: KannaderSpool, now: float) -> Iterator[str]:
    """What was noted of recipients that are no more, and drafts of notes."""
    if not spool.notes.exists():
        return
    for name, seen in files.plain_files(spool.notes.fd):
        target = sidecar.target_of(name)
        if now - seen.st_mtime <= STALE:
            continue
        if target is None:
            if name.startswith("."):
                yield name
            continue
        try:
            with spool.dest(target):
                continue
        except Refused:
            yield name
        except OSError:
            continue  # it cannot be told whose it is


def begun_by_the_dead(spool: KannaderSpool) -> Iterator[tuple[str, Begun | None, int]]:
    """Mails whose enqueuing ended with its process: names, what they say (None where torn), and a
    descriptor of each, whose flock is ours until the next.
    """
    for name in sorted(spool.begun.names()):
        try:
            fd = files.open_guarded(name, spool.begun.fd)
        except (FileNotFoundError, Refused):
            continue
        try:
            if not files.claim_flock(fd):
                continue
            data, _ = files.read_guarded(fd, limit=1 << 22)
            try:
                yield name, Begun.parse(data), fd
            except Refused:
                yield name, None, fd
        except Refused:
            continue
        finally:
            os.close(fd)
