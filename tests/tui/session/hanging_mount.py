"""A file system that never answers: a FUSE mount whose server replies to the first request alone.

Run as a program it is the server: the end of its standard input ends the mount, and with it each
call that waits there."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FUSE_INIT, REQUEST_BYTES = 26, 1 << 17
MNT_FORCE, MNT_DETACH = 1, 2
"""include/uapi/linux/fuse.h and include/linux/fs.h of the kernel."""


def can_mount() -> bool:
    """True if this process may mount, and the kernel has FUSE."""
    return os.getuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


@contextmanager
def hanging_mount(folder: Path) -> Iterator[None]:
    """Within it, each call on a path below the folder waits; at its end these calls fail, and the
    folder is as it was."""
    command = [sys.executable, "-m", "tests.tui.session.hanging_mount", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            assert server.stdout.readline() == "mounted\n"
            yield
        finally:
            server.stdin.close()
            server.wait()


def _serve(device: int) -> None:
    while True:
        try:
            request = os.read(device, REQUEST_BYTES)
        except OSError:
            return  # it was unmounted
        _, kind, number, _ = struct.unpack_from("<IIQQ", request)
        if kind == FUSE_INIT:
            ahead = struct.unpack_from("<I", request, 48)[0]
            answer = struct.pack("<IIIIHHII36x", 7, 31, ahead, 0, 0, 0, 1 << 16, 1)
            os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, number) + answer)
            sys.stdout.write("mounted\n")
            sys.stdout.flush()


def _main(folder: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"hanging", folder.encode(), b"fuse.hanging", 0, options):
        sys.stdout.write(f"{os.strerror(ctypes.get_errno())}\n")
        return
    threading.Thread(target=_serve, args=(device,), daemon=True).start()
    sys.stdin.read()
    libc.umount2(folder.encode(), MNT_FORCE | MNT_DETACH)
    os._exit(0)  # the thread waits for requests


if __name__ == "__main__":
    _main(sys.argv[1])
