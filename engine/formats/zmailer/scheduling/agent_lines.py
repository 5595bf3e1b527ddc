"""The lines between a scheduler and a transport agent: parse and format them (scheduler(8zm)).

An agent writes `#hungry` when it takes work, and for each recipient `ID/OFFSET TAB notary TAB
status text`. It gets `FILE TAB host` for a job, `#idle`, and an empty line as the end. All is bytes
with LF; a line without its LF is no line.
"""

from __future__ import annotations

import re

from engine.values import NamedTuple

HUNGRY = b"#hungry\n"
IDLE = b"#idle\n"
END = b"\n"
"""The empty line: the agent is to end. There is no word for it."""

MAX_LINE_BYTES = 16 << 10
"""Longer lines are cut: their outcome is at the start, the rest is text."""

DIAGNOSTIC, TEXT = "Misformed diagnostic", "DBGdiag"
"""Words of the scheduler's log before a line that is no answer."""


class StatusRule(NamedTuple):
    """What a status word means."""

    is_final: bool
    """True if the recipient is finished; otherwise it is tried again."""
    is_failure: bool = False
    """True if it is finished without a delivery."""
    notify: str = ""
    """The scheduler appends the diagnostic to the control file if the recipient's NOTIFY has this
    word."""
    is_recorded: bool = False
    """True if the agent has appended the diagnostic itself."""
    ends_feeding: bool = False
    """True if the agent gets no more of the thread now."""
    spreads: bool = False
    """True if the text counts for all later recipients of the thread too."""
    has_time: bool = False
    """True if the text begins with the time of the next try."""


STATUSES = {
    b"ok": StatusRule(True, notify="SUCCESS"),
    b"ok2": StatusRule(True, is_recorded=True),
    b"ok3": StatusRule(True),
    b"error": StatusRule(True, is_failure=True, notify="FAILURE"),
    b"error2": StatusRule(True, is_failure=True, is_recorded=True),
    b"deferred": StatusRule(False),
    b"deferback": StatusRule(False),
    b"deferall": StatusRule(False, ends_feeding=True, spreads=True),
    b"retryat": StatusRule(False, ends_feeding=True, has_time=True),
}
"""All status words; they are case-sensitive."""


class Notary(NamedTuple):
    """What a delivery status notification needs to know of a delivery (RFC 3464)."""

    recipient: bytes = b""
    """The address after all changes."""
    action: bytes = b""
    """delivered, failed, relayed, delayed, expanded."""
    status: bytes = b""
    """Enhanced status code, with a comment."""
    report: bytes = b""
    """The answer of the remote host, after its type."""
    remote: bytes = b""
    """The remote host, after its type."""
    agent: bytes = b""
    """Program and PID of the agent; older ones do not send it."""


class AgentAnswer(NamedTuple):
    """What became of one recipient."""

    ident: int
    """The number that begins the name of the control file."""
    offset: int
    """Byte offset of the recipient line."""
    notary: Notary | None
    """None if the agent sends none: then nothing is to be reported, or it has recorded it."""
    status: bytes
    """A key of `STATUSES`."""
    text: bytes
    """One line; a CR in it is shown as the end of a line."""

    @property
    def rule(self) -> StatusRule:
        """What the status means."""
        return STATUSES[self.status]

    def retry_time(self, now: float) -> float | None:
        """When the agent wants to try again, in epoch seconds UTC: `+N` counts from now. None if it
        names no time."""
        match = _match_time(self.text) if self.rule.has_time else None
        if match is None:
            return None
        return now + int(match[2]) if match[1] else float(match[2])


class Hungry(NamedTuple):
    """The agent takes work; each one gives one credit back."""


class Resync(NamedTuple):
    """The agent found nothing to do in a control file: it must be read again."""

    ident: int


class AgentText(NamedTuple):
    """A line for the log."""

    kind: str
    """`DIAGNOSTIC` or `TEXT`."""
    text: bytes


AgentLine = AgentAnswer | Hungry | Resync | AgentText


class JobLine(NamedTuple):
    """One job for an agent: the recipients of a host in a control file."""

    path: str
    """Below transport/, such as I/F/3276785."""
    host: bytes | None
    """None if the command of the agent has the host."""

    @property
    def ident(self) -> int:
        """The number in its answers."""
        match = _leading_number(self.path, self.path.rfind("/") + 1)
        return int(match[0]) if match else 0


_match_answer = re.compile(
    rb"([0-9]{1,20})/([0-9]{1,12})\t([^\t]*)\t([^ \t]*)(?: (.*))?", re.DOTALL
).fullmatch
_match_resync = re.compile(
    rb"#resync +(?:[A-Z]/){0,2}([0-9]{1,20})[A-Za-z0-9_.-]{0,40} *"
).fullmatch
_match_time = re.compile(rb"(\+?)([0-9]{1,12})(?![^ ])").match
_leading_number = re.compile(r"[0-9]+").match
_match_job = re.compile(rb"((?:[A-Z]/){0,2}[0-9][A-Za-z0-9_.-]{0,80})(?:\t([^\t\n]*))?").fullmatch


_HUNGRY = Hungry()


def parse_agent_line(line: bytes) -> AgentLine:
    """Parse a line of an agent, without its LF. It never fails: other text is for the log."""
    if line == b"#hungry":
        return _HUNGRY
    if match := _match_answer(line):
        ident, offset, notary, status, text = match.groups()
        if status in STATUSES:
            sent = Notary(*notary.split(b"\1", 5)) if notary else None
            return AgentAnswer(int(ident), int(offset), sent, status, text or b"")
    if match := _match_resync(line):
        return Resync(int(match[1]))
    return AgentText(TEXT if not line or line.startswith(b"#") else DIAGNOSTIC, line)


def format_answer(answer: AgentAnswer) -> bytes:
    """Format an answer, with its LF; TAB and LF in its texts become blanks."""
    notary = b"\1".join(_clean(one) for one in answer.notary or ())
    place = b"%d/%d" % (answer.ident, answer.offset)
    return b"%b\t%b\t%b %b\n" % (place, notary, answer.status, _clean(answer.text))


def format_resync(path: str) -> bytes:
    """Format the request to read a control file again."""
    return f"#resync {path}\n".encode()


def format_job(job: JobLine) -> bytes:
    """Format a job. Raises ValueError: path or host would be something else for the agent."""
    path = job.path.encode()
    line = path if job.host is None else b"%b\t%b" % (path, job.host)
    if not _match_job(line) or b"\t" in path:
        raise ValueError(f"no job for an agent: {line!r}")
    return line + b"\n"


def parse_job(line: bytes) -> JobLine | None:
    """Parse a job, without its LF; None if it is none."""
    match = _match_job(line)
    return JobLine(match[1].decode("ascii"), match[2]) if match else None


class LineBuffer:
    """Cuts a stream of bytes into lines, and keeps at most `MAX_LINE_BYTES` of one."""

    def __init__(self) -> None:
        self._start = b""
        self._is_cut = False
        """True if the rest of the line is dropped."""

    def feed(self, data: bytes) -> list[bytes]:
        """Add data; return the lines that are complete, without their LF, each cut to the limit."""
        lines = data.split(b"\n")
        lines[0] = self._start if self._is_cut else self._start + lines[0]
        self._start = lines.pop()
        self._is_cut = (self._is_cut and not lines) or len(self._start) > MAX_LINE_BYTES
        if self._is_cut:
            self._start = self._start[:MAX_LINE_BYTES]
        if len(data) >= MAX_LINE_BYTES or (lines and len(lines[0]) > MAX_LINE_BYTES):
            return [line[:MAX_LINE_BYTES] for line in lines]
        return lines


def _clean(text: bytes) -> bytes:
    """Text without the bytes that separate fields and lines."""
    return text.translate(_BLANKS)


_BLANKS = bytes.maketrans(b"\n\t\0\1", b"    ")
