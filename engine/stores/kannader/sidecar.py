"""What the format has no place for and we keep beside it: attempts, errors, a description of ours.

A note belongs to one recipient of one mail and lies in `.spooldeck/notes/`, never inside a mail,
where it would keep Kannader from erasing it (Kannader spool, section 6).

The note of a task whose attempt has ended is staged beside the old one before its link moves, and
says how the link stood then. It counts from the moment the link stands otherwise: so the rename of
the link is what makes the attempt count, once, whatever happens before and after.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.stores.kannader import mail_format
from engine.stores.kannader.mail_format import Json, LinkTarget
from engine.system import files
from engine.system.files import Refused

ATTEMPTS = 1 << 31
"""Above all attempts that could have been made."""

STAGED = ".next"
"""Ends the name of a note that counts once its link has moved."""


class AttemptNote(NamedTuple):
    """What is noted of one recipient; each "" or None where it is as the spool itself has it."""

    attempts: int | None = None
    error: str = ""
    kind: str = ""
    description: str = ""
    start: str = ""
    """Of a staged note: the folder in which the link stood when it was written."""
    since: int = 0
    """The same: the link's change time, epoch nanoseconds UTC."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing, so that none need be kept."""
        return self._replace(start="", since=0) == NOTHING


NOTHING = AttemptNote()


def name_of(target: LinkTarget) -> str:
    """The name of a recipient's note."""
    return f"{target.mail}.{target.dest}"


def target_of(name: str) -> LinkTarget | None:
    """Whose note has this name; None for what is none."""
    mail, _, dest = name.removesuffix(STAGED).partition(".")
    return (
        LinkTarget(mail, dest) if mail_format.is_uuid(mail) and mail_format.is_uuid(dest) else None
    )


def parse(data: bytes) -> AttemptNote:
    """A note as it was written.

    Raises:
        Refused: it is none of ours.
    """
    said = mail_format.parse_json(data)
    if not isinstance(said, dict):
        raise Refused("no note of ours, expected an object")
    attempts, since = said.get("attempts"), said.get("since", 0)
    words = [said.get(name, "") for name in ("error", "kind", "description", "start")]
    numbers = (attempts is None or type(attempts) is int) and type(since) is int
    if not numbers or not all(isinstance(word, str) for word in words):
        raise Refused("no note of ours: a value has the wrong type")
    assert attempts is None or isinstance(attempts, int)
    if attempts is not None and not 0 <= attempts < ATTEMPTS:
        raise Refused(f"no note of ours: {str(attempts)[:20]} attempts")
    assert isinstance(since, int)
    error, kind, description, start = (str(word) for word in words)
    return AttemptNote(attempts, error, kind, description, start, since)


def render(note: AttemptNote) -> bytes:
    """A note as it is written: what says nothing is left out."""
    said: dict[str, Json] = {name: value for name, value in note._asdict().items() if value}
    if note.attempts is not None:
        said["attempts"] = note.attempts
    return mail_format.json_bytes(said) + b"\n"


def keep(name: str, note: AttemptNote, folder: int) -> None:
    """Put a note where the old one is, or take that away where there is nothing to note; durable.

    Raises:
        OSError: the old one stands.
    """
    keep_bytes(name, b"" if note.is_empty else render(note), folder)


def keep_bytes(name: str, data: bytes, folder: int) -> None:
    """The same of a note that is there in writing; none where there are no bytes."""
    if data:
        files.replace(name, folder, data, mode=0o600)
        return
    files.forget(name, folder)
    files.fsync(folder)
