"""Erase a finished mail in the order that Kannader's own cleanup uses, so that either can resume.

Source: Kannader spool, section 3, "cleanup". Differences: the link is validated before anything is
deleted, left-over drafts are deleted as well, and a foreign file is reported instead of failing
halfway.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from engine.formats.kannader import mail_format, sidecar
from engine.formats.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, LinkTarget
from engine.formats.kannader.spool import DanglingLink, KannaderSpool, SpoolLink
from engine.model import State
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused


def erase_link(spool: KannaderSpool, link: SpoolLink) -> None:
    """Delete the recipient that a link in cleanup/ leads to, the mail with its last recipient, and
    the link.

    Raises:
        Refused: a foreign file is in the folder; nothing was deleted.
        OSError: not everything could be deleted; the erase may be resumed.
    """
    erase_target(spool, link.target)
    files.unlink_quietly(link.id, spool.states[State.DONE].fd)
    delete_notes(spool, link.target)


def delete_notes(spool: KannaderSpool, target: LinkTarget) -> None:
    """Delete the notes of a recipient that no longer exists."""
    if spool.notes.exists():
        for name in (sidecar.note_name(target), sidecar.note_name(target) + sidecar.STAGED_SUFFIX):
            files.unlink_quietly(name, spool.notes.fd)


def erase_target(spool: KannaderSpool, target: LinkTarget) -> None:
    """Delete one recipient of a mail, and the mail with its last recipient.

    Raises:
        Refused, OSError: as `erase_link`.
    """
    try:
        mail = files.open_folder(target.mail, spool.data.fd)
    except FileNotFoundError:
        return
    with closing_fd(mail):
        _erase_dest(mail, target)
        erase_mail(spool, target.mail, mail)


def require_erasable(spool: KannaderSpool, target: LinkTarget) -> None:
    """Check that a recipient's folder holds only files that Kannader writes.

    Raises:
        Refused: another file is in it.
        OSError: it cannot be read now.
    """
    if target.dest:
        with suppress(DanglingLink), spool.open_dest(target) as fd:
            _require_known(os.listdir(fd), target)


def _require_known(names: Iterable[str], target: LinkTarget) -> None:
    for name in names:
        if name not in (METADATA, SCHEDULE) and not mail_format.is_draft(name):
            raise Refused(f"data/{target.path} has {name!r}, not a file of Kannader: move it away")


def _erase_dest(mail: int, target: LinkTarget) -> None:
    try:
        dest = files.open_folder(target.dest, mail)
    except FileNotFoundError:
        return
    with closing_fd(dest):
        # Metadata before schedule, as Kannader does; a draft of a dead process would keep the
        # folder.
        order = {METADATA: 0, SCHEDULE: 1}
        names = sorted(os.listdir(dest), key=lambda name: order.get(name, 2))
        _require_known(names, target)
        for name in names:
            files.unlink_quietly(name, dest)
    with suppress(FileNotFoundError):  # another process erases it as well
        files.rmdir(target.dest, dir_fd=mail)


def erase_mail(spool: KannaderSpool, name: str, mail: int) -> None:
    """Delete a mail (open as `mail`) if it has neither recipients nor foreign files left."""
    if os.fstat(mail).st_nlink > 2:
        return  # it has subfolders; where folders do not count these, the list decides
    if set(os.listdir(mail)) <= {CONTENTS}:
        files.unlink_quietly(CONTENTS, mail)
        with suppress(FileNotFoundError):  # another process erases it as well
            files.rmdir(name, dir_fd=spool.data.fd)
