"""Hostile, torn and foreign data in the place of each store: it is named, and never claimed,
followed or lost, and it hides no other task."""

import itertools
import math
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis

from engine import verbs
from engine.formats.kannader.store import KannaderStore
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.formats.zgb.place import ZgbDatabase
from engine.model import Problem, Task
from engine.store import Gone, Store, Unsupported
from tests.bullmq_jobs import everything, write_at, write_failed, write_hash, write_waiting
from tests.nftban_spool import IDENT, NOW, a_task, text_of
from tests.store_contents import every_file, tasks_in


class Damage(NamedTuple):
    """What another program did to a place, and what its store must then report."""

    name: str
    do: Callable[[Any], object]
    """Gets the client of the server, the folder of the spool, or the database."""
    problems: Mapping[str, str]
    """Words of each problem, by its place."""
    tasks: frozenset[str] = frozenset()
    """Tasks that are shown besides the one that is not damaged."""
    claimed: frozenset[str] | None = frozenset()
    """Ids that are claimed besides; None if all claims are refused."""
    gone: frozenset[str] = frozenset()
    """Tasks that were there before, and of which any change is refused now."""
    aside: frozenset[str] = frozenset()
    """Names that a recovery quarantines."""


class Place(NamedTuple):
    """A place with one task, `good`, and with the data that is to be damaged."""

    store: Store
    good: str
    data: Any
    snapshot: Callable[[], object]


# ---- BullMQ: keys of other types and forms

NO_LIST = "a job that is in no list and no set of its queue: control recover puts it back"


def _lost_hashes(client: Redis) -> None:
    write_hash(client, "bull:mails:2")
    write_hash(client, "bull:mails:repeat:daily:1795170000000")
    client.hset("bull:mails:repeat:daily", mapping={"ic": 1, "pattern": "* * * * *"})
    client.hset("bull:mails:1:processed", "bull:mails:9", "null")
    client.hset("bull:mails:metrics:completed", "count", 1)


def _other_types(client: Redis) -> None:
    client.set("bull:mails:wait", "x")
    client.zadd("bull:mails:completed", {"2": 1.0})
    client.set("bull:mails:2", "no hash")


def _empty_ids(client: Redis) -> None:
    for queue, number in itertools.product("ab", "12"):
        write_waiting(client, number, queue)
    for queue in "ab":
        client.lpush(f"bull:{queue}:wait", "", "1")


def _two_places(client: Redis) -> None:
    write_failed(client, "1")
    client.lpush("bull:mails:wait", "1")


def _infinite(score: float) -> Damage:
    def do(client: Redis) -> None:
        write_at(client, "delayed", "1", score=score, delay=5)

    problems = {"mails/1": f"its time is '{score}', expected a number"}
    return Damage(f"a time that is {score}", do, problems, _ONE)


_ONE, _FOUR = frozenset({"mails/1"}), frozenset({"a/1", "a/2", "b/1", "b/2"})
BULLMQ = [
    Damage(
        "ids without a hash",
        lambda c: (c.lpush("bull:mails:wait", "2"), c.zadd("bull:mails:failed", {"3": 1.0})),
        {"mails/2": "is in wait, but has no data", "mails/3": "is in failed, but has no data"},
        claimed=frozenset({"mails/2"}),
    ),
    Damage(
        "a hash in no list, and other hashes",
        _lost_hashes,
        dict.fromkeys(("bull:mails:2", "bull:mails:repeat:daily:1795170000000"), NO_LIST),
    ),
    Damage(
        "a job in two places",
        _two_places,
        {"mails/1": "is in failed and wait at the same time"},
        _ONE,
        _ONE,
    ),
    Damage(
        "a marker of BullMQ 4, which is no job",
        lambda c: c.rpush("bull:ok:wait", "0:1795170000000"),
        {},
    ),
    Damage(
        "options that are no JSON",
        lambda c: write_failed(c, "1", opts="{not json"),
        {"mails/1": "its options are not JSON: workers cannot read it"},
        _ONE,
    ),
    *map(_infinite, (math.inf, -math.inf)),
    Damage(
        "numbers that are none",
        lambda c: write_failed(c, "1", timestamp="soon", priority="high", atm="many"),
        {},
        _ONE,
    ),
    Damage(
        "keys of another type",
        _other_types,
        {"bull:mails:wait": "is no list: BullMQ cannot use it", "mails/2": "its key is no hash"},
        claimed=None,
    ),
    Damage(
        "empty ids",
        _empty_ids,
        {"a/": "its id is empty", "b/": "its id is empty"},
        _FOUR,
        _FOUR | {"a/", "b/"},
    ),
]

# ---- Kannader: files and links of other types and forms


def _in_place(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replaced(path: Path) -> None:
        path.unlink()
        make(path)

    return replaced


def _moved_behind_a_link(path: Path) -> None:
    outside = path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(outside)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a loop": _in_place(lambda path: path.symlink_to(path.name)),
    "a FIFO": _in_place(os.mkfifo),
    "a gigabyte": lambda path: os.truncate(path, 1 << 30),
    "nested": lambda path: path.write_bytes(b"[" * 60_000),
    "a folder": _in_place(Path.mkdir),
    "binary": lambda path: path.write_bytes(b"\xff\xfe\x00"),
}
CONTENTS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "a folder, not a plain file": _in_place(Path.mkdir),
    "a symbolic link, not followed": _moved_behind_a_link,
    "cut off, expected a line with only a dot": lambda path: path.write_bytes(b""),
    "cut off, in its end": lambda path: path.write_bytes(b"A\r\n.\r"),
    "cut off, in a line": lambda path: path.write_bytes(b"A.\r\n"),
}
TARGETS = (
    "/etc",
    "../data/../../outside",
    "loop",
    "../data/\x1b[2J",
    "../data/" + "x" * 3000,
    "../data/11111111-1111-4111-8111-111111111111",
)


def _file(name: str, kind: str) -> Damage:
    def do(root: Path) -> None:
        HOSTILE[kind](root / "queue" / "bad" / name)

    # A link says nothing of the content behind it.
    is_moved = name == "metadata" and kind != "a loop"
    aside = frozenset({"queue.bad"} if is_moved else ())
    return Damage(f"{name}: {kind}", do, {"queue/bad": name}, gone=frozenset({"bad"}), aside=aside)


def _contents(why: str, word: str) -> Damage:
    def do(root: Path) -> None:
        (root / word).mkdir(exist_ok=True)
        contents = (root / "queue" / "bad" / ".." / "contents").resolve()
        (root / "queue" / "bad").rename(root / word / "bad")
        CONTENTS[why](contents)

    problem = f"can never be sent: contents: {why.partition(', in ')[0]}"
    aside = frozenset({f"{word}.bad"})
    return Damage(f"contents in {word}: {why}", do, {f"{word}/bad": problem}, aside=aside)


def _link(word: str, target: str) -> Damage:
    def do(root: Path) -> None:
        (root / word).mkdir(exist_ok=True)
        (root / word / "loop").symlink_to(target)

    aside, bad = frozenset({f"{word}.loop"}), frozenset({"bad"})
    return Damage(
        f"link in {word} to {target[:20]}", do, {f"{word}/loop": ""}, bad, bad, aside=aside
    )


KANNADER = [
    *itertools.starmap(_file, itertools.product(("schedule", "metadata"), HOSTILE)),
    *itertools.starmap(_contents, itertools.product(CONTENTS, ("queue", "inflight", "hold"))),
    *itertools.starmap(_link, itertools.product(("queue", "inflight", "cleanup", "hold"), TARGETS)),
]

# ---- NFTBan: files; ZGB: rows

SECOND = a_task(2).id
NFTBAN = [
    Damage(
        "a file that is no task",
        lambda spool: Path(spool.pending, f"{SECOND}.task").write_text("nothing\n"),
        {f"pending/{SECOND}.task": ""},
    ),
    Damage(
        "one id in two folders",
        lambda spool: [
            Path(folder, f"{SECOND}.task").write_bytes(text_of(a_task(2)))
            for folder in (spool.pending, spool.work)
        ],
        {f"work/{SECOND}.task": "is in pending and work at the same time"},
        frozenset({SECOND}),
    ),
    Damage(
        "a foreign file",
        lambda spool: Path(spool.pending, "README").write_text("mine"),
        {"pending/README": ""},
    ),
]
_ROW = "INSERT INTO mail_queue (registration_number, mail_type, attempts, next_attempt_at)"


def _row(values: str) -> Damage:
    def do(db: sqlite3.Connection) -> None:
        db.execute(f"{_ROW} VALUES (1002, 'user', {values})")

    return Damage(f"a row with {values}", do, {"mail_queue/row 2": ""})


ZGB = [_row("'many', 0"), _row("0, 'soon'")]


# ---- each place, and the rule


def _bullmq(request: pytest.FixtureRequest) -> Place:
    client: Redis = request.getfixturevalue("client")
    write_waiting(client, "good", "ok")
    client.hset("bull:mails:meta", "opts.maxLenEvents", 10000)
    store = request.getfixturevalue("open_bullmq")()
    return Place(store, "ok/good", client, lambda: everything(client))


def _kannader(request: pytest.FixtureRequest) -> Place:
    root: Path = request.getfixturevalue("kannader")
    store: KannaderStore = request.getfixturevalue("open_kannader")()
    for name in ("good", "bad"):
        (ident,) = store.enqueue("a@b.example", ["c@d.example"], [b"text"])
        (root / "queue" / ident).rename(root / "queue" / name)
    return Place(store, "good", root, lambda: every_file(root))


def _nftban(request: pytest.FixtureRequest) -> Place:
    spool: SpoolFolders = request.getfixturevalue("spool")
    store: NftbanStore = request.getfixturevalue("open_spool")()
    store.swap(None, a_task())
    return Place(store, IDENT, spool, lambda: every_file(Path(spool.pending).parent))


def _zgb(request: pytest.FixtureRequest) -> Place:
    database: ZgbDatabase = request.getfixturevalue("place")
    store = request.getfixturevalue("open_queue")()
    store.enqueue(1001, ["user"])
    db = sqlite3.connect(database.path, isolation_level=None)
    request.addfinalizer(db.close)
    return Place(store, "1001-user", db, lambda: [*db.iterdump()])


FORMATS: Mapping[str, tuple[Callable[[pytest.FixtureRequest], Place], list[Damage]]] = {
    "bullmq": (_bullmq, BULLMQ),
    "kannader": (_kannader, KANNADER),
    "nftban": (_nftban, NFTBAN),
    "zgb": (_zgb, ZGB),
}


@pytest.mark.parametrize(
    ("make", "row"),
    [
        pytest.param(make, row, id=f"{name}: {row.name}")
        for name, (make, rows) in FORMATS.items()
        for row in rows
    ],
)
def test_damage_is_named_and_hides_no_task(
    make: Callable[[pytest.FixtureRequest], Place], row: Damage, request: pytest.FixtureRequest
) -> None:
    """Each problem is reported with its place, in printable characters; a scan changes nothing, and
    only sound tasks are claimed. A recovery quarantines what it must, whole and once."""
    store, good, data, snapshot = make(request)
    seen = tasks_in(store)
    row.do(data)
    before, items = snapshot(), list(store.scan())
    problems = [item for item in items if isinstance(item, Problem)]
    assert {problem.where for problem in problems} == row.problems.keys()
    for problem in problems:
        assert row.problems[problem.where] in problem.what
        assert (problem.where + problem.what).isprintable()
    shown = {item.id for item in items if isinstance(item, Task)}
    assert (shown, snapshot()) == ({good} | row.tasks, before)
    if row.claimed is None:
        with pytest.raises(Unsupported):
            list(store.take(NOW, "me", 9))
    else:
        assert {task.id for task in store.take(NOW, "me", 9)} == {good} | row.claimed
    for ident in row.gone:
        with pytest.raises(Gone):
            store.swap(seen[ident], verbs.hold(seen[ident], NOW))
    if isinstance(store, KannaderStore):
        links = {path.readlink() for path in data.glob("[!.]*/*") if path.is_symlink()}
        store.recover()
        kept = [*data.glob(".spooldeck/aside/*")]
        assert {path.name for path in kept} == row.aside
        assert {path.readlink() for path in kept} <= links
        again = "".join(store.recover())
        assert "aside" not in again and "deleted" not in again
