"""`mail send`, `mail send-with-retry`, `mail test` and `mail status`."""

from __future__ import annotations

import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from json import dumps
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from engine import verbs
from engine.config.mail_config import METHODS, MailSettings
from engine.config.validators import ConfigError
from engine.formats.base.format import Setup
from engine.mail.model import BadMail, Cause, MailError, NotSent
from engine.mail.send.delivery_log import LAST_FAILURE, LAST_REASON, LAST_SUCCESS
from engine.mail.send.sender import SendResult
from engine.mail.send.transport_chooser import describe_no_transport
from engine.model import MAIL_SEND_KIND, Task
from engine.store import StoreError
from engine.system import files
from engine.system.command_errors import (
    EX_IOERR,
    EX_USAGE,
    LOST_NULL,
    CommandError,
    fail,
    print_error,
    print_result,
)
from engine.text.error_text import error_text
from engine.text.safe import contract_text, hide_domain, safe_line
from engine.text.times import format_rough_duration, format_time
from engine.values import NamedTuple
from tui.cli.setup.output import Answer, captured_lines
from tui.text.glyphs import UTF8, glyphs_of_locale
from tui.text.task_row import time_fields, with_times

if TYPE_CHECKING:
    from engine.mail.transports.registry import TransportRegistry

DONE, NOT_SENT = 0, 1

KEPT_NULL = 3
"""Exit code of `send-with-retry --null` for a spooled mail."""

OK, NO_TRANSPORT, UNAVAILABLE = 0, 1, 2
"""Exit codes of `status`, as in the contract's program: a transport is available; none; the only
ones are suspended or not running."""


class _Letter(NamedTuple):
    content: str | None
    """A text, a path, or `-` for standard input."""
    recipient: str
    subject: str
    literal: bool
    """True: a content of `-` is text."""


def send(
    setup: Setup,
    content: str | None,
    recipient: str,
    *,
    subject: str,
    literal: bool,
    null: bool,
    json: bool,
) -> int:
    """Send a mail in one attempt to each recipient (contract, "nftban_mail_send")."""
    settings = setup.mail.settings()
    letter = _read_null_words(_Letter(content, recipient, subject, literal), settings, null=null)
    text = _content(letter, settings)
    _make_folders(setup)
    code = DONE
    with _interruptible() as stop:
        chooser = setup.mail.chooser(settings, setup.mail.registry(settings))
        post = setup.mail.sender(chooser, stop.pause)
        for to in post.recipients(letter.recipient):
            try:
                sent = post.send(text, to, letter.subject, cancelled=stop.asked)
            except (MailError, OSError) as error:
                _print_outcome(json, "failed", to, reason=_why(error))
                code = _not_sent(error)
            else:
                _print_outcome(json, "accepted", sent.recipient)
    return code


def _print_outcome(
    as_json: bool, result: str, recipient: str, task: str = "", reason: str = ""
) -> None:
    """Print what became of a mail as JSON; as text, if it was accepted."""
    if as_json:
        values = {"recipient": recipient or None, "task": task or None, "reason": reason or None}
        print_result(dumps({"result": result, **values}))
    elif result == "accepted":
        # The contract's text: an accepted mail may still bounce. Its exit code is 0 even if this
        # cannot be printed: no id is lost, and a script must not send the mail again.
        to = safe_line(recipient)
        message = f"Email submitted to transport for: {to} (delivery not confirmed)"
        print_result(f"{_sign(True, sys.stdout)}{message}")


def send_with_retry(
    setup: Setup,
    content: str | None,
    recipient: str,
    subject: str,
    *,
    literal: bool,
    null: bool,
    json: bool,
) -> int:
    """Send a mail in several attempts; if all fail, spool and queue it (contract).

    Exit 0: sent; 1: spooled (contract); with --null 3, because 1 is also the exit code of an
    interpreter that cannot start. Any other code: at least one mail is neither sent nor kept,
    which is also sent to syslog.

    If a setting is invalid, the mail is spooled without an attempt, and the worker waits until the
    setting is repaired: the sender of an alert cannot repair it.
    """
    letter = _Letter(content, recipient, subject, literal)
    try:
        setup.require_mail("mail spool")
        settings, registry, fault = _settings_or_fault(setup)
        letter = _read_null_words(letter, settings, null=null)
        text = _content(letter, settings)
        _make_folders(setup)
        if setup.fault:
            setup.alert(_describe_fault(setup))
        with _interruptible() as stop:
            chooser = setup.mail.chooser(settings, registry, unmeant=fault)
            post = setup.mail.sender(chooser, stop.pause)
            results = post.send_with_retry(
                text,
                letter.recipient,
                letter.subject,
                enqueue=partial(enqueue, setup),
                cancelled=stop.asked,
                report_failure=print_error if sys.stderr.isatty() else lambda text: None,
            )
            recipients = post.recipients(letter.recipient)
        for ended, to in zip(results, recipients, strict=True):
            if ended.lost:
                _report_loss(setup, ended.lost, to, letter.subject, as_json=json)
            elif json or ended.sent:
                result = "accepted" if ended.sent else "spooled"
                _print_outcome(json, result, to, ended.task_id, safe_line(ended.text))
            else:
                _print_spooled(setup, ended)
    except Exception as error:
        why = str(error) or type(error).__name__
        report_lost_mail(setup.queue.syslog, letter.subject, why)
        raise
    if any(ended.lost for ended in results):
        return LOST_NULL if null else EX_IOERR
    if all(ended.sent for ended in results):
        return DONE
    return KEPT_NULL if null else NOT_SENT


def report_lost_mail(syslog: str, subject: str, why: str, recipient: str = "") -> None:
    """Send a mail that is neither sent nor kept to the syslog socket: subject, recipient without
    its domain and reason, as an alert. Callers of the contract's functions often discard standard
    error."""
    from engine.system import syslog_handler  # loaded only for errors

    subject = safe_line(subject or "without a subject")[:200]
    to = f" (to {hide_domain(recipient)})" if recipient else ""
    text = f"mail lost, neither sent nor kept: {subject}{to}: {safe_line(why)}"
    syslog_handler.send_message(syslog, "ALERT", text, time.time())


def _describe_fault(setup: Setup) -> str:
    """Name the folder of a mail that a fault of the configuration keeps, "" if it has none: if the
    file cannot be parsed, that is the default folder."""
    folder = safe_line(setup.queue.mail_spool)
    return f"mail is kept in {folder} and not sent: {setup.fault}" if setup.fault else ""


def _report_loss(
    setup: Setup, error: OSError, recipient: str, subject: str, *, as_json: bool
) -> None:
    why = "".join(f"{safe_line(note)}; " for note in getattr(error, "__notes__", ()))
    _print_outcome(as_json, "failed", recipient, reason=f"{why}{_why(error)}")
    to = f" to {safe_line(recipient)}" if recipient else ""
    _not_sent(error, f"{why}mail{to} lost, cannot spool it: ")
    text = f"{why}mail lost, cannot spool it: {_why(error)}"
    report_lost_mail(setup.queue.syslog, subject, text, recipient)


def _settings_or_fault(setup: Setup) -> tuple[MailSettings, TransportRegistry, str]:
    """The mail settings and transports; if any setting is invalid, enough to spool, and the
    reason."""
    from engine.mail.transports.registry import TransportRegistry

    fault = setup.fault
    if not fault:
        try:
            settings = setup.mail.settings()
            return settings, setup.mail.registry(settings), ""
        except ConfigError as error:
            fault = safe_line(str(error))
    settings = setup.mail.lenient_settings()
    return settings, TransportRegistry(settings, {}), fault


def _print_spooled(setup: Setup, ended: SendResult) -> None:
    if ended.permanent:
        print_error(f"refused permanently: {safe_line(ended.text)}")
    elif ended.doubtful_since:
        print_error(f"{_DOUBT_TEXT}: {safe_line(ended.text)}")
    else:
        print_error(_describe_fault(setup) or f"not sent: {safe_line(ended.text)}")
    if ended.task_id and ended.permanent:
        print_result(f"Mail kept in the spool, its task goes to the DLQ: {ended.task_id}")
    elif ended.task_id:
        print_result(f"Mail spooled for later delivery: {ended.task_id}")
    else:
        folder = os.path.dirname(ended.payload)
        print_error(
            f"Queue not available, mail saved to spool: {safe_line(folder)} "
            f"({safe_line(ended.unqueued)}); "
            f"`{spool_retry(setup, ended.mail_id)}` queues it"
        )


def spool_retry(setup: Setup, *words: str) -> str:
    """The command that sends these mails, as typed for this place."""

    return safe_line(shlex.join([*setup.command_words, "mail", "spool", "retry", *words]))


_DOUBT_TEXT = "may have been accepted; another attempt may deliver it twice"
"""Text about a mail whose attempt had no clear result."""


def enqueue(setup: Setup, description: str, payload: str) -> str:
    """Queue a task that delivers a spooled mail; returns its id. Raises StoreError: the queue
    refuses it or does not exist; OSError: it could not be written."""
    from engine.formats.nftban.queue_folders import make_queue, open_spool

    task = task_for_mail(description, payload)
    try:
        make_queue(setup)
    except CommandError as error:
        raise StoreError(str(error)) from error
    with closing(open_spool(setup)) as store:
        if refused := store.edges[None, task.state].refusal:
            raise StoreError(refused)
        store.swap(None, task)
    setup.log_queued(task)
    return task.id


def task_for_mail(description: str, payload: str) -> Task:
    """A new task that delivers the spooled mail with this meta.sh."""
    token = os.urandom(4).hex()
    # In the contract's characters, as its own program describes a mail.
    return verbs.enqueue(MAIL_SEND_KIND, time.time(), token, contract_text(description), payload)


def _read_null_words(letter: _Letter, settings: MailSettings, *, null: bool) -> _Letter:
    """With --null read recipient, subject and content from standard input, with a NUL between them:
    arguments have a maximum length (128 KiB on Linux), and other users can read them in the list of
    processes. Raises CommandError: they are given twice, or not all there."""
    if not null:
        if letter.content is None:
            fail(EX_USAGE, "expected CONTENT: a text, the path of a file, or - for standard input")
        return letter
    if letter.content is not None:
        fail(EX_USAGE, "--null: expected CONTENT on standard input only")
    # Longer content is cut; that it is too long is found later.
    words = sys.stdin.buffer.read(4 * settings.max_file_size).split(b"\0", 2)
    if len(words) < 3:
        fail(EX_USAGE, "standard input: expected RECIPIENT NUL SUBJECT NUL CONTENT")
    recipient, subject, content = map(os.fsdecode, words)
    return _Letter(content, recipient, subject, literal=True)


def _content(letter: _Letter, settings: MailSettings) -> str:
    """The text to send: the argument, or standard input for `-`; a longer one than allowed is cut
    after the limit, so that `load_content` refuses it."""
    assert letter.content is not None
    if letter.content != "-" or letter.literal:
        return letter.content
    data = sys.stdin.buffer.read(settings.max_file_size + 1)
    # With a line end it is always text, never the path of a file.
    return data.decode("utf-8", "replace").removesuffix("\n") + "\n"


def _make_folders(setup: Setup) -> None:
    """Make the folders of logs and metrics; an error is only reported."""
    queue = setup.queue
    if not os.path.isdir(queue.pending):
        return
    for path in (queue.log_dir, queue.counters, os.path.dirname(queue.mail_metrics)):
        if not os.path.isdir(path):
            try:
                setup.make_folder(path)
            except OSError as error:
                print_error(f"{safe_line(path)}: {error_text(error)}")


class _StopSending:
    """Notes a signal that asks us to end, and ends a pause. The interpreter writes each signal's
    number to a pipe when it arrives (`signal.set_wakeup_fd`). A handler alone runs too late: for a
    signal that arrives just before select(2) blocks, only after the pause."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._asked = False

    def request_stop(self, number: int, _: FrameType | None) -> None:
        """Handle a signal; the same signal again ends us immediately."""
        self._asked = True
        signal.signal(number, signal.SIG_DFL)

    def asked(self) -> bool:
        return self._asked

    def pause(self, seconds: float) -> None:
        select.select([self._reader], [], [], seconds)

    def close(self) -> None:
        os.close(self._reader)
        os.close(self.writer)


@contextmanager
def _interruptible() -> Iterator[_StopSending]:
    """In the block the first signal is only noted; a second one ends the process."""
    stop, before = _StopSending(), {}
    wakeup = signal.set_wakeup_fd(stop.writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            before[number] = signal.signal(number, stop.request_stop)
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
    return sign if glyphs_of_locale(os.environ) is UTF8 else ""


def _not_sent(error: Exception, prefix: str = "") -> int:
    print_result(
        f"{_sign(False, sys.stderr)}Failed to send email: {prefix}{_why(error)}", sys.stderr
    )
    return NOT_SENT


def _why(error: Exception) -> str:
    if not isinstance(error, NotSent):
        return safe_line(_words(error))
    doubt = f" ({_DOUBT_TEXT})" if error.may_be_accepted else ""
    return f"{error.word}: {safe_line(str(error))}{doubt}"


def _words(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return f"{where}{error_text(error)}"


# ---- test


def test(setup: Setup, email: str, *, transport: str, dry_run: bool, json: bool) -> int:
    """Send one mail and print each step."""
    settings = setup.mail.settings()
    if transport:
        from tui.cli.setup import suspend  # loads the journal

        suspend.require_name(transport)
        settings = settings._replace(method=transport)
    with captured_lines(json) as lines:
        code = send_test(setup, settings, email, allows_suspended=bool(transport), dry=dry_run)
    if json:
        steps = [{"step": line[:10].rstrip(), "text": line[11:]} for line in lines]
        values = {"dry_run": dry_run, "accepted": steps[-1]["step"] == "accepted"}
        print_result(dumps({**values, "steps": steps}))
    return code


def send_test(
    setup: Setup,
    settings: MailSettings,
    email: str,
    *,
    allows_suspended: bool = False,
    dry: bool = False,
) -> int:
    """Send a test mail; with `allows_suspended` also by a suspended transport."""
    from engine.mail.address import require_addresses
    from engine.mail.host import this_host

    if not (email or settings.recipient):
        return _step("recipient", "none configured, none given", NOT_SENT)
    try:
        recipients = require_addresses(email or settings.recipient, settings.strict)
    except BadMail as error:
        return _step("recipient", str(error), NOT_SENT)
    _step("recipient", ", ".join(recipients))
    registry = setup.mail.registry(settings)
    from tui.cli.setup import suspend

    suspended = suspend.read_suspended(setup)
    choice = registry.choose(() if allows_suspended else suspended)
    if choice.transport is None:
        why = describe_no_transport(settings, choice.why_not, suspended)
        return _step("transport", why, NOT_SENT)
    name = choice.transport.name
    note = f", though {suspend.describe_suspension(suspended[name])}" if name in suspended else ""
    _step("transport", f"{name}{_relay(name, settings)}{note}")
    subject = f"spooldeck test from {this_host().name} at {format_time(time.time())}"
    _step("subject", subject)
    if dry:
        return _step("dry run", "nothing was sent")
    _make_folders(setup)
    began = time.monotonic()
    with _interruptible() as stop:
        chooser = setup.mail.chooser(settings, registry, suspended=not allows_suspended)
        post = setup.mail.sender(chooser, stop.pause)
        try:
            for recipient in recipients:
                sent = post.send(f"{subject}\n", recipient, subject, cancelled=stop.asked)
        except (MailError, OSError) as error:
            took = time.monotonic() - began
            return _step("failed", f"after {took:.1f} s: {_why(error)}", NOT_SENT)
    took = time.monotonic() - began
    return _step("accepted", f"by {sent.transport} after {took:.1f} s (delivery not confirmed)")


def _step(what: str, text: str, code: int = DONE) -> int:
    print_result(f"{what:<10} {safe_line(text)}")
    return code


def _relay(name: str, settings: MailSettings) -> str:
    if name != "curl":
        return ""
    login = " with a login" if settings.user else ""
    return f" to {settings.host}:{settings.port}{login}"


# ---- status


def status(setup: Setup) -> Answer:
    """Print the selected transport, why not the others, the spool, and the last results."""
    setup.require_readable()
    report = _TransportReport(setup)
    return Answer(lambda: _as_json(report), lambda: _as_text(report), report.code)


COUNTERS = {"attempts": "mail_attempts", "success": "mail_success", "failures": "mail_failures"}
"""Counter of each column, by the start of its name."""


class _TransportReport:
    """The state of the transports and of the mail spool, read once."""

    def __init__(self, setup: Setup) -> None:
        from engine.mail.message.compose import invalid_addresses
        from tui.cli.setup import suspend

        self.settings = settings = setup.mail.settings()
        self.suspended = suspend.read_suspended(setup)
        registry = setup.mail.registry(settings)
        choice = registry.choose(self.suspended)
        self.chosen = "" if choice.transport is None else choice.transport.name
        """The transport of the next mail; "" if none."""
        self.none = describe_no_transport(settings, choice.why_not, self.suspended)
        """Why no transport can be used."""
        only = f"another method is forced: {settings.method}" if settings.method else ""
        others = {name: only or registry.absence(name) for name in METHODS}
        others |= {name: why.reason for name, why in choice.why_not.items()}
        self.why_not = {name: why for name, why in others.items() if why and name != self.chosen}
        """Why each other transport is not used."""
        count = setup.counters().read
        self.figures = {
            name: {what: count(f"{begins}_{name}") for what, begins in COUNTERS.items()}
            for name in METHODS
        }
        """The counters of each transport."""
        self.problems = invalid_addresses(settings)
        """Problems that stop all mail, by the line of the output."""
        self.depth, self.oldest = 0, 0.0
        """The number of spooled mails, and the age of the oldest in seconds."""
        try:
            self.depth, self.oldest = setup.mail.spool().depth_and_oldest(time.time())
        except OSError as error:
            self.problems["spool"] = f"cannot be read: {_words(error)}"
        self.no_queue = _no_queue(setup)
        """Why spooled mail cannot be queued; "" if it can."""
        self.last_success = count(LAST_SUCCESS)
        self.last_failure = count(LAST_FAILURE)
        """Epoch seconds UTC; 0 for never."""
        self.last_reason = _last_reason(setup)
        causes = {why.cause for why in choice.why_not.values()}
        is_shut = bool(causes & {Cause.SUSPENDED, Cause.STOPPED})
        self.code = UNAVAILABLE if is_shut else NO_TRANSPORT
        """What `status` ends with."""
        if self.chosen:
            self.code = UNAVAILABLE if self.problems else OK


def _no_queue(setup: Setup) -> str:
    try:
        setup.open_store().close()
    except StoreError as error:
        return str(error)
    return ""


def _last_reason(setup: Setup) -> str:
    queue = setup.queue
    try:
        folder_fd = files.open_dir_path(queue.counters, queue.root)
        try:
            fd = files.open_plain(LAST_REASON, folder_fd)
        finally:
            os.close(folder_fd)
        try:
            return safe_line(os.pread(fd, 200, 0).decode("utf-8", "replace").strip())
        finally:
            os.close(fd)
    except FileNotFoundError:
        return ""
    except OSError as error:
        print_error(f"{safe_line(queue.counters)}/{LAST_REASON}: {error_text(error)}")
        return ""


def _as_text(report: _TransportReport) -> list[str]:
    settings, now = report.settings, time.time()
    chosen = f"{report.chosen}{_relay(report.chosen, settings)}"
    forced = " (set by mail.method)" if settings.method else ""
    wrong = report.problems
    recipient = f"recipient  {safe_line(settings.recipient) or 'none configured'}"
    lines = [
        *([f"queue      {safe_line(report.no_queue)}"] if report.no_queue else []),
        f"transport  {chosen + forced if chosen else report.none}",
        *([f"sender     {safe_line(wrong['sender'])}"] if "sender" in wrong else []),
        f"{recipient}: {safe_line(wrong['recipient'])}" if "recipient" in wrong else recipient,
        f"spool      {_spooled(report)}",
        f"success    {_moment(report.last_success, now)}",
        f"failure    {_moment(report.last_failure, now)}"
        + (f": {report.last_reason}" if report.last_failure and report.last_reason else ""),
        "",
        f"{'':<10} {'attempts':>8} {'success':>8} {'failures':>8}",
    ]
    for name in METHODS:
        figures = "".join(f" {report.figures[name][what]:>8,}" for what in COUNTERS)
        lines.append(f"{name:<10}{figures}  {_standing(report, name)}".rstrip())
    return lines


def _standing(report: _TransportReport, name: str) -> str:
    from tui.cli.setup import suspend

    if name in report.suspended:
        return suspend.describe_suspension(report.suspended[name])
    if name == report.chosen:
        return "selected"
    return safe_line(report.why_not.get(name, "")) or "ready, after the selected one"


def _spooled(report: _TransportReport) -> str:
    if "spool" in report.problems:
        return safe_line(report.problems["spool"])
    if not report.depth:
        return "empty"
    mails = "1 mail" if report.depth == 1 else f"{report.depth:,} mails"
    return f"{mails}, the oldest for {format_rough_duration(report.oldest)}"


def _moment(when: int, now: float) -> str:
    return (
        f"{format_time(when)}, {format_rough_duration(max(0.0, now - when))} ago"
        if when
        else "never"
    )


def _as_json(report: _TransportReport) -> dict[str, object]:
    return {
        "transport": report.chosen or None,
        "method": report.settings.method or None,
        "recipient": report.settings.recipient or None,
        "transports": {
            name: {
                **report.figures[name],
                "why_not": report.why_not.get(name) or None,
                "suspended": with_times(report.suspended[name]._asdict(), "since")
                if name in report.suspended
                else None,
            }
            for name in METHODS
        },
        "queue_problem": report.no_queue or None,
        "problems": dict(report.problems),
        "spool": None
        if "spool" in report.problems
        else {"mails": report.depth, "oldest_age": report.oldest if report.depth else None},
        **time_fields("last_success", report.last_success or None),
        **time_fields("last_failure", report.last_failure or None),
        "last_failure_reason": report.last_reason or None,
    }
