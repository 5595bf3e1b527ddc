"""Why a mail was not sent, made out of what a program left behind: its exit status, its words.

What a server answered decides before all else, then the program's own phrases, then its status
(sysexits.h). Only an answer 5xx to the mail itself is for ever: what an operator can mend, such as
a password or a server that takes nothing at all, may succeed another time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from engine.mail.model import NotSent, Reason
from engine.text.safe import ERROR_LIMIT, private, shown

if TYPE_CHECKING:
    from engine.system.supervisor import Ran

AUTH_CODES = frozenset({432, 530, 534, 535, 538})
"""Answers that are about who we are, not about the mail (RFC 4954, section 6)."""

# What programs say of a server's answer: in words before it, or by its enhanced code (RFC 3463).
_reply = re.compile(
    r"(?i)\b(?:server message|said|reply|replied|response|failed|SMTP error[^\n]*?): ([45]\d\d)\b"
    r"|\b([45]\d\d)[ -][45]\.\d{1,3}\.\d{1,3}\b"
)
_at_login = re.compile(r"(?i)authenticat|login denied|\bAUTH\b").search
_at_start = re.compile(
    r"(?i)initial OK message|unexpected smtp-server response|remote access denied|\b[EH]+LO\b"
).search
_at_starttls = re.compile(r"(?i)STARTTLS").search

_PHRASES: Mapping[str, str] = {
    "connect_refused": "connection refused",
    "connect_unreachable": "network is (?:unreachable|down)|host is (?:unreachable|down)"
    "|network unreachable|no route to host",
    # Whoever read from it had a connection, and may have handed the mail over by it.
    "connect_timeout": "^(?!.*network (?:read|write) error)"
    ".*(?:connection timed out|connection timeout|failed to connect .*timeout)",
    "dns_not_found": "(?:couldn't|could not) resolve|cannot locate host|name or service not known"
    "|unknown host|host (?:name )?(?:not found|lookup)|name resolution|no address associated",
    "tls_certificate": "certificate",
    "tls_missing": "starttls|does not support tls|tls (?:is )?required",
    # Of a connection that was there, and broke, the lines below tell more.
    "tls_failed": r"^(?!.*(?:read from|write to) tls)"
    r".*\b(?:tls|ssl)\b.*(?:handshake|packet|error|fail|version|init|session)|x\.?509",
    "timeout": "timed out|timeout",
    "auth_failed": "authenticat|login denied|credentials|password",
    "connect_lost": "empty reply|invalid reply|network (?:read|write) error|reset by peer"
    "|(?:read from|write to) tls connection|broken pipe"
    "|lost connection|connection (?:lost|closed)|closed the connection",
    "connect_failed": "(?:couldn't|could not|cannot|failed to) connect",
    "rejected_too_large": "message (?:file |size )?(?:is )?too (?:big|large)|exceeds .*size",
    "unavailable_no_space": "no space left|insufficient (?:system )?storage|disk full"
    "|queue file write error",
    "unavailable_permission": "not allowed to submit|permission denied|operation not permitted",
    "rejected_unknown_user": "user unknown|unknown user|no such user|unrouteable address",
}
"""By the word for it, what programs say; which comes first here counts first in one line."""

_SAID = {word: re.compile(f"(?i){said}").search for word, said in _PHRASES.items()}

_SYSEXITS: Mapping[int, str] = {
    64: "unavailable_usage",
    65: "rejected_data",
    66: "unavailable_no_input",
    67: "rejected_unknown_user",
    68: "dns_not_found",
    69: "unavailable_service",
    70: "unavailable_software",
    71: "unavailable_system",
    72: "unavailable_file",
    73: "unavailable_cannot_write",
    74: "unavailable_io",
    75: "unavailable_for_now",
    76: "connect_protocol",
    77: "unavailable_permission",
    78: "unavailable_configuration",
}
"""The statuses of sysexits.h, which sendmail and who takes its place end with."""

_NOISE = re.compile(
    r"msmtp: could not send mail \(.*|Can't send mail: sendmail process failed with error code \d+"
    r"|More details here: .*|curl failed to verify the legitimacy .*|establish a secure .*"
    r"|how to fix it, please visit .*"
).fullmatch
"""Lines that only say that something else was said."""


def of_program(name: str, ran: Ran) -> NotSent | None:
    """Why a program did not send a mail; None when it took it, all of it.

    `name` is the transport's, for a program that ends without a word.
    """
    text = ran.output.decode("utf-8", "replace")
    if ran.ended:
        _, late, time = ran.ended.partition("timeout after ")
        why = f"{name} did not end within {time}" if late else f"{name} was stopped"
        # Also where it had not read the mail: whoever survives us, or holds on to its input, may.
        return not_sent("timeout" if late else "unavailable_stopped", _joined(why, text))
    if ran.status == 0:
        if not ran.unread:
            return None
        why = f"{name} ended with status 0 without reading the mail"
        return not_sent("unavailable_not_read", _joined(why, text))
    word = _of_words(text) or _of_status(ran.status)
    return not_sent(word, told(text) or f"{name} {_ending(ran.status)}")


def not_sent(word: str, text: str) -> NotSent:
    """The failure that a word stands for: its reason is its beginning, and who is rejected once
    is rejected for ever. `text` is safe to show already."""
    reason = Reason(word.partition("_")[0])
    return NotSent(reason, word, text, permanent=reason is Reason.REJECTED)


_CURL: Mapping[int, str] = {
    5: "dns_proxy",
    6: "dns_not_found",
    7: "connect_refused",
    # An answer that is none; where it is a no, that counts. Nobody knows what became of the mail.
    8: "connect_lost",
    26: "unavailable_no_input",
    27: "unavailable_memory",
    28: "timeout",
    35: "tls_failed",
    45: "connect_interface",
    52: "connect_lost",
    55: "connect_lost",
    56: "connect_lost",
    64: "tls_missing",
    67: "auth_failed",
    **dict.fromkeys((53, 54, 59, 66, 80), "tls_failed"),
    **dict.fromkeys((51, 58, 60, 77, 82, 83, 90, 91, 98), "tls_certificate"),
}
"""By curl's exit status (libcurl-errors(3))."""

_ANSWERED = frozenset({8, 9, 55, 67})
"""Statuses with which curl ends because a server said no."""

_REACHING = frozenset({7, 28})
"""Statuses of which only curl's words tell whether anybody was there."""

_last_lines_of_answers = re.compile(r"(?m)^([2-5]\d\d)(?: .*)?\r?$").findall
_curls_own = re.compile(r"(?m)^curl: \(\d+\) (.*?)(?: \(errno: \d+\))?$").findall

UPLOADED = "spooldeck uploaded"
"""How curl is told to begin the line that says how many bytes of the mail left it."""

_nothing_left = re.compile(rf"(?m)^{UPLOADED} 0\r?$").search
_mail_wanted = re.compile(r"(?m)^354").search

_PLAIN = "(expected TLS of every host that is not in mail.plain_hosts)"


def of_curl(code: int, output: bytes, secrets: Collection[str] = ()) -> NotSent:
    """Why curl did not send a mail, by its exit status and its output: what it says itself, the
    server's answers as `--dump-header` lists them, and the line of `UPLOADED`. `secrets` never come
    to stand in the text.
    """
    text = output.decode("utf-8", "replace")
    if code < 0:
        return not_sent(_of_status(code), f"curl {_ending(code)}")
    own = "; ".join(_curls_own(text)) or f"curl {_ending(code)}"
    answer = _refusal(text) if code in _ANSWERED else 0
    if answer:
        # At which stage it was curl says, and why the server does.
        said = "\n".join(re.findall(rf"(?m)^{answer}[ -].*$", text))
        word = _of_reply(answer, "login denied" if code == 67 else own)
        return not_sent(word, _joined(told(said, secrets), own))
    word = _CURL.get(code, f"unavailable_curl_{code}")
    heard = _of_phrases(own) if code in _REACHING else ""
    if heard.startswith(("connect_", "timeout")) and heard != "connect_failed":
        word = heard
    if word in ("timeout", "connect_lost") and _nothing_left(text) and not _mail_wanted(text):
        word += "_before_data"
    said = told(own, secrets)
    return not_sent(word, f"{said} {_PLAIN}"[:ERROR_LIMIT] if word == "tls_missing" else said)


def _refusal(text: str) -> int:
    """The last answer of a server that was a no; 0 for none."""
    refused = [int(code) for code in _last_lines_of_answers(text) if code >= "400"]
    return refused[-1] if refused else 0


# Words.


def _of_words(text: str) -> str:
    refused = list(_reply.finditer(text))
    if not refused:
        return _of_phrases(text)
    # What the program says before it quotes the server tells at which stage it was; what the
    # server says may be about anything.
    last = refused[-1]
    return _of_reply(int(last[1] or last[2]), text[: last.start(last.lastindex or 0)])


def _of_phrases(text: str) -> str:
    # The first line that says something: what comes after it is mostly its consequence.
    for line in text.splitlines():
        for word, said in _SAID.items():
            if said(line) and not _NOISE(line.strip()):
                return word
    return ""


def _of_reply(code: int, text: str) -> str:
    if code in AUTH_CODES or _at_login(text):
        return f"auth_{code}"
    if _at_starttls(text):
        return "tls_missing"
    return f"unavailable_{code}" if code < 500 or _at_start(text) else f"rejected_{code}"


def _of_status(status: int | None) -> str:
    if status is None:
        return "unavailable_no_status"
    if status < 0:
        return f"unavailable_signal_{-status}"
    return _SYSEXITS.get(status, f"unavailable_status_{status}")


def _ending(status: int | None) -> str:
    if status is None:
        return "ended, and nobody knows how"
    return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _joined(why: str, text: str) -> str:
    said = told(text)
    return f"{why}: {said}"[:ERROR_LIMIT] if said else why


# What an operator is told.

_address = re.compile(r"[^\s<>\"'(),;:=|@]+@[^\s<>\"'(),;:|@]+").sub
_said_login = re.compile(r"(?i)\b(AUTH [A-Z0-9-]+) +\S+").sub
_login_in_url = re.compile(r"(?<=://)[^\s/@]*@").sub
_said_password = re.compile(r"(?i)\b(pass(?:word|wd)?\s*[=:]\s*)\S+").sub


def told(text: str, secrets: Collection[str] = ()) -> str:
    """The text as it may be shown and kept: one line of at most 200 characters, without control
    characters, whole addresses, passwords; of longer text the lines that come last."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            text = text.replace(secret, "***")
    text = _said_password(r"\1***", _said_login(r"\1 ***", _login_in_url("", text)))
    text = _address(lambda found: private(found[0]), text)
    lines = [shown(" ".join(line.split())) for line in text.splitlines()]
    return _fitting([line for line in lines if line and not _NOISE(line)])


def _fitting(lines: list[str]) -> str:
    """The last whole lines that fit; of a longer last line its beginning."""
    kept = lines.pop()[:ERROR_LIMIT] if lines else ""
    for line in reversed(lines):
        if len(line) + 2 + len(kept) > ERROR_LIMIT:
            break
        kept = f"{line}; {kept}"
    return kept
