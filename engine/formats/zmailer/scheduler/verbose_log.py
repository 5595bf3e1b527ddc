"""The verbose log of a message (v line): a file of its sender, to which outcomes are appended.

The `-v` of ZMailer's sendmail makes such a file in public/ and shows what is added. Any user may
write a path into the message, so only a file below public/ that is there already and belongs to the
owner of the message is written, with the rights of that owner.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from engine.formats.zmailer.log_file import format_line
from engine.formats.zmailer.scheduler.message_outcomes import parse_line
from engine.formats.zmailer.scheduling.jobs import QueuedMessage
from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.folders import PostofficeFolders, read_line
from engine.system import files, users
from engine.system.files import Refused

PUBLIC = "public"
"""Folder of the spool in which all users may make files."""

_match_name = re.compile(rf"\.\./{PUBLIC}/(?!\.\.?$)([^/\0]+)", re.DOTALL).fullmatch


def log_outcome(
    folders: PostofficeFolders,
    log: Callable[[str], None],
    clock: Callable[[], float],
    message: QueuedMessage,
    offsets: Iterable[int],
    outcome: bytes,
) -> None:
    """Append to the verbose log of a message, if it names one. A log that cannot be used is not
    tried again; why is logged, except that it is missing: its reader may have removed it."""
    if not message.verbose_log:
        return
    try:
        append(folders, message, offsets, outcome, clock())
    except FileNotFoundError:
        message.verbose_log = ""
    except (OSError, Refused) as error:
        log(f"{message.path}: verbose log {message.verbose_log}: {error}")
        message.verbose_log = ""


def append(
    folders: PostofficeFolders,
    message: QueuedMessage,
    offsets: Iterable[int],
    outcome: bytes,
    now: float,
) -> None:
    """Append a line for each recipient, by the offsets of their lines: `SPOOLID CHANNEL/HOST USER:
    outcome`, after its time.

    Raises:
        FileNotFoundError: there is no such log, or the message is gone.
        Refused: it is not in public/, not a file of the message's owner, or the control file
            cannot be used.
        OSError: it cannot be written.
    """
    name = _match_name(message.verbose_log)
    if name is None:
        raise Refused(f"expected ../{PUBLIC}/NAME")
    owner, _ = folders.find_message(message.name)
    account = users.owner_account(owner)
    with folders.open_below(folders.fd, PUBLIC) as folder, users.files_as(account):
        fd = files.open_plain(name[1], folder, os.O_WRONLY | os.O_APPEND)
    try:
        if os.fstat(fd).st_uid != owner.st_uid:
            raise Refused("its owner is not that of the message")
        ident = names.spool_id(message.number, message.modified_ns)
        with folders.open_control(message.name) as control:
            for offset in offsets:
                quad = parse_line(control.fd, read_line(control.fd, offset)).quad
                outcome_text = b"%b/%b %b: %b" % (quad.channel, quad.host, quad.user, outcome)
                files.write_all(
                    fd, format_line(f"{ident} {outcome_text.decode(errors='replace')}", now)
                )
    finally:
        os.close(fd)
