"""Classify why a mail was not sent, from the exit status and the output of a program.

The server's reply code counts first, then the program's own phrases, then its exit status
(sysexits.h). Only a 5xx reply to the mail itself is permanent: what an operator can fix, such as a
password, the sender or a server that refuses all mail, may succeed later. A server's 250 after the
data means sent, however the program ended.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from engine.mail.model import NotSent, Reason
from engine.text.safe import ERROR_LIMIT, hide_domain, safe_line

if TYPE_CHECKING:
    from engine.system.supervisor import ProgramResult

AUTH_CODES = frozenset({432, 530, 534, 535, 538})
"""Reply codes about our login, not about the mail (RFC 4954, section 6)."""

_TOO_LARGE = 552
"""The reply code about the mail's size; already to MAIL FROM (RFC 1870, section 6.1)."""

_cannot_store = partial(re.search, r"mail_queue_enter: create file ")
"""What Postfix's postdrop prints again and again, as long as it has stored nothing. Source:
Postfix, mail_queue.c."""

# The patterns are compiled at their first use: most mails are sent without an error to classify.

# How programs quote a server's reply: after certain words, or with its enhanced code (RFC 3463).
_find_replies = partial(
    re.finditer,
    r"(?i)\b(?:server message|said|reply|replied|response|failed|SMTP error[^\n]*?): ([45]\d\d)\b"
    r"|\b([45]\d\d)[ -][45]\.\d{1,3}\.\d{1,3}\b",
)
_at_login = partial(re.search, r"(?i)authenticat|login denied|\bAUTH\b")
_at_start = partial(
    re.search,
    r"(?i)initial OK message|unexpected smtp-server response|remote access denied|\b[EH]+LO\b",
)
_at_starttls = partial(re.search, r"(?i)STARTTLS")
_at_sender = partial(re.search, r"(?i)\bMAIL failed\b|envelope from address")
"""The stage of MAIL FROM in the words of curl and msmtp: the sender is a setting, not the mail."""

_PHRASES: Mapping[str, str] = {
    "connect_refused": "connection refused",
    "connect_unreachable": "network is (?:unreachable|down)|host is (?:unreachable|down)"
    "|network unreachable|no route to host",
    # Not after a network read error: then there was a connection, and the mail may have been sent.
    "connect_timeout": "^(?!.*network (?:read|write) error)"
    ".*(?:connection timed out|connection timeout|failed to connect .*timeout)",
    "dns_not_found": "(?:couldn't|could not) resolve|cannot locate host|name or service not known"
    "|unknown host|host (?:name )?(?:not found|lookup)|name resolution|no address associated",
    "tls_certificate": "certificate",
    "tls_missing": "starttls|does not support tls|tls (?:is )?required",
    # If an existing connection broke, the phrases further down are more exact.
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
"""The phrases that programs print for each reason; in one line, the first match counts."""

_PHRASE_SEARCHES = {word: partial(re.search, f"(?i){phrase}") for word, phrase in _PHRASES.items()}

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
"""Exit statuses of sysexits.h, used by sendmail and its replacements."""

PERMANENT_STATUSES = frozenset(n for n, word in _SYSEXITS.items() if word.startswith("rejected_"))
"""Those that no further attempt can change: EX_DATAERR (65) and EX_NOUSER (67)."""

_is_noise = partial(
    re.fullmatch,
    r"msmtp: could not send mail \(.*|Can't send mail: sendmail process failed with error code \d+"
    r"|More details here: .*|curl failed to verify the legitimacy .*|establish a secure .*"
    r"|how to fix it, please visit .*",
)
"""Lines that only refer to another message."""


def classify_program_failure(name: str, ran: ProgramResult) -> NotSent | None:
    """Return why a program did not send a mail; None if it took all of it. `name` is the
    transport's, for a program without any output."""
    text = ran.output.decode("utf-8", "replace")
    if ran.end_reason:
        _, late, time = ran.end_reason.partition("timeout after ")
        why = f"{name} did not end within {time}" if late else f"{name} was stopped"
        if _cannot_store(text):
            word = _classify_phrases(text) or "unavailable_cannot_write"
            return failure_from_word(word, _append_text(why, text))
        # Even if it has not read the mail: a surviving process may still hold its standard input.
        return failure_from_word(
            "timeout" if late else "unavailable_stopped", _append_text(why, text)
        )
    if ran.status == 0:
        if not ran.has_unread_input:
            return None
        why = f"{name} ended with status 0 without reading the mail"
        return failure_from_word("unavailable_not_read", _append_text(why, text))
    word = _classify_output(text) or _classify_status(ran.status)
    return failure_from_word(word, redact_text(text) or f"{name} {_describe_exit(ran.status)}")


def failure_from_word(word: str, text: str) -> NotSent:
    """Return the failure for a word; its first part is the reason, and `rejected` is permanent.
    `text` must be safe to show."""
    reason = Reason(word.partition("_")[0])
    return NotSent(reason, word, text, permanent=reason is Reason.REJECTED)


_CURL_WORDS: Mapping[int, str] = {
    5: "dns_proxy",
    6: "dns_not_found",
    7: "connect_refused",
    # The server's reply was invalid, so the result is unknown; a refusal before it counts.
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
"""Reasons by curl's exit status (libcurl-errors(3))."""

_REFUSAL_STATUSES = frozenset({8, 9, 55, 67})
"""Exit statuses of curl after a server's refusal."""

_CONNECT_STATUSES = frozenset({7, 28})
"""Exit statuses where only curl's message shows whether a server was reached."""

_find_reply_codes = partial(re.findall, r"(?m)^([2-5]\d\d)(?: .*)?\r?$")
_find_curl_messages = partial(re.findall, r"(?m)^curl: \(\d+\) (.*?)(?: \(errno: \d+\))?$")

UPLOADED_PREFIX = "spooldeck uploaded"
"""The prefix of the line in which curl prints the number of uploaded bytes (`--write-out`)."""

_find_no_upload = partial(re.search, rf"(?m)^{UPLOADED_PREFIX} 0\r?$")
_find_data_reply = partial(re.search, r"(?m)^354")

_find_data_answer = partial(re.search, r"(?ms)^354(?: [^\n]*)?\r?$.*?^(\d)\d\d(?: [^\n]*)?\r?$")
"""The reply to the mail itself: the first one after the reply to DATA."""

_TLS_HINT = "(TLS is required unless the host is in mail.plain_hosts)"


def has_accepted_mail(output: bytes) -> bool:
    """True if curl's output has the server's acceptance of the mail (2xx after the data). curl also
    waits for the answer to QUIT and fails without one, when the mail is sent already."""
    reply = _find_data_answer(output.decode("utf-8", "replace"))
    return reply is not None and reply[1] == "2"


def classify_curl_failure(code: int, output: bytes, secrets: Collection[str] = ()) -> NotSent:
    """Return why curl did not send a mail, from its exit status and its output. The output consists
    of curl's messages, the server's replies as listed by `--dump-header`, and the line with
    `UPLOADED_PREFIX`. `secrets` are removed from the text."""
    text = output.decode("utf-8", "replace")
    if code < 0:
        return failure_from_word(_classify_status(code), f"curl {_describe_exit(code)}")
    messages = "; ".join(_find_curl_messages(text)) or f"curl {_describe_exit(code)}"
    answer = _last_refusal(text) if code in _REFUSAL_STATUSES else 0
    if answer:
        # curl names the stage, the server the reason.
        reply = "\n".join(re.findall(rf"(?m)^{answer}[ -].*$", text))
        word = _classify_reply(answer, "login denied" if code == 67 else messages)
        return failure_from_word(word, _append_text(redact_text(reply, secrets), messages))
    word = _CURL_WORDS.get(code, f"unavailable_curl_{code}")
    phrase = _classify_phrases(messages) if code in _CONNECT_STATUSES else ""
    if phrase.startswith(("connect_", "timeout")) and phrase != "connect_failed":
        word = phrase
    if word in ("timeout", "connect_lost") and _find_no_upload(text) and not _find_data_reply(text):
        word += "_before_data"
    safe = redact_text(messages, secrets)
    return failure_from_word(
        word, f"{safe} {_TLS_HINT}"[:ERROR_LIMIT] if word == "tls_missing" else safe
    )


def _last_refusal(text: str) -> int:
    refused = [int(code) for code in _find_reply_codes(text) if code >= "400"]
    return refused[-1] if refused else 0


# Reasons as words.


def _classify_output(text: str) -> str:
    refused = list(_find_replies(text))
    if not refused:
        return _classify_phrases(text)
    # The program's words before the quoted reply name the stage; the server's own text may be about
    # anything.
    last = refused[-1]
    return _classify_reply(int(last[1] or last[2]), text[: last.start(last.lastindex or 0)])


def _classify_phrases(text: str) -> str:
    # The first line that matches: later lines mostly follow from it.
    for line in text.splitlines():
        for word, search in _PHRASE_SEARCHES.items():
            if search(line) and not _is_noise(line.strip()):
                return word
    return ""


def _classify_reply(code: int, text: str) -> str:
    if code in AUTH_CODES or _at_login(text):
        return f"auth_{code}"
    if _at_starttls(text):
        return "tls_missing"
    is_ours = _at_start(text) or (_at_sender(text) and code != _TOO_LARGE)
    return f"unavailable_{code}" if code < 500 or is_ours else f"rejected_{code}"


def _classify_status(status: int | None) -> str:
    if status is None:
        return "unavailable_no_status"
    if status < 0:
        return f"unavailable_signal_{-status}"
    return _SYSEXITS.get(status, f"unavailable_status_{status}")


def _describe_exit(status: int | None) -> str:
    if status is None:
        return "ended with an unknown status"
    return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _append_text(why: str, text: str) -> str:
    safe = redact_text(text)
    return f"{why}: {safe}"[:ERROR_LIMIT] if safe else why


# Text for operators.

_address = partial(re.sub, r"[^\s<>\"'(),;:=|@]+@[^\s<>\"'(),;:|@]+")
_said_login = partial(re.sub, r"(?i)\b(AUTH [A-Z0-9-]+) +\S+")
_login_in_url = partial(re.sub, r"(?<=://)[^\s/@]*@")
_said_password = partial(re.sub, r"(?i)\b(pass(?:word|wd)?\s*[=:]\s*)\S+")


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """Return the text on one safe line of at most 200 characters. Control characters, full
    addresses and passwords are removed. The last lines of a longer text are kept."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            text = text.replace(secret, "***")
    text = _said_password(r"\1***", _said_login(r"\1 ***", _login_in_url("", text)))
    text = _address(lambda match: hide_domain(match[0]), text)
    lines = [safe_line(" ".join(line.split())) for line in text.splitlines()]
    return _join_last_lines([line for line in lines if line and not _is_noise(line)])


def _join_last_lines(lines: list[str]) -> str:
    """Return the last whole lines that fit, joined; if the last line is too long, its beginning."""
    joined = lines.pop()[:ERROR_LIMIT] if lines else ""
    for line in reversed(lines):
        if len(line) + 2 + len(joined) > ERROR_LIMIT:
            break
        joined = f"{line}; {joined}"
    return joined
