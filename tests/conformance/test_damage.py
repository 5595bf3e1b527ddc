"""Hostile, torn and foreign data in each store: it is named, never claimed, and hides no task."""

import itertools
import math
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from redis import Redis

from engine import verbs
from engine.formats.kannader.store import KannaderStore
from engine.formats.nftban.store import SpoolFolders
from engine.model import Problem, Task
from engine.store import Gone, Store, Unsupported
from tests.bullmq_jobs import everything, write_at, write_failed, write_hash, write_waiting
from tests.nftban_spool import IDENT, NOW, a_task, opened, text_of
from tests.store_contents import every_file, tasks_in


class Damage(NamedTuple):
    """What another program did to a place, and what its store must then report."""

    name: str
    do: Callable[[Any], object]  # gets the client, the folders of the spool, or the database
    problems: Mapping[str, str] = {}  # words of each problem, by its place
    tasks: Collection[str] = ()  # tasks that are shown besides the one that is not damaged
    claimed: Collection[str] | None = ()  # ids that are claimed besides; None: claims are refused
    gone: Collection[str] = ()  # tasks that were there before, of which any change is refused now
    aside: Collection[str] = ()  # names that a recovery quarantines


# ---- BullMQ: keys of other types and forms


def _ids_without_hash(client: Redis) -> None:
    client.lpush("bull:mails:wait", "2")
    client.zadd("bull:mails:failed", {"3": 1.0})


def _hashes_in_no_list(client: Redis) -> None:
    write_hash(client, "bull:mails:2")
    write_hash(client, "bull:mails:repeat:daily:1795170000000")
    client.hset("bull:mails:repeat:daily", mapping={"ic": 1, "pattern": "* * * * *"})
    client.hset("bull:mails:1:processed", "bull:mails:9", "null")
    client.hset("bull:mails:metrics:completed", "count", 1)


def _in_two_places(client: Redis) -> None:
    write_failed(client, "1")
    client.lpush("bull:mails:wait", "1")


def _other_types(client: Redis) -> None:
    write_failed(client, "1", "odd")
    client.set("bull:odd:wait", "x")
    client.zadd("bull:odd:completed", {"2": 1.0})
    client.set("bull:odd:2", "no hash")


def _empty_ids(client: Redis) -> None:
    for queue in "ab":
        for number in "12":
            write_waiting(client, number, queue)
        client.lpush(f"bull:{queue}:wait", "", "1")


NO_LIST = "a job that is in no list and no set of its queue: control recover puts it back"
BOTH = {"mails/1": "is in failed and wait at the same time"}
NO_DATA = {"mails/2": "is in wait, but has no data", "mails/3": "is in failed, but has no data"}
LOST = dict.fromkeys(("bull:mails:2", "bull:mails:repeat:daily:1795170000000"), NO_LIST)
TYPES = {"bull:odd:wait": "is no list: BullMQ cannot use it", "odd/2": "its key is no hash"}
NO_JSON = {"mails/1": "its options are not JSON: workers cannot read it"}
EMPTY = {"a/": "its id is empty", "b/": "its id is empty"}
ODD_NUMBERS = {"timestamp": "soon", "priority": "high", "atm": "many"}
FOUR = ("a/1", "a/2", "b/1", "b/2")
BULLMQ = [
    Damage("ids without a hash", _ids_without_hash, NO_DATA, claimed=["mails/2"]),
    Damage("hashes in no list", _hashes_in_no_list, LOST),
    Damage("a job in two places", _in_two_places, BOTH, ["mails/1"], ["mails/1"]),
    Damage("a marker of BullMQ 4", lambda c: c.rpush("bull:mails:wait", "0:1795170000000")),
    Damage("no JSON", lambda c: write_failed(c, "1", opts="{not json"), NO_JSON, ["mails/1"]),
    Damage("odd numbers", lambda c: write_failed(c, "1", **ODD_NUMBERS), tasks=["mails/1"]),
    Damage("keys of another type", _other_types, TYPES, ["odd/1"], None),
    Damage("empty ids", _empty_ids, EMPTY, FOUR, (*FOUR, "a/", "b/")),
]
for _score in (math.inf, -math.inf):
    _write = partial(write_at, place="delayed", ident="1", score=_score, delay=5)
    _why = {"mails/1": f"its time is '{_score}', expected a number"}
    BULLMQ.append(Damage(f"a time that is {_score}", _write, _why, ["mails/1"]))

# ---- Kannader: files and links of other types and forms


def _in_place(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replaced(path: Path) -> None:
        path.unlink()
        make(path)

    return replaced


def _moved_behind_a_link(path: Path) -> None:
    path.symlink_to(path.rename(path.parents[3] / "elsewhere"))


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a loop": _in_place(lambda path: path.symlink_to(path.name)),
    "a FIFO": _in_place(os.mkfifo),
    "a gigabyte": lambda path: os.truncate(path, 1 << 30),
    "a folder": _in_place(Path.mkdir),
}
CONTENTS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "a folder, not a plain file": _in_place(Path.mkdir),
    "a symbolic link, not followed": _moved_behind_a_link,
    "cut off, expected a line with only a dot": lambda path: path.write_bytes(b""),
    "cut off, in its end": lambda path: path.write_bytes(b"A\r\n.\r"),
    "cut off, in a line": lambda path: path.write_bytes(b"A.\r\n"),
}
TARGETS = ["/etc", "../data/../../outside", "loop", "../data/\x1b[2J", "../data/" + "x" * 3000]
TARGETS += ["../data/11111111-1111-4111-8111-111111111111"]


def _file(name: str, kind: str) -> Damage:
    # A link says nothing of the content behind it.
    aside = ["queue.bad"] if name == "metadata" and kind != "a loop" else []
    return Damage(
        f"{name}: {kind}",
        lambda root: HOSTILE[kind](root / "queue" / "bad" / name),
        {"queue/bad": name},
        gone=["bad"],
        aside=aside,
    )


def _contents(why: str, word: str) -> Damage:
    def do(root: Path) -> None:
        (root / word).mkdir(exist_ok=True)
        contents = (root / "queue" / "bad" / ".." / "contents").resolve()
        (root / "queue" / "bad").rename(root / word / "bad")
        CONTENTS[why](contents)

    problems = {f"{word}/bad": f"can never be sent: contents: {why.partition(', in ')[0]}"}
    return Damage(f"contents in {word}: {why}", do, problems, aside=[f"{word}.bad"])


def _link(word: str, target: str) -> Damage:
    def do(root: Path) -> None:
        (root / word).mkdir(exist_ok=True)
        (root / word / "loop").symlink_to(target)

    name, problems = f"link in {word} to {target[:20]}", {f"{word}/loop": ""}
    return Damage(name, do, problems, ["bad"], ["bad"], aside=[f"{word}.loop"])


KANNADER = [
    *itertools.starmap(_file, itertools.product(("schedule", "metadata"), HOSTILE)),
    *itertools.starmap(_contents, itertools.product(CONTENTS, ("queue", "inflight", "hold"))),
    *itertools.starmap(_link, itertools.product(("queue", "inflight", "cleanup", "hold"), TARGETS)),
]

# ---- NFTBan: files; ZGB: rows

SECOND = a_task(2)


def _in_two_folders(spool: SpoolFolders) -> None:
    for folder in (spool.pending, spool.work):
        Path(folder, f"{SECOND.id}.task").write_bytes(text_of(SECOND))


def _write_file(name: str, spool: SpoolFolders) -> None:
    Path(spool.pending, name).write_text("nothing\n")


TWICE = {f"work/{SECOND.id}.task": "is in pending and work at the same time"}
NFTBAN = [
    Damage("one id in two folders", _in_two_folders, TWICE, [SECOND.id]),
    *(
        Damage(f"a file {name}", partial(_write_file, name), {f"pending/{name}": ""})
        for name in (f"{SECOND.id}.task", "README")
    ),
]


def _insert(values: str, db: sqlite3.Connection) -> None:
    names = "registration_number, mail_type, attempts, next_attempt_at"
    db.execute(f"INSERT INTO mail_queue ({names}) VALUES (1002, 'user', {values})")


ZGB = [
    Damage(f"a row with {values}", partial(_insert, values), {"mail_queue/row 2": ""})
    for values in ("'many', 0", "0, 'soon'")
]

# ---- each place, and the rule

Made: TypeAlias = tuple[Store, str, Any, Callable[[], object]]
"""A store with one task, its id, the data that is to be damaged, and a snapshot of the data."""


def _bullmq(request: pytest.FixtureRequest) -> Made:
    client: Redis = request.getfixturevalue("client")
    write_waiting(client, "good")
    store = request.getfixturevalue("open_bullmq")()
    return store, "mails/good", client, lambda: everything(client)


def _kannader(request: pytest.FixtureRequest) -> Made:
    root: Path = request.getfixturevalue("kannader")
    store: KannaderStore = request.getfixturevalue("open_kannader")()
    for name in ("good", "bad"):
        (ident,) = store.enqueue("a@b.example", ["c@d.example"], [b"text"])
        (root / "queue" / ident).rename(root / "queue" / name)
    return store, "good", root, lambda: every_file(root)


def _nftban(request: pytest.FixtureRequest) -> Made:
    spool: SpoolFolders = request.getfixturevalue("spool")
    store = opened(spool)
    store.swap(None, a_task())
    return store, IDENT, spool, lambda: every_file(Path(spool.pending).parent)


def _zgb(request: pytest.FixtureRequest) -> Made:
    store = request.getfixturevalue("open_queue")()
    store.enqueue(1001, ["user"])
    db = sqlite3.connect(request.getfixturevalue("place").path, isolation_level=None)
    request.addfinalizer(db.close)
    return store, "1001-user", db, lambda: [*db.iterdump()]


FORMATS = {_bullmq: BULLMQ, _kannader: KANNADER, _nftban: NFTBAN, _zgb: ZGB}


@pytest.mark.parametrize(
    ("make", "row"),
    [
        pytest.param(make, row, id=f"{make.__name__[1:]}: {row.name}")
        for make, rows in FORMATS.items()
        for row in rows
    ],
)
def test_damage_is_named_and_hides_no_task(
    make: Callable[[pytest.FixtureRequest], Made], row: Damage, request: pytest.FixtureRequest
) -> None:
    """Each problem is reported with its place, in printable characters; a scan changes nothing, and
    only sound tasks are claimed. A recovery quarantines what it must, whole and once."""
    store, good, data, snapshot = make(request)
    seen = tasks_in(store)
    row.do(data)
    before, items = snapshot(), list(store.scan())
    problems = {item.where: item.what for item in items if isinstance(item, Problem)}
    assert problems.keys() == row.problems.keys()
    for where, what in problems.items():
        assert row.problems[where] in what and (where + what).isprintable()
    shown = {item.id for item in items if isinstance(item, Task)}
    assert (shown, snapshot()) == ({good, *row.tasks}, before)
    if isinstance(store, KannaderStore):  # by its name as well
        for where in problems:
            asked = store.scan({where.rpartition("/")[2]})
            assert where in [item.where for item in asked if isinstance(item, Problem)]
    if row.claimed is None:
        with pytest.raises(Unsupported):
            list(store.take(NOW, "me", 9))
    else:
        assert {task.id for task in store.take(NOW, "me", 9)} == {good, *row.claimed}
    for ident in row.gone:
        with pytest.raises(Gone):
            store.swap(seen[ident], verbs.hold(seen[ident], NOW))
    if isinstance(store, KannaderStore):
        links = {path.readlink() for path in data.glob("[!.]*/*") if path.is_symlink()}
        store.recover()
        kept = {path.name: path.readlink() for path in data.glob(".spooldeck/aside/*")}
        assert kept.keys() == {*row.aside} and {*kept.values()} <= links
        for item in store.scan():
            if isinstance(item, Problem) and item.where.endswith(".loop"):
                target = kept[item.where.rpartition("/")[2]]
                assert store.preview_problem(item) == os.fsencode(target)
        again = "".join(store.recover())
        assert "aside" not in again and "deleted" not in again
