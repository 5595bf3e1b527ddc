"""One Postfix instance: its configuration folder, its settings by postconf(1), and how its programs
are run there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.programs.prefix import HERE, Prefix, program_paths, run_first
from engine.store import Unavailable
from engine.system import users
from engine.system.run_program import ACT_SECONDS, ProgramEnd, RunningProgram
from engine.text.error_text import error_text
from engine.text.safe import safe_line

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

    @property
    def is_local(self) -> bool:
        """True if it is on this host, reached with our own rights."""
        return not self.prefix.words

    @property
    def queue_folder(self) -> str:
        """The folder of its queue, there."""
        return self.settings["queue_directory"]

    def seconds(self, name: str) -> float:
        """A time setting; 0 if it is not one."""
        match = re.fullmatch(r"(\d+)([smhdw]?)", self.settings[name])
        return float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0

    def _words(self, program: str, words: tuple[str, ...]) -> list[str]:
        return [f"{self.programs}{program}", "-c", self.folder, *words]

    def start(self, program: str, *words: str) -> RunningProgram:
        """Start one of its programs, which only reads.

        Raises:
            engine.store.Unavailable: it cannot be started.
        """
        return self.prefix.start(self._words(program, words))

    def run(self, program: str, *words: str) -> tuple[list[bytes], ProgramEnd]:
        """Run one of its programs, which only reads, to its end.

        Raises:
            engine.store.Unavailable: it cannot be started.
        """
        return self.prefix.run(self._words(program, words))

    def act(self, program: str, *words: str, ids: Sequence[str] = ()) -> ProgramEnd:
        """Run one of its programs, which changes something, with ids on its standard input.

        Raises:
            engine.store.Unavailable: it cannot be started.
        """
        stdin = "".join(f"{ident}\n" for ident in ids).encode()
        return self.prefix.run(self._words(program, words), stdin, total_seconds=ACT_SECONDS)[1]

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
    program, lines, end = run_first(prefix, program_paths("postconf"), words)
    if (why := describe_end(prefix, end)) or len(lines) != len(SETTING_NAMES):
        raise Unavailable(f"{safe_line(folder)}: {why or 'postconf printed something else'}")
    texts = (line.decode("utf-8", "replace").strip() for line in lines)
    settings = dict(zip(SETTING_NAMES, texts, strict=True))
    queue = settings["queue_directory"]
    return Instance(
        folder,
        prefix,
        program.removesuffix("postconf"),
        settings,
        uid=_number(prefix, ["id", "-u"]) if prefix.words else os.geteuid(),
        device=_number(prefix, ["stat", "-c", "%d", queue]),
    )


def _number(prefix: Prefix, argv: Sequence[str]) -> int | None:
    """The number that a program prints; None if it fails or may not be run."""
    lines, _ = prefix.run(argv)
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
