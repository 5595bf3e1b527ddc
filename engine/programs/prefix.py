"""The prefix of a place: the words that run a program on another host or in a container, such as
`ssh mx2`, `docker exec -i mta`, `kubectl exec -i pod --`, `sudo -n`, `chroot DIR` (setting `via`).

Words come only from a configuration file that root or the user owns."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import signal
from collections.abc import Sequence
from contextlib import closing
from urllib.parse import unquote

from engine.config.place_address import Address
from engine.config.queue_config import Config
from engine.store import Unavailable
from engine.system.run_program import (
    READER_SECONDS,
    CannotStart,
    ProgramEnd,
    RunningProgram,
    run_program,
    start_detached,
)
from engine.text.safe import safe_line
from engine.values import NamedTuple

SSH_FAILED = 255
"""Exit status of ssh(1) if the connection fails, at its start or later."""

NOT_RUN = (125, 126, 127)
"""Exit statuses of docker, podman, chroot, env and of shells, if they cannot run the program."""

MISSING = (126, 127)
"""Those of a program that is missing; docker has both for it."""

_SIGNALLED = range(129, 160)
"""Exit statuses of shells and docker for a program that a signal ended: 128 and its number."""

_OWN_ERROR = re.compile(
    r"(?:sudo|doas|nsenter|lxc-attach|runuser|su): (?!unable to resolve host)"
    r"|Sorry, user |[Ee]rror(?:: | from server| response from daemon)|Cannot connect to "
    r"|Unable to connect |The connection to the server |permission denied while trying "
)
"""How the last line begins if a prefix of another kind, whose status is 1 then, has failed."""

_MISSING_WORDS = re.compile(
    r": command not found$|executable file not found|exec: .*no such file or directory"
)
"""How sudo and kubectl, whose status is 1 then, say that a program is missing."""

_KUBECTL_STATUS = re.compile(rb"command terminated with exit code (\d+)\s*\Z")
"""The last line of kubectl if the program's status is not 0."""


_SUDO = ("sudo", "doas")
_SUDO_VALUES = ("-u", "-g", "-U", "-h", "-p", "-C", "-D", "-R", "-T", "-r", "-t")
"""Options of sudo with a value in the next word (sudo(8))."""


class Prefix(NamedTuple):
    """The words before those of a program."""

    name: str = ""
    """Its name in the configuration; "" for this host."""
    words: tuple[str, ...] = ()
    quoting: int | None = None
    """How often the words of the program are quoted; None: once for each `ssh` among the words."""

    @property
    def quotings(self) -> int:
        """How often the words of the program are quoted."""
        if self.quoting is not None:
            return self.quoting
        return sum(os.path.basename(word) == "ssh" for word in self.words)

    @property
    def plain(self) -> Prefix:
        """The prefix without a sudo at its end: for programs that any user may run, which its rules
        need not name."""
        places = [n for n, word in enumerate(self.words) if os.path.basename(word) in _SUDO]
        if not places:
            return self
        options = iter(self.words[places[-1] + 1 :])
        for word in options:
            if not word.startswith("-"):
                return self  # a program that is run by sudo, such as docker
            if word in _SUDO_VALUES:
                next(options, "")
        return self._replace(words=self.words[: places[-1]])

    def for_programs(self, names: Sequence[str]) -> Prefix:
        """This prefix, or the plain one if its sudo allows not all of these programs. It is asked
        by `sudo -l`: one that refuses a program sends root a mail each time.

        Raises:
            Unavailable: it cannot be started.
        """
        plain = self.plain
        if plain == self or all(self.run(("-l", name))[1].status == 0 for name in names):
            return self
        return plain

    def command(self, argv: Sequence[str]) -> list[str]:
        """The words that run a program there.

        docker, podman, kubectl, sudo, chroot, nsenter and lxc pass words unchanged. ssh joins all
        words with blanks and gives them to a shell (ssh(1)), so each ssh gets one quoted word."""
        words = list(argv)
        for _ in range(self.quotings):
            words = [shlex.join(words)]
        return [*self.words, *words]

    def start(
        self,
        argv: Sequence[str],
        stdin: bytes | None = None,
        *,
        idle_seconds: float = READER_SECONDS,
        total_seconds: float | None = None,
    ) -> RunningProgram:
        """Start a program there, as `RunningProgram` does; ask `why_failed` about its end.

        Raises:
            Unavailable: it, or the program of the prefix, cannot be started.
        """
        try:
            return RunningProgram(
                self.command(argv), stdin, idle_seconds=idle_seconds, total_seconds=total_seconds
            )
        except CannotStart as error:
            raise Unavailable(self.describe(str(error))) from error

    def run(
        self,
        argv: Sequence[str],
        stdin: bytes | None = None,
        *,
        idle_seconds: float = READER_SECONDS,
        total_seconds: float | None = None,
    ) -> tuple[list[bytes], ProgramEnd]:
        """Run a program there, as `run_program` does; ask `why_failed` about its end.

        Raises:
            Unavailable: it, or the program of the prefix, cannot be started.
        """
        program = self.start(argv, stdin, idle_seconds=idle_seconds, total_seconds=total_seconds)
        with closing(program):
            lines = [*program.lines()]
            assert program.end is not None
            return lines, program.end

    def start_detached(self, argv: Sequence[str], seconds: float) -> ProgramEnd | None:
        """Start a program there that is never ended, as `run_program.start_detached` does.

        Raises:
            Unavailable: it, or the program of the prefix, cannot be started.
        """
        try:
            return start_detached(self.command(argv), seconds)
        except CannotStart as error:
            raise Unavailable(self.describe(str(error))) from error

    def describe(self, reason: str) -> str:
        """A reason with the name of the prefix before it."""
        return f"{self.name}: {reason}" if self.name else reason

    def why_failed(self, end: ProgramEnd) -> str:
        """Why a program did not run to its own end: limit, signal, or a failure of the prefix; ""
        if it did, with any status.

        A lost connection does not end the program on the other host, and an act may have been done:
        its outcome is unknown until the messages are looked at again."""
        if end.limit:
            return self.describe(end.limit)
        status = _far_status(end)
        if status is None or status < 0:
            return self.describe(f"ended by {_signal_name(-(status or 0))}")
        if not self.words:
            return ""
        if status in _SIGNALLED:
            return self.describe(f"ended by {_signal_name(status - 128)}")
        if (
            (status == SSH_FAILED and self.quotings)
            or status in NOT_RUN
            or (status == 1 and _OWN_ERROR.match(end.last_error))
        ):
            return self.describe(end.last_error or f"{self.words[0]} ended with status {status}")
        return ""

    def is_missing(self, end: ProgramEnd) -> bool:
        """True if a program ended because it is not installed there."""
        if not self.words or end.limit:
            return False
        is_missing = end.status == 1 and _MISSING_WORDS.search(end.last_error)
        return bool(is_missing) or _far_status(end) in MISSING


HERE = Prefix()
"""This host, without a prefix."""


def _far_status(end: ProgramEnd) -> int | None:
    line = _KUBECTL_STATUS.search(end.errors)
    return int(line[1]) if line and end.status else end.status


def _signal_name(number: int) -> str:
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, f"signal {number}" if number else "no signal")


def prefix_of(config: Config, address: Address) -> Prefix:
    """The prefix of a place: that of NAME for SCHEME://NAME/PATH, none for a path.

    Raises:
        Unavailable: the configuration has no such name; the text says which it has.
    """
    if not address.is_url:
        return HERE
    name = address.text.partition("://")[2].partition("/")[0]
    if name in config.via:
        return Prefix(name, config.via[name], config.via_quoting.get(name))
    names = ", ".join(config.via)
    where = f" of {safe_line(config.path)}" if config.path else ""
    expected = f"expected one of {names}" if names else "it has no names: add its words there"
    raise Unavailable(f"no {name or 'name'} in `via`{where}: {expected}")


def path_of(address: Address) -> str:
    """The absolute path of a place on its host: its own, or that in SCHEME://NAME/PATH.

    Raises:
        Unavailable: the URL has no such path.
    """
    if not address.is_url:
        return address.text
    name, _, path = address.text.partition("://")[2].partition("/")
    path = f"/{unquote(path)}"
    if path in ("/", "//") or "?" in address.text or address.has_password or path != _normal(path):
        example = f"{address.scheme}://{name.rpartition('@')[2]}{_normal(path)}"
        raise Unavailable(f"expected SCHEME://NAME/PATH, such as {example}, not {address.text}")
    return path


def _normal(path: str) -> str:
    return posixpath.normpath("/" + path.partition("?")[0].lstrip("/"))


def program_paths(name: str) -> tuple[str, ...]:
    """Where a program of a server may be: the PATH of a user over ssh has no `sbin`."""
    return f"/usr/sbin/{name}", f"/usr/local/sbin/{name}", name


def run_first(
    prefix: Prefix, paths: Sequence[str], arguments: Sequence[str]
) -> tuple[str, list[bytes], ProgramEnd]:
    """Run the first of these programs that is installed: its path, its lines, and how it ended. The
    arguments change nothing.

    Raises:
        Unavailable: none is installed, or the prefix fails.
    """
    for path in paths:
        try:
            lines, end = run_program(prefix.command((path, *arguments)))
        except CannotStart as error:
            if prefix.words or not error.is_missing:
                raise Unavailable(prefix.describe(str(error))) from error
            continue
        if prefix.is_missing(end):
            continue
        if why := prefix.why_failed(end):
            raise Unavailable(why)
        return path, lines, end
    raise Unavailable(prefix.describe(f"not installed: none of {', '.join(paths)}"))
