"""The statistics log of scheduler(8zm), option -l: one line for each recipient that has ended."""

from __future__ import annotations

from typing import NamedTuple

from engine.formats.zmailer.spool import names

STATES = ("ok", "ok2", "ok3", "error", "error2", "expire")
"""What the program writes. Its man page has ok, error and expiry."""

_READ_STATES = frozenset({*STATES, "expiry"})


class StatisticsLine(NamedTuple):
    """The end of one recipient."""

    message: str
    """The spool id; in the old form the name of the control file."""
    queued: int
    """Seconds from the message file to its control file: the time of the router."""
    delivery: int
    """Seconds from the control file to the end."""
    state: str
    channel: str
    host: str
    time: float | None = None
    """Epoch seconds UTC; None in the new form, which has none."""


def format_line(line: StatisticsLine) -> str:
    """The new form with its LF: `SPOOLID DT1 DT2 STATE CHANNEL/HOST`."""
    where = f"{line.channel}/{line.host}".replace("\n", " ")
    return f"{line.message} {line.queued} {line.delivery} {line.state} {where}\n"


def parse_line(text: str) -> StatisticsLine | None:
    """Parse a line of either form; None if it is none of them.

    The old form is `TIMESTAMP FILEID DT1 DT2 STATE CHANNEL/HOST`.
    """
    words = text.rstrip("\n").split(" ", 4)
    moment = None
    if names.spool_id_number(words[0]) is None:
        if not _is_number(words[0]):
            return None
        moment, words = float(words[0]), text.rstrip("\n").split(" ", 5)[1:]
        if len(words) == 5 and names.message_number(words[0]) is None:
            return None
    if len(words) != 5 or not (_is_number(words[1]) and _is_number(words[2])):
        return None
    channel, slash, host = words[4].partition("/")
    if words[3] not in _READ_STATES or not slash:
        return None
    return StatisticsLine(
        words[0],
        int(words[1]),
        int(words[2]),
        state=words[3],
        channel=channel,
        host=host,
        time=moment,
    )


def _is_number(word: str) -> bool:
    digits = word.removeprefix("-")  # a clock that was set back
    return digits.isascii() and digits.isdecimal() and len(digits) <= 12
