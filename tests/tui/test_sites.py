"""Places in other formats: one console, one set of commands, and settings of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from engine import config, stores
from engine.checks import ConfigError
from engine.model import State, Task
from engine.store import Unavailable
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.nftban import NftbanStore
from engine.stores.zgb import ZgbStore, create
from engine.verbs import VERBS
from tests.tui.desks import a_desk
from tests.tui.spools import make_spool as make_queue
from tests.tui.spools import some_tasks
from tui import keys, live
from tui.cli import main
from tui.cli.console import places_of
from tui.cli.glance import glance
from tui.cli.sites import FORMATS, setup_for
from tui.live import Live
from tui.place import Facts, Place

PEOPLE = 3


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    """A Kannader spool, a ZGB database and a queue of the contract, each with something in it."""
    spool, database, queue = tmp_path / "spool", tmp_path / "a.db", tmp_path / "mail.out"
    make_spool(str(spool))
    with closing(KannaderStore(str(spool))) as store:
        store.enqueue("me@here.example", ["a@one.example", "b@two.example"], [b"Hi\r\n"])
    create(str(database))
    now = int(time.time())
    with closing(sqlite3.connect(database)) as db:
        for number in range(1, PEOPLE + 1):
            db.execute("INSERT INTO registrations(number) VALUES (?)", (number,))
            db.execute(
                "INSERT INTO mail_queue(registration_number, mail_type, next_attempt_at)"
                " VALUES (?, 'user', ?)",
                (number, now - 60),
            )
        db.execute("INSERT INTO config VALUES ('mailQueueEnabled', '1')")
        db.commit()
    make_queue(queue, some_tasks())
    return [str(spool), str(database), str(queue)]


def counted(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """The lines of JSON that a command prints."""
    capsys.readouterr()
    main(words)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def opened(places: list[str]) -> list[Place]:
    """The same, as the console is told of them."""
    return places_of(setup_for(config.Config(), "", {}), places)


async def test_one_console_shows_all_three(
    places: list[str], opened: list[Place], tmp_path: Path
) -> None:
    """Each is a line of the overview, and opens as a queue in its store's own words. A database
    that is moved away is a line with the reason, leaves the others alone, and comes back by itself.
    """
    async with a_desk(*opened, size=(120, 40), first=keys.OVERVIEW, clock=time.time) as desk:
        await desk.sees(*(Path(place).name for place in places))
        lives, away = desk.console.lives, tmp_path / "away.db"
        names = [set(live.inspector.states.values()) for live in lives]
        assert {"queue", "inflight", "cleanup"} <= names[0]
        assert {"pending", "sending", "parked"} <= names[1]
        assert {"pending", "work", "dlq"} <= names[2]
        assert [live.place.lock is None for live in lives] == [True, True, False]

        await asyncio.to_thread(Path(places[1]).rename, away)
        await desk.until(lambda: lives[1].inspector.latest.unavailable)
        await desk.until(lambda: isinstance(lives[1].signs.tokens, str))
        await asyncio.to_thread(away.rename, places[1])
        await desk.until(lambda: not lives[1].inspector.latest.unavailable)
        await desk.until(lambda: not isinstance(lives[1].signs.tokens, str))

        assert not lives[0].inspector.latest.unavailable
        assert lives[1].inspector.latest.counts[State.PENDING] == PEOPLE


@pytest.mark.parametrize(("at", "amount"), [(0, 2), (1, PEOPLE)])
def test_the_same_commands_work_on_each(
    places: list[str], capsys: pytest.CaptureFixture[str], at: int, amount: int
) -> None:
    """Held by count, written down, taken back, put into the trash and had back from there."""
    place = places[at]
    waiting = FIRST[at]

    def standing() -> dict[str, int]:
        (row,) = counted(["status", place, "--json"], capsys)
        tasks = row["tasks"]
        assert isinstance(tasks, dict)
        return {word: number for word, number in tasks.items() if number}

    assert main(["hold", place, "--apply", str(amount), "--reason", "a test"]) == 0
    assert standing() == {HELD[at]: amount}
    capsys.readouterr()
    (held,) = counted(["journal", place, "--json"], capsys)
    assert main(["undo", str(held["op"]), place, "--apply", str(amount)]) == 0
    assert standing() == {waiting: amount}
    assert main(["purge", place, "--state", waiting, "--all-odd", "--apply", str(amount)]) == 0
    assert standing() == {"trash": amount}
    assert main(["restore", place, "--apply", str(amount)]) == 0
    assert standing() == {waiting: amount}


FIRST, HELD = ("queue", "pending"), ("hold", "held")
"""What each calls what waits, and what is held."""


def test_a_task_is_listed_noted_and_counted(
    places: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What a queue of the contract has commands for, the other formats have as well."""
    for place, amount in zip(places[:2], (2, PEOPLE), strict=True):
        listed = counted(["queue", "list", "--root", place, "--json"], capsys)
        main(["queue", "count", "--root", place])
        assert (len(listed), capsys.readouterr().out.strip()) == (amount, str(amount))

        main(["note", str(listed[0]["id"]), "ask first", place])
        capsys.readouterr()
        assert "ask first" in json.dumps(counted(["notes", place, "--json"], capsys))
        main(["edit", str(listed[0]["id"]), place, "--due", "+2h", "--apply", "1"])
        capsys.readouterr()
        later = counted(["queue", "list", "--root", place, "--json", "--filter", "due>+1h"], capsys)
        assert [row["id"] for row in later] == [listed[0]["id"]]


def test_what_only_a_queue_of_the_contract_has_is_refused_elsewhere(
    places: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line that says what the place is, and nothing is touched."""
    for place, title in zip(places[:2], ("a Kannader spool", "a ZGB mail queue"), strict=True):
        for words in (["work"], ["process-next"], ["dlq", "list"], ["add", "job"]):
            assert main(["queue", *words, "--root", place]) != 0
            said = capsys.readouterr().err
            assert title in said
            assert said.count("\n") == 1


def test_each_format_is_found_out_by_what_lies_there(places: list[str], tmp_path: Path) -> None:
    """By its folders or its first bytes; whatever else is there is the contract's, or nothing."""
    assert [stores.format_of(place) for place in places] == ["kannader", "zgb", ""]
    found = [setup_for(config.Config(), place, {}).store() for place in places]
    assert [type(store) for store in found] == [KannaderStore, ZgbStore, NftbanStore]
    for store in found:
        store.close()
    assert stores.format_of(str(tmp_path / "nothing")) == ""


def test_settings_that_cannot_be_meant_are_said(places: list[str], tmp_path: Path) -> None:
    """Whichever place is opened: a setting that no store reads is a mistake to be reported."""
    path = tmp_path / "spooldeck.yaml"
    for said, where in (
        ({"other": {}}, "stores.other: no such format, expected one of kannader, zgb"),
        ({"kannader": {"hosst": "x"}}, "stores.kannader.hosst: unknown key"),
        ({"zgb": {"types": {"guest": {}}}}, "stores.zgb.types.guest: unknown key"),
        ([], "stores: expected a mapping"),
    ):
        path.write_text(json.dumps({"stores": said}))
        with pytest.raises(ConfigError) as error:
            setup_for(config.load(str(path), {}), places[2], {})
        assert where in str(error.value)
    assert set(FORMATS) == {"kannader", "zgb"}


def test_old_things_leave_the_trash_of_every_format(places: list[str]) -> None:
    """What was purged longer ago than the setting says is deleted for good, and nothing else."""
    for place in places[:2]:
        setup = setup_for(config.Config(), place, {})
        with closing(setup.store()) as store:
            waiting = [t for t in store.look({"queue", "pending"}) if isinstance(t, Task)]
            words = ["purge", place, "--state", FIRST[places.index(place)], "--all-odd"]
            main([*words, "--apply", str(len(waiting))])
            early = setup.sweep(store, time.time(), always=True)
            late = setup.sweep(store, time.time() + 25 * 3600, always=True)
        assert (early.tasks, late.tasks) == (0, len(waiting))


def test_a_bug_while_a_place_is_followed_is_told(opened: list[Place]) -> None:
    """A command that looks once ends with it; it does not wait for what cannot come any more."""

    def broken() -> object:
        raise ZeroDivisionError("a bug")

    async def ask(lives: Sequence[Live]) -> None:
        raise AssertionError("there is nothing to be told")

    with pytest.raises(ZeroDivisionError):
        glance([opened[0]._replace(facts=broken)], ask)  # type: ignore[arg-type]


def test_ctrl_c_leaves_a_look_that_hangs(
    opened: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGINT ends a command that looks at places, although what it asked has not answered yet."""
    monkeypatch.setattr(live, "PATIENCE", 0.01)
    left, answered = threading.Event(), threading.Event()

    def hanging() -> Facts:
        os.kill(os.getpid(), signal.SIGINT)
        left.wait(5)
        answered.set()
        return Facts()

    async def ask(lives: Sequence[Live]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        glance([opened[0]._replace(facts=hanging)], ask)

    assert not answered.is_set()
    left.set()


def test_a_place_that_went_away_is_unavailable(places: list[str]) -> None:
    """What was a spool when it was named need not be one when it is opened."""
    setup = setup_for(config.Config(), places[0], {})
    Path(places[0], "queue").rename(Path(places[0], "away"))

    with pytest.raises(Unavailable):
        setup.store()


def test_a_place_that_cannot_be_read_does_not_hide_the_others(
    places: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Printed once, each place is a line; what cannot be read is said, by words and exit code."""
    Path(places[1]).write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)

    code = main(["overview", *places[:2]])
    said = capsys.readouterr().out

    assert code == 2
    assert "spool" in said
    assert "a.db" in said
    assert main(["status", places[1]]) == 2


@pytest.mark.parametrize("at", [0, 1], ids=["kannader", "zgb"])
def test_every_verb_is_shown_or_refused_in_a_line(
    places: list[str], at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a store has no state for is said: never a traceback, and nothing is changed."""
    before = counted(["queue", "list", "--root", places[at], "--json"], capsys)
    for verb in sorted({*VERBS, "replay"} - {"retry", "edit", "undo"}):
        for words in ([], ["--id", str(before[0]["id"])], ["--id", "nobody"]):
            code = main([verb, places[at], *words, "--dry-run"])
            said = capsys.readouterr()
            assert code in (0, 64), (verb, said)
            assert code == 0 or said.err.count("\n") == 1, (verb, said)
    assert counted(["queue", "list", "--root", places[at], "--json"], capsys) == before


def test_no_queue_of_the_contract_is_made_in_another_place(
    places: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`init` leaves a place alone that is one already; a file that is none is said to be one."""
    stray = tmp_path / "mail.eml"
    stray.write_text("no queue")

    assert [main(["init", place]) for place in places[:2]] == [69, 69]
    assert main(["status", str(stray)]) == 2

    said = capsys.readouterr().err
    assert "nothing was made" in said
    assert "a file, and no SQLite database" in said


def test_what_is_refused_counts_as_nothing(
    places: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The dry run of what the store lets nobody do says so, by its exit code too."""
    Path(places[0], "queue").chmod(0o777)

    code = main(["hold", places[0], "--state", "queue", "--dry-run"])
    said = capsys.readouterr().out

    assert code == 77
    assert "nothing would be held: " in said
    assert "may be written by everybody" in said
    assert "to do it" not in said
    (row,) = counted(["hold", places[0], "--state", "queue", "--dry-run", "--json"], capsys)
    assert (row["planned"], row["acted_on"]) == (2, 0)
