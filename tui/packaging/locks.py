"""`make lock`: lock files with the exact version and the SHA-256 hashes of each package that `make`
and CI install, in `.ci/lock`.

They are made by `uv pip compile --universal` from pyproject.toml, for each supported version of
Python. All have the same versions. `pip install --require-hashes -r FILE` refuses a file with
another hash, also from an index or folder of the user's own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".ci" / "lock"

LOCKS = {
    "run": (),
    "included": ("bullmq", "deliver"),
    "demo": ("demo",),
    "test": ("test",),
    "package": ("package",),
    "dev": ("dev",),
    "bench": ("bench",),
}
"""The names of the lock files and their extras of pyproject.toml; `included` is what the Debian
package and the container have. Each has hatchling too, which the installation itself needs."""


def write_locks() -> None:
    """Write all lock files with the newest versions that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = "\n".join(project["build-system"]["requires"])
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder, "all.txt")
        _compile(build, project["project"]["optional-dependencies"], versions)
        for name, extras in LOCKS.items():
            _compile(build, extras, FOLDER / f"{name}.txt", "--generate-hashes", "-c", versions)


def _compile(build: str, extras: Iterable[str], output: Path, *options: str | Path) -> None:
    argv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--upgrade"]
    argv += ["--no-annotate", "--python-version", "3.11", "--custom-compile-command", "make lock"]
    argv += [f"--extra={extra}" for extra in extras]
    argv += [*map(str, options), "--output-file", str(output), "pyproject.toml", "-"]
    subprocess.run(argv, cwd=ROOT, input=build, text=True, check=True)


if __name__ == "__main__":
    write_locks()
