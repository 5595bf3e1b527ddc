"""A format that exists only here, with URLs for addresses: the table of formats is enough."""

import json
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from engine.config import place_address as addresses
from engine.config import queue_config
from engine.formats import known_formats as known_formats
from engine.formats.base.format import Format, Setup
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.model import State
from engine.places.place import Place
from engine.policy import RetryPolicy, contract_retries
from engine.store import Store, Unavailable
from tests.console_operator import an_operator
from tests.engine.task_builders import a_task as new_task
from tests.tables import each
from tui.cli import main
from tui.cli.setup.places import open_places
from tui.text import keys

SECRET = "hunter2"
URL = "fake://operator@host:7000/mails"
WITH_SECRET = URL.replace("@", f":{SECRET}@")
WORDS: Mapping[State, str] = {state: f"fake-{state}" for state in State}


class FakeStore(MemoryStore):
    """A store of this format, with words of its own."""

    states = WORDS


class FakeFormat(Format):
    """The format of a server in memory, reached by its password."""

    name, title = "fake", "a fake queue"

    def __init__(self, tasks: MemoryTasks) -> None:
        self._tasks = tasks

    def detects(self, at: addresses.Address) -> bool:
        """By the scheme."""
        return at.scheme == "fake"

    def open(self, setup: Setup) -> Store:
        """Connect; raises Unavailable without the password."""
        if setup.address.password != SECRET:
            raise Unavailable("the server refused the password")
        return FakeStore(self._tasks, lease_seconds=300.0)

    def retry_policy(self, setup: Setup) -> RetryPolicy:
        """Three attempts."""
        return contract_retries(60, 3600, 3)


@pytest.fixture
def server(monkeypatch: MonkeyPatch, tmp_path: Path) -> FakeStore:
    """The format in the table, and a server with three tasks."""
    store = FakeStore(tasks := MemoryTasks())
    monkeypatch.setitem(known_formats.FORMATS, "fake", FakeFormat(tasks))
    monkeypatch.setattr(addresses, "ROOT_STATE_FOLDER", str(tmp_path / "state" / "spooldeck"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for number in range(3):
        store.swap(None, new_task(id=f"task-{number}", kind="mail", due=time.time() - 7200))
    return store


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration file with the place and its password."""
    path = tmp_path / "spooldeck.yaml"
    path.write_text(json.dumps({"places": [WITH_SECRET]}))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def place(server: FakeStore, config: str) -> Place:
    """The place of the console with that configuration."""
    loaded = queue_config.load_config(config, {})
    (place,) = open_places(known_formats.setup_for(loaded, "", {}), [])
    return place


Run = Callable[..., str]


@pytest.fixture
def run(server: FakeStore, config: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with that configuration; its output and errors, which have no password."""

    def run(*argv: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*argv, "--config", config]) == code, capsys.readouterr()
        printed = "".join(capsys.readouterr())
        assert SECRET not in printed
        return printed

    return run


def test_the_commands_work_on_it(run: Run, tmp_path: Path) -> None:
    """Status, doctor, plans, journal, undo and notes need no line of code for a format."""
    output = run("status", URL, code=1)
    assert all(text in output for text in (f"queue     {URL}", "fake-pending 3", "attention"))
    assert json.loads(run("status", URL, "--json", code=1))["tasks"]["fake-pending"] == 3
    checked = run("doctor", URL, code=1)
    assert "3 fake-pending" in checked and "3 tasks are overdue" in checked
    assert "3" in run("hold", URL, "--dry-run")
    run("hold", URL, "--apply", "3", "--reason", "a test")
    assert "fake-held 3" in run("status", URL)
    (held,) = map(json.loads, run("journal", URL, "--json").splitlines())
    run("undo", held["op"], URL, "--apply", "3")
    run("note", "task-1", "ask first", URL)
    assert "ask first" in run("notes", URL) and "fake-pending 3" in run("status", URL, code=1)
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert ".jsonl" in {path.suffix for path in files}
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o007 == 0 for path in files)


def test_done_tasks_are_rerun_and_purged(server: FakeStore, run: Run) -> None:
    """Without --state, `rerun` takes done tasks; purge and expunge take them by their state."""
    for task in list(server.take(time.time(), "a worker", 3)):
        server.swap(task, task._replace(state=State.DONE, lease=None))
    output = run("replay", "--id", "task-0", "--dry-run", URL)
    assert "task-0: fake-done, expected fake-dead; rerun runs it again" in output
    run("rerun", "--id", "task-0", "--apply", "1", URL)
    assert "fake-pending 1" in run("status", URL, code=1)
    run("purge", "--state", "fake-done", "--filter", "id=task-1", "--apply", "1", URL)
    run("restore", "--apply", "1", URL)
    assert "fake-done 2" in run("status", URL, code=1)
    run("expunge", "--state", "fake-done", "--apply", "2", URL)
    assert "fake-done 0" in run("status", URL, code=1)


def test_a_queue_command_of_another_format_is_refused(run: Run) -> None:
    """In one line that says what the place is."""
    output = run("queue", "dlq", "list", "--root", URL, code=69)
    refusal = f"spooldeck: {URL} is a fake queue: this command is for an NFTBan queue"
    instead = f"use `spooldeck queue list --state fake-dead {URL}`"
    assert output == f"{refusal}: {instead}\n"
    assert run("queue", "metrics", URL, code=69).endswith(f"use `spooldeck status --json {URL}`\n")


async def test_the_console_shows_it(place: Place) -> None:
    """Its tasks are a list, a plan for them is made, and the password is nowhere on a screen."""
    assert SECRET not in repr(place)
    async with an_operator(place, size=(120, 40), first=keys.OVERVIEW, clock=time.time) as operator:
        await operator.sees(URL.rpartition("/")[2])
        await operator.press("2")
        await operator.sees("task-0", "task-2", "fake-pending", "host:7000/mails")
        await operator.press("H")
        await operator.sees("hold")
        assert SECRET not in operator.text


PASSWORD_WORDS: tuple[tuple[str, ...], ...] = (
    ("status", WITH_SECRET),
    ("--root", WITH_SECRET, "queue", "count"),
    (f"--root={WITH_SECRET}", "status"),
    ("queue", WITH_SECRET),
    ("replay", "--timeout", WITH_SECRET),
    ("kannader", "init", WITH_SECRET),
    ("status", f"fake://x:{SECRET}@host:port/"),
    ("status", f"nothing://x:{SECRET}@host/"),
    ("status", f"fake_x://:{SECRET}@host/"),
    ("status", f"fake://host/?Token={SECRET}"),
    (WITH_SECRET,),
)


@each("words", PASSWORD_WORDS)
def test_a_password_on_the_command_line_is_refused(run: Run, words: tuple[str, ...]) -> None:
    """Other users can read it there; the error is one line and does not repeat it."""
    output = run(*words, code=64)
    assert "password on the command line" in output and output.count("\n") == 1


def test_a_url_that_cannot_be_used_is_one_line(
    server: FakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown scheme, a wrong port, a server that refuses, a command that makes files."""
    for words, code, message in (
        (("status", "nothing://host/"), 64, "no format with URLs that begin with nothing://"),
        (("status", "fake://host:port/"), 64, "expected a port from 0 to 65535"),
        (("status", URL), 2, "the server refused the password"),
        (("kannader", "init", URL), 64, "expected a path, not a URL"),
        (("zgb", "init", URL), 64, "expected a path, not a URL"),
        (("queue", "process-next", "--root", URL), 69, "this command is for an NFTBan queue"),
        (("queue", "add", "report", "--root", URL), 69, "this command is for an NFTBan queue"),
        (("mail", "send-with-retry", "text", "a@b.example", "--root", URL), 69, "no mail spool"),
        (("mail", "suspend", "curl", "--root", URL), 69, "no transports"),
        (("init", URL), 69, "nothing was changed"),
    ):
        assert main(words) == code, words
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_of_that_name_is_none(run: Run, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A URL is never a path, even with such a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("data", "queue", "inflight", "cleanup"):
        (tmp_path / URL / name).mkdir(parents=True)
    assert "fake-pending 3" in run("status", URL, code=1)


def test_a_password_that_others_may_read_is_a_finding(run: Run, config: str) -> None:
    """With the command that hides it."""
    Path(config).chmod(0o644)
    assert f"chmod go= {config}" in run("doctor", URL, code=1)
