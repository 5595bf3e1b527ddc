"""Find the Exim of a spool, ask its settings (`exim -bP`), and run it, also behind a prefix."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from engine.formats.exim import lines
from engine.formats.exim.rules import HoldLimits
from engine.programs.mail_log import is_device
from engine.programs.prefix import Prefix
from engine.store import Unavailable
from engine.system import files
from engine.system.run_program import ACT_SECONDS, ProgramEnd
from engine.text.safe import safe_line
from engine.values import NamedTuple

PROGRAMS = (
    "/usr/sbin/exim4",
    "/usr/sbin/exim",
    "/usr/local/sbin/exim",
    "/usr/exim/bin/exim",
)
"""Debian; most others and cPanel; FreeBSD; Exim's own default. The first that is there is used."""

HELPERS = ("cat", "df", "find", "ls", "stat", "tail")
"""Programs that show files: locks, processes, the spool and its disk, logs."""

TRASH_QUEUE = "spooldeck-trash"
"""The named queue to which purged messages are moved, as Exim does it: by `-MG`."""
TRASH = f"-qG{TRASH_QUEUE}"
"""The option for that queue. It is the first one, but behind `-bpru` if ids follow."""

NO_MESSAGE = "000000-000000-00"
"""A well-formed id of no message, to ask whether an option is permitted and known."""

SETTINGS = (
    "spool_directory",
    "log_file_path",
    "pid_file_path",
    "auto_thaw",
    "timeout_frozen_after",
    "ignore_bounce_errors_after",
    "queue_only",
    "queue_only_load",
    "deliver_queue_load_max",
    "check_spool_space",
    "log_selector",
    "message_logs",
    "timezone",
)


class Exim(NamedTuple):
    """The program of one spool, and its settings at the time of opening."""

    prefix: Prefix
    helpers: Prefix
    """The prefix of other programs: without its sudo, if that does not allow them."""
    words: tuple[str, ...]
    """The words that run it: its path, and `-C FILE` for a private instance."""
    spool: str
    version: str
    settings: Mapping[str, str]
    refusal: str = ""
    """Why this user may change nothing; "" for an admin user of Exim."""
    list_refusal: str = ""
    """Why this user may not list; "" if he may."""
    trash_refusal: str = ""
    """Why messages cannot be moved to another queue; "" if they can."""

    def seconds(self, name: str) -> float:
        """A setting that is a time; 0 if it has none."""
        return lines.parse_time(self.settings.get(name, "")) or 0.0

    def is_set(self, name: str) -> bool:
        """True for a switch that is on."""
        return self.settings.get(name) == "true"

    @property
    def limits(self) -> HoldLimits:
        """The settings by which it ends that mail is frozen."""
        return HoldLimits(
            self.seconds("timeout_frozen_after"),
            self.seconds("ignore_bounce_errors_after"),
            self.seconds("auto_thaw"),
        )

    @property
    def has_argument_log(self) -> bool:
        """True if each call of the program writes a line into the main log."""
        selector = self.settings.get("log_selector", "")
        return "+arguments" in selector or "+all" in selector.split()

    @property
    def has_queue_run_log(self) -> bool:
        """True if the main log has a line for the start of each queue run, as by default."""
        selector = self.settings.get("log_selector", "")
        switches = re.findall(r"([+-]) *(?:all|queue_run)\b", selector)
        return switches[-1:] != ["-"]

    def log_paths(self, kind: str = "main") -> tuple[str, ...]:
        """The paths of the main log, or of another one; () if only syslog has it."""
        value = self.settings.get("log_file_path", "")
        names = [one for one in map(str.strip, value.split(":")) if one.startswith("/")]
        names = [one for one in names if not is_device(one)]
        if not value:
            names = [f"{self.spool}/log/%slog"]
        return tuple(one.replace("%s", kind) for one in names)

    def run(self, *options: str, is_act: bool = False) -> tuple[list[bytes], ProgramEnd]:
        """Run it to its end.

        Raises:
            Unavailable: it did not run to its own end; then what it did is unknown.
        """
        argv = (*self.words, *options)
        if is_act:  # it may print nothing until its end
            out, end = self.prefix.run(argv, idle_seconds=ACT_SECONDS, total_seconds=ACT_SECONDS)
        else:
            out, end = self.prefix.run(argv)
        if why := self.prefix.why_failed(end):
            raise Unavailable(why)
        return out, end

    def stream(self, *options: str) -> Iterator[bytes]:
        """Run it and yield its lines while it prints them.

        Raises:
            Unavailable: it did not run to its own end, or was refused.
        """
        program = self.prefix.start((*self.words, *options))
        try:
            yield from program.lines()
            assert program.end is not None
            why = self.prefix.why_failed(program.end)
            if why or program.end.status:
                what = why or program.end.last_error
                raise Unavailable(what or f"exim ended with status {program.end.status}")
            for number in program.end.long_lines:
                yield b"line %d is too long: skipped" % number
        finally:
            program.close()

    def now(self, ours: float) -> float:
        """The time there, epoch seconds UTC, to compare with the times of its files; `ours` without
        a prefix, or if it is not known."""
        if not self.prefix.words:
            return ours
        out, end = self.prefix.plain.run(("date", "+%s"))
        text = out[-1].decode("utf-8", "replace") if out and end.status == 0 else ""
        return float(text) if text.isdecimal() else ours

    def other(self, *argv: str) -> list[bytes]:
        """The lines that another program prints there; none if it cannot be run, or fails."""
        return _other(self.helpers, argv)


def _other(helpers: Prefix, argv: Sequence[str]) -> list[bytes]:
    try:
        out, end = helpers.run(argv)
    except Unavailable:
        return []
    return [] if helpers.why_failed(end) or end.status else out


def open_exim(prefix: Prefix, spool: str, config: str, sudo: str = "") -> Exim:
    """Find the program of a spool, and what this user may do with it. `config` is the configuration
    file of a private instance, "" for that of the system; `sudo` is the command that may do more.

    Raises:
        Unavailable: there is none, it has another spool, or others may write its configuration.
    """
    exim = find_program(prefix, spool, config)
    path = exim.settings.get("configure_file", "")
    if not config and path and (why := _config_problem(exim.helpers, path)):
        raise Unavailable(why)
    more = f": {sudo}" if sudo else ""
    out, end = exim.run("-MG", TRASH_QUEUE, NO_MESSAGE)
    answer = lines.parse_answers(out).get(NO_MESSAGE, "")
    if answer != "does not exist":
        text = end.last_error or safe_line(b" ".join(out).decode("utf-8", "replace"))
        if "denied" in text.lower():
            who = "only root and Exim's admin_groups may do this"
            exim = exim._replace(refusal=f"{who}{more}", trash_refusal=f"{who}{more}")
            _, counted = exim.run("-bpc")
            if counted.status:
                why = f"only root and Exim's admin_groups may list the queue{more}"
                exim = exim._replace(list_refusal=why)
        else:
            why = f"Exim {exim.version} moves no message to another queue: {text or 'no answer'}"
            exim = exim._replace(trash_refusal=why)
    return exim


def find_program(prefix: Prefix, spool: str, config: str) -> Exim:
    """Find the program of a spool and its settings; see `open_exim`, which asks the rights too.

    Raises:
        Unavailable: there is none, it has another spool, or others may write `config`.
    """
    if config:  # Exim runs with it below: programs that it names could be anybody's
        helpers = prefix.for_programs(HELPERS)
        for path in (config, posixpath.dirname(config)):
            if why := _config_problem(helpers, path):
                raise Unavailable(why)
    other, full = "", prefix
    prefix = full if config else full.plain  # all users may ask the settings
    for program in PROGRAMS:
        words = (program, *(("-C", config) if config else ()))
        try:
            out, end = prefix.run((*words, "-bP", "configure_file", *SETTINGS))
        except Unavailable:
            if prefix.words:
                raise
            continue  # it is not installed here
        if prefix.is_missing(end):
            continue
        if why := prefix.why_failed(end):
            raise Unavailable(why)
        settings = lines.parse_settings(out)
        if "spool_directory" not in settings:
            text = end.last_error or safe_line(b" ".join(out[-1:]).decode("utf-8", "replace"))
            raise Unavailable(f"{program} -bP: {text or f'status {end.status}'}")
        if not _is_same(prefix, settings["spool_directory"], spool):
            other = other or f"{program} has the spool {safe_line(settings['spool_directory'])}"
            continue
        version, _ = prefix.run((*words, "-bV"))
        name = (version[0].split() + [b"?"] * 3)[2].decode("utf-8", "replace") if version else "?"
        helpers = full.for_programs(HELPERS)
        return Exim(full, helpers, words, spool, version=safe_line(name), settings=settings)
    if other:
        raise Unavailable(f"{spool}: {other}: not the one of this place")
    expected = ", ".join(PROGRAMS)
    raise Unavailable(prefix.describe(f"no Exim here: expected one of {expected}"))


def _is_same(prefix: Prefix, one: str, other: str) -> bool:
    normal = posixpath.normpath(one), posixpath.normpath(other)
    if normal[0] == normal[1] or prefix.words:
        return normal[0] == normal[1]
    return files.real_path(normal[0]) == files.real_path(normal[1])


def _config_problem(helpers: Prefix, path: str) -> str:
    """Why a configuration, or its folder, must not be used: others than root could run programs by
    it."""
    found = _other(helpers, ("stat", "-L", "-c", "%u %a", path))
    if not found or _is_roots_alone(found[-1]) is not False:
        return ""  # or a container without `stat`, or a user who cannot see the file
    return f"{path}: others than root may write it: refused; chown root, chmod go-w"


def _is_roots_alone(line: bytes) -> bool | None:
    """True if `UID MODE`, as stat(1) prints it, lets only root write; None for any other text."""
    try:
        uid, mode = line.decode("ascii").split()
        return int(uid) == 0 and not int(mode, 8) & 0o022
    except ValueError:
        return None
