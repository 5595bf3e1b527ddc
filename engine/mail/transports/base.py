"""Shared by transports that run a program: check the addresses, run it, interpret its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from engine.mail import address, failure_reasons, run_program
from engine.mail.model import BadMail, Mail, NotSent, Reason
from engine.mail.transports.installed import EXIM_NAMES, System
from engine.text.safe import safe_line


def send_by_program(
    name: str,
    argv: Sequence[str],
    data: bytes,
    timeout: float,
    cancelled: Callable[[], bool],
    system: System,
    variables: Mapping[str, str] = {},
) -> None:
    """Give a mail to a program; it was accepted when this returns. `name` is the transport's.

    `variables` are additional environment variables.

    Raises:
        NotSent: it was not accepted, or that is unknown.
    """
    env = {**system.environment(), **variables}
    ran = run_program.run(argv, data, timeout, cancelled, env, account=system.account)
    failure = failure_reasons.classify_program_failure(name, ran)
    if failure is not None:
        raise failure


def send_by_sendmail(
    name: str,
    program: str,
    mail: Mail,
    timeout: float,
    cancelled: Callable[[], bool],
    system: System,
) -> None:
    """Give a mail to a program with the command line of sendmail, as `send_by_program` does.

    Sender and recipient are arguments, which no shell reads, and `--` ends the options, so no
    header decides who gets the mail. With `-i` a line with a single dot does not end it. Source:
    Postfix sendmail(1), exim(8), msmtp(1). Exim gets `-oep`: without it, it mails the reason for a
    refusal, such as a mail that is too big, to the sender, and prints none.

    Raises:
        NotSent: it was not accepted, or that is unknown.
    """
    sender, recipient = require_single_addresses(mail)
    is_exim = os.path.basename(os.path.realpath(program)) in EXIM_NAMES
    options = ("-oep",) if is_exim else ()
    argv = [program, "-i", *options, "-f", sender, "--", recipient]
    send_by_program(name, argv, mail.data, timeout=timeout, cancelled=cancelled, system=system)


def require_single_addresses(mail: Mail) -> tuple[str, str]:
    """Return sender and recipient, validated again for a command line.

    Raises:
        NotSent: one could be read as an option, a command or several addresses.
    """
    for what, each in (("sender", mail.sender), ("recipient", mail.recipient)):
        try:
            address.require_address(each, strict=False)
        except BadMail as bad:
            raise address_refusal(f"{what} {bad}") from bad
    return mail.sender, mail.recipient


def address_refusal(text: str) -> NotSent:
    """Return the failure of a mail whose sender or recipient the transport must not get."""
    return NotSent(Reason.REJECTED, "rejected_address", safe_line(text), permanent=True)
