"""Store attempts, errors and descriptions beside the spool, because the format has no field for
them.

A note belongs to one recipient of one mail. It is stored in `.spooldeck/notes/`, never in the
mail's folder, where it would prevent Kannader from deleting the mail (Kannader spool, section 6).

When an attempt has ended, its note is staged beside the old one before the link moves. The staged
note records the folder and ctime of the link, and takes effect when these differ. So the rename of
the link counts the attempt exactly once, even after a crash before or after it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from engine.formats.kannader import mail_format
from engine.formats.kannader.mail_format import Json, LinkTarget
from engine.system import files
from engine.system.files import Refused
from engine.text.decode import Malformed, check_count
from engine.text.typed_json import from_json
from engine.values import NamedTuple

MAX_ATTEMPTS, MAX_NANOSECONDS = (1 << 31) - 1, (1 << 63) - 1
"""Maximum of a plausible number of attempts, and of a time in nanoseconds."""

STAGED_SUFFIX = ".next"
"""Suffix of a staged note, which takes effect when its link has moved."""


class AttemptNote(NamedTuple):
    """The note of one recipient; "" or None means: as the spool itself has it."""

    attempts: Annotated[int, partial(check_count, most=MAX_ATTEMPTS)] | None = None
    error: str = ""
    kind: str = ""
    description: str = ""
    start: str = ""
    """Of a staged note: the folder of the link when the note was written."""
    since: Annotated[int, partial(check_count, most=MAX_NANOSECONDS)] = 0
    """Of a staged note: the link's ctime, epoch nanoseconds UTC."""

    @property
    def unstaged(self) -> AttemptNote:
        """The note without the link that it was staged for."""
        return self._replace(start="", since=0)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to store."""
        return self.unstaged == EMPTY_NOTE


EMPTY_NOTE = AttemptNote()


def note_name(target: LinkTarget) -> str:
    """The file name of a recipient's note."""
    return f"{target.mail}.{target.dest}"


def note_target(name: str) -> LinkTarget | None:
    """The recipient that a note of this name belongs to; None if it is not a note's name."""
    target = LinkTarget(*name.removesuffix(STAGED_SUFFIX).partition(".")[::2])
    return target if all(map(mail_format.is_uuid, target)) else None


def parse_note(data: bytes) -> AttemptNote:
    """Parse a stored note.

    Raises:
        Refused: it is not a note of spooldeck.
    """
    try:
        return from_json(AttemptNote, mail_format.parse_json(data), "note")
    except Malformed as error:
        raise Refused(f"not a note of spooldeck: {error}") from error


def render_note(note: AttemptNote) -> bytes:
    """Return a note as stored, without empty fields."""
    fields: dict[str, Json] = {name: value for name, value in note._asdict().items() if value}
    if note.attempts is not None:
        fields["attempts"] = note.attempts
    return mail_format.render_json(fields) + b"\n"


def save_note(name: str, note: AttemptNote, folder: int) -> None:
    """Replace a note durably; delete it if the new one is empty.

    Raises:
        OSError: the old note remains.
    """
    save_note_bytes(name, b"" if note.is_empty else render_note(note), folder)


def save_note_bytes(name: str, data: bytes, folder: int) -> None:
    """Replace a note by these bytes durably; delete it if there are none."""
    if data:
        files.replace_durably(name, folder, data, mode=0o600)
        return
    files.unlink_quietly(name, folder)
    files.fsync(folder)
