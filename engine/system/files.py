"""Safe and durable file operations: guarded open, atomic replace, fsync, flock, path walking.

Every system call of the engine that changes a file goes through a name of this module, so that a
test can count each of them, let it fail, or kill the process there. Only this module calls fsync.

Each function that opens, makes, lists, writes or removes something raises OSError if that cannot be
done, or is refused; only what a caller tells apart is named at the function."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import stat_result

from engine.system.cleanup import closing_fd
from engine.system.fd_cache import FdCache
from engine.text.error_text import error_text

TYPE_CHECKING = False  # typing loads re and enum, at each start
if TYPE_CHECKING:
    import socket

rename = os.rename
unlink = os.unlink
write = os.write
fsync = os.fsync
mkdir = os.mkdir
rmdir = os.rmdir
fchown = os.fchown
fchmod = os.fchmod
ftruncate = os.ftruncate
utime = os.utime
link = os.link
symlink = os.symlink

MAX_TASK_BYTES = 64 * 1024
"""Bytes: a longer file is not accepted as a task file (the fields fit in 2 KiB)."""

FILE_MODE = 0o640
FOLDER_MODE = 0o750
"""Contract, "Security Notes": queue directories are 750."""

GUARDED_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_PASS_THROUGH = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""Open a folder only to pass through it: no read permission needed."""


class Refused(Exception):
    """A file that is not accepted; the message says why."""


class Untrusted(Refused):
    """A file whose content may be right, refused for its mode, owner, access or links: it stays."""


def open_folder(path: str, dir_fd: int | None = None) -> int:
    """Open a folder for reading, as `open_path`; a symbolic link as last component is refused."""
    if dir_fd is not None or os.geteuid() != 0:
        return os.open(path, _FOLDER, dir_fd=dir_fd)
    # Not kept open: a process with O_PATH descriptors of a spool is taken for its worker.
    with closing_fd(open_path(path, follow=False)) as passed:
        return os.open(".", _FOLDER, dir_fd=passed)


def open_path(path: str, *, follow: bool = True) -> int:
    """Open a folder (O_PATH) to open files in it; as root, safe from other users' symbolic links.

    Root goes component by component with openat(2). A symbolic link that another user made, or
    could have made, is followed only to a folder of that same user; otherwise that user could make
    root create, rename or remove files elsewhere. `follow=False` refuses a link as last component.

    Raises:
        PermissionError: a link of another user leads to a folder of a different user.
        OSError: a component is missing or is not a folder."""
    if os.geteuid() != 0:
        return os.open(path, _PASS_THROUGH if follow else _PASS_THROUGH | os.O_NOFOLLOW)
    at, name, makers = _walk_links(path, follow=follow)
    try:
        fd = os.open(name, _PASS_THROUGH | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(at)
    return _checked_target(fd, makers, path)


def open_file(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file by its path, in a folder that another user may own; never blocks.

    As root, links are followed as in `open_path`, and a second hard link to a file of a user other
    than the folder's owner is refused.

    Raises:
        PermissionError: another user's link leads to it.
        OSError: it is missing or cannot be opened."""
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    if os.geteuid() != 0:
        return os.open(path, flags)
    if not flags & os.O_CREAT:
        _require_there(path)
    at, name, makers = _walk_links(path, follow=True)
    try:
        folder_stat = os.fstat(at)
        file_stat = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISCHR(file_stat.st_mode) or stat.S_ISBLK(file_stat.st_mode):
            makers = makers | {folder_stat.st_uid} - {0}  # opening a device can have side effects
        _require_owner(file_stat, makers, path)
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(at)
    if is_borrowed(os.fstat(fd), folder_stat):
        os.close(fd)
        raise PermissionError(errno.EPERM, "has a second hard link", path)
    return _checked_target(fd, makers, path)


_DISK_NAMES = frozenset(
    {"lost+found", ".snapshot", ".snapshots", ".zfs", ".glusterfs"}
    | {"@eaDir", "#recycle", "#snapshot"}
)
_DISK_PREFIXES = (".nfs", ".fuse_hidden", ".Trash-")


def is_disks_own(name: str) -> bool:
    """True for a name that file systems and network storage put into any folder: lost+found of
    ext4, snapshots, files that an NFS client keeps while they are open."""
    return name in _DISK_NAMES or name.startswith(_DISK_PREFIXES)


def _require_there(path: str) -> None:
    """Find a missing file by one stat: many that are polled never exist, and to walk a path takes
    some twenty system calls. All else is left to the walk."""
    try:
        os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        return


def list_names(path: str) -> list[str]:
    """Return the sorted names in a folder; its path is followed as in `open_path`."""
    with closing_fd(open_path(path)) as folder:
        fd = os.open(".", _FOLDER, dir_fd=folder)
    with closing_fd(fd):
        return sorted(os.listdir(fd))


def real_path(path: str) -> str:
    """Resolve symbolic links; as root, return the path unresolved if another user's link leads
    away. A file next to it is then created in the folder that contains that link."""
    if os.geteuid() != 0:
        return os.path.realpath(path)
    try:
        at, name, makers = _walk_links(path, follow=True)
    except OSError:
        return os.path.abspath(path)  # opening it reports the error
    try:
        end = name if os.access(name, os.F_OK, dir_fd=at, follow_symlinks=False) else "."
        _require_owner(os.stat(end, dir_fd=at, follow_symlinks=False), makers, path)
        return os.path.normpath(os.path.join(os.readlink(f"/proc/self/fd/{at}"), name))
    except OSError:
        return os.path.abspath(path)
    finally:
        os.close(at)


def is_borrowed(file_stat: stat_result, folder: stat_result) -> bool:
    """True if a file may be another user's, hard-linked here by one who may write to the folder.

    Not if it belongs to the folder's owner, or to a member of the group that shares the folder: a
    backup by hard links (cp -al, rsnapshot) gives each file a second one."""
    if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_nlink <= 1:
        return False
    has_other_group = folder.st_mode & stat.S_IWGRP and file_stat.st_gid != folder.st_gid
    if folder.st_mode & stat.S_IWOTH or has_other_group:
        return True
    is_shared = file_stat.st_uid != 0 and not owner_problem(file_stat, folder)
    return file_stat.st_uid != folder.st_uid != 0 and not is_shared


MAX_LINKS = 40
"""Maximum number of symbolic links in a path, as in the kernel."""


def _walk_links(path: str, *, follow: bool) -> tuple[int, str, frozenset[int]]:
    """Resolve all but the last component: the folder (O_PATH), the last name, and the users except
    root who made the links on the way or could have made them."""
    at = os.open("/" if path.startswith("/") else ".", _PASS_THROUGH)
    components = _components(path)
    makers: set[int] = set()
    links = 0
    try:
        while components:
            name = components.pop()
            if (components or follow) and _is_link(name, at):
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                link_stat = os.stat(name, dir_fd=at, follow_symlinks=False)
                makers |= {link_stat.st_uid, os.fstat(at).st_uid}
                target = os.readlink(name, dir_fd=at)
                components += _components(target)
                deeper = os.open("/" if target.startswith("/") else ".", _PASS_THROUGH, dir_fd=at)
            elif components:
                deeper = os.open(name, _PASS_THROUGH | os.O_NOFOLLOW, dir_fd=at)
            else:
                return at, name, frozenset(makers - {0})
            os.close(at)
            at = deeper
    except OSError as error:
        os.close(at)
        error.filename = path
        raise
    return at, ".", frozenset(makers - {0})


def _components(path: str) -> list[str]:
    """Components of a path in reverse order."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _is_link(name: str, dir_fd: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False  # opening it reports the error


def _require_owner(file_stat: stat_result, makers: frozenset[int], path: str) -> None:
    """Check that the users who made the links own the target."""
    for maker in makers - {file_stat.st_uid}:
        what = f"a symbolic link of user {maker} leads to a file of user {file_stat.st_uid}"
        raise PermissionError(errno.EPERM, f"{what}: not followed as root", path)


def _checked_target(fd: int, makers: frozenset[int], path: str) -> int:
    try:
        _require_owner(os.fstat(fd), makers, path)
    except PermissionError:
        os.close(fd)
        raise
    return fd


def open_guarded(name: str, dir_fd: int) -> int:
    """Open a file of any type without following a link (O_NOFOLLOW) and without blocking.

    Raises:
        FileNotFoundError: there is no such name.
        Refused: it is a symbolic link, or permission is denied.
        OSError: the system cannot open it now; the file itself may be fine."""
    try:
        return os.open(name, GUARDED_FLAGS, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _FILE_ERRORS:
            raise
        kind = stat.S_IFMT(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
        refusal = Untrusted if kind in (stat.S_IFREG, stat.S_IFLNK) else Refused
        why = _TYPE_REFUSALS.get(kind) or f"cannot be opened: {error_text(error)}"
        raise refusal(why) from error


def open_outgoing(
    name: str, dir_fd: int, place: stat_result, opens: Callable[[str, int], int] = open_guarded
) -> int:
    """Open a file whose content leaves the machine or goes to a program, by `opens`.

    Root opens a file of root in a place of another user with that user's rights: that user can put
    a private file of root there (rename) if one is in any of their folders, and would get it sent.
    `place` is the stat of the place's folder."""
    fd = opens(name, dir_fd)
    if os.geteuid() != 0 or place.st_uid == 0 or os.fstat(fd).st_uid != 0:
        return fd
    os.close(fd)
    from engine.system import users  # only for root

    with users.files_as(users.owner_account(place)):
        return opens(name, dir_fd)


_FILE_ERRORS = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM)
"""errno values of open(2) that describe the file; all others describe the system's state."""

_TYPE_REFUSALS = {
    stat.S_IFLNK: "a symbolic link, not followed",
    stat.S_IFDIR: "a folder, not a task file",
    stat.S_IFIFO: "a FIFO, not a task file",
    stat.S_IFSOCK: "a socket, not a task file",
    stat.S_IFCHR: "a device, not a task file",
    stat.S_IFBLK: "a device, not a task file",
}


def read_guarded(
    fd: int, limit: int = MAX_TASK_BYTES, folder: stat_result | None = None, dir_fd: int = -1
) -> tuple[bytes, stat_result]:
    """Read an open file; it is checked with fstat(2) before the first byte is read.

    With the fstat of its `folder`, also check that its owner may put files there. `dir_fd` is the
    descriptor of its folder, to check its links; `open_plain` and `open_file` have done that.

    Raises:
        Untrusted: a second hard link, or its owner or mode is not trusted.
        Refused: not a regular file, or more than `limit` bytes.
        OSError: it cannot be read now."""
    file_stat = os.fstat(fd)
    if not stat.S_ISREG(file_stat.st_mode):
        raise Refused(file_problem(file_stat))
    if file_stat.st_nlink > 1:
        folder_stat = os.fstat(dir_fd) if dir_fd >= 0 else folder
        if folder_stat is not None and (why := file_problem(file_stat, folder_stat)):
            raise Untrusted(why)
    if folder is not None and (why := trust_problem(file_stat, folder)):
        raise Untrusted(why)
    if file_stat.st_size > limit:
        raise Refused(f"{file_stat.st_size:,} bytes, expected at most {limit:,}")
    data = os.read(fd, limit + 1)
    if len(data) != file_stat.st_size:
        # A read may return fewer bytes, and another process may still be writing.
        while len(data) <= limit and (more := os.read(fd, limit + 1 - len(data))):
            data += more
    if len(data) > limit:
        raise Refused(f"grew beyond {limit:,} bytes while it was read")
    return data, file_stat


def file_problem(file_stat: stat_result, folder: stat_result | None = None) -> str:
    """Why a file is not a regular file that was made in its folder; "" if it is one. Without the
    stat of the folder, any second hard link is refused."""
    if not stat.S_ISREG(file_stat.st_mode):
        return _TYPE_REFUSALS.get(stat.S_IFMT(file_stat.st_mode), "not a regular file")
    if file_stat.st_nlink > 1 and (folder is None or is_borrowed(file_stat, folder)):
        return "has a second hard link"
    return ""


def trust_problem(file_stat: stat_result, folder: stat_result) -> str:
    """Why a file in a folder is not trusted; "" if it is.

    Trusted are files of root and of the folder's owner and, if the folder is group-writable, files
    with the same group. Of other users, only a group that is the folder's or ours may have write
    permission: volumes of pods, ACLs and a umask of 002 give it to each file."""
    if file_stat.st_mode & stat.S_IWOTH:
        return f"is writable by all users, expected mode {FILE_MODE:o} or less"
    group = file_stat.st_gid
    if file_stat.st_mode & stat.S_IWGRP and group not in (
        (folder.st_gid, os.getegid(), *os.getgroups())
    ):
        return f"is writable by group {group}, expected mode {FILE_MODE:o} or less"
    return owner_problem(file_stat, folder)


def owner_problem(file_stat: stat_result, folder: stat_result) -> str:
    """Why a file's owner may not put files into this folder; "" if allowed."""
    if file_stat.st_uid in (0, folder.st_uid):
        return ""
    shared = folder.st_mode & stat.S_IWGRP and not folder.st_mode & stat.S_IWOTH
    if shared and file_stat.st_gid == folder.st_gid:
        return ""
    return f"belongs to user {file_stat.st_uid}, expected {folder.st_uid} (as its folder) or root"


_STATX_BTIME = 0x800


def birth_time(path: str) -> str:
    """When a file was created, by statx(2), as text that differs for each; "" if not known."""
    import ctypes  # rarely needed
    import struct

    buffer = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "statx"):
        return ""
    if libc.statx(-100, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return ""
    mask, seconds, nanoseconds = struct.unpack_from("<I76xqI", buffer)  # stx_mask, stx_btime
    return f"{seconds}.{nanoseconds:09}" if mask & _STATX_BTIME else ""


def file_revision(file_stat: stat_result) -> str:
    """A text that changes whenever a file is rewritten, replaced or renamed."""
    return f"{file_stat.st_ino:x}.{file_stat.st_ctime_ns:x}.{file_stat.st_size:x}"


def is_same_file(a: stat_result, b: stat_result) -> bool:
    """True if two fstat results show one unchanged file; a rename changes none of these fields."""
    return a.st_ino == b.st_ino and a.st_size == b.st_size and a.st_mtime_ns == b.st_mtime_ns


def is_named(name: str, file_stat: stat_result, dir_fd: int | None = None) -> bool:
    """True if an open file has this name: it was neither replaced nor removed."""
    try:
        named_stat = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named_stat, file_stat)


def claim_flock(fd: int) -> bool:
    """Take the exclusive flock of an open file without waiting; False if another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


FLOCK_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for a flock that is normally held briefly; its holder may be stopped."""

_POLL_SECONDS = 0.02


def is_unclaimed(fd: int) -> bool:
    """True if no process holds the exclusive flock of an open file now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def flocked_inodes() -> frozenset[int]:
    """Inodes with a flock, read from /proc/locks (proc_locks(5)) without touching a lock.

    Inodes of all file systems, locked by processes that this PID namespace can see; empty if
    /proc/locks cannot be read."""
    return frozenset(int(fields[-3].rpartition(":")[2]) for fields in _list_flocks())


def _list_flocks() -> list[list[str]]:
    try:
        with open("/proc/locks", encoding="ascii") as lines:
            return [fields for line in lines if "FLOCK" in (fields := line.split())]
    except OSError:
        return []


def flock_holders(file_stat: stat_result) -> frozenset[int]:
    """PIDs that took a flock on a file, as far as /proc/locks shows; not who inherited it."""
    end = f":{file_stat.st_ino}"
    return frozenset(int(fields[-4]) for fields in _list_flocks() if fields[-3].endswith(end))


class Flock:
    """Context manager: hold the exclusive flock of an open file.

    Waits for at most `patience` seconds, counted by its pauses, so that no clock is read.

    Raises:
        TimeoutError: another process held it all that time."""

    def __init__(
        self,
        fd: int,
        patience: float = FLOCK_TIMEOUT_SECONDS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fd, self._patience, self._pause = fd, patience, pause

    def __enter__(self) -> None:
        waited = 0.0
        while not claim_flock(self._fd):
            if waited >= self._patience:
                why = f"locked for {self._patience:g} s by another process, which may be stopped"
                raise TimeoutError(errno.ETIMEDOUT, why)
            self._pause(_POLL_SECONDS)
            waited += _POLL_SECONDS

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, with as many write(2) calls as needed. An error has the path of the file."""
    try:
        done = write(fd, data)
        while done < len(data):
            done += write(fd, data[done:])
    except OSError as error:
        error.filename = error.filename or _path_of(fd)
        raise


def _path_of(fd: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None  # without /proc the error has no path


def create_file(
    name: str, dir_fd: int, owner: tuple[int, int] | None, mode: int = FILE_MODE, flags: int = _NEW
) -> int:
    """Create and open an empty file that must not exist; `owner` is (uid, gid). It has the mode
    with any umask: programs of other users read tasks and metrics.

    Raises:
        FileExistsError: the name is in use."""
    fd = os.open(name, flags, mode, dir_fd=dir_fd)
    try:
        if owner is not None:
            fchown(fd, *owner)
        if os.fstat(fd).st_mode & 0o777 != mode:
            fchmod(fd, mode)
    except OSError:
        os.close(fd)
        unlink_quietly(name, dir_fd)
        raise
    return fd


def copy_mode(fd: int, file_stat: stat_result) -> None:
    """Give an open file the mode of another one, and its owner if we have the right to."""
    current, owner = os.fstat(fd), (file_stat.st_uid, file_stat.st_gid)
    if os.geteuid() == 0 and (current.st_uid, current.st_gid) != owner:
        try:
            fchown(fd, *owner)
        except PermissionError:
            if current.st_uid != file_stat.st_uid:
                raise
            # Running as that user (`files_as`), who is not a member of the file's group.
    mode = file_stat.st_mode & 0o777
    if current.st_mode & 0o777 != mode:
        fchmod(fd, mode)


def new_file_owner(folder: stat_result) -> tuple[int, int] | None:
    """Owner (uid, gid) for new files in a folder: the folder's owner if we are root; else None."""
    if os.geteuid() != 0 or (folder.st_uid, folder.st_gid) == (0, os.getegid()):
        return None
    return folder.st_uid, folder.st_gid


def make_folder(
    path: str,
    dir_fd: int | None = None,
    mode: int = FOLDER_MODE,
    owner: tuple[int, int] | None = None,
) -> None:
    """Create a folder unless it exists, for `owner` (uid, gid) or the owner of its parent. The
    parent is fsynced: if the folder's name were lost, so would be all files moved into it."""
    if dir_fd is None:
        above, name = os.path.split(path.rstrip("/"))
        with closing_fd(open_path(above or ".")) as passed:
            make_folder(name, passed, mode, owner)
        return
    try:
        os.close(create_folder(path, dir_fd, mode, owner))
    except FileExistsError:
        return
    with closing_fd(open_folder(".", dir_fd)) as above_fd:
        fsync(above_fd)


def create_folder(
    name: str, dir_fd: int, mode: int = FOLDER_MODE, owner: tuple[int, int] | None = None
) -> int:
    """Create and open a new folder, for `owner` (uid, gid) or the owner of its parent.

    In a folder that another user can write to, root makes it with the rights of the owner
    (setfsuid): that user may exchange it for a private folder of root before it is opened, and a
    chown would give that away.

    Raises:
        FileExistsError: the name is in use.
        PermissionError: the owner may not create it, or it was exchanged."""
    above = os.fstat(dir_fd)
    owner = owner or new_file_owner(above)
    is_shared = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not above.st_mode & stat.S_ISVTX
    if os.geteuid() != 0 or not (above.st_uid or is_shared):
        return _create_folder(name, dir_fd, mode, owner)
    if owner is None or owner[0] == 0:
        return _create_folder(name, dir_fd, mode, owner, is_exchangeable=True)
    from engine.system import users  # only for root, and folders are rarely made

    with users.files_as(users.account_of(*owner)._replace(gid=owner[1])):
        return _create_folder(name, dir_fd, mode)


def _create_folder(
    name: str,
    dir_fd: int,
    mode: int,
    owner: tuple[int, int] | None = None,
    *,
    is_exchangeable: bool = False,
) -> int:
    mkdir(name, mode, dir_fd=dir_fd)
    fd = -1
    try:
        fd = open_folder(name, dir_fd)
        if is_exchangeable and os.listdir(fd):
            raise PermissionError(errno.EPERM, "was exchanged while it was made", name)
        if owner is not None:
            fchown(fd, *owner)
        fchmod(fd, mode)  # independent of the umask
    except OSError:
        if fd >= 0:
            os.close(fd)
        with suppress(OSError):  # report the first error; an empty folder does no harm
            rmdir(name, dir_fd=dir_fd)
        raise
    return fd


def bind_socket(sock: socket.socket, name: str, dir_fd: int, mode: int) -> None:
    """Bind a UNIX socket to a name in an open folder; its path may be longer than 107 bytes.

    The umask of the process gives it the mode: chmod(2) by name would follow a link that the
    folder's owner may have put there since."""
    before = os.umask(~mode & 0o777)
    try:
        sock.bind(f"/proc/self/fd/{dir_fd}/{name}")
    finally:
        os.umask(before)


def make_folders(path: str, mode: int = FOLDER_MODE, owner: tuple[int, int] | None = None) -> None:
    """Create a folder and its missing parents, for `owner` or the owner of each parent."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        make_folder(folder, mode=mode, owner=owner)


def is_folder(path: str) -> bool:
    """True if there is a folder at this path, not a symbolic link to one."""
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False  # opening it reports the error


def open_dir_path(
    path: str, root: str = "", *, make: bool = False, owner: tuple[int, int] | None = None
) -> int:
    """Open a folder (O_PATH) to open files in it, without following symbolic links below `root`.

    Outside `root` the path is followed as in `open_path`, but a link as last component is refused.
    With `make`, missing folders are created, for `owner` or the owner of each parent."""
    key = "folder", path, root
    fd = _cache.get(key, path)
    if fd < 0:
        if not make:
            _require_there(path)
        fd = _open_dir_path(path, root, make, owner)
        _cache.keep(key, path, fd)
    return fd


_cache = FdCache()

LINKED_FOLDER = (
    "a symbolic link, none is followed below the data folder: mount its target there "
    "(mount --bind), or name the real folder in the configuration"
)
"""Why a folder of a data folder is not used."""


class LinkedFolder(NotADirectoryError):
    """A component of a path below the data folder is a symbolic link; its text is one line for the
    operator, whichever folder was to be opened."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def _open_dir_path(path: str, root: str, make: bool, owner: tuple[int, int] | None) -> int:
    parts = _below(path, root)
    if parts is None:
        if make:
            make_folders(path, owner=owner)
        return _enter(path)
    if make:
        make_folders(root, owner=owner)
    fd = open_path(root)
    for at, part in enumerate(parts):
        above = fd
        try:
            fd = _enter(part, above)
        except FileNotFoundError:
            if not make:
                raise
            make_folder(part, above, owner=owner)
            fd = _enter(part, above)
        except NotADirectoryError as error:
            link_path = "/".join((root.rstrip("/"), *parts[: at + 1]))
            if not os.path.islink(link_path):
                raise
            raise LinkedFolder(error.errno, LINKED_FOLDER, link_path) from error
        finally:
            os.close(above)
    return fd


def open_dir(path: str, root: str = "", *, make: bool = False) -> int:
    """Like `open_dir_path`, but open it for reading, so that it can be listed and fsynced."""
    with closing_fd(open_dir_path(path, root, make=make)) as fd:
        return os.open(".", _FOLDER, dir_fd=fd)


def _below(path: str, root: str) -> list[str] | None:
    """Components of a path below `root`; None if it is elsewhere."""
    prefix = root.rstrip("/") + "/"
    parts = [part for part in path[len(prefix) :].split("/") if part not in ("", ".")]
    return parts if root and f"{path}/".startswith(prefix) and ".." not in parts else None


def _enter(path: str, dir_fd: int | None = None) -> int:
    try:
        if dir_fd is None:
            return open_path(path, follow=False)
        return os.open(path, _PASS_THROUGH | os.O_NOFOLLOW, dir_fd=dir_fd)
    except NotADirectoryError as error:
        words = f"{os.path.basename(path)} is a symbolic link or not a folder: refused"
        raise NotADirectoryError(error.errno, words, path) from error


def open_shared(name: str, dir_fd: int, flags: int, mode: int = FILE_MODE) -> int:
    """Open a regular file that several users write; create it if missing, for the folder's owner.
    Never follows a link and never blocks: the folder's owner may have put anything there."""
    try:
        return open_plain(name, dir_fd, flags)
    except FileNotFoundError:
        owner, new = new_file_owner(os.fstat(dir_fd)), os.O_CREAT | os.O_EXCL
        try:
            return create_file(name, dir_fd, owner, mode, GUARDED_FLAGS | flags | new)
        except FileExistsError:
            return open_plain(name, dir_fd, flags)  # another process was faster


def open_plain(name: str, dir_fd: int, flags: int = os.O_RDONLY) -> int:
    """Open an existing regular file, without following a link and without blocking."""
    # O_NOFOLLOW, and O_NONBLOCK so as not to wait for the other end of a FIFO.
    try:
        fd = os.open(name, GUARDED_FLAGS | flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO without a reader, or a socket
            raise OSError(errno.ENXIO, _NOT_PLAIN, name) from error
        raise
    file_stat = os.fstat(fd)
    if stat.S_ISREG(file_stat.st_mode) and file_stat.st_nlink <= 1:
        return fd
    is_plain = stat.S_ISREG(file_stat.st_mode)
    words = file_problem(file_stat, os.fstat(dir_fd)) if is_plain else _NOT_PLAIN
    if not words:
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, words, name)


_NOT_PLAIN = "not a regular file"


def replace_file(path: str, data: bytes, mode: int = 0o644, root: str = "") -> None:
    """Replace a file atomically by rename(2): a reader sees the old content or the new, and the old
    one after an error. Not durable: for data that can be regenerated, such as metrics."""
    folder, name = os.path.split(path)
    dir_fd = open_dir_path(folder or ".", root)
    # The real program uses one `.tmp` name for all writers; a PID is unique only in its namespace.
    new = f"{name}.{os.urandom(6).hex()}.tmp"
    try:
        with closing_fd(create_file(new, dir_fd, new_file_owner(os.fstat(dir_fd)), mode)) as fd:
            write_all(fd, data)
        rename(new, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        unlink_quietly(new, dir_fd)
        raise
    finally:
        os.close(dir_fd)


def replace_durably(
    name: str, dir_fd: int, data: bytes, like: stat_result | None = None, mode: int = FILE_MODE
) -> None:
    """Create or replace a file in an open folder by fsync and rename; durable on return. After an
    error the old file is unchanged, or it is unknown which one survives a crash.

    With `like` it gets the mode and owner of that file."""
    new = f".{name}.{os.urandom(6).hex()}.tmp"
    try:
        with closing_fd(create_file(new, dir_fd, new_file_owner(os.fstat(dir_fd)), mode)) as fd:
            if like is not None:
                copy_mode(fd, like)
            write_all(fd, data)
            fsync(fd)
        rename(new, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        unlink_quietly(new, dir_fd)
        raise
    fsync(dir_fd)


def append(path: str, data: bytes, root: str = "") -> None:
    """Append to a file with one write(2), so that lines of several writers do not mix."""
    key = "append", path, root
    fd = _cache.get(key, path)
    if fd < 0:
        folder, name = os.path.split(path)
        with closing_fd(open_dir_path(folder or ".", root)) as dir_fd:
            fd = open_shared(name, dir_fd, os.O_WRONLY | os.O_APPEND)
        _cache.keep(key, path, fd)
    with closing_fd(fd):
        write_all(fd, data)


def unlink_quietly(name: str, dir_fd: int) -> None:
    """Unlink a file; no error if it is already gone."""
    try:
        unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return


def regular_files(
    fd: int, wants: Callable[[str], object] | None = None
) -> Iterator[tuple[str, stat_result]]:
    """Yield name and lstat of the regular files in an open folder whose name `wants` accepts."""
    for name in sorted(filter(wants, os.listdir(fd))):
        try:
            file_stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue  # removed since it was listed
        if stat.S_ISREG(file_stat.st_mode):
            yield name, file_stat


def remove_folder(name: str, dir_fd: int, last: Sequence[str] = ()) -> None:
    """Remove a folder and the regular files directly in it, the names in `last` last, in that
    order, which also holds after a power cut: the folder is fsynced between these removals.

    Anything else in the folder stays, and so does the folder. No error if it is already gone."""
    try:
        fd = open_folder(name, dir_fd)
    except FileNotFoundError:
        return
    with closing_fd(fd):
        names = [file for file, _ in regular_files(fd)]
        for file in [file for file in names if file not in last]:
            unlink_quietly(file, fd)
        for file in [file for file in last if file in names]:
            if file != last[0]:
                fsync(fd)
            unlink_quietly(file, fd)
    try:
        rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return  # another process removed it


def open_parent_below(root: str, path: str, under: str = "") -> tuple[int, str]:
    """Open the parent folder of `path`, which must be below `root`; return it and the last name.

    No symbolic link and no `..` is accepted below `root`; `root` itself is opened by `open_folder`
    with `under` as its root.

    Raises:
        Refused: the path is elsewhere, or contains `.`, `..`, `//` or control characters.
        OSError: a component is missing or is not a folder."""
    parts = components_below(root, path)
    try:
        fd = open_dir(root, under)
    except OSError as error:
        error.filename = root  # report the whole path, not one component
        raise
    with closing_fd(fd):
        return open_parent(fd, parts)


def components_below(root: str, path: str) -> list[str]:
    """Components of a path below `root`; raises `Refused` as `open_parent_below`."""
    prefix = root.rstrip("/") + "/"
    parts = path[len(prefix) :].split("/")
    plain = path.isprintable() and not any(part in ("", ".", "..") for part in parts)
    if not plain or not path.startswith(prefix):
        raise Refused(f"is not a plain path below {root}")
    return parts


def open_parent(dir_fd: int, parts: Sequence[str]) -> tuple[int, str]:
    """Open the folder of the last component, below an open one, through no link; with that name."""
    fd = open_folder(".", dir_fd)
    try:
        for part in parts[:-1]:
            deeper = open_folder(part, fd)
            os.close(fd)
            fd = deeper
    except OSError:
        os.close(fd)
        raise
    return fd, parts[-1]


def is_file_below(root: str, path: str, under: str = "") -> bool:
    """True if there is a regular file at `path` below `root` (see `open_parent_below`).

    Raises:
        Refused: the path is elsewhere, behind a symbolic link, or not a regular file.
        FileNotFoundError: a folder on the way is missing.
        OSError: it cannot be checked now."""
    try:
        fd, name = open_parent_below(root, path, under)
    except NotADirectoryError as error:
        raise Refused(f"is behind {error.filename}, a symbolic link or not a folder") from error
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    finally:
        os.close(fd)
    if not stat.S_ISREG(mode):
        raise Refused("is a symbolic link" if stat.S_ISLNK(mode) else "is not a regular file")
    return True


# KEY="value", the format of task files and mail metadata.

_ESCAPED = {"\\": "\\\\", '"': '\\"', "$": "\\$", "`": "\\`"}


def format_assignment(key: str, value: str, *, utf8: bool = False) -> str:
    """Format a `KEY="value"` line that every shell reads back as `value`.

    ASCII only, unless `utf8`; control characters become spaces, other characters "_". A backslash
    after a multi-byte character is swallowed by bash in some locales, so the rest would be
    executed: such a value is never written as UTF-8."""
    swallows = (a > "\x7f" and value[at] in _ESCAPED for at, a in enumerate(value[:-1], 1))
    utf8 = utf8 and not any(swallows)
    escaped = "".join(
        " " if c < " " or c == "\x7f" else _ESCAPED.get(c, c) if c < "\x7f" or utf8 else "_"
        for c in value
    )
    return f'{key}="{escaped}"\n'


def format_assignments(
    values: Mapping[str, str] | Iterable[tuple[str, str]], *, utf8: bool = False
) -> bytes:
    """Format a file of assignments, in the given order."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return "".join(format_assignment(k, v, utf8=utf8) for k, v in pairs).encode()


def parse_assignments(
    data: bytes, known: Callable[[str], bool], raw: Collection[str] = ()
) -> dict[str, str]:
    """Parse a `KEY="value"` file strictly: accept only what every shell reads the same way.

    Blank lines and comments are allowed; `known` decides which keys are. Nothing is expanded. A
    line of a key in `raw` that is not valid is taken literally from its first to its last quote: it
    was written by a program that does not escape. One without its closing quote goes on in the next
    lines, as in a shell; their ends become spaces.

    Raises:
        Refused: with the line number and what was expected."""
    if not data:
        raise Refused("empty: a write was interrupted")
    if not data.endswith(b"\n"):
        raise Refused("no newline at its end: a write was interrupted")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}") from error
    values: dict[str, str] = {}
    numbered = iter(enumerate(text[:-1].split("\n"), 1))
    for number, line in numbered:
        if not line.strip(" \t") or _is_comment(line, number):
            continue
        try:
            key, value = _parse_line(line, number)
        except Refused:
            key, _, value = line[:-1].partition('="')
            if key in raw and line[-1] != '"':
                key, value = _parse_line(_join_lines(line, numbered), number)
            elif key not in raw or any(map(_is_control, value)):
                raise
        if not known(key):
            raise Refused(f"line {number}: unknown key {key}")
        if key in values:
            raise Refused(f"line {number}: {key} is repeated")
        values[key] = value
    return values


def _join_lines(line: str, numbered: Iterator[tuple[int, str]]) -> str:
    """A line with those after it, to the one that ends with a quote."""
    for _, more in numbered:
        line = f"{line} {more}"
        if more.endswith('"'):
            break
    return line


def _is_comment(text: str, number: int) -> bool:
    if not text.lstrip(" \t").startswith("#"):
        return False
    if any(map(_is_control, text)):
        raise Refused(f"line {number}: control character in a comment")
    return True


def _is_control(c: str) -> bool:
    return (c < " " and c != "\t") or "\x7f" <= c <= "\x9f"


def _parse_line(line: str, number: int) -> tuple[str, str]:
    key, quote, text = line.partition('="')
    if not quote or not key.replace("_", "a").isalnum() or not key.isascii() or key[0].isdigit():
        raise Refused(f'line {number}: expected KEY="value"')
    value: list[str] = []
    at = 0
    while True:
        if at >= len(text):
            raise Refused(f"line {number}: {key} has no closing quote")
        c = text[at]
        if c == '"':
            break
        if c in "$`":
            raise Refused(f"line {number}: {key} has an unescaped {c}, which a shell expands")
        if c == "\\" and text[at - 1 : at] > "\x7f":
            # In GBK, Big5 and Shift-JIS it may be the second byte of a character, not an escape.
            raise Refused(f"line {number}: {key} has a backslash after a non-ASCII character")
        if c == "\\" and text[at + 1 : at + 2] in _ESCAPED:
            at += 1
            c = text[at]
        elif c == "\\" and at + 1 >= len(text):
            raise Refused(f"line {number}: {key} continues in the next line")
        if _is_control(c):
            raise Refused(f"line {number}: {key} has a control character")
        value.append(c)
        at += 1
    tail = text[at + 1 :]
    if tail.strip(" \t") and not (tail[0] in " \t" and _is_comment(tail, number)):
        raise Refused(f"line {number}: unexpected characters after {key} (carriage return?)")
    return key, "".join(value)
