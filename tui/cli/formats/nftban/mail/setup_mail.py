"""`mail setup`: set the recipient of the installation's mail in mail.conf.local."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping

from engine.config import nftban_variables, shell_assignments
from engine.config.mail_config import MailSettings
from engine.formats.base.format import Setup
from engine.mail.address import require_addresses
from engine.mail.model import BadMail
from engine.system import files
from engine.system.command_errors import EX_CONFIG, EX_UNAVAILABLE, EX_USAGE, fail, print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from tui.cli.formats.nftban.mail.send import send_test
from tui.cli.setup.output import Answer, captured_lines, print_json

NAME = "mail.conf.local"

GROUP = "nftban"
"""Group that may read the file besides root, if it exists."""

MAX_FILE_BYTES = 1 << 20
"""Maximum bytes of the file; the real one has 200."""

RECIPIENT = "NFTBAN_MAIL_RECIPIENT"

TRIGGERS = (
    "NFTBAN_MAIL_ON_HEALTH_CRITICAL",
    "NFTBAN_MAIL_DAILY_REPORT",
    "NFTBAN_MAIL_ON_BAN",
    "NFTBAN_MAIL_ON_LOGIN_ALERT",
)
"""The events that send a mail, in the order of the contract's program."""

HEADER = "# Written by `spooldeck mail setup`; read after conf.d/mail.conf, which it overrides.\n"

BASH = "/bin/bash"
"""Checks the syntax of a file with `-n`, which runs nothing."""


def setup_mail(
    setup: Setup, email: str, *, show: bool, all: bool, test: bool, dry_run: bool, json: bool
) -> int | Answer:
    """Write the settings, keep the other lines, and make a backup."""
    if bool(email) is show:
        fail(EX_USAGE, "expected the new EMAIL, or --show")
    folder = f"{nftban_variables.config_dir(os.environ)}/conf.d"
    if not os.path.isabs(folder):
        fail(EX_CONFIG, f"NFTBAN_CONFIG_DIR: expected an absolute path, not {safe_line(folder)}")
    above = os.path.dirname(folder)
    if not os.path.isdir(above) and above != nftban_variables.OWN_CONFIG_DIR:
        expected = "expected the configuration of NFTBan there; NFTBAN_CONFIG_DIR names another"
        fail(EX_UNAVAILABLE, f"{safe_line(above)}: no such folder, {expected}")
    path = f"{folder}/{NAME}"
    if show:
        return _show(setup, path)
    try:
        email = ",".join(require_addresses(email))
    except BadMail as error:
        fail(EX_USAGE, str(error))
    with captured_lines(json) as lines:
        settings = _change(setup, path, email, enables_all=all, dry_run=dry_run)
        code = 0
        if test and dry_run:
            print(f"would send a test mail to {email}")
        elif test:
            code = send_test(setup, settings, email)
    if json:
        print_json({"file": path, "dry_run": dry_run, "done": code == 0, "lines": lines})
    return code


def _show(setup: Setup, path: str) -> Answer:
    settings = setup.mail.settings()
    text, _ = _read(path)
    variables = shell_assignments.parse_variables(text, {}, {})
    values: dict[str, str | int | bool | None] = {
        "file": path,
        "file_exists": os.path.lexists(path),
        "recipient": settings.recipient or None,
        "sender": settings.sender or None,
        "method": settings.method or None,
        "relay": settings.host or None,
        "port": settings.port,
        "user": settings.user or None,
        "password_set": bool(settings.password or settings.password_file),
    }
    triggers = {name: variables[name].text if name in variables else None for name in TRIGGERS}
    yes_no = {True: "yes", False: "no", None: "-"}
    rows = {**{name.replace("_", " "): value for name, value in values.items()}, **triggers}
    cells = {
        name: yes_no[value] if value is None or isinstance(value, bool) else value
        for name, value in rows.items()
    }
    return Answer(
        lambda: {**values, "triggers": triggers},
        lambda: [f"{name:<13} {safe_line(str(cell))}" for name, cell in cells.items()],
    )


def _change(
    setup: Setup, path: str, email: str, *, enables_all: bool, dry_run: bool
) -> MailSettings:
    """Set the recipient, and make a backup of the file; print what was done. Return the settings
    of mail after that."""
    assignments = {"NFTBAN_MAIL_ENABLED": "YES", RECIPIENT: email}
    assignments |= dict.fromkeys(TRIGGERS if enables_all else (), "YES")
    ours = "".join(files.format_assignment(name, value) for name, value in assignments.items())
    before, file_stat = _read(path)
    other_lines = _kept_lines(before, assignments, path)
    after = ("".join(f"{line}\n" for line in other_lines) or HEADER) + ours
    if other_lines and not other_lines[-1]:
        _require_whole(after, path)
    settings = setup.mail.settings(planned={RECIPIENT: email})
    if settings.recipient != email:
        other = safe_line(settings.recipient) or "no recipient"
        print_error(
            f"mail from {safe_line(setup.queue.root)} still goes to {other}: the environment, "
            "spooldeck's own configuration or another data folder overrides this file"
        )
    if dry_run:
        print(f"would write {safe_line(path)}:")
        if other_lines:
            # Not printed: the lines may contain a password.
            print(f"(other lines that are kept: {len(other_lines)})")
        print(ours, end="")
    else:
        _write_config(path, before, after, file_stat)
    return settings


def _kept_lines(before: str, assignments: Mapping[str, str], path: str) -> list[str]:
    """The lines to keep, without line ends; the last is empty if the file is not only assignments.

    In a file of plain assignments the old values are removed. In any other file all lines are kept,
    except our own at the end: the last assignment wins, and removing a line of a shell script may
    change the others.

    Raises:
        CommandError: a later assignment would not win, or the script is incomplete.
    """
    lines = before.split("\n")
    if not lines[-1]:
        lines.pop()
    if all(map(_is_plain, lines)):
        return [line for line in lines if not _sets(line, assignments)]
    _require_whole(before, path)
    for number, line in enumerate(lines, 1):
        if not _COMMENT.match(line) and _LOCKS.search(line) and any(n in line for n in assignments):
            fail(EX_CONFIG, f"{safe_line(path)}: line {number}: readonly; repair it by hand first")
        if _ENDS.match(line):
            where = f"{safe_line(path)}: line {number}"
            fail(EX_CONFIG, f"{where}: ends the file; repair it by hand first")
    other_lines = list(lines)
    while other_lines and _sets(other_lines[-1], assignments) and _is_plain(other_lines[-1]):
        other_lines.pop()
    # Our lines follow an empty line, so that a line continuation cannot swallow them.
    return other_lines if other_lines and not other_lines[-1] else [*lines, ""]


_LOCKS = re.compile(r"\b(?:readonly|declare|typeset)\b")
_ENDS = re.compile(r"(?:return|exit|exec)\b")
_GOES_ON = re.compile(r"[\\()]|^\s*:")
_COMMENT = re.compile(r"[ \t]*(?:#|$)")
_ASSIGNS = re.compile(r"\s*(?:(?:export|readonly|declare -r|declare -x|declare -rx)\s+)?(\w+)=")


def _sets(line: str, assignments: Mapping[str, str]) -> bool:
    """True if a line sets one of these; a default (`:=`) is no assignment here."""
    match = _ASSIGNS.match(line)
    return match is not None and match[1] in assignments


def _is_plain(line: str) -> bool:
    """True if a line is empty, a comment, or one complete assignment."""
    if _COMMENT.match(line):
        return True
    # Unusual white space, or a line that may continue in the next.
    if not line.replace("\t", " ").isprintable() or _GOES_ON.search(line):
        return False
    variables = shell_assignments.parse_variables(line, {}, {}).values()
    return bool(variables) and not any(variable.problem for variable in variables)


def _require_whole(text: str, path: str) -> None:
    """Check with `bash -n` that a script is complete. Raises CommandError: it is not, or bash
    cannot run."""
    import subprocess

    argv = [BASH, "--norc", "--noprofile", "-n"]
    try:
        ran = subprocess.run(
            argv, input=text.encode(), capture_output=True, env={}, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        fail(EX_UNAVAILABLE, f"{safe_line(path)}: more than plain lines, and not checked: {error}")
    if ran.returncode or ran.stderr:
        # Bash's message quotes the wrong line, which may contain a password.
        number = re.search(rb"line (\d+):", ran.stderr)
        where = f"line {number[1].decode()}: " if number else ""
        fail(EX_CONFIG, f"{safe_line(path)}: {where}syntax error; repair it by hand first")


def _read(path: str) -> tuple[str, os.stat_result | None]:
    """The text and stat of the file; "" and None if it does not exist. Raises CommandError: it is
    not a plain text file; OSError: it cannot be read."""
    try:
        folder_fd = files.open_dir_path(os.path.dirname(path))
    except FileNotFoundError:
        return "", None
    try:
        fd = files.open_plain(NAME, folder_fd)
    except FileNotFoundError:
        return "", None
    except OSError as error:
        fail(EX_CONFIG, f"{safe_line(path)}: {error_text(error)}, expected a plain file")
    finally:
        os.close(folder_fd)
    try:
        data, file_stat = files.read_guarded(fd, MAX_FILE_BYTES)
        return data.decode("utf-8"), file_stat
    except files.Refused as refusal:
        fail(EX_CONFIG, f"{safe_line(path)}: {refusal}")
    except UnicodeDecodeError as error:
        fail(EX_CONFIG, f"{safe_line(path)}: not UTF-8 at byte {error.start}")
    finally:
        os.close(fd)


def _write_config(path: str, before: str, after: str, file_stat: os.stat_result | None) -> None:
    folder = os.path.dirname(path)
    if after == before:
        print(f"{safe_line(path)} already has these settings; nothing was changed")
        return
    is_own_config = os.path.dirname(folder) == nftban_variables.OWN_CONFIG_DIR
    # Workers of any user read our own file, which has no password.
    files.make_folders(folder, mode=0o755 if is_own_config else files.FOLDER_MODE)
    folder_fd = files.open_dir(folder)
    try:
        new = f".{NAME}.{os.urandom(6).hex()}"
        if file_stat is None:
            owner = None if is_own_config else _owner(os.fstat(folder_fd))
            _write(new, folder_fd, after, owner, 0o644 if is_own_config else files.FILE_MODE)
        else:
            print(f"backup: {safe_line(folder)}/{_copy(folder_fd, before, file_stat)}")
            _write(new, folder_fd, after, _same_owner(file_stat), stat.S_IMODE(file_stat.st_mode))
        try:
            # Other processes see the file only after it is completely on the disk.
            files.rename(new, NAME, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        except OSError:
            files.unlink_quietly(new, folder_fd)
            raise
        files.fsync(folder_fd)
    finally:
        os.close(folder_fd)
    print(f"wrote {safe_line(path)}")


def _copy(folder_fd: int, before: str, file_stat: os.stat_result) -> str:
    """Make a backup with a name that is not read as configuration; returns the name."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{NAME}.bak-{stamp}-{os.urandom(2).hex()}"
    # Readable by the owner only: a password in it outlives its change.
    _write(name, folder_fd, before, _same_owner(file_stat), stat.S_IRUSR | stat.S_IWUSR)
    return name


def _write(name: str, folder_fd: int, text: str, owner: tuple[int, int] | None, mode: int) -> None:
    fd = files.create_file(name, folder_fd, owner, mode)
    try:
        files.write_all(fd, text.encode())
        files.fsync(fd)
    except OSError:
        files.unlink_quietly(name, folder_fd)
        raise
    finally:
        os.close(fd)


def _same_owner(file_stat: os.stat_result) -> tuple[int, int] | None:
    return (file_stat.st_uid, file_stat.st_gid) if os.geteuid() == 0 else None


def _owner(folder: os.stat_result) -> tuple[int, int] | None:
    """The owner of a new file: root and the reading group, or the owner of the folder."""
    if os.geteuid() != 0:
        return None
    import grp

    try:
        return 0, grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return files.new_file_owner(folder)
