"""What transports share that hand a mail to a program: who may be named to one, and how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.mail import failure_reasons, run_program
from engine.mail.model import Mail, NotSent, Reason
from engine.mail.transports.installed import System
from engine.text.safe import shown

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+=@-")
"""What the addresses are made of that we name to programs: to no program any of it says more."""


def hand_over(
    name: str,
    argv: Sequence[str],
    data: bytes,
    timeout: float,
    cancelled: Callable[[], bool],
    system: System,
    manners: Mapping[str, str] = {},
) -> None:
    """Give a program a mail; `name` is the transport's. When it returns it was accepted.

    `manners` is what it finds in its environment besides.

    Raises:
        NotSent: it was not, or nobody knows.
    """
    env = {**system.environment(), **manners}
    ran = run_program.run(argv, data, timeout, cancelled, env, account=system.account)
    failure = failure_reasons.of_program(name, ran)
    if failure is not None:
        raise failure


def submit(
    name: str,
    program: str,
    mail: Mail,
    timeout: float,
    cancelled: Callable[[], bool],
    system: System,
) -> None:
    """Give a mail to a program that can be called as sendmail, as `hand_over` does.

    Sender and recipient are said in arguments, and `--` ends the options: no header decides who
    gets it. With `-i` a line with a single dot is a line. Source: Postfix sendmail(1), exim(8),
    msmtp(1).

    Raises:
        NotSent: it was not accepted, or nobody knows.
    """
    sender, recipient = guarded(mail)
    argv = [program, "-i", "-f", sender, "--", recipient]
    hand_over(name, argv, mail.data, timeout, cancelled, system)


def guarded(mail: Mail) -> tuple[str, str]:
    """Sender and recipient of a mail, once more looked at before a program is told them.

    Raises:
        NotSent: one could be taken for something else than one address: for an option, for two.
    """
    for what, address in (("sender", mail.sender), ("recipient", mail.recipient)):
        if not address or address.startswith("-") or not _PLAIN.issuperset(address):
            text = (
                f"{what} {shown(address[:40])!r}: expected one address of letters, digits, ._%+=-"
            )
            raise NotSent(Reason.REJECTED, "rejected_address", text, permanent=True)
    return mail.sender, mail.recipient
