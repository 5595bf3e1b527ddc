"""The options of the scheduler: the letters of scheduler(8zm), and --exact."""

from __future__ import annotations

import getopt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.text.decode import parse_digits
from engine.values import NamedTuple

MIN_SCAN_FILES = 10
SCAN_SECONDS = range(2, 16)
"""Limits of -E."""


class SchedulerOptions(NamedTuple):
    """The options; each default is that of the man page."""

    is_daemon: bool = False
    """-d: detach, also with -v."""
    is_exact: bool = False
    """--exact: KILL of MAILQ answers in the bytes of ZMailer 3.0.1, which always has success."""
    is_interactive: bool = False
    """-i: do not detach."""
    is_verbose: bool = False
    """-v: log each step, and do not detach."""
    is_verbose_later: bool = False
    """-W: log each step only after the first scan."""
    is_frozen: bool = False
    """-F: start no agent."""
    hash_levels: int = 0
    """-H, -HH: move new files into hash folders; SCHEDULERDIRHASH of zmailer.conf overrides it."""
    returns_headers: bool = False
    """-n: a report has only the headers of the message, unless the sender wants all of it."""
    has_short_dump: bool = False
    """-Q: the dump of MAILQ version 1 has only its last part."""
    is_synchronous: bool = False
    """-S: read all files before the first agent is started."""
    shows_version: bool = False
    """-V: print the version, and do not detach."""
    conf: str = ""
    """-f: the scheduler.conf."""
    scan_files: int = 40_000
    scan_seconds: int = 5
    """-E N,T: what one scan takes in."""
    log: str = ""
    """-L: the log; LOGDIR/scheduler without it."""
    statistics: str = ""
    """-l: the statistics log; "": none."""
    mailq_version: int = 1
    """-M: version of the MAILQ protocol, if no authfile is named."""
    open_files: int = 32
    """-N: open files of an agent."""
    only: str = ""
    """-p CHANNEL/HOST: work only on this thread."""
    postoffice: str = ""
    """-P: the spool; POSTOFFICE of zmailer.conf without it."""
    rendezvous: str = ""
    """-q: the file that SIGUSR2 writes."""
    start_rate: int = 30
    """-R: starts of agents in a second."""
    zenv: str = ""
    """-Z: the zmailer.conf."""

    @property
    def detaches(self) -> bool:
        """True if the process leaves its terminal."""
        stays = self.is_interactive or self.is_verbose or self.shows_version
        return self.is_daemon or not stays


class WrongOption(Exception):
    """An option cannot be used; the message says which, and what was expected."""


_FLAGS = {
    **{"-d": "is_daemon", "-i": "is_interactive", "-v": "is_verbose", "-F": "is_frozen"},
    **{"-n": "returns_headers", "-Q": "has_short_dump", "-S": "is_synchronous"},
    **{"-V": "shows_version", "-W": "is_verbose_later", "--exact": "is_exact"},
}
_TEXTS = {
    **{"-f": "conf", "-L": "log", "-l": "statistics", "-P": "postoffice"},
    **{"-q": "rendezvous", "-Z": "zenv"},
}


def _number(option: str, text: str, least: int, most: int) -> int:
    number = parse_digits(text, most)
    if number is None or number < least:
        raise WrongOption(f"{option} {text}: expected a number from {least} to {most:,}")
    return number


def _scan_limits(text: str) -> dict[str, int]:
    count, comma, seconds = text.partition(",")
    limits = {"scan_files": _number("-E", count, MIN_SCAN_FILES, 10**7)}
    if comma:
        limits["scan_seconds"] = _number("-E", seconds, SCAN_SECONDS[0], SCAN_SECONDS[-1])
    return limits


def _only(text: str) -> dict[str, str]:
    channel, slash, host = text.partition("/")
    if not (channel and slash and host):
        raise WrongOption(f"-p {text}: expected CHANNEL/HOST")
    return {"only": text}


_PARSED: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "-E": _scan_limits,
    "-M": lambda text: {"mailq_version": _number("-M", text, 1, 2)},
    "-N": lambda text: {"open_files": _number("-N", text, 10, 10**6)},
    "-R": lambda text: {"start_rate": _number("-R", text, 1, 10**4)},
    "-p": _only,
}


def parse_options(words: Sequence[str]) -> SchedulerOptions:
    """Parse the words of the command line. Raises WrongOption: one is unknown, or its value cannot
    be used."""
    try:
        options, operands = getopt.getopt(
            list(words), "divFHnQSVWf:E:L:l:M:N:p:P:q:R:Z:", ["exact"]
        )
    except getopt.GetoptError as error:
        raise WrongOption(str(error)) from None
    if operands:
        raise WrongOption(f"{operands[0]}: expected only options")
    values: dict[str, Any] = {"hash_levels": min(2, [name for name, _ in options].count("-H"))}
    for name, value in options:
        if name in _FLAGS:
            values[_FLAGS[name]] = True
        elif name in _TEXTS:
            if not value:
                raise WrongOption(f"{name}: expected a path")
            values[_TEXTS[name]] = value
        elif name in _PARSED:
            values |= _PARSED[name](value)
    return SchedulerOptions(**values)
