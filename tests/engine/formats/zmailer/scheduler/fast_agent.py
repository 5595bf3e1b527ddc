"""A small transport agent for tests: what becomes of a recipient is in its user name.

It starts fast (no import of the project). Each delivery is written to a FIFO, under the lock of the
control file, before the tag: a line `user PID`. Users: good... is delivered, bad... fails,
slow... is deferred once, never... always.
"""

import fcntl
import os
import re
import sys

_match = re.compile(rb"r .{10}(\S+) (\S+) (\S+) (\S+)$").match
EVENTS = os.open("../events", os.O_WRONLY)
LOCK = b"~%6d" % os.getpid()
"""Tag and PID; one of seven digits reaches into the next slot."""


def serve(path: bytes, host: bytes) -> int:
    """Answer each recipient of a host that is to do; return how many there were."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return 0
    count = at = 0
    data = os.read(file, os.fstat(file).st_size)
    for line in data.split(b"\n"):
        match = _match(line)
        if match and match[2] == host and lock(file, at, LOCK):
            count += 1
            answer(file, path, at, match[3])
        at += len(line) + 1
    os.close(file)
    return count


def lock(file: int, at: int, mark: bytes) -> bool:
    """Write tag and slot of a recipient that is to do, or that we have."""
    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        if os.pread(file, len(LOCK), at + 1) not in (b" " * len(LOCK), LOCK):
            return False
        os.pwrite(file, mark, at + 1)
        return True
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)


def answer(file: int, path: bytes, at: int, user: bytes) -> None:
    """Deliver to a user that is locked, and report it."""
    ident = path.rpartition(b"/")[2]
    status, tag = b"deferred", b" "
    if user.startswith(b"good"):
        status, tag = b"ok3", b"+"
    elif user.startswith(b"bad"):
        status, tag = b"error", b"-"
    elif user.startswith(b"slow"):
        try:
            os.close(os.open(b"../tries/" + user, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            status, tag = b"ok3", b"+"
    if tag != b" ":
        os.write(EVENTS, b"%b %d\n" % (user, os.getpid()))
    lock(file, at, tag.ljust(len(LOCK)))
    write(b"%b/%d\t\t%b of %b" % (ident, at, status, user))


def read() -> bytes:
    """Read what the scheduler has written; nothing if it has ended."""
    try:
        return os.read(0, 65536)
    except ConnectionResetError:
        return b""


def write(line: bytes) -> None:
    """Write a line to the scheduler."""
    os.write(1, line + b"\n")


write(b"#hungry")
buffer = b""
while chunk := read():
    buffer += chunk
    *lines, buffer = buffer.split(b"\n")
    for one in lines:
        if not one:
            sys.exit(0)
        if one != b"#idle":
            name, _, target = one.partition(b"\t")
            if not serve(name, target):
                write(b"#resync " + name)
        write(b"#hungry")
