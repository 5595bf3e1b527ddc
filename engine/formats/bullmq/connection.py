"""One blocking connection to Redis or Valkey (redis-py, hiredis), and our scripts on it.

Errors become store errors of one line. Nothing is sent a second time after a connection was cut:
the first time may have had effect.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.config.place_address import join_host
from engine.formats.bullmq import limited_socket
from engine.formats.bullmq.limited_socket import ANSWER_TIMEOUT_SECONDS, limit_answers
from engine.formats.bullmq.package_scripts import INSTALL_HINT, package_text
from engine.formats.bullmq.place import RedisPlace
from engine.store import Full, StoreError, Unavailable, Unsupported
from engine.system.answer_limit import AnswerTooLong
from engine.text.safe import safe_line
from engine.values import NamedTuple

if TYPE_CHECKING:
    from engine.formats.bullmq.sentinel import MasterSearch, SentinelAnswer

CLIENT_NAME = "spooldeck"
READ_ONLY_REPLICA = "the server is a read-only replica: change the primary"
IS_REPLICA_NOW = "the server is a replica now: the Sentinels are asked for the new master"
DEMOTED = "The previous master is now a slave"
"""What redis-py makes of READONLY where there are Sentinels."""
REPLICA_MS, BRIEF_REPLICA_MS = 1500, 20
"""Milliseconds for a replica to have a change; the second if none had the one before. In a forced
failover a Sentinel asks each second whether a replica has become the master."""
ON_NO_REPLICA = "on no replica yet: a failover would lose it"
IN_CLUSTER = "a node of a Redis Cluster, which is not supported; expected a single server"
MINIMUM_VERSION = (6, 2)
"""COPY and LPOS; BullMQ recommends the same."""

_OUR_FOLDER = os.path.dirname(__file__)


class Script(NamedTuple):
    """A Lua script with its SHA-1."""

    text: str
    sha: str
    reads_only: bool = False


class ScriptCall(NamedTuple):
    """A script with its keys and arguments."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[Any]


class ServerFacts(NamedTuple):
    """What INFO says of a server when the connection is opened."""

    version: str = ""
    role: str = ""
    """"": not known."""
    facts: tuple[tuple[str, str], ...] = ()
    """Names and values of INFO that concern queues."""


@cache
def script(*names: str, package: str = "", reads_only: bool = False) -> Script:
    """Files of this folder as one script; with `package`, that script of bullmq is its
    "package_script"."""
    parts = [_our_text("common")]
    if package:
        parts.append(f"local function package_script()\n{package_text(package)}\nend")
    text = "\n".join([*parts, *map(_our_text, ("layouts", *names))])
    return Script(text, hashlib.sha1(text.encode()).hexdigest(), reads_only)


def pack(value: object) -> bytes:
    """A value as a script unpacks it (MessagePack)."""
    packed: bytes = _packer().pack(value)
    return packed


@cache
def _packer() -> Any:
    import msgpack

    return msgpack.Packer(use_bin_type=False, unicode_errors="surrogateescape")


def _our_text(name: str) -> str:
    with open(f"{_OUR_FOLDER}/{name}.lua", encoding="utf-8") as file:
        return file.read()


def nothing() -> None:
    """Nothing is done while the server works."""


def _reopen_if_cut(connection: Any, failures: tuple[type[Exception], ...]) -> None:
    """Close a connection that the server has closed: the next command connects again."""
    try:
        is_cut = connection.can_read(0)  # no answer is awaited, so it can only be the end
    except failures:
        is_cut = True
    if is_cut:
        connection.disconnect()


class Denied(Unavailable):
    """The user of the connection lacks a permission."""


class Connection:
    """A connection of one thread; connects again by itself after it was cut.

    Its methods raise `StoreError`: Unavailable if it was cut, so that what was sent may have had
    effect, or any that the server answers.
    """

    def __init__(self, place: RedisPlace, name: str = CLIENT_NAME) -> None:
        """Connect; the server lists the connection by its name (CLIENT LIST).

        Raises:
            Unavailable: the server cannot be used, or redis-py is missing.
        """
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise Unavailable(f"{place.text}: needs more packages: {INSTALL_HINT}") from None
        self._redis, self._place = redis, place
        basics: dict[str, Any] = {
            "decode_responses": True,
            "encoding_errors": "surrogateescape",
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }

        def open_client(seconds: float, **options: Any) -> Any:
            timeouts = {
                "socket_connect_timeout": min(seconds, limited_socket.CONNECT_TIMEOUT_SECONDS),
                "socket_timeout": seconds,
            }
            return limit_answers(redis.Redis(**basics | options | timeouts), seconds)

        options = {**place.options, "password": place.password or None, "client_name": name}
        self._sentinels: MasterSearch | None = None
        if place.sentinels:
            from engine.formats.bullmq.sentinel import MasterSearch

            self._sentinels = MasterSearch(
                place,
                open_client,
                **basics | options,
                socket_connect_timeout=limited_socket.CONNECT_TIMEOUT_SECONDS,
                socket_timeout=ANSWER_TIMEOUT_SECONDS,
            )
            client = self._sentinels.master_client()
            self._client = limit_answers(client, ANSWER_TIMEOUT_SECONDS)
        else:
            self._client = open_client(ANSWER_TIMEOUT_SECONDS, **options)
        self._scripts_at: tuple[str, int] | None = None
        """The address of the server to which scripts were sent last."""
        self._has_no_replica = False
        self._followed: tuple[str, int] | None = None
        """The address of the master that the connections are to be connected to."""
        self._failures = redis.RedisError, OSError, MemoryError, RecursionError, ValueError
        """What redis-py raises for an answer: not only its own errors, if it is no answer of
        Redis."""
        self._blocked: Any = None
        """The connection of the pool on which a command blocks."""
        self._is_stale = False
        """True if the connection on which commands block is to be closed before the next one."""
        self._scripts: Any = None
        """That on which scripts run: to take one from the pool and give it back costs a tenth of a
        short script."""
        try:
            self.server = self.read_facts()
            if self._sentinels:
                self._followed = self._sentinels.address
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        """HOST:PORT of the master that Sentinels name; "" without Sentinels."""
        address = self._sentinels and self._sentinels.address
        return join_host(*address) if address else ""

    def ask_sentinels(self) -> Sequence[SentinelAnswer]:
        """What each Sentinel of the place answers."""
        return self._sentinels.ask_all() if self._sentinels else ()

    def confirm_changes(self) -> str:
        """Ask whether a failover could lose the changes of the last `run` or `run_all`: "" if a
        replica has them (WAIT), or without Sentinels; else a text for `Outcome.note`.

        Raises:
            Unavailable: the Sentinels name another master by now, which may lack them.
        """
        if self._sentinels is None:
            return ""
        changed_at = self._scripts_at or self._sentinels.address
        milliseconds = BRIEF_REPLICA_MS if self._has_no_replica else REPLICA_MS
        (copies,) = self._send_scripts([("WAIT", 1, milliseconds)])
        if {changed_at} != {self._scripts_at, self._sentinels.current(is_asked=True)}:
            raise Unavailable(f"{self._place.text}: the master changed, it is {self.master} now")
        self._has_no_replica = copies == 0
        return "" if isinstance(copies, int) and copies else ON_NO_REPLICA

    def _follow(self) -> None:
        """Connect again if another server is the master now."""
        if self._sentinels and self._sentinels.current() != self._followed:
            self._followed = self._sentinels.address
            self.reset()

    def close(self) -> None:
        """Close the connection."""
        for connection in (self._blocked, self._scripts):
            if connection is not None:
                connection.disconnect()
        self._client.close()
        if self._sentinels:
            self._sentinels.close()

    def reset(self) -> None:
        """Connect again before the next command: the address may name another server by now, while
        connections to the former one stay open. A command that blocks is not interrupted."""
        self._is_stale = self._blocked is not None
        if self._scripts is not None:
            self._scripts.disconnect()
        self._client.connection_pool.disconnect(inuse_connections=False)

    def call(self, *words: Any) -> Any:
        """Run one command."""
        self._follow()
        try:
            return self._client.execute_command(*words)
        except self._failures as error:
            raise self.explain(error, words) from error

    def run(self, call: ScriptCall, meanwhile: Callable[[], object] = nothing) -> Any:
        """Run one script; `meanwhile` is called while the server works, and must not use the
        connection."""
        (answer,) = self.run_all([call], meanwhile)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def run_all(
        self, calls: Sequence[ScriptCall], meanwhile: Callable[[], object] = nothing
    ) -> list[Any]:
        """Run scripts in one pipeline; an answer, or a `StoreError`, for each."""
        answers = self._send_scripts([self._words(call, by_sha=True) for call in calls], meanwhile)
        no_script = self._redis.exceptions.NoScriptError
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, no_script)]
        if unknown:
            again = self._send_scripts([self._words(calls[n], by_sha=False) for n in unknown])
            for n, answer in zip(unknown, again, strict=True):
                answers[n] = answer
        return self._explained(answers)

    def call_all(self, commands: Iterable[Sequence[Any]]) -> list[Any]:
        """Run commands in one pipeline; an answer, or a `StoreError`, for each."""
        return self._explained(self._send(list(commands)))

    def _explained(self, answers: list[Any]) -> list[Any]:
        is_error = self._redis.RedisError
        return [self.explain(one) if isinstance(one, is_error) else one for one in answers]

    def begin(self, *words: Any) -> None:
        """Send a command that blocks on the server; nothing else is sent before `finish`."""
        self._follow()
        try:
            self._blocked = self._blocked or self._client.connection_pool.get_connection()
            if self._is_stale:
                self._blocked.disconnect()
                self._is_stale = False
            _reopen_if_cut(self._blocked, self._failures)
            self._blocked.send_command(*words)
        except self._failures as error:
            raise self.explain(error) from error

    def is_ready(self, seconds: float) -> bool:
        """Wait for the answer to `begin`; True if `finish` does not block."""
        try:
            return bool(self._blocked.can_read(seconds))
        except self._failures as error:
            raise self.explain(error) from error

    def finish(self) -> Any:
        """The answer to `begin`."""
        try:
            return self._blocked.read_response()
        except self._failures as error:
            raise self.explain(error) from error

    def _send_scripts(
        self, commands: list[Sequence[Any]], meanwhile: Callable[[], object] = nothing
    ) -> list[Any]:
        """Like `_send`, without the layers of redis-py that convert answers of other commands: they
        take a third of the time of a call."""
        answers: list[Any] = []
        self._follow()
        try:
            self._scripts = self._scripts or self._client.connection_pool.get_connection()
        except self._failures as error:
            raise self.explain(error) from error
        connection = self._scripts
        try:
            _reopen_if_cut(connection, self._failures)
            connection.send_packed_command(connection.pack_commands(commands))
            if self._sentinels:
                self._scripts_at = connection.host, connection.port
            meanwhile()
            for _ in commands:
                connection._sock.begin_next()
                try:
                    answers.append(connection.read_response())
                except self._redis.ResponseError as error:
                    answers.append(error)
        except self._failures as error:
            raise self.explain(error) from error
        finally:
            if len(answers) < len(commands):
                connection.disconnect()  # the other answers would be taken for those of later calls
        return answers

    def _send(self, commands: list[Sequence[Any]]) -> list[Any]:
        self._follow()
        pipe = self._client.pipeline(transaction=False)
        for words in commands:
            pipe.execute_command(*words)
        try:
            answers: list[Any] = pipe.execute(raise_on_error=False)
        except self._failures as error:
            raise self.explain(error) from error
        for answer in answers:
            if isinstance(answer, self._redis.ConnectionError):
                raise self.explain(answer)
        return answers

    def _words(self, call: ScriptCall, *, by_sha: bool) -> list[Any]:
        script = call.script
        command = "EVALSHA" if by_sha else "EVAL"
        if script.reads_only and self._has_read_only_scripts:
            command += "_RO"
        text = script.sha if by_sha else script.text
        return [command, text, len(call.keys), *call.keys, *call.arguments]

    def read_facts(self) -> ServerFacts:
        """Ask the server about itself (INFO).

        Raises:
            Unavailable: it cannot be used.
        """
        self._has_read_only_scripts = False
        try:
            info: dict[str, Any] = self.call("INFO")
        except Denied:  # nothing is known of the server
            return ServerFacts()
        if int(info.get("cluster_enabled", 0)):
            raise Unavailable(f"{self._place.text}: {IN_CLUSTER}")
        if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):  # the second: Valkey
            from engine.formats.bullmq.sentinel import master_names

            masters = master_names(self.call("SENTINEL", "MASTERS"))
            raise self._is_sentinel(safe_line(masters[0]) if len(masters) == 1 else "NAME")
        if int(info.get("loading", 0)):
            raise Unavailable(f"{self._place.text}: the server is still loading its data")
        version = str(info.get("redis_version", ""))
        numbers = tuple(int(n) for n in version.split(".")[:2] if n.isdecimal())
        if numbers and numbers < MINIMUM_VERSION:
            raise Unavailable(f"{self._place.text}: Redis {version}, expected 6.2 or newer")
        self._has_read_only_scripts = numbers >= (7, 0)
        names = ("maxmemory_policy", "aof_enabled", "used_memory", "maxmemory", "valkey_version")
        fact_names = (*names, "master_link_status")
        facts = tuple((name, str(info[name])) for name in fact_names if name in info)
        databases = " ".join(name[2:] for name in info if re.fullmatch("db[0-9]+", name))
        return ServerFacts(version, str(info.get("role", "")), (*facts, ("databases", databases)))

    def _is_sentinel(self, name: str) -> Unavailable:
        options = self._place.options
        tls = "rediss" if options.get("ssl") else "redis"
        at = join_host(str(options.get("host")), int(str(options.get("port", 0))))
        url = f"{tls}+sentinel://{at}/{name}/{options['db']}"
        return Unavailable(f"{self._place.text}: a Sentinel, which has no queues: use {url}")

    def explain(self, error: Exception | str, words: Sequence[Any] = ()) -> StoreError:
        """The store error of a redis-py error, or of the text of one within a script; after that of
        a replica the next command connects again."""
        at, text, kinds = self._place.text, safe_line(str(error))[:300], self._redis.exceptions
        if isinstance(error, kinds.AuthenticationError) or text.startswith(("NOAUTH", "WRONGPASS")):
            how = "set it in `places`, with # / ? @ % in it written as %XX"
            what = "refused the password" if self._place.password else "needs a password"
            return Unavailable(f"{at}: the server {what}: {how}")
        is_denied = isinstance(error, kinds.NoPermissionError) or "NOPERM" in text
        # The others are the same, from within a script.
        if is_denied or "ACL failure" in text or "executing the script can't" in text:
            what = " ".join(str(word) for word in words[:2])
            which = f" ({safe_line(what)})" if words else ""
            keys = f"the user needs {self._place.acl_keys}"
            return Denied(f"{at}: no permission: {text}{which}; {keys}")
        if isinstance(error, kinds.BusyLoadingError):
            return Unavailable(f"{at}: the server is still loading its data")
        if isinstance(error, kinds.ReadOnlyError) or "READONLY" in text or DEMOTED in text:
            self.reset()
            if self._sentinels:
                return Unavailable(f"{at}: {IS_REPLICA_NOW}")
            return Unsupported(f"{at}: {READ_ONLY_REPLICA}")
        if "unknown command 'SELECT'" in text and "host" in self._place.options:
            return self._is_sentinel("NAME")
        if isinstance(error, kinds.OutOfMemoryError) or text.startswith("OOM"):
            why = "the server's memory is full (maxmemory): expunge frees some, purge copies"
            return Full(f"{at}: {why}")
        if text.startswith(("MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN")):
            return Unavailable(f"{at}: {IN_CLUSTER}")
        if "WRONGTYPE" in text:
            return Unsupported(f"{at}: a key has another type than BullMQ expects: {text}")
        if isinstance(error, Exception) and not isinstance(error, self._redis.RedisError):
            return Unavailable(f"{at}: this is no answer of Redis: {text or type(error).__name__}")
        if isinstance(error, kinds.TimeoutError):
            return Unavailable(f"{at}: the server does not answer")
        if isinstance(error.__context__ if isinstance(error, Exception) else None, AnswerTooLong):
            return Unavailable(f"{at}: this is no answer of Redis: {text}")
        if "CERTIFICATE_VERIFY_FAILED" in text:
            how = "name the certificate of its issuer: ?ca_file=PATH"
            return Unavailable(f"{at}: not connected: {text}: {how}")
        if isinstance(error, self._redis.sentinel.MasterNotFoundError):
            return Unavailable(f"{at}: no master: {safe_line(str(error))}")
        if isinstance(error, kinds.ConnectionError):
            return Unavailable(f"{at}: not connected: {text}")
        return Unavailable(f"{at}: {text}")
