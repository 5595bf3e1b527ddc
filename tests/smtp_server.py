"""An SMTP server on loopback with scripted answers, which keeps the mails that it was given.

with Server(rcpt=["450 4.2.1 try later"]) as server:  # once; then as usual
    ...                                               # mail to 127.0.0.1, server.port
(mail,) = server.mails
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, AnyStr, NamedTuple, TypeAlias, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.programs import needs

HOST = "127.0.0.1"

DROP = "drop"
"""Instead of an answer, abort the connection."""
CUT = "cut"
"""Answer 354 to DATA, and abort the connection after the first line."""
STALL = "stall"
"""Never answer, keep the connection open, and set `Server.stalled`."""

Answers: TypeAlias = str | Sequence[str]
"""The answer each time; or one after the other, "" for the usual one, and then the usual."""

STAGES = ("greeting", "ehlo", "helo", "starttls", "auth", "mail", "rcpt", "data", "body", "quit")
"""Stages with an answer: `data` is the command, `body` the end of the data."""

_TIMEOUT_SECONDS = 30.0
"""For the start and end of a thread on a busy machine."""


class Certificate(NamedTuple):
    """Paths of the PEM files of a self-signed certificate and its key."""

    cert: str
    key: str


class Received(NamedTuple):
    """A mail as it came over the wire: `data` has headers and body with CRLF, without the dots that
    SMTP adds; `login` is the user, "" without a login."""

    helo: str
    sender: str
    recipients: tuple[str, ...]
    data: bytes
    tls: bool
    login: str


class Server:
    """The server; it listens within its block, each time on the same port."""

    def __init__(
        self,
        *,
        port: int = 0,
        tls: Certificate | None = None,
        smtps: bool = False,
        logins: Mapping[str, str] | None = None,
        login_needed: bool = False,
        **script: Answers,
    ) -> None:
        """`script` has the answers by stage.

        `tls` offers STARTTLS, with `smtps` TLS from the start; `logins`, passwords by user, offers
        AUTH, which `login_needed` requires.
        """
        unknown = set(script) - set(STAGES)
        assert not unknown, f"no such stage: {unknown}"
        self.port = port
        self.mails: list[Received] = []
        """The accepted mails."""
        self.refused: list[Received] = []
        """Mails that came whole and were refused."""
        self.commands: list[str] = []
        """All commands, in order."""
        self.connections = 0
        self.stalled = threading.Event()
        self.logins, self.login_needed = dict(logins or {}), login_needed
        self._came = threading.Condition()
        self._script = {k: v if isinstance(v, str) else list(v) for k, v in script.items()}
        self._smtps, self._tls = smtps, None if tls is None else _context(tls)
        self._open: list[asyncio.BaseTransport] = []
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Server:
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, name="smtpd", daemon=True)
        self._thread.start()
        assert self._ready.wait(_TIMEOUT_SECONDS), "the server did not start"
        if self._failure:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_TIMEOUT_SECONDS)
        assert not self._thread.is_alive(), "the server did not stop"

    def wait_for(self, count: int) -> bool:
        """Wait until so many mails were accepted; False after half a minute."""
        with self._came:
            return self._came.wait_for(lambda: len(self.mails) >= count, _TIMEOUT_SECONDS)

    def came(self, mail: Received, accepted: bool) -> None:
        """Keep a mail."""
        with self._came:
            (self.mails if accepted else self.refused).append(mail)
            self._came.notify_all()

    def next(self, stage: str) -> str:
        """Return the answer at this stage; "" for the usual."""
        answers = self._script.get(stage, "")
        if isinstance(answers, str):
            return answers
        return answers.pop(0) if answers else ""

    def opened(self, transport: asyncio.BaseTransport) -> None:
        """Count a connection."""
        self.connections += 1
        self._open.append(transport)

    async def handle_EHLO(
        self, server: SMTP, session: Session, envelope: Envelope, name: str, answers: list[str]
    ) -> list[str]:
        """Answer EHLO; a hook of aiosmtpd."""
        session.host_name = name
        return answers if self.logins else [a for a in answers if a.strip() != "250-AUTH"]

    async def handle_DATA(self, server: _Connection, session: Session, envelope: Envelope) -> str:
        """Keep a mail, and answer; a hook of aiosmtpd."""
        assert isinstance(envelope.original_content, bytes)
        login = session.auth_data.login.decode() if session.auth_data else ""
        mail = Received(
            session.host_name or "",
            envelope.mail_from or "",
            tuple(envelope.rcpt_tos),
            envelope.original_content,
            tls=session.ssl is not None or self._smtps,
            login=login,
        )
        answer = self.next("body") or "250 2.0.0 accepted"
        self.came(mail, accepted=answer.startswith("2"))
        await server.odd(answer)
        return answer

    async def handle_exception(self, error: Exception) -> str:
        """Answer an error of this server; a hook of aiosmtpd."""
        return f"421 4.3.0 {type(error).__name__}"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_unheard)
        self._stop = asyncio.Event()
        server = await self._loop.create_server(
            self._connection, HOST, self.port, ssl=self._tls if self._smtps else None
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        # One that was broken off closes in the next round; one accepted just now begins then.
        for _ in range(5):
            for transport in self._open:
                cast(asyncio.WriteTransport, transport).abort()
            await asyncio.sleep(0)
        self._open.clear()

    def _connection(self) -> SMTP:
        return _Connection(self, tls_context=None if self._smtps else self._tls, loop=self._loop)


_Hook = Callable[[str | None], Awaitable[None]]
"""The method of aiosmtpd for a command."""


class _Connection(SMTP):
    """A connection that answers by the script of its server."""

    def __init__(self, server: Server, **how: Any) -> None:
        self._of = server
        self._greeted = False
        how |= {"hostname": "mx.example.org", "ident": "scripted", "data_size_limit": None}
        how |= {"auth_require_tls": False, "authenticator": self._login}
        how["auth_exclude_mechanism"] = () if server.logins else ("LOGIN", "PLAIN")
        super().__init__(server, **how)
        methods = cast(dict[str, _Hook], self._smtp_methods)
        for command, usual in list(methods.items()):
            methods[command] = self._scripted(command, usual)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._original_transport is None:
            self._of.opened(transport)
        super().connection_made(transport)

    async def push(self, status: AnyStr) -> None:
        greeting = "" if self._greeted else self._of.next("greeting")
        self._greeted = True
        await self.odd(greeting)
        await (super().push(greeting) if greeting else super().push(status))

    async def odd(self, answer: str) -> None:
        """Carry out DROP or STALL, which does not return; nothing for another answer."""
        if answer == STALL:
            self._of.stalled.set()
        elif answer == DROP and self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).abort()
        if answer in (DROP, STALL):
            # Until the connection is lost: that cancels any wait here.
            await asyncio.get_running_loop().create_future()

    def _scripted(self, command: str, usual: _Hook) -> _Hook:
        async def hook(arg: str | None) -> None:
            self._of.commands.append(command if arg is None else f"{command} {arg}")
            answer = self._of.next(command.lower())
            await self.odd(answer)
            if answer == CUT:
                await self.push("354 go on")
                await self._reader.readline()
                await self.odd(DROP)
            elif answer:
                await self.push(answer)
            elif command == "MAIL" and self._of.login_needed and not self._is_logged_in():
                await self.push("530 5.7.0 Authentication required")
            else:
                await usual(arg)

        return hook

    def _is_logged_in(self) -> bool:
        return self.session is not None and self.session.authenticated is True

    def _login(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        if self._of.logins.get(data.login.decode()) == data.password.decode():
            return AuthResult(success=True, auth_data=data)
        return AuthResult(success=False, handled=False)


def _unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report exceptions on standard error, except those of a client that goes away."""
    if not isinstance(context.get("exception"), (ConnectionError, ssl.SSLError)):
        loop.default_exception_handler(context)


def _context(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    return context


def certificate(folder: Path, *names: str) -> Certificate:
    """Make a self-signed certificate for host names, or for this host, by openssl."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(str(folder / "cert.pem"), str(folder / "key.pem"))
    alternatives = [f"DNS:{name}" for name in names] or ["DNS:localhost", f"IP:{HOST}"]
    argv = [needs("openssl"), "req", "-x509", "-nodes", "-days", "3650"]
    argv += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    argv += ["-subj", f"/CN={names[0] if names else 'localhost'}"]
    argv += ["-addext", f"subjectAltName={','.join(alternatives)}"]
    argv += ["-keyout", made.key, "-out", made.cert]
    subprocess.run(argv, check=True, capture_output=True)
    return made


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    """A port that refuses connections, reserved within the block."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))  # bound and not listening
        yield taken.getsockname()[1]


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A port that accepts connections and sends nothing."""
    with socket.create_server((HOST, 0)) as listening:
        yield listening.getsockname()[1]


@contextlib.contextmanager
def swallowing() -> Iterator[int]:
    """A port that drops each connection attempt, as if packets were lost."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        # Once its queue is full, Linux drops what comes; no process ever takes one out of it.
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]
