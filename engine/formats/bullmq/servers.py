"""Find the Redis and Valkey servers of this host that have BullMQ queues: on the loopback address
and the usual UNIX sockets. No password is sent; a server is only asked what it is, and for keys."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial

from engine.config.place_address import Address
from engine.formats.base.format import InstalledPlace, Lookup
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.place import DEFAULT_PREFIX, RedisPlace, parse_place
from engine.formats.bullmq.scan import KEYS_PER_STEP
from engine.store import Unavailable
from engine.text.safe import safe_line

TCP = "redis://localhost"
"""With the port of both programs."""
SOCKETS = (
    "/run/redis/redis-server.sock",
    "/run/redis/redis.sock",
    "/run/redis.sock",
    "/run/valkey/valkey-server.sock",
    "/run/valkey/valkey.sock",
    "/run/valkey.sock",
)
"""Of the packages of Debian and Fedora, and of the example in redis.conf; in /tmp any user could
make one for us to find."""
ANSWER_SECONDS = 0.8
"""Seconds for a server to accept, and to answer its first request."""
NEEDS_PASSWORD = "it needs a password: write its URL with the password into `places`"
LISTEN = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""
FIRST_USER = 1000
"""The lowest uid of a user who is a person (UID_MIN in login.defs)."""
MAX_STEPS = 20
"""Steps of the search for queues in a database: it may have millions of other keys."""


def server_lookups(
    known: Sequence[Address] = (), tcp: str = TCP, sockets: Sequence[str] = SOCKETS
) -> list[Lookup]:
    """The lookups of the server at the loopback address and of those at these sockets; `known` are
    the configured places."""
    urls = [(tcp, tcp), *((one, f"redis+unix://{one}") for one in sockets)]
    return [Lookup(where, partial(find_queues, url, known)) for where, url in urls]


def find_queues(url: str, known: Sequence[Address] = ()) -> Iterator[InstalledPlace]:
    """Yield each database of a server that has queues; a server that has none, or of which that is
    not known, is one place that is not opened, with the reason: most are caches. Nothing is found
    where no server listens."""
    place = parse_place(Address(url))
    try:
        problem = _first_answer(place)
        if problem is None:
            return
        if problem == NEEDS_PASSWORD and any(_has_its_password(one, place) for one in known):
            problem = "it needs a password: its URL in `places` has one"
        problem = problem or _describe_distrust(place)
        if not problem:
            yield from _databases(place)
            return
    except Unavailable as error:
        problem = str(error).removeprefix(f"{url}: ")
    yield InstalledPlace(_database_url(place, 0), is_enabled=False, problem=problem)


def identify_database(address: Address) -> str:
    """What identifies a database among those that are found; "" if that is not known. Servers on
    other hosts are not asked: none of them is found."""
    try:
        place = parse_place(Address(address.text))
        if place.sentinels:
            return ""  # the master may be on any host
        is_far = _server(place)[0] not in ("localhost", None)
        if is_far or place.prefix != DEFAULT_PREFIX or _first_answer(place) != "":
            return ""
        if _describe_distrust(place):
            return ""
        with closing(Connection(place)) as connection:
            return _identity(connection, int(str(place.options["db"])))
    except Unavailable:
        return ""


def _identity(connection: Connection, number: int) -> str:
    run = str(connection.call("INFO", "server").get("run_id", ""))
    return f"{run}/{number}" if run else ""


def _has_its_password(one: Address, place: RedisPlace) -> bool:
    """True if a configured place has the password of this server."""
    if not one.password or one.scheme not in ("redis", "redis+unix", "unix"):
        return False
    with suppress(Unavailable):
        return _server(parse_place(one)) == _server(place)
    return False


def _server(place: RedisPlace) -> tuple[object, ...]:
    """Host, port and socket of a server; the host is None for a socket."""
    host = place.options.get("host")
    host = "localhost" if host in ("127.0.0.1", "::1") else host
    return host, place.options.get("port"), place.options.get("unix_socket_path")


def _describe_distrust(place: RedisPlace) -> str:
    """Why root does not open what listens on a port without being asked to: any user could."""
    if os.geteuid() != 0 or "port" not in place.options:
        return ""
    owners = listening_users(int(str(place.options["port"])))
    if owners and max(owners) < FIRST_USER:
        return ""
    who = f"uid {max(owners)} listens there" if owners else "unknown which user listens there"
    return f"{who}: name its URL to open it as root"


def listening_users(port: int, folder: str = "/proc/net") -> set[int]:
    """The uids of the sockets that listen on a TCP port of this host, on any address (proc(5))."""
    owners = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open(f"{folder}/{name}") as file:
            for fields in map(str.split, file):
                if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    owners.add(int(fields[7]))
    return owners


def _first_answer(place: RedisPlace) -> str | None:
    """Ask a server for a PONG: "" if that is its answer, why it is of no use, or None if there is
    no server of this kind."""
    path = place.options.get("unix_socket_path")
    try:
        if isinstance(path, str):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(ANSWER_SECONDS)
        else:
            at = str(place.options["host"]), int(str(place.options["port"]))
            connection = socket.create_connection(at, ANSWER_SECONDS)
        with connection:
            if isinstance(path, str):
                connection.connect(path)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(200)
    except TimeoutError:
        return f"it accepts, and does not answer within {ANSWER_SECONDS:g} s"
    except PermissionError:
        return "permission denied: its socket is for its owner and group"
    except OSError:
        return None  # no server listens there
    if answer.startswith(b"-NOAUTH"):
        return NEEDS_PASSWORD
    if answer.startswith(b"-"):
        return safe_line(answer[1:].split(b"\r")[0].decode("utf-8", "replace"))
    return "" if answer.startswith(b"+PONG") else None


def _databases(place: RedisPlace) -> Iterator[InstalledPlace]:
    with closing(Connection(place)) as connection:
        facts = dict(connection.server.facts)
        identity = _identity(connection, 0)
        numbers = [int(number) for number in facts.get("databases", "").split()]
        none, is_whole = True, True
        for number in numbers:
            connection.call("SELECT", number)
            found = _has_queues(connection)
            if found:
                none = False
                its_own = identity and f"{identity.removesuffix('/0')}/{number}"
                yield InstalledPlace(_database_url(place, number), identity=its_own)
            is_whole = is_whole and found is not None
    if none:
        limit = "" if is_whole else f" in the first {MAX_STEPS * KEYS_PER_STEP:,} keys"
        problem = f"no queue with the prefix {DEFAULT_PREFIX}{limit}"
        yield InstalledPlace(
            _database_url(place, 0), is_enabled=False, problem=problem, identity=identity
        )


def _has_queues(connection: Connection) -> bool | None:
    """True if the selected database has the settings of a queue; None if it has more keys than are
    searched."""
    cursor = "0"
    for _ in range(MAX_STEPS):
        words = ("MATCH", f"{DEFAULT_PREFIX}:*:meta", "COUNT", KEYS_PER_STEP)
        cursor, keys = connection.call("SCAN", cursor, *words)
        if keys:
            return True
        if str(cursor) == "0":
            return False
    return None


def _database_url(place: RedisPlace, number: int) -> str:
    if "unix_socket_path" in place.options:
        return f"{place.text}?db={number}" if number else place.text
    return f"{place.text}/{number}"
