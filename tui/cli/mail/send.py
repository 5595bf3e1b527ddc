"""`mail send`, `send-with-retry`, `test` and `status`."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, TextIO

from engine import verbs
from engine.config.mail_config import METHODS, MailSettings
from engine.config.validators import ConfigError
from engine.mail.model import BadMail, Cause, MailError, NotSent
from engine.mail.send.sender import SendResult
from engine.mail.send.suspensions import Suspension
from engine.policy import at, lasting
from engine.store import StoreError
from engine.system import files
from engine.text.safe import shown
from tui.cli.setup import suspend
from tui.cli.setup.mail_parts import SEND, why_none
from tui.cli.setup.setup import EX_IOERR, EX_USAGE, Fail, Setup, complain, fail, say
from tui.format.glyphs import ASCII, chosen

if TYPE_CHECKING:
    from engine.mail.transports.registry import TransportRegistry

DONE, NOT_SENT = 0, 1
WELL, NOTHING, SHUT = 0, 1, 2
"""Exit codes of `status`, as the real one's: sent by something, by nothing, by what is not running
or was suspended.
"""


def send(setup: Setup, arguments: Namespace) -> int:
    """Send a mail in one attempt (contract, `nftban_mail_send`)."""
    settings = setup.mail_settings()
    text = _content(arguments, settings)
    _make_folders(setup)
    with _interruptible() as stop:
        post = setup.post(settings, setup.ways(settings), stop.pause)
        try:
            sent = post.send(text, arguments.recipient, arguments.subject, cancelled=stop.asked)
        except (MailError, OSError) as error:
            return _not_sent(error)
    if sent is None:
        return _nobody()
    _submitted(sent.recipient)
    return DONE


def send_with_retry(setup: Setup, arguments: Namespace) -> int:
    """Send a mail in several attempts, and at last spool and queue it (contract).

    Exit 0: sent, 1: spooled (contract). Nothing is kept with 64: the address or content is
    refused, and with 74: the mail could not be spooled.

    Where a setting of mail cannot be meant it is spooled at once, and the worker waits until that
    is mended: whoever has an alert to send cannot mend it, and mostly does not listen.
    """
    settings, ways, unmeant = _settings_or_why(setup)
    text = _content(arguments, settings)
    _make_folders(setup)
    with _interruptible() as stop:
        post = setup.post(settings, ways, stop.pause, unmeant=unmeant)
        try:
            ended = post.send_with_retry(
                text,
                arguments.recipient,
                arguments.subject,
                enqueue=lambda description, payload: enqueue(setup, description, payload),
                cancelled=stop.asked,
                tell=complain if sys.stderr.isatty() else _nothing,
            )
        except MailError as error:
            _not_sent(error)
            return EX_USAGE
        except OSError as error:
            # Why no transport took it comes with it: it is lost, and whoever sent it has to know.
            why = "".join(f"{shown(note)}; " for note in getattr(error, "__notes__", ()))
            _not_sent(error, f"{why}the mail is lost, it could not be spooled: ")
            return EX_IOERR
    if ended is None:
        return _nobody()
    return _said(setup, ended, arguments.recipient or settings.recipient)


def _nothing(text: str) -> None:
    """Who only reads what came of it in the end is told nothing before."""


def _settings_or_why(setup: Setup) -> tuple[MailSettings, TransportRegistry, str]:
    """How mail is sent, and by what; or as much of that as keeps a mail, and why no more."""
    from engine.mail.transports.registry import TransportRegistry

    try:
        settings = setup.mail_settings()
        return settings, setup.ways(settings), ""
    except ConfigError as error:
        settings = setup.mail_settings_to_keep()
        return settings, TransportRegistry(settings, {}), shown(str(error))


def _said(setup: Setup, ended: SendResult, recipient: str) -> int:
    if ended.sent:
        _submitted(recipient)
        return DONE
    if ended.permanent:
        complain(f"refused for good: {shown(ended.text)}")
    elif ended.doubt:
        complain(f"{_DOUBT}: {shown(ended.text)}")
    else:
        complain(f"not sent: {shown(ended.text)}")
    if ended.task_id and ended.permanent:
        say(f"Mail kept in the spool, its task will be given up on: {ended.task_id}")
    elif ended.task_id:
        say(f"Mail spooled for later delivery: {ended.task_id}")
    else:
        folder = os.path.dirname(ended.payload)
        complain(
            f"Queue not available, mail saved to spool: {shown(folder)} ({shown(ended.unqueued)}); "
            f"`{spool_retry(setup, ended.mail_id)}` queues it"
        )
    return NOT_SENT


def spool_retry(setup: Setup, *words: str) -> str:
    """The command that has these mails sent, as it is typed for this place."""
    from tui.cli.plans import plan_command

    return shown(plan_command.typed([*plan_command.base(setup), "mail", "spool", "retry", *words]))


_DOUBT = "may have been accepted; sent again, it may arrive twice"
"""What is said of a mail of which no transport said that it was not accepted."""


def enqueue(setup: Setup, description: str, payload: str) -> str:
    """Queue a task that delivers a spooled mail; answers with its id.

    Raises:
        StoreError: the queue takes none, or is not there.
        OSError: it could not be written.
    """
    task = verbs.enqueue(SEND, time.time(), os.urandom(4).hex(), description, payload)
    try:
        setup.make_queue()
    except Fail as error:
        raise StoreError(str(error)) from error
    store = setup.open()
    try:
        refused = store.edges[None, task.state].refused
        if refused:
            raise StoreError(refused)
        store.swap(None, task)
    finally:
        store.close()
    setup.log_queued(task)
    return task.id


def _content(arguments: Namespace, settings: MailSettings) -> str:
    """What is to be sent: as it was said, or, for `-`, what standard input holds.

    Raises:
        Fail: that is more than may be sent, or nothing at all.
    """
    said: str = arguments.content
    if said != "-" or arguments.literal:
        if not said.strip():
            fail(EX_USAGE, "CONTENT is empty: nothing was sent, expected a text or the path of one")
        return said
    most = settings.max_file_size
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        fail(EX_USAGE, f"standard input: more than {most:,} bytes, which are the most that is sent")
    if not data.strip():
        fail(EX_USAGE, "standard input is empty or closed: nothing was sent, expected a text there")
    # With a line's end it is text, whatever it looks like, and never the path of a file.
    return data.decode("utf-8", "replace").removesuffix("\n") + "\n"


def _make_folders(setup: Setup) -> None:
    """Make what is written beside the queue; where that cannot be, mail is sent all the same."""
    queue = setup.queue
    if not os.path.isdir(queue.pending):
        return
    for path in (queue.log_dir, queue.counters, os.path.dirname(queue.mail_metrics)):
        if not os.path.isdir(path):
            try:
                setup.make_folder(path)
            except OSError as error:
                complain(f"{shown(path)}: {error.strerror}")


class _StopSending:
    """Whether a signal asked us to end; it ends a pause, too.

    The interpreter writes each signal's number to a pipe when it arrives (`signal.set_wakeup_fd`).
    A handler alone runs too late: for a signal that arrives just before select(2) blocks, only
    after the pause.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._asked = False

    def tell(self, number: int, _: FrameType | None) -> None:
        """Handle a signal; the same signal once more ends us immediately."""
        self._asked = True
        signal.signal(number, signal.SIG_DFL)

    def asked(self) -> bool:
        """Whether a signal came."""
        return self._asked

    def pause(self, seconds: float) -> None:
        """Wait, at most until a signal comes."""
        select.select([self._reader], [], [], seconds)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self.writer)


@contextmanager
def _interruptible() -> Iterator[_StopSending]:
    """In the block the first signal that would end us is noted; a second one does end us."""
    stop, before = _StopSending(), {}
    wakeup = signal.set_wakeup_fd(stop.writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            before[number] = signal.signal(number, stop.tell)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        stop.close()


def _sign(good: bool, stream: TextIO) -> str:
    sign = "✓ " if good else "✗ "
    try:
        sign.encode(stream.encoding)
    except UnicodeEncodeError:
        return ""
    return "" if chosen(os.environ) is ASCII else sign


def _submitted(recipient: str) -> None:
    # The contract's own words: what a transport has accepted may still come back.
    said = f"Email submitted to transport for: {shown(recipient)} (delivery not confirmed)"
    say(f"{_sign(True, sys.stdout)}{said}")


def _not_sent(error: Exception, beside: str = "") -> int:
    say(f"{_sign(False, sys.stderr)}Failed to send email: {beside}{_why(error)}", sys.stderr)
    return NOT_SENT


def _why(error: Exception) -> str:
    if not isinstance(error, NotSent):
        return shown(_words(error))
    return f"{error.word}: {shown(str(error))}{f' ({_DOUBT})' if error.doubtful else ''}"


def _words(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _nobody() -> int:
    # The contract's pattern: no reason for a caller to fail.
    say("Warning: No recipient configured", sys.stderr)
    return DONE


# ---- test


def test(setup: Setup, arguments: Namespace) -> int:
    """Send one mail, and say each step and what came of it."""
    settings = setup.mail_settings()
    name = arguments.transport
    if name:
        suspend.require_name(name)
        settings = settings._replace(method=name)
    return try_out(setup, settings, arguments.email, anyway=bool(name), dry=arguments.dry_run)


def try_out(
    setup: Setup, settings: MailSettings, email: str, *, anyway: bool = False, dry: bool = False
) -> int:
    """Send a mail that says it is a test; `anyway` by a transport that is suspended, too."""
    from engine.mail.address import checked
    from engine.mail.host import this_host

    recipient = email or settings.recipient
    if not recipient:
        return _step("recipient", "none is configured, and none was named", NOT_SENT)
    try:
        recipient = checked(recipient, settings.strict)
    except BadMail as error:
        return _step("recipient", str(error), NOT_SENT)
    _step("recipient", recipient)
    ways = setup.ways(settings)
    suspended = suspend.suspended(setup)
    choice = ways.choose(() if anyway else suspended)
    if choice.transport is None:
        return _step("transport", why_none(settings, choice.why_not, suspended), NOT_SENT)
    name = choice.transport.name
    beside = f", though {suspend.standing(suspended[name])}" if name in suspended else ""
    _step("transport", f"{name}{_relay(name, settings)}{beside}")
    subject = f"spooldeck test from {this_host().name} at {at(time.time())}"
    _step("subject", subject)
    if dry:
        return _step("dry run", "nothing was sent")
    _make_folders(setup)
    began = time.monotonic()
    with _interruptible() as stop:
        post = setup.post(settings, ways, stop.pause, suspended=not anyway)
        try:
            sent = post.send(f"{subject}\n", recipient, subject, cancelled=stop.asked)
        except (MailError, OSError) as error:
            took = time.monotonic() - began
            return _step("failed", f"after {took:.1f} s: {_why(error)}", NOT_SENT)
    took = time.monotonic() - began
    assert sent is not None, "there is a recipient"
    return _step("accepted", f"by {sent.transport} after {took:.1f} s (delivery not confirmed)")


def _step(what: str, said: str, code: int = DONE) -> int:
    say(f"{what:<10} {shown(said)}")
    return code


def _relay(name: str, settings: MailSettings) -> str:
    if name != "curl":
        return ""
    login = " with a login" if settings.user else ""
    return f" to {settings.host}:{settings.port}{login}"


# ---- status


class _TransportReport(NamedTuple):
    """How mail goes from here, as of now."""

    settings: MailSettings
    chosen: str
    """The transport that the next mail goes by; "" for none."""
    none: str
    """Why there is none, in words."""
    shut: bool
    """Whether one is there that somebody has suspended, or would have to start."""
    why_not: Mapping[str, str]
    """Of each of the others, in words."""
    suspended: Mapping[str, Suspension]
    no_queue: str
    """Why no task can be made for what is spooled; "" where one can."""
    problems: Mapping[str, str]
    """By the line that they stand in, what keeps mail from being sent whatever takes it."""
    figures: Mapping[str, Mapping[str, int]]
    """By transport, its counters."""
    last_success: int
    last_failure: int
    """Epoch seconds UTC; 0 for never."""
    last_reason: str
    depth: int
    oldest: float
    """Seconds."""

    @property
    def code(self) -> int:
        """What `status` ends with."""
        if self.chosen:
            return SHUT if self.problems else WELL
        return SHUT if self.shut else NOTHING


def status(setup: Setup, arguments: Namespace) -> int:
    """By what mail goes from here and why not by the others, what waits, how it went."""
    setup.require_sight()
    look = _look(setup)
    if arguments.json:
        import json

        print(json.dumps(_as_json(look)))
    else:
        print("\n".join(_as_text(look)))
    return look.code


COUNTERS = {"attempts": "mail_attempts", "success": "mail_success", "failures": "mail_failures"}
"""What is counted of each transport, and how its counter's name begins."""


def _look(setup: Setup) -> _TransportReport:
    settings = setup.mail_settings()
    suspended = suspend.suspended(setup)
    ways = setup.ways(settings)
    choice = ways.choose(suspended)
    chosen = "" if choice.transport is None else choice.transport.name
    only = f"another method is forced: {settings.method}" if settings.method else ""
    others = {name: only or ways.absence(name) for name in METHODS}
    others |= {name: why.words for name, why in choice.why_not.items()}
    count = setup.counters().read
    figures = {
        name: {what: count(f"{begins}_{name}") for what, begins in COUNTERS.items()}
        for name in METHODS
    }
    problems = _wrong_addresses(settings)
    depth, oldest = 0, 0.0
    try:
        depth, oldest = setup.mail_spool().depth_and_oldest(time.time())
    except OSError as error:
        problems["spool"] = f"cannot be read: {_words(error)}"
    return _TransportReport(
        settings,
        chosen,
        why_none(settings, choice.why_not, suspended),
        any(why.cause in (Cause.SUSPENDED, Cause.STOPPED) for why in choice.why_not.values()),
        {name: why for name, why in others.items() if why and name != chosen},
        suspended,
        _no_queue(setup),
        problems,
        figures,
        count("mail_last_success_ts"),
        count("mail_last_failure_ts"),
        _last_reason(setup),
        depth,
        oldest,
    )


def _wrong_addresses(settings: MailSettings) -> dict[str, str]:
    """What is wrong with whom mail is for, or from, by the rules of whoever sends it."""
    from engine.mail.address import checked

    wrong = {}
    for name, text, strict in (
        ("sender", settings.sender, False),
        ("recipient", settings.recipient, settings.strict),
    ):
        try:
            if text:
                checked(text, strict)
        except BadMail as error:
            wrong[name] = str(error)
    return wrong


def _no_queue(setup: Setup) -> str:
    try:
        setup.store().close()
    except StoreError as error:
        return str(error)
    return ""


LAST_REASON = "mail_last_failure_reason"


def _last_reason(setup: Setup) -> str:
    """The error of the last mail that was given up on; "" where there is none."""
    queue = setup.queue
    try:
        here = files.reach(queue.counters, queue.root)
        try:
            fd = files.open_plain(LAST_REASON, here)
        finally:
            os.close(here)
        try:
            return shown(os.pread(fd, 200, 0).decode("utf-8", "replace").strip())
        finally:
            os.close(fd)
    except FileNotFoundError:
        return ""
    except OSError as error:
        complain(f"{shown(queue.counters)}/{LAST_REASON}: {error.strerror}")
        return ""


def _as_text(look: _TransportReport) -> list[str]:
    settings, now = look.settings, time.time()
    chosen = f"{look.chosen}{_relay(look.chosen, settings)}"
    forced = " (the only one allowed: mail.method)" if settings.method else ""
    wrong = look.problems
    recipient = f"recipient  {shown(settings.recipient) or 'none configured'}"
    lines = [
        *([f"queue      {shown(look.no_queue)}"] if look.no_queue else []),
        f"transport  {chosen + forced if chosen else look.none}",
        *([f"sender     {shown(wrong['sender'])}"] if "sender" in wrong else []),
        f"{recipient}: {shown(wrong['recipient'])}" if "recipient" in wrong else recipient,
        f"spool      {_spooled(look)}",
        f"success    {_moment(look.last_success, now)}",
        f"failure    {_moment(look.last_failure, now)}"
        + (f": {look.last_reason}" if look.last_failure and look.last_reason else ""),
        "",
        f"{'':<10} {'attempts':>8} {'success':>8} {'failures':>8}",
    ]
    for name in METHODS:
        figures = "".join(f" {look.figures[name][what]:>8,}" for what in COUNTERS)
        lines.append(f"{name:<10}{figures}  {_standing(look, name)}".rstrip())
    return lines


def _standing(look: _TransportReport, name: str) -> str:
    """Why a transport is used, or is not."""
    if name in look.suspended:
        return suspend.standing(look.suspended[name])
    if name == look.chosen:
        return "chosen"
    return shown(look.why_not.get(name, "")) or "ready, after the chosen one"


def _spooled(look: _TransportReport) -> str:
    if "spool" in look.problems:
        return shown(look.problems["spool"])
    if not look.depth:
        return "empty"
    mails = "1 mail" if look.depth == 1 else f"{look.depth:,} mails"
    return f"{mails}, the oldest for {lasting(look.oldest)}"


def _moment(when: int, now: float) -> str:
    return f"{at(when)}, {lasting(max(0.0, now - when))} ago" if when else "never"


def _as_json(look: _TransportReport) -> dict[str, object]:
    return {
        "transport": look.chosen or None,
        "method": look.settings.method or None,
        "recipient": look.settings.recipient or None,
        "transports": {
            name: {
                **look.figures[name],
                "why_not": look.why_not.get(name) or None,
                "suspended": look.suspended[name]._asdict() if name in look.suspended else None,
            }
            for name in METHODS
        },
        "queue_problem": look.no_queue or None,
        "problems": dict(look.problems),
        "spool": None
        if "spool" in look.problems
        else {"mails": look.depth, "oldest_age": look.oldest if look.depth else None},
        "last_success": look.last_success or None,
        "last_failure": look.last_failure or None,
        "last_failure_reason": look.last_reason or None,
    }
