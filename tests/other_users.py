"""Places of this and that user's, and the command line in another user's hands; root only."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from tests import command
from tui.cli import main

OTHER_UID = 65534
NAMELESS = 64321
"""A number without a name."""

Tree: TypeAlias = "dict[str, tuple[int, ...]]"
"""By path, all that a change would change."""


@contextmanager
def place_for_all() -> Iterator[Path]:
    """A queue made by `init`, in a folder that everybody can reach, where we stand."""
    folder = Path(tempfile.mkdtemp(prefix="spooldeck-test-"))
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        here.setenv("HOME", str(folder))
        for name in [name for name in os.environ if name.startswith(("NFTBAN_", "XDG_"))]:
            here.delenv(name)
        try:
            assert main(["init", str(folder / "data")]) == 0
            yield folder / "data"
        finally:
            shutil.rmtree(folder)


def as_user(uid: int, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of another user, without any group of ours."""
    return command.run(
        words,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], **environ},
        user=uid,
        group=uid,
        extra_groups=[],
    )


def give(folder: Path, uid: int, mode: int | None = None) -> None:
    """Everything in a folder to one user; with a mode, all its folders get it."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, uid, follow_symlinks=False)
        if mode is not None and path.is_dir():
            path.chmod(mode)


def tree(folder: Path) -> Tree:
    """Everything in a folder, with all that a change would change."""
    return {
        str(path): (s.st_mode, s.st_uid, s.st_gid, s.st_nlink, s.st_size, s.st_ctime_ns)
        for path in [folder, *folder.rglob("*")]
        for s in [path.lstat()]
    }
