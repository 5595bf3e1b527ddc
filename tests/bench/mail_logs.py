"""The rows of mail logs: the trail of a mail, and the reasons of waiting mail, beside grep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from engine.formats.exim import log_lines as exim
from engine.formats.postfix import log_lines as postfix
from engine.programs.mail_log import MailFacts
from engine.programs.mail_trail import find_trail
from tests.bench.measure import (
    ROOT,
    Bench,
    Figure,
    Figures,
    cpu_of,
    cpu_seconds,
    interleave,
    scratch,
)

MIB = 1 << 20
GOLDEN = ROOT / "tests" / "golden"
SENDER = b"newsletter@shop.example.test"


def _write_log(path: Path, source: Sequence[bytes], size: int) -> bytes:
    """Write a real log again and again with other ids and senders; return one of the senders."""
    block = b"\n".join(source) + b"\n"
    ids = re.compile(rb"\b(?:1xX5U|[0-9A-F]{4})(?=[0-9A-Za-z]-|[0-9A-F]{5,9}\b)")
    with path.open("wb") as file:
        for number in range(size // len(block)):
            other = ids.sub(b"%04X" % (number % 0xFFFF), block)
            file.write(other.replace(SENDER, b"n%d@shop.example.test" % number))
    return b"n%d@shop.example.test" % (size // len(block) // 2)


def trail(bench: Bench) -> Figures:
    """Processor time of a trail in a log, beside grep for its word."""
    size, name = bench.log_size
    source = (GOLDEN / "postfix" / "mail.log.maillog_file").read_bytes().splitlines()
    with scratch(size // 5000) as folder:
        path = Path(folder, "mail.log")
        word = _write_log(path, source, size).decode()
        log = postfix.mail_log(str(path))
        assert len(find_trail(log, word).events) > len("a few lines")

        def ours(word: str) -> float:
            return 1000 * cpu_seconds(partial(find_trail, log, word))

        def grep(word: str) -> float:
            return cpu_of(["grep", "-c", "-F", word, str(path)], ok=(0, 1))

        for what, each in (("trail of a sender", word), ("trail of none", "none@x.example.test")):
            ways = partial(ours, each), partial(grep, each)
            yield bench.versus(f"{what} in {name}", "ms CPU", ways, "grep -F", 3.0)


def reasons(bench: Bench) -> Figures:
    """Processor time of the reasons in 64 MiB of log: a second more than grep takes twice."""
    source = (GOLDEN / "exim" / "mainlog").read_bytes().splitlines()
    with scratch(64 * MIB // 5000) as folder:
        path = Path(folder, "mainlog")
        _write_log(path, [line for line in source if len(line) < 500], 64 * MIB)

        def ours() -> float:
            facts = MailFacts(exim.mail_log(str(path)))
            try:
                return 1000 * cpu_seconds(facts.read_on)
            finally:
                facts.close()

        def grep() -> float:
            return cpu_of(["grep", "-c", "-F", " == ", str(path)])

        costs = interleave({"ours": ours, "grep": grep}, bench.rounds)
        most = 1000 + 2 * min(costs["grep"])
        yield Figure("reasons in 64 MiB", min(costs["ours"]), "ms CPU", limit=most)
