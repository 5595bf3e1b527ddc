"""Places of this and that user's, and the command line in another user's hands; root only."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import command
from tui.cli import main

OTHER_UID = 65534
NAMELESS = 64321
"""A number without a name."""


def tree(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything in a folder by its path, with all that a change would change."""
    return {
        str(path): (s.st_mode, s.st_uid, s.st_gid, s.st_nlink, s.st_size, s.st_ctime_ns)
        for path in [folder, *folder.rglob("*")]
        for s in [path.lstat()]
    }


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
    streams = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    rights = {"user": uid, "group": uid, "extra_groups": []}
    env = {"PATH": os.environ["PATH"], **environ}
    return command.run(words, env=env, **rights, **streams)  # type: ignore[arg-type]


def give(folder: Path, uid: int, mode: int | None = None) -> None:
    """Everything in a folder to one user; with a mode, all its folders get it."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, uid, follow_symlinks=False)
        if mode is not None and path.is_dir():
            path.chmod(mode)
