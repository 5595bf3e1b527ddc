"""What other programs may leave in the keys of BullMQ, and peers that are no server: shown as
problems, and never lost. Damage that a scan only reports is in `tests/conformance/test_damage.py`.
"""

import functools
import hashlib
import itertools
import math
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from pytest import MonkeyPatch
from redis import Redis

from engine import verbs
from engine.config.place_address import parse_address
from engine.formats.bullmq import connection, limited_socket
from engine.formats.bullmq.place import RedisPlace, parse_place, split_id, task_id
from engine.formats.bullmq.row import GROUPED
from engine.formats.bullmq.store import BullmqStore
from engine.model import Problem, State
from engine.store import MAX_PART_BYTES, PREVIEW_BYTES, Gone, Unavailable, Unsupported
from engine.system.answer_limit import AnswerLimit, AnswerTooLong
from tests.bullmq_jobs import (
    CREATED_MS,
    NOW,
    everything,
    scanned,
    write_at,
    write_failed,
    write_hash,
    write_waiting,
)
from tests.engine.formats.bullmq.conftest import Opener
from tests.store_contents import act, found, naming, problems_in, restore, tasks_in


def test_a_job_in_a_group_is_not_put_back(client: Redis, store: BullmqStore) -> None:
    """A job of BullMQ Pro in a list of its group is named; the control leaves it there."""
    write_waiting(client, "1")
    client.hset("bull:mails:meta", "version", "bullmq:5.34.0")
    write_hash(client, "bull:mails:2", gid="a")
    write_hash(client, "bull:mails:3", opts='{"attempts":1,"group":{"id":"a"}}')
    client.rpush("bull:mails:groups:a", "2", "3")
    assert problems_in(store) == dict.fromkeys(("bull:mails:2", "bull:mails:3"), GROUPED)
    assert store.control("recover", "mails") == "mails: 0 jobs are in a list again"
    assert client.lrange("bull:mails:wait", 0, -1) == ["1"]


def test_five_mebibytes_of_data_are_not_read_by_a_scan(client: Redis, store: BullmqStore) -> None:
    """They are cut when they are read, and survive a purge and its undo byte for byte."""
    data = '"' + "x" * (5 << 20) + '"'
    write_failed(client, "1", data=data)
    before, task = everything(client), found(store, "mails/1")
    image = store.read(task)
    assert len(image) < 10_000
    assert len(store.read(task, "data")) == MAX_PART_BYTES
    assert store.size(task) > len(data)
    act(store, "retry", task.id)
    restore(store, task.id, image, State.DEAD)
    assert everything(client) == before
    client.hset("bull:mails:1", "data", "changed")
    with pytest.raises((Unsupported, Gone)):
        restore(store, task.id, image, State.DEAD)


ODD_IDS = {
    "9\x1b[2J": "mails/%:9%1B;[2J",
    "a\nb\tc%A;": "mails/%:a%A;b%9;c%25;A;",
    "\u202egpj": "mails/%:%202E;gpj",
    "n\0ul": "mails/%:n%0;ul",
    "%:1": "mails/%:%25;:1",
    "50%": "mails/50%",
}


@pytest.mark.parametrize("verb", ["purge", "retry"])
def test_odd_ids_are_tasks(client: Redis, store: BullmqStore, verb: str) -> None:
    """Unprintable ids have a printable form; a verb and its undo change exactly that job."""
    for ident in ODD_IDS:
        write_failed(client, ident)
    assert all(split_id(name) == ("mails", ident) for ident, name in ODD_IDS.items())
    assert task_id("mails", "\udcff") == "mails/%:%DCFF;"  # a byte that is no UTF-8
    before, (tasks, problems) = everything(client), scanned(store)
    assert (set(tasks), problems) == ({*ODD_IDS.values()}, {})
    assert {store.read(task, "data") for task in tasks.values()} == {b"{}"}
    images = {ident: store.read(task) for ident, task in tasks.items()}
    for ident in images:
        act(store, verb, ident)
    assert client.zcard("bull:mails:failed") == 0
    for ident, image in images.items():
        restore(store, ident, image, State.DEAD)
    assert everything(client) == before


def test_bytes_that_are_no_text_are_shown(client: Redis, store: BullmqStore) -> None:
    """A name that is no UTF-8, or has control bytes, is made safe, and stays as it is stored."""
    write_failed(client, "1", name=b"\xff\xfe")
    write_failed(client, "2", name="a\x1b[2Jb", failedReason="no\x1b]0;x\x07\nsecond line")
    task, other = found(store, "mails/1"), found(store, "mails/2")
    assert all(text.isprintable() for text in (other.group, other.description, other.error))
    assert ("second line" in other.error, task.group) == (True, "\ufffd\ufffd")
    act(store, "purge", task.id)
    store.swap(trashed := found(store, task.id), trashed._replace(state=State.DEAD))
    client.copy("bull:mails:1", "copy")
    assert client.hstrlen("copy", "name") == 2
    assert found(store, task.id).rev == task.rev


def test_what_can_be_read_of_a_damaged_job_is_shown(client: Redis, store: BullmqStore) -> None:
    """In two places, without a time or with numbers that are none, it is a task; one whose options
    no worker can read can be purged; a marker of BullMQ 4 is not counted."""
    write_failed(client, "1")
    client.lpush("bull:mails:wait", "1")
    write_failed(client, "2", opts="{not json")
    write_at(client, "delayed", "3", score=math.inf, delay=5)
    write_failed(client, "4", timestamp="soon", priority="high", atm="many")
    client.rpush("bull:mails:wait", "0:1795170000000")
    tasks = tasks_in(store)
    one, broken, late, odd = (tasks[f"mails/{number}"] for number in range(1, 5))
    assert (one.state, late.due) == (State.DEAD, None)
    assert (odd.created, odd.priority, odd.attempts) == (0.0, 0, 0)
    assert store.count_tasks()[State.PENDING] == 2
    assert client.lrange("bull:mails:wait", 0, -1) == ["1", "0:1795170000000"]
    store.swap(broken, verbs.purge(broken, NOW))
    assert tasks_in(store)["mails/2"].state is State.TRASH


def test_a_list_of_another_type_refuses_a_change(client: Redis, store: BullmqStore) -> None:
    """A string where the list of waiting jobs belongs: a job cannot be put there, and stays."""
    write_failed(client, "1")
    client.set("bull:mails:wait", "x")
    tasks = tasks_in(store)
    with pytest.raises(Unsupported, match="another type"):
        act(store, "retry", "mails/1")
    assert (tasks_in(store), store.count_tasks()[State.PENDING]) == (tasks, 0)


def test_a_problem_can_be_previewed(client: Redis, store: BullmqStore) -> None:
    """The start of its key is shown, for any type."""
    write_hash(client, "bull:mails:2", data="y" * 10_000)
    client.set("bull:mails:wait", "x" * 10_000)
    # Servers return the fields of a large hash in different orders.
    for where, start in (("mails/2", rb"[a-zA-Z]+: "), ("bull:mails:wait", b"xxx")):
        problem = store.preview_problem(Problem(where, "odd"))
        assert re.match(start, problem) and len(problem) == PREVIEW_BYTES
    with pytest.raises(Gone):
        store.preview_problem(Problem("mails/3", "gone"))


def test_a_job_that_was_added_again_blocks_the_way_back(client: Redis, store: BullmqStore) -> None:
    """A trashed job whose id another program has used again stays in the trash, with the reason."""
    write_failed(client, "1")
    act(store, "purge", "mails/1")
    trashed = found(store, "mails/1")
    write_waiting(client, "1", timestamp=CREATED_MS + 1)
    with pytest.raises(Unsupported, match="another job has this id now"):
        store.swap(trashed, trashed._replace(state=State.DEAD))
    items = list(store.scan({"mails/1"}))
    both = ["is in wait and trash at the same time"]
    assert [item.what for item in items if isinstance(item, Problem)] == both
    assert client.exists("spooldeck:bull:mails:job:1")


# ---- a server that is none


@contextmanager
def hostile(script: Sequence[bytes]) -> Iterator[RedisPlace]:
    """A peer that answers the first requests with these bytes, and then repeats the last for ever
    or until the client closes; it closes the connection itself if the last is empty."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        link, _ = listener.accept()
        with link, suppress(OSError):
            for answer in filter(None, script):
                link.recv(65536)
                link.sendall(answer)
            while script[-1]:
                link.sendall(script[-1])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield parse_place(parse_address(f"redis://127.0.0.1:{listener.getsockname()[1]}/0"))
    finally:
        listener.close()
        thread.join(20)
        assert not thread.is_alive()


HELLO = [b"+OK\r\n"] * 3
ANSWERS = {
    "a bulk before the login": ([b"$536870912\r\n" + b"x" * 65536], ""),
    "a status line without end": ([*HELLO, b"+" + b"x" * 65536], ""),
    "a list without end": ([*HELLO, b"*2147483647\r\n" + b":1\r\n" * 60_000], ""),
    "a long list in a list": ([*HELLO, b"*1\r\n$3\r\n*12\r\n*2147483647\r\n"], ""),
    "lists in lists": ([*HELLO, b"*1\r\n" * 60_000], ""),
    "pushes": ([*HELLO, b">2\r\n$1\r\na\r\n$1\r\nb\r\n" * 4000], ""),
    "a big number": ([*HELLO, b":" + b"9" * 5000 + b"\r\n"], ""),
    "loading": ([b"-LOADING Redis is loading the dataset in memory\r\n"], "still loading its data"),
    "too many": ([b"-ERR max number of clients reached\r\n"], "max number of clients"),
    "a cut": ([b"$100\r\ncut in mid-", b""], "not connected"),
    "another program": ([b"no protocol at all\r\n"], ""),
}


def test_a_peer_that_is_no_server_is_one_clear_line(monkeypatch: MonkeyPatch) -> None:
    """An answer without end, too deep or of another protocol is `Unavailable`, within the limits of
    an answer (here less); so is a refusal or a cut while the connection is opened."""
    monkeypatch.setattr(limited_socket, "MAX_ANSWER_BYTES", 1 << 20)
    for name, (script, message) in ANSWERS.items():
        with naming(name):
            with hostile(script) as place, pytest.raises(Unavailable) as caught:
                connection.Connection(place)
            assert message in str(caught.value) and str(caught.value).isprintable()


def test_a_text_may_contain_the_head_of_a_list(client: Redis, store: BullmqStore) -> None:
    """Only heads of lists count, not the same bytes in data."""
    client.set("text", "x\r\n*2147483647\r\n*12345678")
    client.rpush("list", "\r\n*99999999\r\n", "b")
    link = store._connection
    assert link.call("GET", "text") == "x\r\n*2147483647\r\n*12345678"
    assert link.call("LRANGE", "list", 0, -1) == ["\r\n*99999999\r\n", "b"]


HEADS = {
    b"*2147483647\r\n": True,
    b"*2\r\n$3\r\nabc\r\n*2000001\r\n": True,
    b"*2\r\n$12\r\n\r\n*99999999\r\n:5\r\n+*9999999\r\n": False,
    b"$3\r\na\r\n\r\n%3000000\r\n": True,
    b"*2\r\n$1\r\naXX*9999999\r\n": True,  # hiredis looks at no line end behind a text
    b"-ERR " + b"*9999999 " * 9 + b"\r\n$0\r\n\r\n~9999999\r\n": True,
    b"$-1\r\n*1\r\n+" + b"8" * 40 + b"\r\n": False,
}


def test_the_head_of_a_long_list_is_found_wherever_the_parts_end() -> None:
    """An answer comes in parts of any length; the first part may be of another length."""
    for answer, expected in HEADS.items():
        near, far = socket.socketpair()
        with near, far:
            for size, first in itertools.product(range(1, len(answer) + 1), repeat=2):
                limited = limited_socket.LimitedSocket(far, 30.0)
                limited.sendall(b"GET x\r\n")
                near.recv(64)
                cuts = [0, *range(first, len(answer), size), len(answer)]
                parts = [answer[a:b] for a, b in itertools.pairwise(cuts)]
                is_long = False
                try:
                    for part in parts:
                        limited._check(part)
                except AnswerTooLong:
                    is_long = True
                assert is_long == expected, parts


def test_an_answer_is_checked_for_long_lists_once(monkeypatch: MonkeyPatch) -> None:
    """However many of its parts may have the head of one: the time grows with its length only."""
    checked = list[int]()
    real = limited_socket.ListHeads.is_long

    def is_long(heads: limited_socket.ListHeads, data: bytes) -> bool:
        checked.append(len(data))
        return real(heads, data)

    monkeypatch.setattr(limited_socket.ListHeads, "is_long", is_long)
    near, far = socket.socketpair()
    with near, far:
        limited = limited_socket.LimitedSocket(far, 30.0)
        limited.max_bytes = 1 << 20
        limited.sendall(b"GET x\r\n")
        part = b"*12345678 of a text"
        near.sendall(head := b"$%d\r\n" % (200 * len(part)))
        limited.recv(64)
        for _ in range(200):
            near.sendall(part)
            limited.recv(len(part))
    assert sum(checked) == len(head) + 200 * len(part)


def test_an_answer_of_redis_has_one_deadline(monkeypatch: MonkeyPatch) -> None:
    """A peer that sends a byte now and then does not answer when the time of an answer is over."""
    ticks = (20.0 * n for n in itertools.count())
    slow = functools.partial(AnswerLimit, clock=lambda: next(ticks))
    monkeypatch.setattr(limited_socket, "AnswerLimit", slow)
    with hostile([b"+"]) as place, pytest.raises(Unavailable, match="does not answer"):
        connection.Connection(place)


def test_a_large_answer_after_the_login_is_read(
    client: Redis, open_bullmq: Opener, monkeypatch: MonkeyPatch
) -> None:
    """The small limit ends with the login, also when the connection was made again."""
    monkeypatch.setattr(limited_socket, "MAX_LOGIN_BYTES", 1000)
    client.set("large", "x" * 100_000)
    link = open_bullmq()._connection
    for _ in range(2):
        assert len(link.call("GET", "large")) == 100_000
        client.client_kill_filter(_type="normal", skipme=True)
        with suppress(Unavailable):
            link.call("PING")


def test_each_answer_of_a_pipeline_has_the_limit_of_its_own(
    client: Redis, open_bullmq: Opener, monkeypatch: MonkeyPatch
) -> None:
    """Many large jobs may be claimed in one pipeline; one answer above the limit is refused."""
    monkeypatch.setattr(limited_socket, "MAX_ANSWER_BYTES", 300_000)
    text = "return string.rep('x', ARGV[1])"
    script = connection.Script(text, hashlib.sha1(text.encode()).hexdigest(), reads_only=True)
    link = open_bullmq()._connection
    answers = link.run_all([connection.ScriptCall(script, [], [100_000]) for _ in range(8)])
    assert [len(answer) for answer in answers] == [100_000] * 8
    with pytest.raises(Unavailable, match="an answer of more than"):
        link.run(connection.ScriptCall(script, [], [2_000_000]))
