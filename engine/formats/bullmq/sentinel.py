"""Find the master of Redis or Valkey servers by their Sentinels (redis-py), in the order of the
address; an address is used only if the server there says that it is a master (ROLE)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import redis
from redis.sentinel import MasterNotFoundError, Sentinel

from engine.config.place_address import join_host
from engine.formats.bullmq.place import RedisPlace
from engine.override import override
from engine.text.safe import safe_line
from engine.values import NamedTuple

SENTINEL_SECONDS = 1.0
"""Seconds for a Sentinel to accept, and to answer."""
CHECK_SECONDS, CHECK_COST_FACTOR = 1.0, 20
"""Least seconds between two checks whether the Sentinels name another master, and how many times as
long as it took: a former master that the others cannot reach keeps its connections."""
ROLE_SECONDS = 5.0
"""Seconds for a server to accept, and to say whether it is a master."""

OpenClient = Callable[..., Any]
"""Opens a client of redis-py with options, whose answers have limits and these seconds."""


class SentinelAnswer(NamedTuple):
    """What a Sentinel answers."""

    sentinel: str
    """HOST:PORT."""
    master: tuple[str, int] | None
    """The address that it names."""
    problem: str = ""
    """Why it names none, or why the server there is none to use; "" if it says it is a master."""

    @property
    def named(self) -> str:
        """HOST:PORT of the server that it names; "" for none."""
        return join_host(*self.master) if self.master else ""

    @property
    def is_usable(self) -> bool:
        """True if the server says that it is a master."""
        return self.master is not None and not self.problem

    def __str__(self) -> str:
        return f"{self.sentinel}{f' names {self.named}, which' * bool(self.named)} {self.problem}"


class MasterSearch(Sentinel):
    """The Sentinels of a place."""

    def __init__(self, place: RedisPlace, open_client: OpenClient, **options: Any) -> None:
        """`options` are those of connections to the master."""
        super().__init__([], **options)  # type: ignore[no-untyped-call]
        self._place, self._open = place, open_client
        self.address: tuple[str, int] | None = None
        """That of the master found last."""
        self._check_due = 0.0
        clients = (
            open_client(SENTINEL_SECONDS, host=host, port=port, **place.sentinel_options)
            for host, port in place.sentinels
        )
        self.sentinels = [*clients]
        self._order = [*range(len(self.sentinels))]
        """The one that named a master to use is asked first."""

    def master_client(self) -> Any:
        """A client of redis-py that connects to the master, asking for it each time."""
        return self.master_for(self._place.master)  # type: ignore[no-untyped-call]

    def ask(self, which_one: int) -> SentinelAnswer:
        """Ask one Sentinel of the address for that of the master."""
        which, name = join_host(*self._place.sentinels[which_one]), self._place.master
        ask: Callable[..., Any] = self.sentinels[which_one].execute_command
        try:
            named = ask("SENTINEL", "get-master-addr-by-name", name)
            if named is None:
                known = ", ".join(master_names(ask("SENTINEL", "MASTERS"))) or "none"
                problem = f"knows no master {name!r}, it knows {safe_line(known)[:200]}"
                return SentinelAnswer(which, None, problem)
            where, number = map(str, named)
            if not where.isprintable() or " " in where or not 0 < int(number) < 65536:
                raise ValueError("this is no address")
        except _FAILURES as error:
            return SentinelAnswer(
                which, None, _describe(error, SENTINEL_SECONDS, "sentinel_password")
            )
        return SentinelAnswer(which, (where, int(number)))

    def check(self, answer: SentinelAnswer) -> SentinelAnswer:
        """Ask the server that a Sentinel names whether it is a master."""
        if answer.master is None:
            return answer
        host, port = answer.master
        options = {**self.connection_kwargs, "host": host, "port": port}
        with closing(self._open(ROLE_SECONDS, **options)) as client:
            try:
                role = _read_role(client)
            except _FAILURES as error:
                return answer._replace(problem=_describe(error, ROLE_SECONDS, "set it in `places`"))
        problem = {"master": "", "slave": "is a replica", "sentinel": "is a Sentinel"}
        return answer._replace(problem=problem.get(role, f"says that it is {safe_line(role)!r}"))

    def ask_all(self) -> list[SentinelAnswer]:
        """What each Sentinel answers, and each server that is named, other than the master in
        use."""
        answers = [self.ask(each) for each in range(len(self.sentinels))]
        return [a if a.master == self.address else self.check(a) for a in answers]

    @override
    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Find the address of a server that is named by a Sentinel and says that it is a master.

        Raises:
            MasterNotFoundError: none is and does.
        """
        answers: list[SentinelAnswer] = []
        for each in self._order:
            answer = self.ask(each)
            same = next((a for a in answers if a.master and a.master == answer.master), None)
            checked = answer._replace(problem=same.problem) if same else self.check(answer)
            if checked.is_usable and checked.master is not None:
                self._use(each, checked.master)
                return checked.master
            answers.append(checked)
        raise MasterNotFoundError("; ".join(map(str, answers)))

    def _use(self, sentinel: int, address: tuple[str, int]) -> None:
        self.address = address
        self._order.sort(key=lambda each: each != sentinel)

    def current(self, *, is_asked: bool = False) -> tuple[str, int] | None:
        """The address of the master; at intervals, or now, the Sentinels are asked whether it is
        another one. If they name none to use, it is the one known last."""
        began = time.monotonic()
        if self.address is not None and (is_asked or began >= self._check_due):
            for each in [*self._order]:
                answer = self.ask(each)
                if answer.master is None:
                    continue
                if answer.master == self.address or self.check(answer).is_usable:
                    self._use(each, answer.master)
                    break
            took = time.monotonic() - began
            self._check_due = began + max(CHECK_SECONDS, CHECK_COST_FACTOR * took)
        return self.address


_FAILURES = (
    redis.RedisError,
    OSError,
    MemoryError,
    RecursionError,
    ValueError,
    TypeError,
    LookupError,
)
"""What redis-py raises for an answer, also one that is no answer of Redis."""


def master_names(answer: Any) -> list[str]:
    """The names in an answer to SENTINEL MASTERS: lists of fields, each a name and a value."""
    masters = answer if isinstance(answer, list) else []
    return sorted(str(one[1]) for one in masters if isinstance(one, list) and len(one) > 1)


def _read_role(client: Any) -> str:
    try:
        return str(client.execute_command("ROLE")[0])
    except redis.exceptions.NoPermissionError:  # INFO is one of the rights that reading needs
        role = client.execute_command("INFO", "replication")["role"]
        return str(role)


def _describe(error: Exception, seconds: float, parameter: str) -> str:
    text = safe_line(str(error))[:120]
    if isinstance(error, redis.AuthenticationError) or text.startswith(("NOAUTH", "WRONGPASS")):
        return f"needs a password: {parameter}" if "required" in text else "refuses the password"
    if isinstance(error, (redis.TimeoutError, TimeoutError)):
        return f"does not answer within {seconds:g} s"
    if "unknown command" in text and "SENTINEL" in text.upper():
        return "is no Sentinel"
    if isinstance(error, redis.ConnectionError):
        return f"is not reached: {text.rpartition('. ')[2].rstrip('.')}"
    return f"gives no answer to use: {text or type(error).__name__}"
