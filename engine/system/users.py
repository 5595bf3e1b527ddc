"""Who a program is run as: a user with all their groups, as a login would have them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ctypes

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


class Unsafe(Exception):
    """Root cannot safely reach a path with any user's rights; the message says why."""


LINKS = 40
"""Symbolic links that a path may lead through, as in the kernel."""


def owner_at(path: str) -> Account | None:
    """The user with whose rights root reaches a file or folder; None: with the rights we have.

    The owner of what is there decides. Where that is root, the owner of the nearest folder or link
    on the way decides, since they can put something else in its place. So root's own rights are
    used only where no other user can redirect the path, or put a file beside a file of root's. What
    is missing at the end of the path is judged as a file of root's.

    Raises:
        Unsafe: a file of one user in a folder of another, or a path of root's in a folder that
            others can write.
        OSError: a folder on the way is missing.
    """
    if os.geteuid() != 0:
        return None
    way = list(_way(path))
    is_folder = os.path.isdir(path)
    folder, around = way[-2 if os.path.exists(path) and len(way) > 1 else -1]
    _, end = way[-1]
    if not is_folder and end.st_uid and around.st_uid not in (0, end.st_uid):
        raise Unsafe(
            f"belongs to {_called(end.st_uid)} in a folder of {_called(around.st_uid)}: not opened "
            f"as root, use sudo -u {for_sudo(end.st_uid)}"
        )
    for _, seen in reversed(way):
        if seen.st_uid:
            return owning_files(seen)
    for at, seen in way:
        if _others_write(at, seen, sticky_counts=not is_folder and at == folder):
            raise Unsafe(
                f"not opened as root: other users can write to the folder {at} "
                f"(mode {stat.S_IMODE(seen.st_mode):o}, group {seen.st_gid})"
            )
    return None


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The root folder, each folder and link that a path leads through, and what is at its end, if
    anything is."""
    at, links = "/", 0
    yield at, os.lstat(at)
    left = os.path.join(os.getcwd(), path).split("/")[::-1]
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        there = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        try:
            seen = os.lstat(there)
        except FileNotFoundError:
            if left:
                raise
            return
        yield there, seen
        if not stat.S_ISLNK(seen.st_mode):
            at = there
            continue
        links += 1
        if links > LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(there)
        at = "/" if target.startswith("/") else at
        left += target.split("/")[::-1]


def _others_write(at: str, seen: os.stat_result, *, sticky_counts: bool) -> bool:
    """Whether users besides root can make files in a folder of root's, or move what is in it."""
    if not stat.S_ISDIR(seen.st_mode) or (seen.st_mode & stat.S_ISVTX and not sticky_counts):
        return False
    if seen.st_mode & stat.S_IWOTH:
        return True
    # The group bits are also the mask of an access control list, which may name anyone.
    return bool(seen.st_mode & stat.S_IWGRP) and (
        seen.st_gid != 0 or "system.posix_acl_access" in os.listxattr(at)
    )


def owning_files(seen: os.stat_result) -> Account:
    """The owner of a file or folder; with its group, where that is one of theirs."""
    account = owning(seen)
    return account._replace(gid=seen.st_gid) if seen.st_gid in account.groups else account


def _called(uid: int) -> str:
    return name_of(uid) or str(uid)


@contextmanager
def files_as(account: Account | None) -> Iterator[None]:
    """Reach files with the rights of a user, on this thread alone (setfsuid, setgroups); what is
    made is theirs. None, or root: with our own rights.

    For files in a folder of another user: root, redirected there, reaches only what that user
    reaches anyway. Do not yield to a caller, nor start a thread, in this block.

    Raises:
        PermissionError: the system does not let us.
    """
    if account is None or account.uid == 0 or os.geteuid() != 0:
        yield
        return
    libc, groups = _libc(), os.getgroups()
    was = libc.setfsgid(_ASK), libc.setfsuid(_ASK)
    try:
        _set_groups(account.groups)
        libc.setfsgid(account.gid)
        libc.setfsuid(account.uid)
        if (libc.setfsgid(_ASK), libc.setfsuid(_ASK)) != (account.gid, account.uid):
            raise PermissionError(errno.EPERM, f"cannot reach files as {account.name}")
        yield
    finally:
        libc.setfsuid(was[1])
        libc.setfsgid(was[0])
        _set_groups(groups)


_ASK = -1
"""What setfsuid(2) and setfsgid(2) answer without a change."""

_SETGROUPS = {
    **dict.fromkeys(("aarch64", "riscv64", "loongarch64"), 159),
    **dict.fromkeys(("i386", "i486", "i586", "i686", "armv6l", "armv7l"), 206),
    **{"x86_64": 116, "ppc64": 81, "ppc64le": 81, "s390x": 206},
}
"""The number of setgroups(2) by machine. The call of libc changes all threads, this one only ours.
"""


@cache
def _libc() -> ctypes.CDLL:
    import ctypes  # setfsuid(2), which no module of the standard library has

    libc = ctypes.CDLL(None, use_errno=True)
    libc.setfsuid.argtypes = libc.setfsgid.argtypes = [ctypes.c_uint32]
    libc.syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p]
    libc.syscall.restype = ctypes.c_long
    return libc


def _set_groups(groups: Sequence[int]) -> None:
    """Set the supplementary groups of this thread.

    Raises:
        PermissionError: the system does not let us, or its call is not known for this machine.
    """
    if sorted(os.getgroups()) == sorted(groups):
        return
    import ctypes

    machine = os.uname().machine
    if ctypes.sizeof(ctypes.c_long) == 4 and _SETGROUPS.get(machine) != 206:
        machine = f"{machine}, 32 bits"
    if machine not in _SETGROUPS:
        raise PermissionError(errno.EPERM, f"cannot change groups on a {machine} machine")
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc().syscall(_SETGROUPS[machine], len(groups), listed) != 0:
        code = ctypes.get_errno()
        raise PermissionError(code, f"cannot change groups: {os.strerror(code)}")
