"""Who a program is run as: a user with all their groups, as a login would have them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

NOGROUP = 65534
"""The group for a user of whom the system knows none (the kernel's overflow number, `nogroup`)."""


class NotRoot(Exception):
    """Only root can run a program as somebody else; the message names whom we cannot become."""


class Account(NamedTuple):
    """A user, as the system knows them."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """All their groups, `gid` among them."""
    name: str
    """The number in decimal where the system knows no name."""
    home: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What a login sets, so that nothing is looked up or written in another user's home."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def named(name: str) -> Account:
    """The account of a user.

    Raises:
        KeyError: this system has no such user.
    """
    import pwd

    entry = pwd.getpwnam(name)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir)


def owning(folder: os.stat_result) -> Account:
    """The account that owns a folder.

    A user of whom the system knows only the number has the folder's group, if that is not root's.
    """
    name = name_of(folder.st_uid)
    if name:
        return named(name)
    gid = folder.st_gid or NOGROUP
    return Account(folder.st_uid, gid, (gid,), str(folder.st_uid), "/")


def chosen(run_as: str, folder: os.stat_result) -> Account | None:
    """Whom to run a program as for a task in `folder`; None: as we are.

    `run_as` is a user's name, or "" for the folder's owner, whom only root becomes: what somebody
    could write into a queue shall not run with more rights than theirs.

    Raises:
        NotRoot: `run_as` is another user, and we are not root.
        KeyError: this system has no user of that name.
    """
    us = os.geteuid()
    if not run_as and (us != 0 or folder.st_uid == 0):
        return None
    account = named(run_as) if run_as else owning(folder)
    if us == 0:
        return account
    if account.uid != us:
        raise NotRoot(f"{account.name}, but we are {name_of(us) or us}")
    return None


def name_of(uid: int) -> str:
    """A user's name; "" where the system knows none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def login(account: Account | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the home of another user instead of ours; None: as it is."""
    if account is None:
        return environ
    kept = {name: value for name, value in environ.items() if name != "XDG_CONFIG_HOME"}
    return {**kept, **account.environment}


def for_sudo(uid: int) -> str:
    """How sudo's `-u` calls a user: by name, or by number where there is none."""
    return name_of(uid) or f"#{uid}"


@contextmanager
def files_as(uid: int, gid: int) -> Iterator[None]:
    """Reach files with the rights of a user, on this thread alone; what is made is theirs.

    For files that are opened by code which cannot be handed a descriptor, in a folder of somebody
    else's: root, led astray there, would reach only what they reach anyway. Who is not root, or
    would become root, stays who they are.

    Raises:
        PermissionError: the system does not let us.
    """
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    import ctypes  # setfsuid(2), which no module of the library has

    libc = ctypes.CDLL(None)
    nobody = ctypes.c_uint32(-1)  # asks who we are, and changes nothing
    group, user = libc.setfsgid(ctypes.c_uint32(gid)), libc.setfsuid(ctypes.c_uint32(uid))
    try:
        if (libc.setfsuid(nobody), libc.setfsgid(nobody)) != (uid, gid):
            raise PermissionError(errno.EPERM, f"cannot reach files as user {uid}")
        yield
    finally:
        libc.setfsuid(ctypes.c_uint32(user))
        libc.setfsgid(ctypes.c_uint32(group))
