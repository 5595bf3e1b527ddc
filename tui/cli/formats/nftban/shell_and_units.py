"""`shell-init`: print bash functions of the contract; `install-units`: write systemd units.

The texts are in folders `texts/`; values of the place are filled in here.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from grp import getgrgid

from engine.config import mail_config, nftban_variables, queue_config
from engine.config.mail_config import MailSettings
from engine.config.queue_config import Config
from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import open_spool
from engine.system import files
from engine.system.command_errors import EX_CONFIG, EX_USAGE, LOST_NULL, fail, print_error
from engine.text.safe import safe_line
from engine.version import program_command
from engine.work.worker import HANDLER_GRACE_SECONDS
from tui.cli.setup.output import Answer, captured_lines, print_answer
from tui.cli.setup.templates import HOUSEKEEPING_SECONDS, TEXTS, fill_template

_SHELL_INIT = f"{os.path.dirname(os.path.abspath(__file__))}/texts/shell-init.sh"

_UNITS = (
    "spooldeck-queue.service",
    "spooldeck-queue.timer",
    "spooldeck-worker.service",
    "spooldeck.tmpfiles.conf",
    "spooldeck.logrotate",
)


# ---- bash functions


def shell_init(config: str, root: str) -> int:
    """Print bash functions with the contract's names; options given now become part of them.

    They are for no single queue and do not depend on the configuration now: each call reads it.
    """
    command = program_command()
    for option, path in (("config", config), ("root", root)):
        if path:
            command += [f"--{option}", os.path.abspath(path)]
    values = {
        "command": shlex.join(command),
        "variables": " ".join(_variables()),
        "secret": nftban_variables.PASSWORD_VARIABLE,
        "lost": str(LOST_NULL),
    }
    sys.stdout.write(fill_template(_SHELL_INIT, values))
    sys.stdout.flush()
    return 0


def _variables() -> list[str]:
    """The environment variables that are read, without the secret one."""
    return [
        name
        for name in (*queue_config.VARIABLES, *mail_config.VARIABLES)
        if name != nftban_variables.PASSWORD_VARIABLE
    ]


# ---- systemd, tmpfiles, logrotate


def install_units(setup: Setup, folder: str, *, json: bool) -> int:
    """Write units and snippets for this queue into a folder, print each when it is written, then
    the next steps."""
    if not os.path.isdir(folder):
        fail(EX_USAGE, f"{safe_line(folder)}: expected a folder to write into (mkdir it first)")
    open_spool(setup).close()  # its error names what is missing
    values = _values(setup)
    steps = _NEXT_STEPS.format(where=shlex.quote(os.path.abspath(folder))).splitlines()
    with captured_lines(json) as written:
        for name in _UNITS:
            if name == "spooldeck.logrotate" and not values["logs"]:
                why = f"logrotate cannot name files in {safe_line(setup.queue.log_dir)}"
                print_error(f"{name} not written: {why}")
                steps = [step for step in steps if "logrotate" not in step]
                continue
            data = fill_template(f"{TEXTS}/{name}", values).encode()
            print(_write_unit(f"{folder}/{name}", data))
    for warning in _warnings(setup):
        print_error(warning)
    answer = Answer(lambda: {"folder": folder, "lines": written}, lambda: steps)
    return print_answer(answer, as_json=json)


_NEXT_STEPS = """\
next: cp {where}/spooldeck-*.service {where}/spooldeck-*.timer /etc/systemd/system/
      cp {where}/spooldeck.tmpfiles.conf /etc/tmpfiles.d/spooldeck.conf
      cp {where}/spooldeck.logrotate /etc/logrotate.d/spooldeck
      systemd-tmpfiles --create /etc/tmpfiles.d/spooldeck.conf
      systemctl daemon-reload
      systemctl enable --now spooldeck-queue.timer      one task every two minutes
   or systemctl enable --now spooldeck-worker.service   tasks as they arrive
"""


def _write_unit(path: str, data: bytes) -> str:
    """Write a file; if a different one exists, keep it and write PATH.new. Returns the
    result text."""
    try:
        with open(files.open_file(path), "rb") as file:
            if file.read() == data:
                return f"unchanged {safe_line(path)}"
    except FileNotFoundError:
        files.replace_file(path, data)
        return f"wrote {safe_line(path)}"
    except IsADirectoryError as error:
        error.filename = path  # the system names only the number of the open file
        raise
    files.replace_file(f"{path}.new", data)
    return f"kept {safe_line(path)}, which differs; wrote {safe_line(path)}.new"


def _values(setup: Setup) -> dict[str, str]:
    from engine.system.supervisor import KILL_DELAY_SECONDS  # keep process code out of shell-init

    queue = setup.queue
    owner = os.stat(queue.pending)
    user, group = _names(owner)
    service_user = "root" if _as_others(setup, user) else user
    mail = setup.mail.settings() if setup.mail.is_ours else None
    mta = "" if mail is None else _used_mta(setup, mail)
    running = [h for h in setup.config.handlers.values() if h.command or h.deliver is not None]
    timeouts = [h.timeout for h in running]
    longest = max([*timeouts, *([] if mail is None else [mail.max_time])], default=0)
    # A billion: systemd counts microseconds.
    stop = math.ceil(min(longest, 1e9) + KILL_DELAY_SECONDS + HANDLER_GRACE_SECONDS)
    folders = _folders(setup, mail)
    started, *words = program_command()
    words = [_quoted(word).replace("$", "$$") for word in (*words, *_arguments(setup))]
    commands = (word for h in setup.programs.values() for word in h.command)
    relay = () if mail is None else (mail.password_file, mail.ca_file)
    trusted = (h.deliver.ca_file for h in setup.delivered.values() if h.deliver)
    databases = _database_folders(setup.config)
    read = (*commands, *relay, *trusted, *databases)
    hidden = [*folders, *_needed(setup), *filter(os.path.isabs, read)]
    # Those of other programs are not made: systemd ignores missing ones (leading -).
    writable = [*map(_quoted, _outermost(folders)), *(_quoted(f"-{path}") for path in databases)]
    writable += _MTA_FOLDERS if mta else ()
    service = {
        "user": _identity(service_user, group, _EXIM_NEEDS if mta == "exim" else ""),
        "writable": " ".join(writable),
        "new_privileges": "no" if mta else "yes",
        "protect_home": "read-only" if _lies_in(hidden, "/home", "/root", "/run/user") else "yes",
        "private_tmp": "no" if _lies_in(hidden, "/tmp", "/var/tmp") else "yes",
    }
    return {
        "root_said": safe_line(queue.root),
        "origin": "Written by `spooldeck install-units`: run it again after a change of folders or "
        "handler timeouts.",
        "mounts": " ".join(_quoted(path) for path in _outermost([queue.root, *folders])),
        "command": " ".join([_executable(started), *words]),
        "environment": _environment(),
        "longest": f"{longest:g}",
        "start_seconds": str(stop + HOUSEKEEPING_SECONDS),
        "stop_seconds": str(stop),
        "service": fill_template(f"{TEXTS}/service.conf", service).rstrip("\n"),
        "folders": "\n".join(_tmpfile(path, queue.run_dir, owner) for path in folders),
        "logs": _logs(queue.log_dir),
        "su": f"{user} {group}",
    }


_MTAS = ("postfix", "sendmail", "exim", "mailx")
"""Transports that use the system's mail program, which changes its user or group."""

_MTA_FOLDERS = (
    "-/var/spool/postfix/maildrop",
    "-/var/spool/clientmqueue",
    "-/var/spool/mqueue-client",
    "-/var/spool/exim",
    "-/var/spool/exim4",
    "-/var/log/exim",
    "-/var/log/exim4",
)
"""Folders where such a program stores mail; systemd ignores missing ones (leading -)."""

_EXIM_NEEDS = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_SETGID CAP_SETUID"
"""Exim becomes root when it is called; the others, such as Postfix, only change their group."""


def _used_mta(setup: Setup, settings: MailSettings) -> str:
    """The transport of these that sends the worker's mail; "" if none."""
    transport = setup.mail.registry(settings).choose().transport
    return transport.name if transport is not None and transport.name in _MTAS else ""


def _folders(setup: Setup, mail: MailSettings | None) -> list[str]:
    """All folders that a worker writes to, outer ones first."""
    queue = setup.queue
    records = [] if mail is None else [mail.delivery_log]
    files_there = (queue.pending, queue.queue_metrics, queue.mail_metrics, *records)
    parents = map(os.path.dirname, files_there)
    paths = (queue.pending, queue.work, queue.dlq, queue.run_dir, queue.log_dir, queue.counters)
    return sorted({*parents, *paths, queue.mail_spool})


def _database_folders(config: Config) -> list[str]:
    """The folders of the registry of destinations and of the outbox, if these are files."""
    from urllib.parse import unquote

    outbox = None if config.outbox is None else config.outbox.database
    databases = {address.text for address in (config.destinations, outbox) if address is not None}
    files_there = (
        text.removeprefix("sqlite://") for text in databases if text.startswith("sqlite:")
    )
    return sorted({os.path.dirname(unquote(path)) for path in files_there})


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that are not inside another of them."""
    outermost: list[str] = []
    for path in sorted(set(paths), key=len):
        if not _lies_in([path], *outermost):
            outermost.append(path)
    return sorted(outermost)


def _lies_in(paths: Iterable[str], *folders: str) -> bool:
    """True if one of these paths is inside one of these folders, links resolved."""
    real = {path for each in paths for path in (each, os.path.realpath(each))}
    return any(f"{path}/".startswith(f"{folder}/") for path in real for folder in folders)


def _arguments(setup: Setup) -> list[str]:
    words = ["--root", setup.queue.root]
    if setup.config.path:
        words += ["--config", os.path.abspath(setup.config.path)]
    return words


def _needed(setup: Setup) -> list[str]:
    """Paths that a worker reads and runs, without those of its handlers."""
    program_paths = [sys.executable, sys.prefix, sys.base_prefix, os.path.dirname(files.__file__)]
    return [*program_paths, *_arguments(setup)[1::2]]


def _names(owner: os.stat_result) -> tuple[str, str]:
    user, group = str(owner.st_uid), str(owner.st_gid)
    with suppress(KeyError):
        user = pwd.getpwuid(owner.st_uid).pw_name
    with suppress(KeyError):
        group = getgrgid(owner.st_gid).gr_name
    return user, group


def _as_others(setup: Setup, user: str) -> bool:
    """True if handlers run as another user than the spool's owner, which needs root."""
    asked = {h.run_as or setup.queue.run_as for h in setup.programs.values()}
    return not asked <= {"", user}


_ROOT_NEEDS = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID"
"""Needed to write in the owner's folders, and to run and end handlers as another user."""


def _identity(user: str, group: str, capabilities: str) -> str:
    if user == "root":
        return f"User=root\nCapabilityBoundingSet={_ROOT_NEEDS}"
    return f"User={user}\nGroup={group}\nCapabilityBoundingSet={capabilities}"


def _environment() -> str:
    """Environment lines of the unit, from the variables set now: a unit starts with none of
    them."""
    pairs = [f"{key}={os.environ[key]}" for key in _variables() if os.environ.get(key)]
    return "\n".join(f"Environment={_quoted(pair)}" for pair in pairs)


# Quoting: in systemd paths a backslash quotes only the next character, so words that need more are
# refused.


def _quoted(word: str) -> str:
    if safe_line(word) != word:
        fail(EX_CONFIG, f"{safe_line(word)!r}: only printable characters are allowed in a unit")
    if re.fullmatch("[A-Za-z0-9_./:=@+,-]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _executable(path: str) -> str:
    if set(path) & set("\"'\\"):
        fail(EX_CONFIG, f"{safe_line(path)}: systemd runs no program with quotes in its path")
    return _quoted(path)


def _tmpfile(path: str, run_dir: str, owner: os.stat_result) -> str:
    mode = 0o755 if path == run_dir else files.FOLDER_MODE
    try:
        # tmpfiles would change a shared folder such as /var/log.
        folder_stat = os.stat(path)
        mode, owner = stat.S_IMODE(folder_stat.st_mode), folder_stat
    except FileNotFoundError:
        pass
    user, group = _names(owner)
    return f"d {_quoted(path)} {mode:04o} {user} {group} - -"


def _logs(folder: str) -> str:
    """Both log paths for logrotate, which reads them as patterns; "" if they cannot be
    written so."""
    if set(folder) & set("\"'\\*?[]{}~#") or safe_line(folder) != folder:
        return ""
    return f'"{folder}/queue.log" "{folder}/mail.log"'


def _warnings(setup: Setup) -> Iterable[str]:
    if os.environ.get(nftban_variables.PASSWORD_VARIABLE):
        yield (
            f"{nftban_variables.PASSWORD_VARIABLE} is not written into the units, which all can "
            "read: put "
            "the password alone into a file of mode 600 and name it (mail.relay.password_file)"
        )
    owner = os.stat(setup.queue.pending)
    user = _names(owner)[0]
    if _as_others(setup, user):
        return
    barriers = {_barrier(os.path.realpath(path), owner) for path in _needed(setup)}
    for barrier in sorted(barriers - {""}):
        yield f"{safe_line(barrier)}: {user} cannot enter it, and the units need its content"
    for path in (setup.queue.log_dir, setup.queue.run_dir):
        with suppress(FileNotFoundError):  # the units make it
            if not _may_write(os.stat(path), owner):
                whose = f"belongs to {_names(os.stat(path))[0]}, the units write there as {user}"
                yield f"{safe_line(path)}: {whose}: chown {user} {shlex.quote(path)}"


def _may_write(folder: os.stat_result, user: os.stat_result) -> bool:
    """True if the mode lets a user of this owner and group make files in a folder."""
    if user.st_uid in (0, folder.st_uid):
        return True
    shift = 3 if folder.st_gid == user.st_gid else 0
    return folder.st_mode >> shift & 3 == 3


def _barrier(path: str, user: os.stat_result) -> str:
    """The first folder above a path that a user may not enter; "" if none."""
    if user.st_uid == 0:
        return ""
    parts = path.split("/")
    for end in range(1, len(parts)):
        folder = "/".join(parts[:end]) or "/"
        stats = os.stat(folder)
        shift = 6 if stats.st_uid == user.st_uid else 3 if stats.st_gid == user.st_gid else 0
        if not stats.st_mode >> shift & 1:
            return folder
    return ""
