"""The built packages, made once for all test processes."""

import fcntl
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def _package_tools() -> None:
    """Skip all tests of packages without the tools that make and install them."""
    tools = ("build", "hatchling", "shtab", "pypandoc", "twine", "pipx", "uv")
    if missing := [name for name in tools if find_spec(name) is None]:
        pytest.skip(f"the extra package is not installed ({missing[0]} is missing)")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel made from it, without access to an index."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    made = folder / "built"
    with (folder / "built.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes the first one builds
        if not made.exists():
            making = folder / "building"
            argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(making)]
            run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
            assert run.returncode == 0, run.stdout + run.stderr
            making.rename(made)
    return made


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    """The wheel."""
    (path,) = built.glob("*.whl")
    return path
