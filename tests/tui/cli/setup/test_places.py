"""Places in other formats: one console, one set of commands, settings, and leases for locks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.config import queue_config
from engine.config.place_address import Address
from engine.config.validators import ConfigError
from engine.formats.kannader import facts
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.known_formats import find_format, setup_for
from engine.formats.nftban.store import NftbanStore
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.live.inspector import Inspector
from engine.locks import lock_file
from engine.model import Lease, State, Task
from engine.places.place import Place, WholeQueueFigures
from engine.verbs import VERBS
from tests.console_operator import an_operator, words
from tests.console_places import PATIENCE, disk_place, some_tasks
from tests.console_places import make_spool as make_queue
from tests.tui.cli.run_clock_records import agree_with_clock
from tui.cli import main
from tui.cli.setup.one_look import scan_once
from tui.cli.setup.places import open_places
from tui.confirm.action_screen import ActionScreen
from tui.session import place_session
from tui.session.place_session import PlaceSession
from tui.task.task_lines import TaskDetails, show_command, summary_lines
from tui.task.why_waiting import list_outlook
from tui.text import keys

NOW = int(time.time())
"""The tests ask about moments that they name themselves; the stores have no other clock."""
PEOPLE = 4
FIRST, HELD = ("queue", "pending"), ("hold", "held")
"""The words of each format for tasks that wait, and for held ones."""


@pytest.fixture
def spool(tmp_path: Path) -> str:
    """A Kannader spool with one mail to two recipients."""
    path = str(tmp_path / "spool")
    make_spool(path)
    with closing(KannaderStore(path)) as store:
        store.enqueue("me@here.example", ["a@one.example", "b@two.example"], [b"Hi\r\n"])
    return path


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A mail queue whose keys, ids and due times are each in an order of their own; it sends."""
    path = str(tmp_path / "a.db")
    create(path)
    insert = "INSERT INTO mail_queue(registration_number, mail_type, next_attempt_at)"
    with closing(sqlite3.connect(path)) as db, db:
        for number, due in ((10, 30), (9, 60), (11, 40), (16, 20)):
            db.execute("INSERT INTO registrations(number) VALUES (?)", (number,))
            db.execute(f"{insert} VALUES (?, 'user', ?)", (number, NOW - due))
        db.execute("INSERT INTO config VALUES ('mailQueueEnabled', '1')")
    return path


@pytest.fixture
def places(spool: str, database: str, tmp_path: Path) -> list[str]:
    """A Kannader spool, a ZGB database and a queue of the contract, each with something in it."""
    make_queue(tmp_path / "mail.out", some_tasks())
    return [spool, database, str(tmp_path / "mail.out")]


NO_LOCK_FILE = "no lock file (row leases)"


def places_at(*paths: str) -> list[Place]:
    """Places as the console gets them."""
    return open_places(setup_for(queue_config.Config(), "", {}), paths)


async def handled(path: str) -> Place:
    """A place with a worker that has a handler for each kind, and can send."""
    (place,) = await asyncio.to_thread(places_at, path)
    return place._replace(has_handler=None, claim_obstacle=None, no_worker="")


Command = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def spooldeck(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command of which an exit code is expected; its lines of JSON."""

    def run(*argv: str, code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(argv) == code, capsys.readouterr()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]

    return run


@pytest.mark.parametrize("at", [0, 1], ids=["kannader", "zgb"])
def test_the_same_commands_work_on_each(
    places: list[str], spooldeck: Command, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are listed, noted, edited, held, purged and restored, and an operation is undone."""
    monkeypatch.setattr(facts, "INITIAL_PID_NAMESPACE", lock_file.pid_namespace())
    place, amount, waiting = places[at], (2, PEOPLE)[at], FIRST[at]

    def standing(*, due: bool = False) -> dict[str, int]:
        # The ZGB queue has no template; tasks that are due have no worker.
        (row,) = spooldeck("status", place, "--json", code=int(due or at))
        return {word: number for word, number in row["tasks"].items() if number}

    listed = spooldeck("queue", "list", "--root", place, "--json")
    (one, *_) = (row["id"] for row in listed)
    assert len(listed) == amount
    spooldeck("note", one, "ask first", place)
    assert "ask first" in json.dumps(spooldeck("notes", place, "--json"))
    spooldeck("edit", one, place, "--due", "+2h", "--apply", "1")
    later = spooldeck("queue", "list", "--root", place, "--json", "--filter", "due>+1h")
    assert [row["id"] for row in later] == [one]
    spooldeck("hold", place, "--apply", str(amount), "--reason", "a test")
    assert standing() == {HELD[at]: amount}
    held = spooldeck("journal", place, "--json")[0]["op"]
    spooldeck("undo", str(held), place, "--apply", str(amount))
    assert standing(due=True) == {waiting: amount}
    spooldeck("purge", place, "--state", waiting, "--include-all", "--apply", str(amount))
    assert standing() == {"trash": amount}
    spooldeck("restore", place, "--apply", str(amount))
    assert standing(due=True) == {waiting: amount}


def test_commands_for_a_queue_of_the_contract_are_refused_elsewhere(
    places: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what the place is, and nothing is touched."""
    for place, title in zip(places[:2], ("a Kannader spool", "a ZGB mail queue"), strict=True):
        for verb in (["work"], ["process-next"], ["dlq", "list"], ["add", "job"]):
            assert main(["queue", *verb, "--root", place]) != 0
            errors = capsys.readouterr().err
            assert title in errors
            assert errors.count("\n") == 1
        assert main(["queue", "count", "--root", place]) == 0
        assert capsys.readouterr().out.strip() == str((2, PEOPLE)[place == places[1]])
        assert main(["init", place]) == 69
        assert "nothing was changed" in capsys.readouterr().err
    stray = tmp_path / "mail.eml"
    stray.write_text("no queue")
    assert main(["status", str(stray)]) == 2
    assert "not a SQLite database" in capsys.readouterr().err


def test_each_format_is_detected(places: list[str], tmp_path: Path) -> None:
    """By its folders or its first bytes; any other path is an NFTBan queue."""
    assert [find_format(Address(place)).name for place in places] == ["kannader", "zgb", "nftban"]
    stores = [setup_for(queue_config.Config(), place, {}).open_store() for place in places]
    assert [type(store) for store in stores] == [KannaderStore, ZgbStore, NftbanStore]
    for store in stores:
        store.close()
    assert find_format(Address(str(tmp_path / "nothing"))).name == "nftban"


def test_an_unknown_setting_is_refused(places: list[str], tmp_path: Path) -> None:
    """A setting that no store reads is an error, in each place that is opened."""
    path = tmp_path / "spooldeck.yaml"
    for stores, where in (
        ({"other": {}}, "stores.other: no such format, expected one of kannader, zgb, bullmq"),
        ({"kannader": {"hosst": "x"}}, "stores.kannader.hosst: unknown key"),
        ({"zgb": {"types": {"guest": {}}}}, "stores.zgb.types.guest: unknown key"),
        ([], "stores: expected a mapping"),
    ):
        path.write_text(json.dumps({"stores": stores}))
        with pytest.raises(ConfigError) as error:
            setup_for(queue_config.load_config(str(path), {}), places[2], {})
        assert where in str(error.value)


def test_old_things_leave_the_trash_of_every_format(
    places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task purged longer ago than the setting says is deleted for good, and nothing else."""
    agree_with_clock(monkeypatch)
    for place, waiting, amount in zip(places[:2], FIRST, (2, PEOPLE), strict=True):
        main(["purge", place, "--state", waiting, "--include-all", "--apply", str(amount)])
        setup = setup_for(queue_config.Config(), place, {})
        with closing(setup.open_store()) as store:
            early = setup.housekeeping().sweep_trash(store, time.time(), always=True)
            late = setup.housekeeping().sweep_trash(store, time.time() + 25 * 3600, always=True)
        assert (early.tasks, late.tasks) == (0, amount)


def test_a_bug_while_a_place_is_followed_is_raised(spool: str) -> None:
    """A command that looks once ends with it; it does not wait for what cannot come any more."""

    def broken() -> object:
        raise ZeroDivisionError("a bug")

    async def ask(lives: Sequence[PlaceSession]) -> None:
        raise AssertionError("there is nothing to be told")

    with pytest.raises(ZeroDivisionError):
        scan_once([places_at(spool)[0]._replace(queue_figures=broken)], ask)  # type: ignore[arg-type]


def test_ctrl_c_ends_a_scan_that_hangs(spool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT ends a command that looks at places, although what it asked has not answered yet."""
    monkeypatch.setattr(place_session, "CLOSE_TIMEOUT_SECONDS", 0.01)
    left, answered = threading.Event(), threading.Event()

    def hanging() -> WholeQueueFigures:
        os.kill(os.getpid(), signal.SIGINT)
        left.wait(5)
        answered.set()
        return WholeQueueFigures()

    async def ask(lives: Sequence[PlaceSession]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        scan_once([places_at(spool)[0]._replace(queue_figures=hanging)], ask)
    assert not answered.is_set()
    left.set()


@pytest.mark.parametrize("at", [0, 1], ids=["kannader", "zgb"])
def test_every_verb_is_shown_or_refused_in_a_line(
    places: list[str], spooldeck: Command, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A verb without a state in a store is refused: never a traceback, and nothing is changed."""
    everything = ("queue", "list", "--root", places[at], "--json")
    before = spooldeck(*everything)
    for verb in sorted({*VERBS, "replay"} - {"retry", "edit", "undo"}):
        for some in ([], ["--id", str(before[0]["id"])]):
            code = main([verb, places[at], *some, "--dry-run"])
            captured = capsys.readouterr()
            assert code in (0, 64), (verb, captured)
            assert code == 0 or captured.err.count("\n") == 1, (verb, captured)
    assert spooldeck(*everything) == before


def test_a_refused_plan_has_no_task(
    spool: str, spooldeck: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dry run of a verb that the store refuses says so, by its exit code too."""
    Path(spool, "queue").chmod(0o777)
    assert main(["hold", spool, "--state", "queue", "--dry-run"]) == 77
    output = capsys.readouterr().out
    assert "no task would be held: " in output and "is world-writable: run chmod o-w" in output
    assert "to apply: " not in output
    (row,) = spooldeck("hold", spool, "--state", "queue", "--dry-run", "--json", code=77)
    assert (row["planned"], row["acted_on"]) == (2, 0)


# ---- places without a lock: each claim is a lease


@pytest.fixture
def left(spool: str) -> Path:
    """A mail that a sender took and left."""
    mail, _ = Path(spool, "queue").iterdir()
    return mail.rename(Path(spool, "inflight", mail.name))


def test_a_mail_that_a_sender_left_has_an_hour(spool: str, left: Path) -> None:
    """Its owner is not stored; the lease began with the rename."""
    taken = left.lstat().st_ctime
    with closing(KannaderStore(spool)) as store:
        (task,) = (item for item in store.scan({left.name}) if isinstance(item, Task))
    assert task.lease == Lease("", taken, taken + 3600)


async def test_why_a_task_of_a_database_waits(database: str) -> None:
    """Where a store takes by due times, ids decide nothing; no token and a pause are said."""
    place = await handled(database)
    inspector = Inspector(place.open, limit=place.max_attempts)

    async def why(id: str, place: Place = place) -> tuple[str, ...]:
        await inspector.scan_now()
        task = await inspector.queries.task(id)
        assert task is not None
        return (await list_outlook(inspector, place, None, task, NOW)).reasons(task, NOW)

    async with asyncio.timeout(PATIENCE):
        await inspector.start()
        try:
            assert (await why("16-user"))[0] == "3 other user tasks first"
            assert (await why("11-user"))[0] == "1 other user task first"
            unordered = await why("16-user", place._replace(claim_order=""))
            assert unordered[0] == "due for 20s, no worker running"
            empty = {"mailTokens": "0", "mailLastRefill": NOW + 3600, "mailMaxPerHour": "40"}
            for values, expected in (
                (empty, r"no token until (\S+ )?[0-9:]{8}Z \(in .+\)"),
                ({"mailQueueEnabled": "0"}, "the queue is paused: mailQueueEnabled is 0"),
            ):
                with closing(sqlite3.connect(database)) as db, db:
                    set_value = "INSERT OR REPLACE INTO config VALUES (?, ?)"
                    db.executemany(set_value, values.items())
                assert re.fullmatch(expected, (await why("9-user"))[0])
        finally:
            await inspector.close()


LEASED = Task(
    "m1", "mail", State.ACTIVE, NOW - 900.0, lease=Lease("worker \x1b7", NOW - 90.0, NOW + 30.0)
)


def test_the_summary_describes_the_lease() -> None:
    """Whose claim it is, and until when; a value that is not known is no time of 1970."""
    unknown = " ? (owner not stored)"
    table: tuple[tuple[Lease | None, tuple[str, ...]], ...] = (
        (LEASED.lease, (" worker \ufffd7 since ", ", until ", " expires at ", " (in ")),
        (Lease("", NOW - 90.0, NOW - 30.0), (f"{unknown} since ", ", until ", " expired at ")),
        (Lease("", 0.0, 0.0), (f"{unknown}\n", " expired\n")),
        (Lease("7", NOW - 90.0), (" 7 since ",)),
    )
    for lease, phrases in table:
        assert lease is not None
        details = TaskDetails(LEASED._replace(lease=lease), {State.ACTIVE: "inflight"})
        text = words(summary_lines(details, NOW, 100))
        assert [part for part in phrases if part not in text] == []
        assert (", until " in text) is bool(lease.until)
        assert "1970" not in text
        has_row = any(line.split()[:1] == ["lease"] for line in text.splitlines())
        assert has_row is (lease.until is not None)


def test_the_command_of_a_dead_task_is_one_that_works(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dead tasks have a command of their own only in queues of the contract."""
    dies = "UPDATE mail_queue SET status = 'failed', attempts = 9, next_attempt_at = 253402300799"
    with closing(sqlite3.connect(database)) as db, db:
        db.execute(dies)
    (place,) = places_at(database)
    dead = Task("9-user", "user", State.DEAD, 0.0)
    command = show_command(place.command, dead, place.has_dlq)
    assert command[3:] == ("queue", "list", "--json", "--filter", "id=9-user")
    assert (main(command[1:]), json.loads(capsys.readouterr().out)["state"]) == (0, "parked")
    assert show_command(place.command, dead)[3:] == ("queue", "dlq", "show", "9-user")


TABS = {
    "spool": (
        ("inflight", ("H hold", "L release"), ("K kill", "X purge")),
        ("hold", ("X purge", "L release"), ("K kill", "H hold")),
    ),
    "database": (
        ("sending", ("H hold", "L release"), ("X purge",)),
        ("held", ("X purge", "L release"), ("K kill", "H hold")),
        ("pending", ("X purge", "H hold", "O promote"), ("L release", "K kill")),
    ),
}
"""Tabs, the verbs that are offered there, and those that lead nowhere in this store."""


@pytest.fixture
def filled(spool: str, left: Path, database: str) -> dict[str, str]:
    """Places with a task in each of these tabs: one without has no verbs."""
    for found in ((spool, "--state", "queue"), (database, "--filter", "id=9-user")):
        assert main(["hold", *found, "--apply", "1", "--reason", "a test"]) == 0
    sends = "UPDATE mail_queue SET status = 'sending', attempts = 1, locked_until = ?"
    with closing(sqlite3.connect(database)) as db, db:
        db.execute(f"{sends} WHERE registration_number = 10", (int(time.time()) + 600,))
    return {"spool": spool, "database": database}


@pytest.mark.parametrize("which", TABS)
async def test_a_tab_hints_at_what_it_allows(filled: dict[str, str], which: str) -> None:
    """On a narrow screen, too, it has the verbs that lead somewhere in this store."""
    place = await handled(filled[which])
    async with an_operator(place, clock=time.time, start_armed=False) as operator:
        await operator.sees("[")
        place_tabs = (*operator.console.sessions[0].inspector.states, "problems")
        for tab, offered, never in TABS[which]:
            for _ in place_tabs:
                if f"[{tab} " not in operator.text:
                    await operator.press("l")
            await operator.sees(f"[{tab} ")
            await operator.until(
                lambda: all(hint in operator.line("hints") for hint in offered)  # noqa: B023
            )
            assert not [hint for hint in never if hint in operator.line("hints")]
            assert "? help  q back" in operator.line("hints")


SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")
"""A program that only runs, in the place of a worker."""


async def test_no_lock_is_offered_to_be_freed(database: str) -> None:
    """No hint mentions it, and the key that is pressed all the same says why."""
    place = await handled(database)
    settings: dict[str, Any] = {"clock": time.time, "first": keys.OVERVIEW}
    async with an_operator(place, size=(160, 40), **settings) as operator:
        await operator.sees("help")
        assert "unlock" not in operator.text
        await operator.press("U")
        await operator.sees(NO_LOCK_FILE)


async def test_the_board_of_locks_says_that_none_is_needed(database: str, tmp_path: Path) -> None:
    """A place without a lock is a line, with the worker that `W` started, and how it ended."""
    place = (await handled(database))._replace(worker_command=SLEEPER)
    make_queue(tmp_path / "mail.out", [])
    contract = disk_place(tmp_path / "mail.out", clock=time.time)
    settings: dict[str, Any] = {"clock": time.time, "first": keys.LOCKS}
    async with an_operator(place, contract, size=(240, 40), **settings) as operator:
        await operator.sees("FREE", "unlock")
        (row,) = [line for line in operator.rows.splitlines() if NO_LOCK_FILE in line]
        assert row.split() == ["a.db", "no", "lock", *"----", *NO_LOCK_FILE.split()]
        assert operator.line("text").strip() == f"lock: {NO_LOCK_FILE}"
        worker = operator.console.sessions[0].worker
        await operator.opens(ActionScreen, "W")
        assert worker.pid is None
        await operator.sees("y to start a worker")
        await operator.press("y")
        await operator.sees("started by this console: W stops it")
        pid = worker.pid
        (row,) = [line for line in operator.rows.splitlines() if NO_LOCK_FILE in line]
        assert row.split()[:5] == ["a.db", "no", "lock", "PID", str(pid)]
        assert row.endswith("worker started here")
        await asyncio.to_thread(os.kill, pid or 0, signal.SIGTERM)
        await operator.sees("was ended by SIGTERM")
        await operator.until(lambda: "PID" not in operator.text and NO_LOCK_FILE in operator.text)


async def test_our_own_worker_is_shown_wherever_a_lock_would_be(database: str) -> None:
    """In the line of the list, and beside the overview's queues."""
    place = (await handled(database))._replace(worker_command=SLEEPER)
    async with an_operator(place, size=(120, 40), clock=time.time, first=keys.OVERVIEW) as operator:
        worker = operator.console.sessions[0].worker
        await operator.sees("Alerts")
        await operator.press("2")
        await operator.sees("help", NO_LOCK_FILE)
        await operator.press("W")
        await operator.sees("y to start a worker")
        await operator.press("y")
        await operator.sees(f"{NO_LOCK_FILE} worker PID ", ", W stops it")
        await operator.press("q")
        await operator.press("tab")
        await operator.sees(f"{worker.pid}", "no task claimed", "C shows the controls")


def test_the_command_that_shows_locks_says_so(
    database: str, spool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people a line that says why, for programs a row without a verdict; all is well."""
    assert main(["locks", database, spool]) == 0
    output = capsys.readouterr().out
    assert f"lock: {NO_LOCK_FILE}" in output and "lock: no lock file (link renames)" in output
    assert main(["locks", database, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["locks"]
    assert (row["verdict"], row["pid"], row["reason"]) == (None, None, NO_LOCK_FILE)
    assert (row["finding"], row["certainty"], row["in_work"]) == (NO_LOCK_FILE, None, [])


def test_a_place_that_is_named_twice_is_opened_once(
    spool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`DIR DIR/ LINK` opens one place, with a line for each other name: its tasks are counted
    once."""
    link = f"{spool}.link"
    Path(link).symlink_to(spool)
    (place,) = places_at(spool, f"{spool}/", link)
    assert place.name == spool
    names = f"{spool}/", link
    assert capsys.readouterr().err == "".join(f"{n}: named twice, opened once\n" for n in names)


def test_a_queue_on_a_server_has_no_figure_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, only our own folder is of a place that is a URL: no size of the queue."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("engine.system.host.free_units", lambda folder: {"blocks": 0})
    (place,) = places_at("redis://127.0.0.1:1/0")
    assert [disk.own_bytes.value for disk in place.disks()] == [None]
    (place,) = places_at(str(tmp_path))
    assert None not in [disk.own_bytes.value for disk in place.disks()]
