"""One Postfix instance: its configuration folder, its settings by postconf(1), and how its programs
are run there."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from engine.programs.prefix import HERE, Prefix, program_paths, run_first
from engine.store import Unavailable
from engine.system import users
from engine.system.run_program import ACT_SECONDS, ProgramEnd, RunningProgram
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

SETTING_NAMES = (
    "mail_version",
    "queue_directory",
    "syslog_name",
    "maillog_file",
    "enable_long_queue_ids",
    "soft_bounce",
    "defer_transports",
    "queue_minfree",
    "message_size_limit",
    "minimal_backoff_time",
    "maximal_backoff_time",
    "queue_run_delay",
    "maximal_queue_lifetime",
    "bounce_queue_lifetime",
    "qmgr_message_active_limit",
    "relayhost",
    "fast_flush_domains",
    "multi_instance_name",
    "hash_queue_names",
    "mail_owner",
)
"""Asked for by one call of postconf, which prints one value a line in this order."""

CONFIG_FILES = ("main.cf", "master.cf")

_IN_DAYS = ("maximal_queue_lifetime", "bounce_queue_lifetime")
"""Times that are in days without a unit; the others are in seconds."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Instance(NamedTuple):
    """An opened instance."""

    folder: str
    """The absolute path of its configuration there."""
    prefix: Prefix
    programs: str
    """The folder of its programs, with its slash."""
    settings: Mapping[str, str]
    """By the names of `SETTING_NAMES`."""
    uid: int | None
    """With whose rights its programs run there; None if unknown."""
    device: int | None
    """Number of the device of its queue, as stat(2) has it; None if unknown."""
    log_prefix: Prefix | None = None
    """The prefix of the programs that read its log; None: that of all others."""
    can_find: bool = True
    """False if a rule of sudo does not allow `find_words`."""
    sudo: str = ""
    """The command with sudo that may do more; "" for root, and behind a prefix."""

    @property
    def refusal(self) -> str:
        """Why its user may change nothing, and what would allow it; "" for root."""
        if self.uid in (0, None):
            return ""
        more = self.sudo or "end its prefix with sudo -n; doctor prints the rule of sudo"
        return f"only root may do this: {more}"

    @property
    def is_local(self) -> bool:
        """True if it is on this host, reached with our own rights."""
        return not self.prefix.words

    @property
    def queue_folder(self) -> str:
        """The folder of its queue, there."""
        return self.settings["queue_directory"]

    @property
    def find_words(self) -> list[str]:
        """Prints time of the next attempt, time of change, mode and path of each file that waits,
        is active, on hold or damaged. A rule of sudo names them exactly, so they have no
        backslash."""
        names = ("incoming", "active", "deferred", "hold", "corrupt")
        folders = [f"{self.queue_folder}/{name}" for name in names]
        return ["find", *folders, "-type", "f", "-printf", "%T@_%C@_%m_", "-print"]

    @property
    def sudo_rule(self) -> str:
        """The line for sudoers by which a user of its host may do all that is done here."""
        programs = [f"{self.programs}{name}" for name in ("postqueue", "postsuper", "postcat")]
        find = f"/usr/bin/{' '.join(self.find_words)}"
        return f"USER ALL=(root) NOPASSWD: {', '.join((*programs, find))}"

    def ask(self, *argv: str) -> list[bytes]:
        """The lines of a program that any user may run there; none if it cannot be run or fails."""
        try:
            lines, end = self.prefix.plain.run(argv)
        except Unavailable:
            return []
        return [] if end.status or end.limit else lines

    def seconds(self, name: str) -> float:
        """A time setting; 0 if it is not one."""
        match = re.fullmatch(r"(\d+)([smhdw]?)", self.settings[name])
        usual = "d" if name in _IN_DAYS else "s"
        return float(match[1]) * _UNITS[match[2] or usual] if match else 0.0

    def _words(self, program: str, words: tuple[str, ...]) -> list[str]:
        return [f"{self.programs}{program}", "-c", self.folder, *words]

    def start(self, program: str, *words: str, deadline: float | None = None) -> RunningProgram:
        """Start one of its programs, which only reads; it is ended at the deadline, of
        time.monotonic().

        Raises:
            engine.store.Unavailable: it cannot be started.
        """
        left = None if deadline is None else max(0.1, deadline - time.monotonic())
        return self.prefix.start(self._words(program, words), total_seconds=left)

    def run(
        self, program: str, *words: str, deadline: float | None = None
    ) -> tuple[list[bytes], ProgramEnd]:
        """Run one of its programs, as `start` does, to its end.

        Raises:
            engine.store.Unavailable: it cannot be started.
        """
        with closing(self.start(program, *words, deadline=deadline)) as running:
            lines = [*running.lines()]
            assert running.end is not None
            return lines, running.end

    def act(self, program: str, *words: str, ids: Sequence[str] = ()) -> ProgramEnd:
        """Run one of its programs, which changes something, with ids on its standard input.

        Raises:
            engine.store.Unavailable: it cannot be started.
        """
        stdin = "".join(f"{ident}\n" for ident in ids).encode()
        return self.prefix.run(
            self._words(program, words), stdin, idle_seconds=ACT_SECONDS, total_seconds=ACT_SECONDS
        )[1]

    def why_failed(self, end: ProgramEnd) -> str:
        """Why a program failed, or its prefix; "" if it did not."""
        return describe_end(self.prefix, end)


def describe_end(prefix: Prefix, end: ProgramEnd) -> str:
    """Why a program, or its prefix, failed: limit, signal, last line on standard error, status; ""
    if it did not."""
    if why := prefix.why_failed(end):
        return why
    return prefix.describe(end.last_error or f"status {end.status}") if end.status else ""


def open_instance(folder: str, prefix: Prefix = HERE) -> Instance:
    """Read the settings of an instance.

    Raises:
        Unavailable: there is none, root must not use it, or its programs cannot be run.
    """
    if not prefix.words:
        require_trusted(folder)
    words = ["-c", folder, "-x", "-h", *SETTING_NAMES]
    plain = prefix.plain
    program, lines, end = run_first(plain, program_paths("postconf"), words)
    if (why := describe_end(plain, end)) or len(lines) != len(SETTING_NAMES):
        raise Unavailable(f"{safe_line(folder)}: {why or 'postconf printed something else'}")
    texts = (line.decode("utf-8", "replace").strip() for line in lines)
    instance = Instance(
        folder,
        prefix,
        program.removesuffix("postconf"),
        dict(zip(SETTING_NAMES, texts, strict=True)),
        uid=None,
        device=None,
    )
    if instance.ask("stat", "-f", "-c", "%T", instance.queue_folder) != [b"btrfs"]:
        # On btrfs, /proc/locks has another number for the device than stat(2).
        device = _number(instance.ask("stat", "-c", "%d", instance.queue_folder))
        instance = instance._replace(device=device)
    if not prefix.words:
        return instance._replace(uid=os.geteuid())
    if plain == prefix:
        return instance._replace(uid=_number(instance.ask("id", "-u")))
    # sudo runs all as root that its rules allow. One that refuses a program would send root a mail
    # each time, so it is asked.
    _, asked = prefix.run(["-l", *instance.find_words])
    names = ("tail", "cat", "ls", *(() if instance.settings["maillog_file"] else ("journalctl",)))
    log_prefix = prefix.for_programs(names)
    return instance._replace(can_find=asked.status == 0, log_prefix=log_prefix)


def _number(lines: Sequence[bytes]) -> int | None:
    return int(lines[-1]) if lines and lines[-1].isdigit() else None


def require_trusted(folder: str) -> None:
    """Refuse the configuration of a local instance that root must not use.

    Raises:
        Unavailable: another user than root owns it, or may write to it or replace it.
    """
    for path in (folder, *(f"{folder}/{name}" for name in CONFIG_FILES)):
        try:
            account = users.safe_account(path)
            mode = os.stat(path).st_mode
        except users.Unsafe as error:
            raise Unavailable(f"{safe_line(path)}: {error}") from error
        except OSError as error:
            raise Unavailable(f"{safe_line(path)}: {error_text(error)}") from error
        if os.geteuid() == 0 and (account is not None or mode & 0o022):
            owner = "root's" if account is None else f"{users.user_name(account.uid)}'s"
            what = f"not used as root: it is {owner}, mode {mode & 0o7777:o}"
            raise Unavailable(f"{safe_line(path)}: {what}; expected root's, not group-writable")
