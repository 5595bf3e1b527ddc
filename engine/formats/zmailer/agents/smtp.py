"""The agent `smtp`: sends messages to mail servers, several recipients in one transaction.

The host of a job is a name, an address in brackets, or a list of such in parentheses as the router
makes it, which is tried in its order. A name is looked up as an address; MX is the router's work.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, cast

from engine.formats.zmailer.agents.jobs import AgentMessage, AgentOutcome, is_notified_of_success
from engine.formats.zmailer.diagnostics import dsn_parameter
from engine.formats.zmailer.scheduling.agent_lines import Notary
from engine.formats.zmailer.spool.control_file import RecipientLine
from engine.mail import wire_format
from engine.mail.model import BadMail, NotSent, Reason
from engine.mail.send import smtp_client
from engine.mail.send.smtp_client import (
    OPPORTUNISTIC,
    Connections,
    InDoubt,
    SmtpDestination,
    UnreadableMessage,
    WireRecipient,
    is_loopback,
)
from engine.text.error_text import error_text

MAX_HOSTS = 20
"""Hosts of a list that are tried."""

_MEMORY_BYTES = 1 << 20
"""Larger mails are prepared in a temporary file."""

_find_status = re.compile(r"\b([245]\.[0-9]{1,3}\.[0-9]{1,3})\b").search
_PARAMETERS = {
    "NOTIFY": re.compile(rb"NEVER|(?:SUCCESS|FAILURE|DELAY)(?:,(?:SUCCESS|FAILURE|DELAY)){0,2}"),
    "ORCPT": re.compile(rb"[A-Za-z0-9-]{1,40};[!-~]{1,500}"),
    "RET": re.compile(rb"FULL|HDRS"),
    "ENVID": re.compile(rb"[!-~]{1,100}"),
}
"""Values that a server accepts (RFC 3461)."""

_STATUS_OF_REASON = {
    Reason.CONNECT: "4.4.1",
    Reason.DNS: "4.4.3",
    Reason.TIMEOUT: "4.4.2",
    Reason.TLS: "4.7.5",
}
"""Codes of RFC 3463 for what no server answered; 4.0.0 and 5.0.0 otherwise."""


def host_list(host: str) -> list[str]:
    """The hosts that a job names, without parentheses and brackets."""
    words = re.findall(r"\[[^\]]*\]|[^\s()]+", host)
    return [re.sub(r"^\[(?:ipv6:)?|\]$", "", word, flags=re.IGNORECASE) for word in words]


class SmtpAgent:
    """Delivers to mail servers; a connection is used again for the next mail to the same host."""

    def __init__(self, settings: SmtpDestination, name: str, log: Callable[[str], None]) -> None:
        """`settings` are those of all hosts; `name` is that of the agent with its PID."""
        self._settings, self._name, self._log = settings, name, log
        self._host = ""
        self._connections = Connections()

    def close(self) -> None:
        """Close the connection that is kept."""
        self._connections.close()

    def deliver(
        self, message: AgentMessage, recipients: list[RecipientLine], host: bytes
    ) -> Sequence[AgentOutcome]:
        """Send a message to its locked recipients, and record the outcomes."""
        hosts = host_list(host.decode("utf-8", "replace"))[:MAX_HOSTS]
        outcomes = list(self._send(message, recipients, hosts))
        message.record(outcomes)
        for one in outcomes:
            user = one.recipient.quad.user.decode("utf-8", "replace")
            self._log(
                f"{message.name}/{one.recipient.offset} {user} {one.status.decode()} {one.text}"
            )
        return outcomes

    def _send(
        self, message: AgentMessage, recipients: list[RecipientLine], hosts: list[str]
    ) -> Iterator[AgentOutcome]:
        """Send a mail to the first host that answers."""
        failure: NotSent | BadMail = NotSent(Reason.DNS, "dns_not_found", "no host to send to")
        host = ""
        for host in hosts:
            try:
                answer = self._attempt(message, recipients, host)
            except (NotSent, BadMail) as error:
                failure = error
                if _is_unreached(error):
                    continue
                break
            for one, refusal in zip(recipients, answer.refusals, strict=True):
                if refusal is None:
                    yield self._accepted(one, host, answer.reply, answer.notifies)
                else:
                    yield self._failed(one, host, refusal)
            return
        for one in recipients:
            yield self._failed(
                one, host, failure, is_last=one is recipients[-1], bad_status="5.6.0"
            )

    def _attempt(
        self, message: AgentMessage, recipients: list[RecipientLine], host: str
    ) -> smtp_client.ServerAnswer:
        if host != self._host:
            self._connections.close()
            self._host = host
        tls = self._settings.tls or ("" if is_loopback(host) else OPPORTUNISTIC)
        sender = message.sender(recipients[0]).decode("utf-8", "replace")
        people = [
            WireRecipient(one.quad.user.decode("utf-8", "replace"), _notify_parameters(one))
            for one in recipients
        ]
        return smtp_client.send_to_all(
            sender,
            people,
            _wire_contents(message, recipients[0]),
            to=self._settings._replace(host=host, tls=tls),
            cancelled=lambda: False,
            connections=self._connections,
            notify=_message_parameters(message),
        )

    def _accepted(self, one: RecipientLine, host: str, reply: str, notifies: bool) -> AgentOutcome:
        is_reported = is_notified_of_success(one) and not notifies
        notary = self._notary(one, b"relayed", _status(reply, "2.0.0"), reply, host)
        return AgentOutcome(one, b"ok2" if is_reported else b"ok3", reply, notary)

    def _failed(
        self,
        one: RecipientLine,
        host: str,
        error: NotSent | BadMail,
        *,
        is_last: bool = False,
        bad_status: str = "5.1.3",
    ) -> AgentOutcome:
        """A failure is permanent if the server said so, or if the mail can never be sent (its code
        is `bad_status` then). If no server was reached, the last recipient ends the work on this
        host."""
        is_final = isinstance(error, BadMail) or error.permanent
        is_unreached = _is_unreached(error)
        default = "5.0.0" if is_final else "4.0.0"
        if isinstance(error, BadMail):
            default = bad_status
        elif error.reason in _STATUS_OF_REASON:
            default = _STATUS_OF_REASON[error.reason]
        word = b"error2" if is_final else b"deferall" if is_unreached and is_last else b"deferred"
        action = b"failed" if is_final else b"delayed"
        # Its sender gets the server's own words; only an answer that proves nothing needs ours.
        server_reply = "" if isinstance(error, InDoubt | BadMail) else error.reply
        text = server_reply or str(error)
        return AgentOutcome(
            one, word, text, self._notary(one, action, _status(text, default), text, host)
        )

    def _notary(
        self, one: RecipientLine, action: bytes, status: str, text: str, host: str
    ) -> Notary:
        code = re.match(r"[245][0-9][0-9]\b", text)
        report = f"smtp; {text}" if code else f"x-local; {status[0]}00 ({text})"
        remote = f"dns; {host}" if host else ""
        return Notary(
            one.quad.user,
            action,
            status.encode(),
            report=report.encode(),
            remote=remote.encode(),
            agent=self._name.encode(),
        )


def _is_unreached(error: NotSent | BadMail) -> bool:
    """True if no server has answered to the mail: another host may."""
    if isinstance(error, InDoubt | BadMail):
        return False
    return error.reason in _STATUS_OF_REASON


def _status(text: str, default: str) -> str:
    match = _find_status(text)
    return match[1] if match else default


def _notify_parameters(one: RecipientLine) -> str:
    return _format_parameters({name: dsn_parameter(one.dsn, name) for name in ("NOTIFY", "ORCPT")})


def _message_parameters(message: AgentMessage) -> str:
    """Parameters of MAIL for notifications; a field has the value, or NAME=VALUE."""
    fields = {"RET": message.field(b"R").upper(), "ENVID": message.field(b"n")}
    return _format_parameters({n: dsn_parameter(one, n) or one for n, one in fields.items()})


def _format_parameters(values: Mapping[str, bytes]) -> str:
    good = {name: one.decode() for name, one in values.items() if _PARAMETERS[name].fullmatch(one)}
    return " ".join(f"{name}={one}" for name, one in good.items())


def _wire_contents(message: AgentMessage, recipient: RecipientLine) -> BinaryIO:
    """A message in wire form: the headers for a recipient, an empty line, and the body. Raises
    UnreadableMessage: the message file cannot be read now."""
    out = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        headers = message.headers(recipient)
        with message.body() as body:
            wire_format.write_wire_format(_pieces(headers, body), out)
        out.seek(0)
    except OSError as error:
        out.close()
        raise UnreadableMessage(f"the message cannot be read: {error_text(error)}") from error
    return cast(BinaryIO, out)


def _pieces(headers: bytes, body: BinaryIO) -> Iterator[bytes]:
    yield from headers.splitlines(keepends=True)
    yield b"\n"
    while piece := body.readline(wire_format.CHUNK_BYTES):
        yield piece + body.read(1) if piece.endswith(b"\r") else piece  # the LF of a CRLF
