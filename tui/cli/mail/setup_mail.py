"""`mail setup`: tells the whole installation whom mail goes to, in its own mail.conf.local."""

from __future__ import annotations

import os
import re
import stat
import time
from argparse import Namespace
from collections.abc import Mapping

from engine.config import shell_assignments
from engine.config.nftban_variables import CONFIG_DIR
from engine.mail.address import checked
from engine.mail.model import BadMail
from engine.system import files
from engine.text.safe import shown
from tui.cli.mail.send import try_out
from tui.cli.setup.setup import EX_CONFIG, EX_UNAVAILABLE, EX_USAGE, Setup, complain, fail

NAME = "mail.conf.local"

GROUP = "nftban"
"""Who reads it besides root, where that group exists."""

LONGEST = 1 << 20
"""Bytes of such a file that are read; the real one has 200."""

RECIPIENT = "NFTBAN_MAIL_RECIPIENT"

TRIGGERS = (
    *("NFTBAN_MAIL_ON_HEALTH_CRITICAL", "NFTBAN_MAIL_DAILY_REPORT"),
    *("NFTBAN_MAIL_ON_BAN", "NFTBAN_MAIL_ON_LOGIN_ALERT"),
)
"""What mail is sent about, in the order of the real program."""

HEADER = "# Written by `spooldeck mail setup`; read after conf.d/mail.conf, which it overrules.\n"

BASH = "/bin/bash"
"""Reads a file with `-n`: it says whether that is a whole script, and runs none of it."""


def setup_mail(setup: Setup, arguments: Namespace) -> int:
    """Write it, keeping what else it said and a copy of how it was."""
    try:
        email = checked(arguments.email)
    except BadMail as error:
        fail(EX_USAGE, str(error))
    folder = f"{os.environ.get('NFTBAN_CONFIG_DIR') or CONFIG_DIR}/conf.d"
    if not os.path.isabs(folder):
        fail(EX_CONFIG, f"NFTBAN_CONFIG_DIR: expected an absolute path, not {shown(folder)}")
    above = os.path.dirname(folder)
    if not os.path.isdir(above):
        expected = "expected the configuration of NFTBan there; NFTBAN_CONFIG_DIR names another"
        fail(EX_UNAVAILABLE, f"{shown(above)}: no such folder, {expected}")
    path = f"{folder}/{NAME}"
    wanted = {"NFTBAN_MAIL_ENABLED": "YES", RECIPIENT: email}
    wanted |= dict.fromkeys(TRIGGERS if arguments.all else (), "YES")
    before, seen = _read(path)
    kept = _kept(before, wanted, path)
    after = _written(kept, wanted)
    if kept and not kept[-1]:
        _require_whole(after, path)
    said = setup.mail_settings(planned={RECIPIENT: email})
    if said.recipient != email:
        told = shown(said.recipient) or "nobody"
        complain(
            f"mail from {shown(setup.queue.root)} goes to {told} all the same: the environment, "
            "spooldeck's own configuration or another data folder overrules this file"
        )
    if arguments.dry_run:
        print(f"would write {shown(path)}:")
        if kept:
            # Not shown: a password may stand there, in whatever way.
            print(f"(other lines that stay: {len(kept)})")
        print("".join(_own(wanted)), end="")
        if arguments.test:
            print(f"would send a test mail to {email}")
        return 0
    _put(path, before, after, seen)
    return try_out(setup, said, email) if arguments.test else 0


def _own(wanted: Mapping[str, str]) -> list[str]:
    return [files.assignment(name, value) for name, value in wanted.items()]


def _written(kept: list[str], wanted: Mapping[str, str]) -> str:
    head = "".join(f"{line}\n" for line in kept) or HEADER
    return head + "".join(_own(wanted))


def _kept(before: str, wanted: Mapping[str, str], path: str) -> list[str]:
    """The lines that stay, without their ends; an empty one comes last where not all is understood.

    In a file of plain assignments those of the wanted ones go. Of any other all lines stay, but for
    what stands at its end in our own words: what comes last counts, and to take a line out of what
    only a shell understands may change what the others do.

    Raises:
        Fail: what came last would not count, or it is no whole script.
    """
    lines = before.split("\n")
    if not lines[-1]:
        lines.pop()
    if all(map(_is_plain, lines)):
        return [line for line in lines if not _sets(line, wanted)]
    _require_whole(before, path)
    for number, line in enumerate(lines, 1):
        if not _COMMENT.match(line) and _LOCKS.search(line) and any(n in line for n in wanted):
            fail(EX_CONFIG, f"{shown(path)}: line {number}: readonly; mend it by hand first")
        if _ENDS.match(line):
            fail(EX_CONFIG, f"{shown(path)}: line {number}: ends the file; mend it by hand first")
    kept = list(lines)
    while kept and _sets(kept[-1], wanted) and _is_plain(kept[-1]):
        kept.pop()
    # Ours begin behind an empty line: what goes on in the next line would else go on in them.
    return kept if kept and not kept[-1] else [*lines, ""]


_LOCKS = re.compile(r"\b(?:readonly|declare|typeset)\b")
_ENDS = re.compile(r"(?:return|exit|exec)\b")
_GOES_ON = re.compile(r"[\\()]|^\s*:")
_COMMENT = re.compile(r"[ \t]*(?:#|$)")
_ASSIGNS = re.compile(r"\s*(?:(?:export|readonly|declare -r|declare -x|declare -rx)\s+)?(\w+)=")


def _sets(line: str, wanted: Mapping[str, str]) -> bool:
    """Whether a line sets one of these; a default (`:=`) is overruled where it stands."""
    found = _ASSIGNS.match(line)
    return found is not None and found[1] in wanted


def _is_plain(line: str) -> bool:
    """Whether a line is nothing, a comment, or one assignment, and ends what it began."""
    if _COMMENT.match(line):
        return True
    # What is white space for us and not for a shell; what may go on in the next line.
    if not line.replace("\t", " ").isprintable() or _GOES_ON.search(line):
        return False
    found = shell_assignments.variables(line, {}, {}).values()
    return bool(found) and not any(variable.problem for variable in found)


def _require_whole(text: str, path: str) -> None:
    """Make sure that a shell reads this to its end, and nothing in it is left open.

    Raises:
        Fail: it does not, or nobody can say.
    """
    import subprocess

    argv = [BASH, "--norc", "--noprofile", "-n"]
    try:
        ran = subprocess.run(
            argv, input=text.encode(), capture_output=True, env={}, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        fail(EX_UNAVAILABLE, f"{shown(path)}: more than plain lines, and not checked: {error}")
    if ran.returncode or ran.stderr:
        # Its words quote the line that is wrong, in which a password may stand.
        number = re.search(rb"line (\d+):", ran.stderr)
        where = f"line {number[1].decode()}: " if number else ""
        fail(EX_CONFIG, f"{shown(path)}: {where}bash cannot read it; mend it by hand first")


def _read(path: str) -> tuple[str, os.stat_result | None]:
    """What it says now, and what kind of file it is; "" and None when it is not there.

    Raises:
        Fail: it is something else than a plain file of text.
        OSError: it cannot be read.
    """
    try:
        here = files.reach(os.path.dirname(path))
    except FileNotFoundError:
        return "", None
    try:
        fd = files.open_plain(NAME, here)
    except FileNotFoundError:
        return "", None
    except OSError as error:
        fail(EX_CONFIG, f"{shown(path)}: {error.strerror}, expected a plain file")
    finally:
        os.close(here)
    try:
        data, seen = files.read_guarded(fd, LONGEST)
        return data.decode("utf-8"), seen
    except files.Refused as refusal:
        fail(EX_CONFIG, f"{shown(path)}: {refusal}")
    except UnicodeDecodeError as error:
        fail(EX_CONFIG, f"{shown(path)}: not UTF-8 at byte {error.start}")
    finally:
        os.close(fd)


def _put(path: str, before: str, after: str, seen: os.stat_result | None) -> None:
    folder = os.path.dirname(path)
    if after == before:
        print(f"{shown(path)} says so already; nothing was changed")
        return
    files.make_folder(folder)
    here = files.enter(folder)
    try:
        if seen is not None:
            print(f"kept what was there: {shown(folder)}/{_copy(here, before, seen)}")
        new = f".{NAME}.{os.urandom(6).hex()}"
        if seen is None:
            _write(new, here, after, _owner(os.fstat(here)), files.FILE_MODE)
        else:
            _write(new, here, after, _same_owner(seen), stat.S_IMODE(seen.st_mode))
        try:
            # Seen by others only once the disk has all of it.
            files.rename(new, NAME, src_dir_fd=here, dst_dir_fd=here)
        except OSError:
            files.forget(new, here)
            raise
        files.fsync(here)
    finally:
        os.close(here)
    print(f"wrote {shown(path)}")


def _copy(here: int, before: str, seen: os.stat_result) -> str:
    """Keep what was there, under a name that nobody reads as configuration; answers with it."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{NAME}.bak-{stamp}-{os.urandom(2).hex()}"
    # For nobody but its owner: a password in it outlives its change.
    _write(name, here, before, _same_owner(seen), stat.S_IRUSR | stat.S_IWUSR)
    return name


def _write(name: str, here: int, text: str, owner: tuple[int, int] | None, mode: int) -> None:
    """A new file, safe on the disk; nothing of it is left where that fails."""
    fd = files.create(name, here, owner, mode & files.FILE_MODE)
    try:
        files.fchmod(fd, mode)  # whatever our umask is
        files.write_all(fd, text.encode())
        files.fsync(fd)
    except OSError:
        files.forget(name, here)
        raise
    finally:
        os.close(fd)


def _same_owner(seen: os.stat_result) -> tuple[int, int] | None:
    return (seen.st_uid, seen.st_gid) if os.geteuid() == 0 else None


def _owner(folder: os.stat_result) -> tuple[int, int] | None:
    """Whom it belongs to: root, and the group that reads it; or whom the folder belongs to."""
    if os.geteuid() != 0:
        return None
    import grp

    try:
        return 0, grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return files.owner_for(folder)
