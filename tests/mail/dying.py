"""Kills a process at every step of what is done in the mail spool: run in a process of its own.

`python -m tests.mail.dying FOLDER DEED` makes a place for each step below FOLDER, in each a child
that does the deed and is killed there, or in which a call fails, as in tests/stores/killed.py.
Answers with a line `NAME HOW` for each: `killed`, `refused` or `done`.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from engine.delivery import Delivery, Records
from engine.mail.content import Content
from engine.mail.model import MailError
from engine.mail.spool import MailSpool, Spooled
from engine.mail.suspended import Suspensions
from engine.stores.nftban import parts
from tests.stores.children import ERRORS, deadly

NOW = 1_795_170_000.0
ID = "mail-20261120T104000Z-0000000a"
SUBJECT = "Übung $(id)"
SAID = Content("text body", html=False)


def spool_in(place: str) -> MailSpool:
    """The mail spool of a place."""
    return MailSpool(f"{place}/mailspool", place, lambda: NOW)


def mail_in(place: str) -> Spooled:
    """Its one mail."""
    spool = spool_in(place)
    return spool.read(spool.meta_of(ID))


def keep(place: str) -> None:
    """Spool it."""
    spool_in(place).keep(ID, "admin@example.com", SUBJECT, SAID)


def begin(place: str) -> None:
    """Begin an attempt."""
    spool_in(place).begin(mail_in(place), "curl", NOW + 1)


def accept(place: str) -> None:
    """End it well."""
    spool_in(place).accepted(mail_in(place), "curl", NOW + 2)


def remove(place: str) -> None:
    """Remove it."""
    spool_in(place).remove(mail_in(place))


def discard(place: str) -> None:
    """Remove it as the store does with its task."""
    parts.discard(spool_in(place).meta_of(ID), f"{place}/mailspool")


def record(place: str) -> None:
    """Add one delivery record, which has the old ones removed."""
    deliveries_in(place).add(Delivery(NOW, "curl", "admin@example.com", "success"))


def suspend(place: str) -> None:
    """Suspend one transport more."""
    suspensions_in(place).suspend("exim", NOW, "operator", "")


def deliveries_in(place: str) -> Records:
    """The delivery records of a place."""
    return Records(f"{place}/mail/delivery.jsonl", 3, place)


def suspensions_in(place: str) -> Suspensions:
    """The suspended transports of a place."""
    return Suspensions(f"{place}/suspended", place)


def _recorded(place: str) -> None:
    folder = Path(place, "mail")
    folder.mkdir()
    line = b'{"ts":"2026-11-20T09:44:50Z","result":"success","old":"%s"}\n' % (b"x" * 570)
    folder.joinpath("delivery.jsonl").write_bytes(line * 10)


def _suspended(place: str) -> None:
    suspensions_in(place).suspend("curl", NOW, "operator", "the relay is down")


DEEDS: dict[str, tuple[tuple[Callable[[str], None], ...], Callable[[str], None]]] = {
    "keep": ((), keep),
    "begin": ((keep,), begin),
    "accept": ((keep, begin), accept),
    "remove": ((keep, begin, accept, begin), remove),
    "discard": ((keep, begin, accept, begin), discard),
    "record": ((_recorded,), record),
    "suspend": ((_suspended,), suspend),
}
"""What was done before, and what is done."""


def run(place: str, deed: str, step: int, how: str) -> str:
    """One place, one child, one death; how it ended."""
    Path(place).mkdir()
    before, act = DEEDS[deed]
    for earlier in before:
        earlier(place)
    child = os.fork()
    if child == 0:
        count = deadly(step, how)
        try:
            act(place)
        except (OSError, MailError):
            os._exit(1)
        os._exit(2 if count[0] < step else 3)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    return {1: "refused", 2: "over", 3: "done"}[os.WEXITSTATUS(status)]


def main(root: str, deed: str) -> None:
    """Every step in every manner, until the deed is over before it comes to that step."""
    for how in ("before", "torn", "after", *ERRORS):
        step, ended = 0, ""
        while ended != "over":
            step += 1
            name = f"{deed}-{how}-{step}"
            ended = run(f"{root}/{name}", deed, step, how)
            sys.stdout.write(f"{name} {'done' if ended == 'over' else ended}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
