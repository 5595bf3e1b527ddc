"""`make lock`: lock files in `.ci/lock`, with the exact versions and the SHA-256 hashes of the
packages that `make` and CI install.

`uv pip compile --universal` makes them from pyproject.toml, for each supported version of Python.
All have the same versions. `pip install --require-hashes -r FILE` refuses a file with another hash,
also from an index or folder of the user's own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tui.packaging.backend import SHTAB

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".ci" / "lock"

BUILD_LOCK = "build"  # for building and installing this program itself

LOCKS: dict[str, tuple[str, ...]] = {
    "run": (),
    "included": ("bullmq", "deliver"),
    **{name: (name,) for name in ("demo", "test", "package", "dev", "bench")},
}
"""The names of the others, and their extras of pyproject.toml. The Debian package and the container
have `included`: not federation and postgres, whose packages bring an OpenSSL of their own."""


def read_project() -> tuple[list[str], dict[str, list[str]]]:
    """The requirements of a build, and those of the program by extra; "" has those of all."""
    text = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = {"": text["project"]["dependencies"], **text["project"]["optional-dependencies"]}
    return [*text["build-system"]["requires"], SHTAB], extras


def write_locks() -> None:
    """Write all lock files with the newest versions that pyproject.toml allows."""
    build, extras = read_project()
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder, "all.txt")
        _compile(build, (name for name in extras if name), versions)
        options = ("--generate-hashes", "--constraints", str(versions))
        _compile(build, None, FOLDER / f"{BUILD_LOCK}.txt", *options)
        for name, named in LOCKS.items():
            _compile((), named, FOLDER / f"{name}.txt", *options)


def _compile(
    also: Iterable[str], extras: Iterable[str] | None, output: Path, *options: str
) -> None:
    """Write one file for some requirements and, unless `extras` is None, those of the program."""
    argv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--upgrade"]
    argv += ["--no-annotate", "--python-version=3.11", "--custom-compile-command=make lock"]
    argv += [*options, f"--output-file={output}", "-"]
    if extras is not None:
        argv += ["pyproject.toml", *(f"--extra={extra}" for extra in extras)]
    subprocess.run(argv, cwd=ROOT, input="\n".join(also), text=True, check=True)


if __name__ == "__main__":
    write_locks()
