"""A session of MAILQ version 2 without its socket: a line goes in, the answer comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from engine.formats.zmailer.mailq import job_text, report_text
from engine.formats.zmailer.mailq.acl import MailqUser, Peer, Right, find_user, is_right_digest
from engine.formats.zmailer.mailq.queue_view import CounterView, JobView, SchedulerView, ThreadView
from engine.formats.zmailer.mailq.report_text import encode
from engine.text.safe import safe_line
from engine.values import NamedTuple

MULTI_LINE = "+OK until LF.LF"
"""First line of an answer that ends with a line of one dot; other lines double a leading dot."""
NO_ACCESS = "550 NO ACCESS FOR YOU"
KILLED = "+OK; KILLed something."
_NOT_STARTED = "didn't start anything"
_SHOWN_REST = 200
"""Characters of an unknown command that its answer repeats."""


class MailqQueue(Protocol):
    """What a server of MAILQ shows and changes. All methods are called in the thread of `step`."""

    def view(self, *, with_jobs: bool) -> SchedulerView:
        """The present view; the same object as long as it may be shown again, because its text is
        kept. `with_jobs`: also all jobs, for version 1."""

    def jobs(self, channel: str, host: str) -> Sequence[JobView]:
        """The jobs of one thread; () if there is no such thread."""

    def counters(self) -> Iterable[CounterView]:
        """The counters."""

    def etrn(self, host: str) -> bool:
        """Make the threads of a host due now; True if that started something."""

    def kill_message(self, name: str) -> str:
        """Delete a message, named by spool id or control file; why not, or "" if it is gone."""

    def kill_thread(self, channel: str, host: str) -> str:
        """Delete all jobs of a thread; why not, or "" if they are gone."""


class Reply(NamedTuple):
    """The answer to one line."""

    data: bytes
    is_end: bool = False
    """True if the connection ends with it."""


def reply_line(text: str) -> Reply:
    """An answer of one line."""
    return Reply(encode(f"{text}\n"))


def multi_line(lines: Iterable[str]) -> bytes:
    """An answer of many lines, with doubled leading dots."""
    body = "\n".join(lines)
    if body.startswith(".") or "\n." in body:
        body = "\n".join(f".{line}" if line[:1] == "." else line for line in body.split("\n"))
    return encode(f"{MULTI_LINE}\n{body}\n.\n" if body else f"{MULTI_LINE}\n.\n")


class PreparedReports:
    """The text of the reports on the last view: rendered once, then only written."""

    def __init__(self, queue: MailqQueue) -> None:
        self.queue = queue
        self._view: SchedulerView | None = None
        self._texts: dict[str, bytes] = {}
        self._threads: dict[tuple[str, str], ThreadView] | None = None

    def thread(self, channel: str, host: str) -> tuple[ThreadView | None, float]:
        """A thread of the present view, and the time of the view."""
        view = self._take_view(with_jobs=False)
        if self._threads is None:
            threads = (thread for group in view.groups for thread in group.threads)
            self._threads = {(thread.channel, thread.host): thread for thread in threads}
        return self._threads.get((channel, host)), view.now

    def _take_view(self, *, with_jobs: bool) -> SchedulerView:
        view = self.queue.view(with_jobs=with_jobs)
        if view is not self._view:
            self._view, self._texts, self._threads = view, {}, None
        return view

    def report(self, kind: str) -> bytes:
        """The answer to `SHOW kind`; "1" is a dump of version 1, "1Q" one without jobs."""
        view = self._take_view(with_jobs=kind == "1")
        if kind not in self._texts:
            self._texts[kind] = _render(kind, view)
        return self._texts[kind]


def _render(kind: str, view: SchedulerView) -> bytes:
    now, groups = view.now, view.groups
    match kind:
        case "1" | "1Q":
            lines = job_text.dump_lines(view, with_jobs=kind == "1")
            return b"".join(encode(f"{line}\n") for line in lines)
        case "SNMP":
            return multi_line(report_text.totals_lines(view.totals, in_seconds=True))
        case "QUEUE THREADS2":
            threads = (thread for group in groups for thread in group.threads)
            return multi_line(report_text.threads2_line(thread, now) for thread in threads)
        case _:
            full = kind == "QUEUE THREADS"
            lines = report_text.report_lines(groups, view.totals, now, with_threads=full)
            return multi_line(lines)


_REPORT_RIGHTS = {
    "SNMP": Right.SNMP,
    "QUEUE SHORT": Right.QQ,
    "QUEUE THREADS": Right.TT,
    "QUEUE THREADS2": Right.TT,
}


class MailqSession:
    """One connection of version 2."""

    def __init__(
        self,
        reports: PreparedReports,
        users: Sequence[MailqUser],
        peer: Peer,
        challenge: str,
        *,
        is_exact: bool = False,
    ) -> None:
        """`challenge` is its whole line. With `is_exact`, KILL answers as ZMailer 3.0.1: OK even if
        nothing was killed, and an empty line behind it; and there is no KILL THREAD."""
        self._reports, self._users, self._peer = reports, users, peer
        self._challenge, self._is_exact = challenge, is_exact
        self._user: MailqUser | None = None

    def greet(self) -> Reply:
        """The first lines: version and challenge, or a refusal."""
        if any(user.fits(self._peer) for user in self._users):
            return Reply(encode(f"{job_text.VERSION_2}\n{self._challenge}\n"))
        return Reply(encode(f"{job_text.VERSION_2}\n{NO_ACCESS}\n"), is_end=True)

    def answer(self, line: str) -> Reply:
        """Answer one line, without its LF; a CR is ignored, and an empty line has no answer."""
        words = line.replace("\r", "").split(None, 1)
        if not words:
            return Reply(b"")
        verb, arguments = words[0], words[1].rstrip() if len(words) > 1 else ""
        if verb.upper() in ("QUIT", "EXIT"):
            return Reply(b"+Bye bye\n", is_end=True)
        if self._user is None:
            if verb != "AUTH":
                return reply_line("-BAD; USER MUST AUTHENTICATE")
            return reply_line(self._log_in(arguments))
        rights = self._user.rights
        match verb:
            case "SHOW" if arguments in _REPORT_RIGHTS and _REPORT_RIGHTS[arguments] in rights:
                return Reply(self._reports.report(arguments))
            case "SHOW" if arguments == "COUNTERS":
                counters = self._reports.queue.counters()
                return Reply(multi_line(report_text.counter_lines(counters)))
            case "SHOW" if arguments.startswith("THREAD ") and Right.TT in rights:
                return Reply(multi_line(self._thread_lines(arguments.split(None, 2)[1:])))
            case "ETRN":
                return reply_line(self._etrn(arguments))
            case "KILL":
                return self._kill(arguments)
        shortened = safe_line(arguments[:_SHOWN_REST])
        return reply_line(
            "-MAILQ2 Unknown command, or refused by access control;"
            f" VERB='{safe_line(verb[:_SHOWN_REST])}' REST='{shortened}'"
        )

    def _log_in(self, arguments: str) -> str:
        name, _, answer = arguments.partition(" ")
        user = find_user(self._users, name, self._peer)
        if user is None:
            return "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS"
        if not is_right_digest(self._challenge, user.password, answer.strip()):
            return "-BAD USER OR PASSWORD"
        self._user = user
        return "+OK"

    def _thread_lines(self, names: list[str]) -> Iterator[str]:
        channel, host = (*names, "", "")[:2]
        thread, now = self._reports.thread(channel, host)
        if thread is None:
            return iter(())
        return job_text.thread_lines(thread, self._reports.queue.jobs(channel, host), now)

    def _etrn(self, host: str) -> str:
        if self._user is None or Right.ETRN not in self._user.rights:
            return "-No ETRN allowed for you."
        started = bool(host) and self._reports.queue.etrn(host)
        return f"+OK; an ETRN {'started something' if started else _NOT_STARTED}."

    def _kill(self, arguments: str) -> Reply:
        end = "\n" if self._is_exact else ""
        if self._user is None or Right.KILL not in self._user.rights:
            return reply_line("-No KILL allowed for you.")
        queue, words = self._reports.queue, arguments.split(None, 2)
        match words:
            case ["MSG", name]:
                why = queue.kill_message(name)
            case ["THREAD", channel, host] if not self._is_exact:
                why = queue.kill_thread(channel, host)
            case _:
                return reply_line(f"-Unknown request.{end}")
        if why and not self._is_exact:
            return reply_line(f"-ERR {safe_line(why)}")
        return reply_line(f"{KILLED}{end}")
