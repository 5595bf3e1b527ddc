"""Installation of the packages by pip, pipx and uv, from files and from an index of our own, and
their use."""

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine.version import VERSION
from tests.other_users import OTHER_UID
from tests.programs import needs_root

BESIDE = Path(sys.executable).parent
"""The folder of the tools that development brings."""

Install: TypeAlias = Callable[[Path, Path, Path], Path]
"""Installs a wheel with the wheels of a folder below another one; returns the `bin` folder."""


@pytest.fixture
def prefix() -> Iterator[Path]:
    """A folder of root that all may enter, as /opt is."""
    with tempfile.TemporaryDirectory(prefix="sd.") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def wheelhouse(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels that the packages need, from the index or the cache of pip."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    run("pip", "--python", python(), "download", "--quiet", "--dest", folder, wheel, "hatchling")
    (folder / wheel.name).unlink()
    return folder


def python() -> Path:
    """An interpreter that each user may run, of a version that is supported."""
    for path in (Path(sys.executable).resolve(), Path("/usr/bin/python3")):
        try:
            test = [str(path), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if subprocess.run(test, user=OTHER_UID, extra_groups=[], cwd="/").returncode == 0:
                return path
        except OSError:  # not there, or below a folder that only root may enter
            continue
    pytest.skip("no Python 3.11 or later that each user may run")


def run(tool: str, *words: str | Path, **environ: str) -> str:
    """Run a development tool; return what it prints."""
    variables = {"PATH": f"{BESIDE}:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    network = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_")) or "proxy" in k}
    argv = [str(BESIDE / tool), *map(str, words)]
    done = subprocess.run(argv, env=network | variables | environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install_by_pip(prefix: Path, *words: str | Path) -> Path:
    """`pip install` into a virtual environment."""
    inside = prefix / "venv" / "bin"
    subprocess.run([python(), "-m", "venv", "--without-pip", inside.parent], check=True)
    run("pip", "--python", inside / "python", "install", "--quiet", *words)
    return inside


def by_pip(wheel: Path, wheelhouse: Path, prefix: Path) -> Path:
    """`pip install` of the wheel and all that it needs."""
    return install_by_pip(prefix, "--no-index", "--find-links", wheelhouse, wheel)


class _SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def an_index(packages: Path, prefix: Path) -> Iterator[str]:
    """The URL of a package index (PEP 503) that has one project, by HTTP on loopback."""
    (prefix / "simple").mkdir()
    (prefix / "simple" / "spooldeck").symlink_to(packages)
    handler = partial(_SilentHandler, directory=str(prefix))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()


def by_name(wheel: Path, wheelhouse: Path, prefix: Path, *words: str) -> Path:
    """`pip install spooldeck` from an index, with its manual pages."""
    with an_index(wheel.parent, prefix) as url:
        source = ("--index-url", url, "--find-links", wheelhouse)
        inside = install_by_pip(prefix, *source, *words, "spooldeck")
    assert (inside.parent / "share" / "man" / "man1" / "spooldeck.1").is_file()
    return inside


def by_name_from_source(wheel: Path, wheelhouse: Path, prefix: Path) -> Path:
    """The same from the source archive, whose wheel is built by hatchling alone."""
    return by_name(wheel, wheelhouse, prefix, "--no-binary", "spooldeck")


def by_pipx(wheel: Path, wheelhouse: Path, prefix: Path) -> Path:
    """`pipx install`; it uses uv if that is installed, which compiles only if asked."""
    folders = {"PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "man", "HOME": "home"}
    folders["PIPX_COMPLETION_DIR"] = "completion"
    offline = f"--pip-args=--no-index --find-links {wheelhouse}"
    environ = {name: f"{prefix}/{folder}" for name, folder in folders.items()}
    environ["UV_COMPILE_BYTECODE"] = "1"
    run("pipx", "install", "--python", python(), offline, wheel, **environ)
    assert (prefix / "man" / "man1" / "spooldeck.1").is_file()
    return prefix / "pipx" / "venvs" / "spooldeck" / "bin"


def by_uv(wheel: Path, wheelhouse: Path, prefix: Path) -> Path:
    """`uv tool install`."""
    environ = {"UV_TOOL_DIR": str(prefix / "uv"), "UV_TOOL_BIN_DIR": str(prefix / "bin")}
    environ["UV_COMPILE_BYTECODE"] = "1"
    offline = ("--offline", "--no-index", "--find-links", wheelhouse)
    run("uv", "tool", "install", "--python", python(), *offline, wheel, **environ)
    return prefix / "uv" / "spooldeck" / "bin"


def run_as_other_user(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program as a user who owns nothing of the installation."""
    environ = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "NFTBAN_MAIL_METHOD": "none"}
    user: dict[str, Any] = {"user": OTHER_UID, "group": OTHER_UID, "extra_groups": []}
    words = [str(word) for word in argv]
    return subprocess.run(words, cwd="/", env=environ, capture_output=True, text=True, **user)


def make_place(prefix: Path) -> Path:
    """A folder of that user for a queue."""
    place = prefix / "place"
    place.mkdir()
    os.chown(place, OTHER_UID, OTHER_UID)
    return place


def timer_command(inside: Path, place: Path) -> list[str | Path]:
    """The command of a timer, by an interpreter that reports from where it loads each module."""
    command = ("queue", "process-next")
    return [inside / "python", "-v", "-P", "-m", "spooldeck", "--root", place, *command]


def recompiled(verbose: str) -> list[str]:
    """The modules that were compiled from their source (python(1), -v)."""
    return re.findall(r"(?m)^# code object from '?(.*/site-packages/.*\.py)'?$", verbose)


def test_a_service_user_starts_from_bytecode_of_the_installer(wheel: Path, prefix: Path) -> None:
    """Root has written it: `process-next` compiles nothing, and needs no other package."""
    needs_root("another user runs what root installed")
    inside, place = install_by_pip(prefix, "--no-deps", wheel), make_place(prefix)
    version = run_as_other_user(inside / "spooldeck", "--version")
    made = run_as_other_user(inside / "spooldeck", "init", place)
    assert (version.stdout, made.returncode) == (f"spooldeck {VERSION}\n", 0)
    timer = run_as_other_user(*timer_command(inside, place))
    assert timer.returncode == 1  # nothing due
    assert timer.stderr.count(".pyc'\n") > 20
    assert recompiled(timer.stderr) == []


@pytest.mark.deep
@pytest.mark.parametrize("install", [by_pip, by_pipx, by_uv, by_name, by_name_from_source])
def test_an_installed_command_works(
    install: Install, wheel: Path, wheelhouse: Path, prefix: Path
) -> None:
    """It adds, runs and prints tasks as another user, and starts from bytecode."""
    needs_root("another user runs what root installed")
    inside, place = install(wheel, wheelhouse, prefix), make_place(prefix)
    commands = (
        ("init", place),
        ("--root", place, "queue", "add", "report"),
        ("--root", place, "queue", "list", "--json"),
        ("overview", place, "--json"),
        ("completion", "bash"),
    )
    runs = [run_as_other_user(inside / "spooldeck", *words) for words in commands]
    timer = run_as_other_user(*timer_command(inside, place))
    assert [one.stderr for one in runs] == [""] * len(runs)
    assert '"kind": "report"' in runs[2].stdout
    assert "_shtab_spooldeck" in runs[4].stdout
    assert timer.returncode == 3  # no handler is configured
    assert recompiled(timer.stderr) == []
