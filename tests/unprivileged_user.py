"""Doing as a user to whom files can be closed: root, as which tests may run, may do everything."""

import codecs
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

OTHER_UID = 65534
"""A user, and a group, that own nothing."""

codecs.lookup("ascii")  # loads it: that user may be unable to read the library of Python


def as_other_user(act: Callable[[], object]) -> None:
    """Carry out as a user without rights, in a process of its own; in this one without root."""
    if os.geteuid() != 0:
        act()
        return
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(OTHER_UID)
            os.setuid(OTHER_UID)
            act()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, "what the child said is above"


@contextmanager
def other_users_folder() -> Iterator[Path]:
    """A folder of the user of `as_other_user`, where that user can reach it."""
    with tempfile.TemporaryDirectory() as place:
        if os.geteuid() == 0:
            os.chown(place, OTHER_UID, OTHER_UID)
        yield Path(place)
