"""Whether a Kannader is at work on a spool, which writes no PID and takes no lock.

It is known by its open folders: it holds descriptors of `queue`, `inflight` and `cleanup` that can
only be gone through (O_PATH) for as long as it lives (Kannader spool, section 1). We, and a shell
that stands in one, open them otherwise.
"""

from __future__ import annotations

import os

from engine.stores.kannader.folder import MailFolder


def kannaders(folders: tuple[MailFolder, ...]) -> tuple[int, ...]:
    """PIDs of the processes that hold all these folders as Kannader does.

    Of processes of other users, which we may not look into, nothing is known: whoever may write in
    the spool is its owner or root, and sees those that matter.
    """
    wanted = {(seen.st_dev, seen.st_ino) for seen in (folder.seen for folder in folders)}
    own = os.getpid()
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return tuple(sorted(pid for pid in pids if pid != own and wanted <= _passed(pid, wanted)))


def _passed(pid: int, wanted: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Which of some folders a process holds to go through."""
    found: set[tuple[int, int]] = set()
    place = f"/proc/{pid}/fd"
    try:
        names = os.listdir(place)
    except OSError:
        return found  # it has ended, or is another user's
    for name in names:
        try:
            seen = os.stat(f"{place}/{name}")
            key = seen.st_dev, seen.st_ino
            if key in wanted and _is_path(pid, name):
                found.add(key)
        except OSError:
            continue  # closed since it was listed
    return found


def _is_path(pid: int, name: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as info:
        for line in info:
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & os.O_PATH)
    return False
