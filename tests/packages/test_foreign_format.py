"""A format of another package: installed beside us, tested by our suite, opened by console and
commands, and without harm when it is broken.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import queue_config
from engine.formats.known_formats import foreign_formats, setup_for
from tests.console_operator import an_operator
from tests.console_places import make_spool
from tui.cli import main
from tui.cli.setup.places import open_places
from tui.text import keys

SOURCE = Path(__file__).parent / "jobdir"
JOB: dict[str, Any] = {"kind": "mail", "created": 1_795_160_000.0, "due": 0.0, "attempts": 0}
JOB |= {"description": "a job", "error": "", "destination": "", "group": ""}
JOB |= {"state": "pending", "lease": None}


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which pip has installed the package."""
    folder = tmp_path_factory.mktemp("jobdir")
    source = shutil.copytree(SOURCE, folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*pip, "--target", folder / "site", source], check=True)
    return folder / "site"


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with two jobs; its journal is in the same folder, also for root."""
    monkeypatch.setattr("engine.config.place_address.ROOT_STATE_FOLDER", str(tmp_path / "state"))
    path = tmp_path / "work.jobs"
    both = {f"job-{number}": {**JOB, "rev": str(number)} for number in (1, 2)}
    path.write_text(json.dumps({"change": 2, "jobs": both}))
    return str(path)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have the packages of a folder in this process, as if it had started with them."""
    monkeypatch.syspath_prepend(str(folder))
    foreign_formats.cache_clear()
    for name in ("jobdir", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(autouse=True)
def forget_formats() -> Any:
    """The next test finds its own packages."""
    yield
    foreign_formats.cache_clear()
    for name in ("jobdir", "broken"):
        sys.modules.pop(name, None)


def test_the_package_passes_the_suite(installed: Path, tmp_path: Path) -> None:
    """In a process of its own, with no file of ours but the installed ones."""
    shutil.copy(SOURCE / "suite.py", tmp_path / "test_jobdir.py")
    environ = os.environ | {"PYTHONPATH": str(installed)}
    argv = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_jobdir.py"]
    ran = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert int(ran.stdout.split()[-4]) > 30


def test_commands_and_console_open_it(
    installed: Path, jobs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status, doctor, a plan, its undo, and the list of the console."""
    install(monkeypatch, installed)

    def printed(code: int, *words: str) -> str:
        assert main([*words]) == code
        return capsys.readouterr().out

    def state() -> object:
        return json.loads(Path(jobs).read_text())["jobs"]["job-1"]["state"]

    assert "todo 2" in printed(1, "status", jobs)
    assert "2 tasks are overdue" in printed(1, "doctor", jobs)
    printed(0, "hold", jobs, "--id", "job-1", "--apply", "1")
    assert state() == "held"
    op = json.loads(printed(0, "undo", jobs, "--json"))["op"]
    printed(0, "undo", op, jobs, "--apply", "1")
    assert state() == "pending"
    asyncio.run(_look(jobs, "work.jobs 2 0"))


async def _look(jobs: str, *texts: str) -> None:
    """Open the console on a spool of ours and a file of jobs, and see texts on the second one."""
    own = Path(jobs).parent / "own"
    make_spool(own, [])
    setup = setup_for(queue_config.load_config(None, {}), "", os.environ)
    places = await asyncio.to_thread(open_places, setup, [str(own), jobs])
    async with an_operator(
        *places, clock=time.time, first=keys.OVERVIEW, size=(160, 40)
    ) as operator:
        await operator.sees(*texts)


BROKEN = {
    "raise LookupError('no library')": "LookupError: no library",
    "raise SystemExit(3)": "SystemExit: 3",
    "Broken.contract = 99": "ValueError: made for contract 99",
    "FORMAT = Broken": "TypeError: ABCMeta found, expected an object",
    "Broken.detects = lambda self, at: 1 / 0": "ZeroDivisionError: division by zero",
    "Broken.detects = lambda self, at: sys.exit(0)": "SystemExit: 0",
    "Broken.open = lambda self, setup: {}['x']": "KeyError: 'x'",
    "Broken.open = lambda self, setup: sys.exit(0)": "SystemExit: 0",
    "Broken.open = lambda self, setup: None": "AttributeError",
    "Broken.open = lambda self, setup: BrokenStore()": "ZeroDivisionError",  # in its scan
    "Broken.retry_policy = lambda self, setup: setup.nothing": "AttributeError",
    "Broken.parse_settings = lambda self, section, at: section.text": "AttributeError",
    "Broken.complete = lambda self, setup, place: setup.nothing": "AttributeError",
}
MODULE = """
import sys

from spooldeck import Format, State, StoreBase, Unavailable

class BrokenStore(StoreBase):
    states = {{State.PENDING: "todo"}}

    def scan(self, touched=None):
        yield 1 / 0

    parts = read = scan

class Broken(Format):
    name, title = "broken", "a broken queue"

    def detects(self, at):
        return at.text.endswith(".jobs")

    def open(self, setup):
        raise Unavailable("nothing there")

FORMAT = Broken()
{}
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a package that is broken in a way."""

    def install_broken(how: str) -> None:
        site = tmp_path / "site"
        info = site / "broken-2.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 2.0\n")
        (info / "entry_points.txt").write_text("[spooldeck.formats]\nbroken = broken:FORMAT\n")
        (site / "broken.py").write_text(MODULE.format(how))
        install(monkeypatch, site)

    return install_broken


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_package_costs_one_line(
    how: str, jobs: str, broken: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the console its place has the error, and the other place is as always."""
    broken(how)
    assert main(["status", jobs]) > 1
    errors, why = capsys.readouterr().err, f"broken 2.0: {BROKEN[how]}"
    shown = why if "format broken unusable: " in errors else f"format broken: {why}"
    assert shown in errors
    assert "Traceback" not in errors and len(errors.splitlines()) == 1
    if "detects" in how or "open" in how:
        asyncio.run(_look(jobs, "own", shown[:24]))  # as much as a row has room for


def test_doctor_names_a_broken_package(
    tmp_path: Path, broken: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the place is of another format, as its own places cannot be opened."""
    broken("Broken.contract = 99")
    make_spool(tmp_path / "own", [])
    assert main(["doctor", str(tmp_path / "own"), "--json"]) == 1
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    (row,) = (row for row in rows if row["check"] == "formats")
    assert row["problem"].startswith("format broken unusable: broken 2.0: ValueError")


@pytest.mark.parametrize("named", ["variable", "configuration", "option"])
def test_a_queue_that_is_not_made_yet_stays_ours(
    named: str,
    tmp_path: Path,
    broken: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also if a package claims its folder; commands of our formats load no package."""
    broken("Broken.detects = lambda self, at: True")
    root, config = tmp_path / "root", tmp_path / "spooldeck.yaml"
    root.mkdir()
    config.write_text(f"queue: {{root: {root}, syslog: ''}}\n" if named != "variable" else "{}\n")
    words = ["--config", str(config), *(["--root", str(root)] if named == "option" else [])]
    if named == "variable":
        monkeypatch.setenv("NFTBAN_DATA_DIR", str(root))
    assert main([*words, "status"]) == 2
    assert "no queue" in capsys.readouterr().err
    assert main([*words, "queue", "process-next"]) == 1
    assert (root / "queue" / "pending").is_dir()
    assert foreign_formats.cache_info().misses == 0


def test_the_settings_of_a_broken_package_stop_no_other_place(
    tmp_path: Path, broken: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a name that no package has is an error."""
    broken("Broken.parse_settings = lambda self, section, at: section.text")
    own, config = tmp_path / "own", tmp_path / "spooldeck.yaml"
    make_spool(own, [])
    words = ["--config", str(config)]
    config.write_text("stores: {broken: {}}\n")
    assert main([*words, "status", str(own)]) == 0
    assert main([*words, "--root", str(own), "queue", "process-next"]) == 1
    config.write_text("stores: {brocken: {}}\n")
    capsys.readouterr()
    assert main([*words, "status", str(own)]) == 78
    assert "no such format" in capsys.readouterr().err
