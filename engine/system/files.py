"""Files, durable and guarded: the only place that fsyncs, and the only way the engine changes one.

Every call that changes a file goes through a name of this module, so that a test can count each of
them, fail it, or end the process there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from os import stat_result

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

TASK_LIMIT = 64 * 1024
"""Bytes of a task file that are read; a longer one is no task (the fields fit in 2 KiB)."""

FILE_MODE = 0o640
FOLDER_MODE = 0o750
"""Contract, "Security Notes": queue directories are 750."""

_GUARDED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


_PASSED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""To go through a folder: it need not be readable for us."""


class Refused(Exception):
    """A file that will not be read as what it claims to be; the message says why."""


def open_folder(path: str, dir_fd: int | None = None) -> int:
    """A descriptor of a folder, never through a symbolic link at its last component.

    A path is walked as by `walk`.

    Raises:
        OSError: it is not there, no folder, or not to be opened.
    """
    if dir_fd is not None or os.geteuid() != 0:
        return os.open(path, _FOLDER, dir_fd=dir_fd)
    passed = walk(path, follow=False)
    try:
        return os.open(".", _FOLDER, dir_fd=passed)
    finally:
        os.close(passed)


def walk(path: str, *, follow: bool = True) -> int:
    """A descriptor of a folder to open files in (O_PATH); as root, redirected by no other user.

    Root goes component by component with openat(2). A symbolic link that another user made, or
    could have made, is followed only to a folder of that same user: else they could have root
    create, rename or remove files in a folder of its own. Without `follow` none is followed at the
    last component.

    Raises:
        PermissionError: a link of another user leads elsewhere.
        OSError: a component is missing or is no folder.
    """
    if os.geteuid() != 0:
        return os.open(path, _PASSED if follow else _PASSED | os.O_NOFOLLOW)
    at, name, makers = _find(path, follow=follow)
    try:
        fd = os.open(name, _PASSED | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(at)
    return _led_to(fd, makers, path)


def open_file(path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file by its path, in a folder that another user may own.

    It cannot block. As root, links are followed as by `walk`, and a second hard link to a file of
    a user other than the folder's owner is refused.

    Raises:
        PermissionError: another user's link leads to it.
        OSError: it is missing or cannot be opened.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    if os.geteuid() != 0:
        return os.open(path, flags)
    at, name, makers = _find(path, follow=True)
    try:
        around = os.fstat(at)
        seen = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode):
            makers = makers | {around.st_uid} - {0}  # to open one may already do something
        _require_led_to(seen, makers, path)
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(at)
    if is_borrowed(os.fstat(fd), around):
        os.close(fd)
        raise PermissionError(errno.EPERM, "has a second hard link", path)
    return _led_to(fd, makers, path)


def listed(path: str) -> list[str]:
    """The names in a folder, in order; its path is walked as by `walk`.

    Raises:
        OSError: it is missing or cannot be read.
    """
    folder = walk(path)
    try:
        fd = os.open(".", _FOLDER, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


def real_path(path: str) -> str:
    """A path without symbolic links; as root, as it is where another user's link leads elsewhere.

    What is made beside the file is then made where that user's link is.
    """
    if os.geteuid() != 0:
        return os.path.realpath(path)
    try:
        at, name, makers = _find(path, follow=True)
    except OSError:
        return os.path.abspath(path)  # who opens it says why
    try:
        end = name if os.access(name, os.F_OK, dir_fd=at, follow_symlinks=False) else "."
        _require_led_to(os.stat(end, dir_fd=at, follow_symlinks=False), makers, path)
        return os.path.normpath(os.path.join(os.readlink(f"/proc/self/fd/{at}"), name))
    except OSError:
        return os.path.abspath(path)
    finally:
        os.close(at)


def is_borrowed(seen: stat_result, folder: stat_result) -> bool:
    """Whether a file may be a second hard link, made by the folder's owner, to another user's."""
    return stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1 and seen.st_uid != folder.st_uid != 0


LINKS = 40
"""Symbolic links that a path may lead through, as in the kernel."""


def _find(path: str, *, follow: bool) -> tuple[int, str, frozenset[int]]:
    """The folder at the end of a path (O_PATH), the name in it, and the users besides root who made
    the links on the way, or could have."""
    at = os.open("/" if path.startswith("/") else ".", _PASSED)
    left = _components(path)
    makers: set[int] = set()
    links = 0
    try:
        while left:
            name = left.pop()
            if (left or follow) and _is_link(name, at):
                links += 1
                if links > LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                makers |= {_owner_of(name, at), os.fstat(at).st_uid}
                target = os.readlink(name, dir_fd=at)
                left += _components(target)
                deeper = os.open("/" if target.startswith("/") else ".", _PASSED, dir_fd=at)
            elif left:
                deeper = os.open(name, _PASSED | os.O_NOFOLLOW, dir_fd=at)
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
    """The components of a path, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _is_link(name: str, dir_fd: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False  # who opens it says so


def _owner_of(name: str, dir_fd: int) -> int:
    return os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_uid


def _require_led_to(seen: stat_result, makers: frozenset[int], path: str) -> None:
    """Make sure that the users who made the links own the target.

    Raises:
        PermissionError: they do not.
    """
    for maker in makers - {seen.st_uid}:
        what = f"a symbolic link of user {maker} leads to what belongs to user {seen.st_uid}"
        raise PermissionError(errno.EPERM, f"{what}, not followed as root", path)


def _led_to(fd: int, makers: frozenset[int], path: str) -> int:
    try:
        _require_led_to(os.fstat(fd), makers, path)
    except PermissionError:
        os.close(fd)
        raise
    return fd


def open_guarded(name: str, dir_fd: int) -> int:
    """A descriptor of whatever lies there, opened so that it can neither block nor be followed.

    Raises:
        FileNotFoundError: nothing of that name.
        Refused: a symbolic link, or something that we may not open.
        OSError: the system could not open it now; nothing is said about the file.
    """
    try:
        return os.open(name, _GUARDED, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _ABOUT_THE_FILE:
            raise
        kind = stat.S_IFMT(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
        raise Refused(_KINDS.get(kind) or f"cannot be opened: {error.strerror}") from error


_ABOUT_THE_FILE = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM)
"""Errors of open(2) that tell what lies there; all others tell how the system is doing."""


_KINDS = {
    stat.S_IFLNK: "a symbolic link, not followed",
    stat.S_IFDIR: "a folder, not a task file",
    stat.S_IFIFO: "a FIFO, not a task file",
    stat.S_IFSOCK: "a socket, not a task file",
    stat.S_IFCHR: "a device, not a task file",
    stat.S_IFBLK: "a device, not a task file",
}


def read_guarded(
    fd: int, limit: int = TASK_LIMIT, folder: stat_result | None = None
) -> tuple[bytes, stat_result]:
    """What an opened file holds and its state, judged on the descriptor before a byte is read.

    With the state of the `folder` it lies in, it must also be the work of somebody who may put
    files there.

    Raises:
        Refused: no regular file, a second hard link, more than `limit` bytes, or not trusted.
        OSError: it cannot be read now.
    """
    seen = os.fstat(fd)
    if why := oddity(seen):
        raise Refused(why)
    if seen.st_size > limit:
        raise Refused(f"{seen.st_size:,} bytes, expected at most {limit:,}")
    if folder is not None and (why := distrust(seen, folder)):
        raise Refused(why)
    data = os.read(fd, limit + 1)
    if len(data) != seen.st_size:
        # A read may end early, and a file that is being written goes on.
        while len(data) <= limit and (more := os.read(fd, limit + 1 - len(data))):
            data += more
    if len(data) > limit:
        raise Refused(f"grew beyond {limit:,} bytes while it was read")
    return data, seen


def oddity(seen: stat_result) -> str:
    """Why something is no plain file with one name; "" when it is one."""
    if not stat.S_ISREG(seen.st_mode):
        return _KINDS.get(stat.S_IFMT(seen.st_mode), "not a regular file")
    if seen.st_nlink > 1:
        return "has a second hard link"
    return ""


def distrust(seen: stat_result, folder: stat_result) -> str:
    """Why a file in a folder is not trusted; "" when it is.

    Trusted are files of root and of the folder's owner, and, where the folder's group may write
    there, those that carry this group. Nobody else may be able to change them.
    """
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        whom = "everybody" if seen.st_mode & stat.S_IWOTH else "its group"
        return f"may be written by {whom}, expected mode {FILE_MODE:o} or less"
    return stranger(seen, folder)


def stranger(seen: stat_result, folder: stat_result) -> str:
    """Why the owner of a file in a folder is nobody who may put files there; "" when they may."""
    if seen.st_uid in (0, folder.st_uid):
        return ""
    shared = folder.st_mode & stat.S_IWGRP and not folder.st_mode & stat.S_IWOTH
    if shared and seen.st_gid == folder.st_gid:
        return ""
    return f"belongs to user {seen.st_uid}, expected {folder.st_uid} as its folder, or root"


def revision(seen: stat_result) -> str:
    """What changes whenever a file is rewritten, replaced or renamed."""
    return f"{seen.st_ino:x}.{seen.st_ctime_ns:x}.{seen.st_size:x}"


def same_file(a: stat_result, b: stat_result) -> bool:
    """Whether two looks saw one unchanged file; a rename changes neither of these three."""
    return a.st_ino == b.st_ino and a.st_size == b.st_size and a.st_mtime_ns == b.st_mtime_ns


def claim_flock(fd: int) -> bool:
    """Take the exclusive flock of an open file without waiting; False when somebody has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


PATIENCE = 10.0
"""Seconds for which a lock that others hold for moments is waited for; a holder may be stopped."""

_POLL = 0.02


def is_unclaimed(fd: int) -> bool:
    """Whether nobody holds the flock of an open file at this moment."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def flocked() -> frozenset[int]:
    """Inodes of which somebody holds a flock, found out without touching a lock (proc_locks(5)).

    Inodes of all file systems, of the processes that this PID namespace can see; empty where the
    kernel does not tell.
    """
    try:
        with open("/proc/locks", encoding="ascii") as lines:
            fields = [line.split() for line in lines]
    except OSError:
        return frozenset()
    return frozenset(int(field[-3].rpartition(":")[2]) for field in fields if "FLOCK" in field)


class Flock:
    """Holds the exclusive flock of an open file while in the block.

    Waits for it for at most `patience` seconds, told in pauses, so that no clock is read.

    Raises:
        TimeoutError: somebody held it all that time.
    """

    def __init__(
        self, fd: int, patience: float = PATIENCE, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._fd, self._patience, self._pause = fd, patience, pause

    def __enter__(self) -> None:
        waited = 0.0
        while not claim_flock(self._fd):
            if waited >= self._patience:
                why = f"its lock has been held for {self._patience:g} s; its holder may be stopped"
                raise TimeoutError(errno.ETIMEDOUT, why)
            self._pause(_POLL)
            waited += _POLL

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, however many calls that takes.

    Raises:
        OSError: with the path of the file, as /proc/self/fd has it.
    """
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


def create(
    name: str,
    dir_fd: int,
    owner: tuple[int, int] | None,
    mode: int = FILE_MODE,
    flags: int = _NEW,
) -> int:
    """A descriptor of a new empty file that did not exist; owned by `owner` (uid, gid) if given.

    Raises:
        FileExistsError: something of that name is there.
    """
    fd = os.open(name, flags, mode, dir_fd=dir_fd)
    if owner is not None:
        try:
            fchown(fd, *owner)
        except OSError:
            os.close(fd)
            forget(name, dir_fd)
            raise
    return fd


def resemble(fd: int, seen: stat_result) -> None:
    """Give an open file the mode of another, and its owner, where we may give files away."""
    own = os.fstat(fd)
    if os.geteuid() == 0 and (own.st_uid, own.st_gid) != (seen.st_uid, seen.st_gid):
        try:
            fchown(fd, seen.st_uid, seen.st_gid)
        except PermissionError:
            if own.st_uid != seen.st_uid:
                raise
            # With the rights of that user (accounts.files_as), who is not in the file's group.
    mode = seen.st_mode & 0o777
    if own.st_mode & 0o777 != mode:
        fchmod(fd, mode)


def owner_for(folder: stat_result) -> tuple[int, int] | None:
    """Whom to give what is made in a folder: its owner, when we are root; else nobody."""
    if os.geteuid() != 0 or (folder.st_uid, folder.st_gid) == (0, os.getegid()):
        return None
    return folder.st_uid, folder.st_gid


def make_folder(
    path: str,
    dir_fd: int | None = None,
    mode: int = FOLDER_MODE,
    owner: tuple[int, int] | None = None,
) -> None:
    """Make a folder that may exist already, for `owner` (uid, gid) or the owner of where it lies.

    Durable: what is moved into a folder is lost with the folder's own name.
    """
    if dir_fd is None:
        above, name = os.path.split(path.rstrip("/"))
        passed = walk(above or ".")
        try:
            make_folder(name, passed, mode, owner)
        finally:
            os.close(passed)
        return
    try:
        mkdir(path, mode, dir_fd=dir_fd)
    except FileExistsError:
        return
    fd = open_folder(path, dir_fd)
    try:
        above_fd = open_folder("..", fd)
        try:
            owner = owner or owner_for(os.fstat(above_fd))
            if owner is not None:
                fchown(fd, *owner)
            fchmod(fd, mode)
            fsync(above_fd)
        finally:
            os.close(above_fd)
    finally:
        os.close(fd)


def make_folders(path: str, mode: int = FOLDER_MODE, owner: tuple[int, int] | None = None) -> None:
    """Make a folder and what is missing above it, for `owner` or the owner of where it lies."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        make_folder(folder, mode=mode, owner=owner)


def is_folder(path: str) -> bool:
    """Whether a folder lies there, not a symbolic link to one."""
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False  # whoever opens it says why


def reach(
    path: str, root: str = "", *, make: bool = False, owner: tuple[int, int] | None = None
) -> int:
    """A descriptor of a folder, to open files in: below `root` through no symbolic link at all,
    elsewhere not through one at its last component; else as `walk`.

    With `make` what is missing is made, for `owner` or the owner of where it lies.

    Raises:
        OSError: a component is missing, cannot be made, or is no folder or a symbolic link.
    """
    parts = _below(path, root)
    if parts is None:
        if make:
            make_folders(path, owner=owner)
        return _enter(path)
    if make:
        make_folders(root, owner=owner)
    fd = walk(root)
    for part in parts:
        above = fd
        try:
            fd = _enter(part, above)
        except FileNotFoundError:
            if not make:
                raise
            make_folder(part, above, owner=owner)
            fd = _enter(part, above)
        finally:
            os.close(above)
    return fd


def enter(path: str, root: str = "", *, make: bool = False) -> int:
    """As `reach`, a descriptor that can be listed and made durable as well.

    Raises:
        OSError: as there, or the folder cannot be read.
    """
    fd = reach(path, root, make=make)
    try:
        return os.open(".", _FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


def _below(path: str, root: str) -> list[str] | None:
    """The components of a path below `root`; None where it lies elsewhere."""
    prefix = root.rstrip("/") + "/"
    parts = [part for part in path[len(prefix) :].split("/") if part not in ("", ".")]
    return parts if root and f"{path}/".startswith(prefix) and ".." not in parts else None


def _enter(path: str, dir_fd: int | None = None) -> int:
    try:
        if dir_fd is None:
            return walk(path, follow=False)
        return os.open(path, _PASSED | os.O_NOFOLLOW, dir_fd=dir_fd)
    except NotADirectoryError as error:
        words = f"{os.path.basename(path)} is a symbolic link or no folder, and not entered"
        raise NotADirectoryError(error.errno, words, path) from error


def open_shared(name: str, dir_fd: int, flags: int, mode: int = FILE_MODE) -> int:
    """A descriptor of a plain file that others write as well, made for its folder's owner if it is
    not there; opened so that it can neither block nor be followed.

    Whoever owns the folder may have put anything there; only what we make is given to them.

    Raises:
        OSError: it is something else, has a second hard link, or cannot be opened or made.
    """
    flags |= _GUARDED
    try:
        fd = _open_plain(name, dir_fd, flags)
    except FileNotFoundError:
        owner = owner_for(os.fstat(dir_fd))
        try:
            return create(name, dir_fd, owner, mode, flags | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            fd = _open_plain(name, dir_fd, flags)  # somebody was faster
    return fd


def open_plain(name: str, dir_fd: int, flags: int = os.O_RDONLY) -> int:
    """The same of a file that is there, to read where `flags` say nothing else.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    return _open_plain(name, dir_fd, _GUARDED | flags)


def _open_plain(name: str, dir_fd: int, flags: int) -> int:
    # Not to be followed, nor to wait for the other end of a FIFO.
    try:
        fd = os.open(name, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, or a socket
            raise OSError(errno.ENXIO, _NOT_PLAIN, name) from error
        raise
    seen = os.fstat(fd)
    if stat.S_ISREG(seen.st_mode) and seen.st_nlink <= 1:
        return fd
    os.close(fd)
    words = "has a second hard link" if stat.S_ISREG(seen.st_mode) else _NOT_PLAIN
    raise OSError(errno.EINVAL, words, name)


_NOT_PLAIN = "no plain file, expected one"


def publish(path: str, data: bytes, mode: int = 0o644, root: str = "") -> None:
    """Put a whole file in place of another; a reader sees the old one or the new one.

    Not durable: for what can be made again, such as metrics. Its folder is found as by `reach`.

    Raises:
        OSError: it could not be written; the old one stands.
    """
    folder, name = os.path.split(path)
    dir_fd = reach(folder or ".", root)
    # The real program shares one `.tmp` name between writers; a PID is unique in one namespace.
    new = f"{name}.{os.urandom(6).hex()}.tmp"
    try:
        fd = create(new, dir_fd, owner_for(os.fstat(dir_fd)), mode)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        rename(new, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        forget(new, dir_fd)
        raise
    finally:
        os.close(dir_fd)


def replace(
    name: str,
    dir_fd: int,
    data: bytes,
    like: stat_result | None = None,
    mode: int = FILE_MODE,
) -> None:
    """Put a whole file in place of another in an open folder, or of none; durable when it returns.

    It has mode and owner of the file that was seen as `like`, where one is given.

    Raises:
        OSError: it could not be written; the old one stands, or nobody knows which survives a
            crash.
    """
    new = f".{name}.{os.urandom(6).hex()}.tmp"
    try:
        fd = create(new, dir_fd, owner_for(os.fstat(dir_fd)), mode)
        try:
            if like is not None:
                resemble(fd, like)
            write_all(fd, data)
            fsync(fd)
        finally:
            os.close(fd)
        rename(new, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        forget(new, dir_fd)
        raise
    fsync(dir_fd)


def append(path: str, data: bytes, mode: int = FILE_MODE, root: str = "") -> None:
    """Add to the end of a file in one write, so that lines of several writers do not mix.

    Its folder is found as by `reach`.

    Raises:
        OSError: it is no plain file, or could not be written.
    """
    folder, name = os.path.split(path)
    dir_fd = reach(folder or ".", root)
    try:
        fd = open_shared(name, dir_fd, os.O_WRONLY | os.O_APPEND, mode)
    finally:
        os.close(dir_fd)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def forget(name: str, dir_fd: int) -> None:
    """Unlink a file that may be gone already."""
    try:
        unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return


def plain_files(fd: int) -> Iterator[tuple[str, stat_result]]:
    """The regular files directly in an open folder, by name and state; nothing is followed.

    Raises:
        OSError: it cannot be listed.
    """
    for name in sorted(os.listdir(fd)):
        try:
            seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue  # gone since it was listed
        if stat.S_ISREG(seen.st_mode):
            yield name, seen


def remove_folder(name: str, dir_fd: int, last: Sequence[str] = ()) -> None:
    """Remove a folder and the regular files directly in it; those named `last` in that order.

    Of these the order holds after a power cut as well: each goes once the disk has the others gone.
    What else lies in it stays, and the folder with it. One that is gone already is no error.

    Raises:
        OSError: it is no folder, something else lies in it, or it cannot be removed now.
    """
    try:
        fd = open_folder(name, dir_fd)
    except FileNotFoundError:
        return
    try:
        found = [file for file, _ in plain_files(fd)]
        for file in [file for file in found if file not in last]:
            forget(file, fd)
        for file in [file for file in last if file in found]:
            if file != last[0]:
                fsync(fd)
            forget(file, fd)
    finally:
        os.close(fd)
    try:
        rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return  # somebody else removes it as well


def open_below(root: str, path: str, under: str = "") -> tuple[int, str]:
    """The folder that holds `path` (as a descriptor) and the last name, if it lies below `root`.

    Component by component, through no symbolic link and no `..`; `root` itself is found below
    `under` as by `reach`.

    Raises:
        Refused: the path lies elsewhere, or is written in another way than plainly.
        OSError: a component is missing or is no folder.
    """
    parts = plainly_below(root, path)
    try:
        fd = enter(root, under)
    except OSError as error:
        error.filename = root  # whoever is told of it knows no components
        raise
    try:
        return descend(fd, parts)
    finally:
        os.close(fd)


def plainly_below(root: str, path: str) -> list[str]:
    """The components of a path behind `root`.

    Raises:
        Refused: as `open_below`.
    """
    prefix = root.rstrip("/") + "/"
    parts = path[len(prefix) :].split("/")
    plain = path.isprintable() and not any(part in ("", ".", "..") for part in parts)
    if not plain or not path.startswith(prefix):
        raise Refused(f"does not lie plainly below {root}")
    return parts


def descend(dir_fd: int, parts: Sequence[str]) -> tuple[int, str]:
    """The folder in which the last of these components lies, as a descriptor, and its name.

    From an open folder, through no symbolic link.

    Raises:
        OSError: a component is missing or is no folder.
    """
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


def is_below(root: str, path: str, under: str = "") -> bool:
    """Whether a file lies at `path`, below `root` as `open_below` has it; it is not opened.

    Raises:
        Refused: it lies elsewhere, or behind a symbolic link, or is something else than a file.
        FileNotFoundError: a folder on the way is missing.
        OSError: it cannot be looked at now.
    """
    try:
        fd, name = open_below(root, path, under)
    except NotADirectoryError as error:
        raise Refused(f"lies behind {error.filename}, a symbolic link or no folder") from error
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    finally:
        os.close(fd)
    if not stat.S_ISREG(mode):
        raise Refused("is a symbolic link" if stat.S_ISLNK(mode) else "is no regular file")
    return True


# KEY="value", the form of task files and mail metadata.

_ESCAPED = {"\\": "\\\\", '"': '\\"', "$": "\\$", "`": "\\`"}


def assignment(key: str, value: str) -> str:
    """One `KEY="value"` line that every shell reads back as `value`.

    ASCII only, control characters become spaces: a backslash behind a multi-byte character is
    swallowed by bash in some locales, and what follows would run.
    """
    kept = "".join(
        " " if c < " " or c == "\x7f" else _ESCAPED.get(c, c) if c < "\x7f" else "_" for c in value
    )
    return f'{key}="{kept}"\n'


def assignments(values: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """A file of assignments, in the order given."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return "".join(assignment(k, v) for k, v in pairs).encode("ascii")


def parse_assignments(
    data: bytes, known: Callable[[str], bool], raw: Collection[str] = ()
) -> dict[str, str]:
    """The strict reader of `KEY="value"` files: what it accepts, every shell reads alike.

    Blank lines and comments are allowed, `known` says which keys are. Nothing is expanded. For the
    keys in `raw` a line that shells do not read alike is taken literally, from its first to its
    last quote: a program that escapes nothing wrote it.

    Raises:
        Refused: with the line and what was expected.
    """
    if not data:
        raise Refused("empty: a write was interrupted")
    if not data.endswith(b"\n"):
        raise Refused("no newline at its end: a write was interrupted")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}") from error
    values: dict[str, str] = {}
    for number, line in enumerate(text[:-1].split("\n"), 1):
        if not line.strip(" \t") or _is_comment(line, number):
            continue
        try:
            key, value = _parse_line(line, number)
        except Refused:
            key, _, value = line[:-1].partition('="')
            if key not in raw or line[-1] != '"' or any(map(_is_control, value)):
                raise
        if not known(key):
            raise Refused(f"line {number}: unknown key {key}")
        if key in values:
            raise Refused(f"line {number}: {key} a second time")
        values[key] = value
    return values


MAIL_RAW = ("MAIL_SUBJECT",)
"""Keys of a spooled mail's meta.sh that the NFTBan program writes without escaping anything."""


def _is_comment(text: str, number: int) -> bool:
    if not text.lstrip(" \t").startswith("#"):
        return False
    if any(map(_is_control, text)):
        raise Refused(f"line {number}: a comment holds a control character")
    return True


def _is_control(c: str) -> bool:
    return (c < " " and c != "\t") or "\x7f" <= c <= "\x9f"


def _parse_line(line: str, number: int) -> tuple[str, str]:
    key, quote, rest = line.partition('="')
    if not quote or not key.replace("_", "a").isalnum() or not key.isascii() or key[0].isdigit():
        raise Refused(f'line {number}: expected KEY="value"')
    value: list[str] = []
    at = 0
    while True:
        if at >= len(rest):
            raise Refused(f"line {number}: {key} has no closing quote")
        c = rest[at]
        if c == '"':
            break
        if c in "$`":
            raise Refused(f"line {number}: {key} holds an unescaped {c}, which a shell expands")
        if c == "\\" and rest[at - 1 : at] > "\x7f":
            # In GBK, Big5 and Shift-JIS it may be the second byte of a character, and escape none.
            raise Refused(f"line {number}: {key} holds a backslash behind a non-ASCII character")
        if c == "\\" and rest[at + 1 : at + 2] in _ESCAPED:
            at += 1
            c = rest[at]
        elif c == "\\" and at + 1 >= len(rest):
            raise Refused(f"line {number}: {key} goes on in the next line")
        if _is_control(c):
            raise Refused(f"line {number}: {key} holds a control character")
        value.append(c)
        at += 1
    tail = rest[at + 1 :]
    if tail.strip(" \t") and not (tail[0] in " \t" and _is_comment(tail, number)):
        raise Refused(f"line {number}: {key} is followed by something else than a comment")
    return key, "".join(value)
