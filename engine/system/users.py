"""User accounts: which user to run a program as, and file access with that user's rights."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from engine.values import NamedTuple

if TYPE_CHECKING:
    import ctypes

NOGROUP = 65534
"""Group for a uid without an account (the kernel's overflow gid, `nogroup`)."""


class NotRoot(Exception):
    """Only root can run a program as another user; the message names the user."""


class Account(NamedTuple):
    """A user account."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """All groups, including `gid`."""
    name: str
    """The user name, or the uid in decimal if none."""
    home: str

    @property
    def environment(self) -> Mapping[str, str]:
        """Login variables, so that nothing is read from or written to another user's home."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def account_named(name: str) -> Account:
    """Look up a user by name. Raises `KeyError`: no such user."""
    import pwd

    entry = pwd.getpwnam(name)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir)


def owner_account(folder: os.stat_result) -> Account:
    """The account of a folder's owner; see `account_of`."""
    return account_of(folder.st_uid, folder.st_gid)


def account_of(uid: int, gid: int) -> Account:
    """The account of a user; a uid without one gets this group, unless that is root's."""
    name = user_name(uid)
    if name:
        return account_named(name)
    gid = gid or NOGROUP
    return Account(uid, gid, (gid,), str(uid), "/")


def task_account(run_as: str, folder: os.stat_result) -> Account | None:
    """The user to run a task's program as, for tasks in `folder`; None: the present user.

    `run_as` is a user name, or "" for the folder's owner; only root switches users. So a user who
    can write to a queue cannot run programs with more rights than their own.

    Raises:
        NotRoot: `run_as` is another user and we are not root.
        KeyError: no such user."""
    us = os.geteuid()
    if not run_as and (us != 0 or folder.st_uid == 0):
        return None
    account = account_named(run_as) if run_as else owner_account(folder)
    if us == 0:
        return account
    if account.uid != us:
        raise NotRoot(f"{account.name}, but we are {user_name(us) or us}")
    return None


def user_name(uid: int) -> str:
    """User name; "" if the uid has no account."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def login_environment(account: Account | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the account's home and name; unchanged if the account is None."""
    if account is None:
        return environ
    others = {name: value for name, value in environ.items() if name != "XDG_CONFIG_HOME"}
    return {**others, **account.environment}


def state_folder(environ: Mapping[str, str]) -> str:
    """The user's own folder for state: `spooldeck` in `$XDG_STATE_HOME` or `~/.local/state`.

    Raises:
        FileNotFoundError: there is no home directory.
        PermissionError: the folder belongs to another user, for example $HOME under sudo."""
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the base directory specification: a relative one is ignored
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            raise FileNotFoundError(errno.ENOENT, "no home directory")
        state = f"{home}/.local/state"
    folder = existing = f"{state}/spooldeck"
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if os.stat(existing).st_uid != os.geteuid():
        raise PermissionError(errno.EACCES, "belongs to another user", existing)
    return folder


def sudo_user(uid: int) -> str:
    """The argument for sudo's `-u`: the name, or the number if none."""
    return user_name(uid) or f"#{uid}"


class Unsafe(Exception):
    """Root cannot safely open a path with any user's rights; the message says why."""


MAX_LINKS = 40
"""Maximum number of symbolic links in a path, as in the kernel."""


def safe_account(path: str) -> Account | None:
    """The user with whose rights root opens a file or folder; None: with our own.

    It is the owner of the file. If that is root, it is the owner of the nearest folder or link on
    the path who is not root, since that user can replace it. So root's own rights are used only if
    no other user can redirect the path, or add files next to a file of root. A missing file counts
    as root's.

    Raises:
        Unsafe: a file of one user in a folder of another, or a path of root's in a folder that
            other users can write to.
        OSError: a folder on the path is missing."""
    if os.geteuid() != 0:
        return None
    # One look at each step: another process may create the file in this moment.
    steps = list(_path_steps(path))
    end_path, end = steps[-1]
    existing_steps = [(at, step_stat) for at, step_stat in steps if step_stat is not None]
    folder = os.path.dirname(end_path)
    folder_stat = dict(existing_steps)[folder]
    is_folder = end is not None and stat.S_ISDIR(end.st_mode)
    if end and not is_folder and end.st_uid and folder_stat.st_uid not in (0, end.st_uid):
        owner, other = (user_name(uid) or uid for uid in (end.st_uid, folder_stat.st_uid))
        advice = f"not opened as root, use sudo -u {sudo_user(end.st_uid)}"
        raise Unsafe(f"belongs to {owner} in a folder of {other}: {advice}")
    for _, step_stat in reversed(existing_steps):
        if step_stat.st_uid:
            # The owner, with the group of the file, if they are a member.
            account, gid = owner_account(step_stat), step_stat.st_gid
            return account._replace(gid=gid) if gid in account.groups else account
    for at, step_stat in existing_steps:
        if _is_writable_by_others(at, step_stat, sticky_counts=not is_folder and at == folder):
            raise Unsafe(
                f"not opened as root: other users can write to the folder {at} "
                f"(mode {stat.S_IMODE(step_stat.st_mode):o}, group {step_stat.st_gid})"
            )
    return None


def _path_steps(path: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield the root folder, what is on a path, and its end, with lstat; None: a missing end."""
    at, links = "/", 0
    yield at, os.lstat(at)
    components = os.path.join(os.getcwd(), path).split("/")[::-1]
    while components:
        name = components.pop()
        if name in ("", "."):
            continue
        next_path = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        try:
            step_stat = os.lstat(next_path)
        except FileNotFoundError:
            if components:
                raise
            yield next_path, None
            return
        yield next_path, step_stat
        if not stat.S_ISLNK(step_stat.st_mode):
            at = next_path
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(next_path)
        at = "/" if target.startswith("/") else at
        components += target.split("/")[::-1]


def _is_writable_by_others(at: str, file_stat: os.stat_result, *, sticky_counts: bool) -> bool:
    """True if users other than root can create files in root's folder or move its files."""
    if not stat.S_ISDIR(file_stat.st_mode) or (
        file_stat.st_mode & stat.S_ISVTX and not sticky_counts
    ):
        return False
    if file_stat.st_mode & stat.S_IWOTH:
        return True
    # The group bits are also the mask of an ACL, which may name any user.
    return bool(file_stat.st_mode & stat.S_IWGRP) and (
        file_stat.st_gid != 0 or "system.posix_acl_access" in os.listxattr(at)
    )


@contextmanager
def files_as(account: Account | None) -> Iterator[None]:
    """Context manager: access files as a user, in this thread only (setfsuid, setgroups).

    New files belong to that user. None or root: no change. Used for files in a folder of another
    user: if root is redirected there, it can only reach what that user can. Do not yield to a
    caller or start a thread in this block.

    Raises:
        PermissionError: the system refuses the change."""
    if account is None or account.uid == 0 or os.geteuid() != 0:
        yield
        return
    libc, groups = _libc(), os.getgroups()
    was = libc.setfsgid(_KEEP_ID), libc.setfsuid(_KEEP_ID)
    try:
        _set_groups(account.groups)
        libc.setfsgid(account.gid)
        libc.setfsuid(account.uid)
        if (libc.setfsgid(_KEEP_ID), libc.setfsuid(_KEEP_ID)) != (account.gid, account.uid):
            raise PermissionError(errno.EPERM, f"cannot reach files as {account.name}")
        yield
    finally:
        libc.setfsuid(was[1])
        libc.setfsgid(was[0])
        _set_groups(groups)


_KEEP_ID = -1
"""Argument that makes setfsuid(2) and setfsgid(2) return the present value without a change."""

_SETGROUPS_NUMBERS = {
    **dict.fromkeys(("aarch64", "riscv64", "loongarch64"), 159),
    **dict.fromkeys(("i386", "i486", "i586", "i686", "armv6l", "armv7l"), 206),
    **{"x86_64": 116, "ppc64": 81, "ppc64le": 81, "s390x": 206},
}
"""Number of setgroups(2) by machine: the system call changes one thread, the libc function all."""


@cache
def _libc() -> ctypes.CDLL:
    import ctypes  # for setfsuid(2), which the standard library lacks

    libc = ctypes.CDLL(None, use_errno=True)
    libc.setfsuid.argtypes = libc.setfsgid.argtypes = [ctypes.c_uint32]
    libc.syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p]
    libc.syscall.restype = ctypes.c_long
    return libc


def _set_groups(groups: Sequence[int]) -> None:
    """Set the supplementary groups of this thread. Raises `PermissionError`: the system refuses, or
    the call number of this machine is unknown."""
    if sorted(os.getgroups()) == sorted(groups):
        return
    import ctypes

    machine = os.uname().machine
    if ctypes.sizeof(ctypes.c_long) == 4 and _SETGROUPS_NUMBERS.get(machine) != 206:
        machine = f"{machine}, 32 bits"
    if machine not in _SETGROUPS_NUMBERS:
        raise PermissionError(errno.EPERM, f"cannot change groups on a {machine} machine")
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc().syscall(_SETGROUPS_NUMBERS[machine], len(groups), listed) != 0:
        code = ctypes.get_errno()
        raise PermissionError(code, f"cannot change groups: {os.strerror(code)}")
