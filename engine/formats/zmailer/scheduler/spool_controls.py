"""Controls of a spool: wake hosts, freeze and thaw, stop the scheduler slowly, reread its file.

Waking works with every scheduler (ETRN). The others are for ours, which holds a flock on the pid
file: the original one ends at SIGUSR1, hangs at SIGQUIT, and cannot be frozen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from engine.formats.zmailer.environment import MAX_CONF_BYTES, SchedulerFiles
from engine.formats.zmailer.scheduler.clauses import conf_changes
from engine.formats.zmailer.spool import lock_process
from engine.formats.zmailer.spool.changes import MailActions, MoreControls
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.lock_process import signal_scheduler
from engine.formats.zmailer.spool.permissions import NO_SCHEDULER
from engine.formats.zmailer.spool.scheduler_conf import parse_conf
from engine.override import override
from engine.store import Control, Outlook, Unavailable, Unsupported
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

FOLDER = ".spooldeck"
FROZEN = "frozen"
"""Marker in our folder: our scheduler starts no agent while it is there."""
RUNNING_CONF = "scheduler.conf"
"""Copy in our folder of the file that our scheduler uses now."""

THAWED, FREEZES = "off", "on"
ALL_HOSTS = "*"

_SIGNALS = {"slow-stop": signal.SIGQUIT, "reread": signal.SIGUSR1}


def is_frozen(folders: PostofficeFolders) -> bool:
    """True if an operator has frozen the spool: its scheduler starts no agent."""
    try:
        with folders.open_below(folders.fd, FOLDER) as fd:
            os.stat(FROZEN, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def record_conf(folders: PostofficeFolders, text: str) -> None:
    """Keep the text of the scheduler.conf that our scheduler uses from now on, for the next diff.
    Raises OSError: it cannot be written."""
    with _our_folder(folders) as fd:
        files.replace_durably(RUNNING_CONF, fd, text.encode())


@contextmanager
def _our_folder(folders: PostofficeFolders) -> Iterator[int]:
    """Open our folder, and make it if it is missing."""
    folders.make_below(FOLDER, 0o700)
    with folders.open_below(folders.fd, FOLDER) as fd:
        yield fd


class SpoolControls(MoreControls):
    """The controls of one spool."""

    def __init__(
        self,
        folders: PostofficeFolders,
        mail: MailActions,
        read_files: Callable[[], SchedulerFiles],
    ) -> None:
        """`read_files` reads the configuration of its scheduler."""
        self._folders, self._mail, self._read_files = folders, mail, read_files

    @override
    def describe(self, scheduler: int | None) -> Mapping[str, Control]:
        none = "" if scheduler is not None else NO_SCHEDULER
        reason = ""
        if scheduler is not None and not lock_process.is_ours(self._folders.fd):
            reason = f"the scheduler (PID {scheduler}) is not that of spooldeck"
        stop = reason and f"{reason}: after SIGQUIT it never ends; stop it with SIGTERM"
        reread = reason and f"{reason}: it aborts at SIGUSR1; restart it"
        freeze = reason and f"{reason}: it cannot be frozen while it runs"
        return {
            "wake": Control(
                "try the waiting recipients of a host now (ETRN)",
                target=f"host, or {ALL_HOSTS} for all",
                refusal=none,
                has_forecast=True,
            ),
            "freeze": Control(
                "start no agents; those that run go on",
                value="on or off",
                refusal=freeze,
                now=FREEZES if is_frozen(self._folders) else THAWED,
                choices=((THAWED, "agents are started"), (FREEZES, "no agent is started")),
                is_pause=True,
            ),
            "slow-stop": Control(
                "stop the scheduler once its agents have ended (SIGQUIT)",
                refusal=("no scheduler is running" if none else "") or stop,
            ),
            "reread": Control(
                "let the scheduler read its scheduler.conf again (SIGUSR1)",
                refusal=("no scheduler is running: it reads it at its start" if none else "")
                or reread,
                has_forecast=True,
            ),
        }

    @override
    def run(self, name: str, target: str, value: str, hosts: Callable[[], Collection[str]]) -> str:
        if name == "wake":
            woken = self._targets(target, hosts)
            self._mail.wake(woken)
            return f"hosts woken: {len(woken):,}"
        try:
            if name == "freeze":
                answer = self._freeze(value)
                if lock_process.is_ours(self._folders.fd):
                    self._signal(signal.SIGALRM)  # it sees the marker now, not at its next turn
                return answer
            if name == "reread":
                self._changes()  # not with a file that it could not use
            # Only the process that has the flock gets it: another one could have started since.
            if not lock_process.is_ours(self._folders.fd):
                raise Unavailable("no scheduler of spooldeck is running now")
            pid = self._signal(_SIGNALS[name])
        except OSError as error:
            raise Unavailable(f"{error_text(error)}") from error
        if pid is None:
            raise Unavailable("no scheduler is proven to run")
        return f"{_SIGNALS[name].name} sent to PID {pid}"

    @override
    def forecast(
        self, name: str, target: str, value: str, hosts: Callable[[], Collection[str]]
    ) -> Outlook:
        if name == "wake":
            woken = sorted(self._targets(target, hosts))
            return Outlook("\n".join(woken) or "no recipient is waiting", len(woken))
        return self._changes()

    def _signal(self, number: signal.Signals) -> int | None:
        return signal_scheduler(self._folders.fd, self._folders.transport_status, number)

    @staticmethod
    def _targets(target: str, hosts: Callable[[], Collection[str]]) -> Collection[str]:
        waiting = set(hosts())
        if target == ALL_HOSTS:
            return {host for host in waiting if " " not in host}
        if target.lower() not in waiting:
            raise Unsupported(f"{target!r:.60}: no recipient of this host is waiting")
        return {target.lower()}

    def _freeze(self, value: str) -> str:
        with _our_folder(self._folders) as fd:
            if value == THAWED:
                files.unlink_quietly(FROZEN, fd)
                files.fsync(fd)
                return "thawed: agents are started"
            with suppress(FileExistsError):
                os.close(files.create_file(FROZEN, fd, files.new_file_owner(os.fstat(fd))))
            files.fsync(fd)
        return "frozen: no agent is started"

    def _changes(self) -> Outlook:
        """What differs between scheduler.conf and what the scheduler uses."""
        scheduler_files = self._read_files()
        if scheduler_files.conf is None:
            raise Unsupported(scheduler_files.problem)
        if scheduler_files.conf.errors:
            first, count = scheduler_files.conf.errors[0], len(scheduler_files.conf.errors)
            where = f"{scheduler_files.conf_path}:{first.line}:{first.column}"
            more = f"; {count - 1} more" if count > 1 else ""
            raise Unsupported(f"{where}: {first.text}{more}")
        old = self._running_text()
        if old is None:
            known = f"{len(scheduler_files.conf.clauses)} clauses in {scheduler_files.conf_path}"
            return Outlook(f"the file in use is not known; {known}")
        lines = list(conf_changes(parse_conf(old, scheduler_files.environ), scheduler_files.conf))
        return Outlook("\n".join(lines) or "no change", max(1, len(lines)))

    def _running_text(self) -> str | None:
        try:
            with self._folders.open_below(self._folders.fd, FOLDER) as fd:
                conf = files.open_guarded(RUNNING_CONF, fd)
        except (OSError, files.Refused):
            return None
        with closing_fd(conf):
            return os.read(conf, MAX_CONF_BYTES).decode("utf-8", "replace")
