"""How a mail that is done is erased: as Kannader's own cleanup does it, to be resumed anywhere.

Kannader spool, section 3, "cleanup". Other than there, the link was checked strictly before
anything is touched, left-over drafts go as well, and what is nobody's is named, not stumbled over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from engine.model import State
from engine.stores.kannader import mail_format, sidecar
from engine.stores.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, LinkTarget
from engine.stores.kannader.spool import Dangling, KannaderSpool, Link
from engine.system import files
from engine.system.files import Refused


def erase(spool: KannaderSpool, link: Link) -> None:
    """Erase what a link in cleanup/ leads to, the mail with its last recipient, and the link.

    Raises:
        Refused: something lies there that is nobody's; nothing was erased.
        OSError: it could not be erased to its end; it may be resumed.
    """
    erase_target(spool, link.target)
    files.forget(link.id, spool.states[State.DONE].fd)
    forget_notes(spool, link.target)


def forget_notes(spool: KannaderSpool, target: LinkTarget) -> None:
    """Forget what was noted of a recipient that is no more."""
    if spool.notes.exists():
        for name in (sidecar.name_of(target), sidecar.name_of(target) + sidecar.STAGED):
            files.forget(name, spool.notes.fd)


def erase_target(spool: KannaderSpool, target: LinkTarget) -> None:
    """Erase one recipient of a mail, and the mail with its last one.

    Raises:
        Refused, OSError: as `erase`.
    """
    try:
        mail = files.open_folder(target.mail, spool.data.fd)
    except FileNotFoundError:
        return
    try:
        _erase_dest(mail, target)
        erase_mail(spool, target.mail, mail)
    finally:
        os.close(mail)


def require_erasable(spool: KannaderSpool, target: LinkTarget) -> None:
    """Make sure that a recipient's folder holds only what Kannader puts there.

    Raises:
        Refused: another file is in it.
        OSError: it cannot be read now.
    """
    if target.dest:
        with suppress(Dangling), spool.dest(target) as fd:
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
    try:
        # Metadata before schedule, as there; a draft of a dead process would keep the folder.
        order = {METADATA: 0, SCHEDULE: 1}
        found = sorted(os.listdir(dest), key=lambda name: order.get(name, 2))
        _require_known(found, target)
        for name in found:
            files.forget(name, dest)
    finally:
        os.close(dest)
    with suppress(FileNotFoundError):  # somebody else erases it as well
        files.rmdir(target.dest, dir_fd=mail)


def erase_mail(spool: KannaderSpool, name: str, mail: int) -> None:
    """Erase a mail, open as `mail`, if no recipient of it is left and nothing that is nobody's."""
    if set(os.listdir(mail)) <= {CONTENTS}:
        files.forget(CONTENTS, mail)
        with suppress(FileNotFoundError):  # somebody else erases it as well
            files.rmdir(name, dir_fd=spool.data.fd)
