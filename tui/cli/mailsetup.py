"""`mail setup`: tells the whole installation whom mail goes to, in its own mail.conf.local."""

from __future__ import annotations

import os
import re
import time
from argparse import Namespace
from collections.abc import Mapping

from engine import files, shellconf
from engine.foreign import CONFIG_DIR, SECRET
from engine.mail.address import checked
from engine.mail.model import BadMail
from engine.text import shown
from tui.cli.mail import try_out
from tui.cli.wiring import EX_CONFIG, EX_UNAVAILABLE, EX_USAGE, Setup, complain, fail

NAME = "mail.conf.local"

GROUP = "nftban"
"""Who reads it besides root, where that group exists."""

LONGEST = 1 << 20
"""Bytes of such a file that are read; the real one has 200."""

TRIGGERS = (
    *("NFTBAN_MAIL_ON_HEALTH_CRITICAL", "NFTBAN_MAIL_DAILY_REPORT"),
    *("NFTBAN_MAIL_ON_BAN", "NFTBAN_MAIL_ON_LOGIN_ALERT"),
)
"""What mail is sent about, in the order of the real program."""

HEADER = "# Written by `spooldeck mail setup`; conf.d/mail.conf goes before it.\n"


def setup_mail(setup: Setup, arguments: Namespace) -> int:
    """Write it, keeping what else it said and a copy of how it was."""
    try:
        email = checked(arguments.email)
    except BadMail as error:
        fail(EX_USAGE, str(error))
    folder = f"{os.environ.get('NFTBAN_CONFIG_DIR') or CONFIG_DIR}/conf.d"
    if not os.path.isabs(folder):
        fail(EX_CONFIG, f"NFTBAN_CONFIG_DIR: expected an absolute path, not {shown(folder)}")
    path = f"{folder}/{NAME}"
    wanted = {"NFTBAN_MAIL_ENABLED": "YES", "NFTBAN_MAIL_RECIPIENT": email}
    wanted |= dict.fromkeys(TRIGGERS if arguments.all else (), "YES")
    before = _read(path)
    after = written(before, wanted, path)
    if arguments.dry_run:
        print(f"would write {shown(path)}:")
        print("\n".join(shown(line) for line in _unsaid(after).splitlines()))
        if arguments.test:
            print(f"would send a test mail to {email}")
        return 0
    _put(setup, path, before, after)
    said = setup.mail_settings()
    if said.recipient != email:
        told = shown(said.recipient) or "nobody"
        complain(
            f"mail from {shown(setup.queue.root)} goes to {told} all the same: the environment, "
            "spooldeck's own configuration or another data folder goes before this file"
        )
    return try_out(setup, said, email) if arguments.test else 0


def written(before: str, wanted: Mapping[str, str], path: str) -> str:
    """The file as it is to be: what it said of other things, and these values.

    Raises:
        Fail: a line sets one of them in a way that cannot be taken out.
    """
    for name, variable in shellconf.variables(before, {}, {}).items():
        if name in wanted and "closing quote" in variable.problem:
            where = f"{shown(path)}: line {variable.line}: {name}"
            fail(EX_CONFIG, f"{where}: {variable.problem}; mend it by hand first")
    kept = [line for line in before.splitlines() if not _sets(line, wanted)]
    own = [files.assignment(name, value).rstrip("\n") for name, value in wanted.items()]
    head = "" if before else HEADER
    return head + "\n".join([*kept, *own]) + "\n"


_ASSIGNS = re.compile(r"\s*(?:(?:export|readonly|declare -r|declare -x|declare -rx)\s+)?(\w+)=")


def _sets(line: str, wanted: Mapping[str, str]) -> bool:
    """Whether a line sets one of these; a default (`:=`) is overruled where it stands."""
    found = _ASSIGNS.match(line)
    return found is not None and found[1] in wanted


def _unsaid(text: str) -> str:
    """The file as it may be shown: a password in it is not."""
    return re.sub(rf"(?m)^(.*\b{SECRET}\b[^=\n]*=).*$", r'\1"***"', text)


def _read(path: str) -> str:
    """What it says now; "" when it is not there.

    Raises:
        Fail: it is something else than a plain file of text.
        OSError: it cannot be read.
    """
    try:
        here = files.reach(os.path.dirname(path))
    except FileNotFoundError:
        return ""
    try:
        fd = files.open_plain(NAME, here)
    except FileNotFoundError:
        return ""
    except OSError as error:
        fail(EX_CONFIG, f"{shown(path)}: {error.strerror}, expected a plain file")
    finally:
        os.close(here)
    try:
        return files.read_guarded(fd, LONGEST)[0].decode("utf-8")
    except files.Refused as refusal:
        fail(EX_CONFIG, f"{shown(path)}: {refusal}")
    except UnicodeDecodeError as error:
        fail(EX_CONFIG, f"{shown(path)}: not UTF-8 at byte {error.start}")
    finally:
        os.close(fd)


def _put(setup: Setup, path: str, before: str, after: str) -> None:
    folder = os.path.dirname(path)
    above = os.path.dirname(folder)
    if not os.path.isdir(above):
        expected = "expected the configuration of NFTBan there; NFTBAN_CONFIG_DIR names another"
        fail(EX_UNAVAILABLE, f"{shown(above)}: no such folder, {expected}")
    if after == before:
        print(f"{shown(path)} says so already; nothing was changed")
        return
    files.make_folder(folder)
    here = files.enter(folder)
    try:
        owner = _owner(os.fstat(here))
        if before:
            print(f"kept what was there: {shown(folder)}/{_copy(here, before, owner)}")
        new = f".{NAME}.{os.urandom(6).hex()}"
        _write(new, here, after, owner)
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


def _copy(here: int, before: str, owner: tuple[int, int] | None) -> str:
    """Keep what was there, under a name that nobody reads as configuration; answers with it."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{NAME}.bak-{stamp}-{os.urandom(2).hex()}"
    _write(name, here, before, owner)
    return name


def _write(name: str, here: int, text: str, owner: tuple[int, int] | None) -> None:
    """A new file, safe on the disk; nothing of it is left where that fails."""
    fd = files.create(name, here, owner, files.FILE_MODE)
    try:
        files.fchmod(fd, files.FILE_MODE)  # whatever our umask is: the group is to read it
        files.write_all(fd, text.encode())
        files.fsync(fd)
    except OSError:
        files.forget(name, here)
        raise
    finally:
        os.close(fd)


def _owner(folder: os.stat_result) -> tuple[int, int] | None:
    """Whom it belongs to: root, and the group that reads it; or whom the folder belongs to."""
    if os.geteuid() != 0:
        return None
    import grp

    try:
        return 0, grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return files.owner_for(folder)
