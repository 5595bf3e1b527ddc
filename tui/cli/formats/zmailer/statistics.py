"""`spooldeck zmailer statistics`: the statistics log of a scheduler by channel and host."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from engine.formats.base.format import Setup
from engine.formats.zmailer.statistics_log import STATES, StatisticsLine, parse_line
from engine.monitor.latency import percentile
from engine.system import files
from engine.system.command_errors import EX_IOERR, fail
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from tui.cli.setup.output import Answer

MAX_LINE = 1 << 16
"""Characters: a longer line is read in parts, none of which is a line of the log."""


class HostStatistics(NamedTuple):
    """How the recipients of one channel and host have ended. Delays are in seconds."""

    channel: str
    host: str
    states: dict[str, int]
    """Numbers by state."""
    queued_p50: float | None
    """DT1 of scheduler(8zm): from the message file to the control file."""
    queued_p95: float | None
    delivery_p50: float | None
    """DT2: from the control file to the end."""
    delivery_p95: float | None


def summarize(lines: Iterable[StatisticsLine]) -> Iterator[HostStatistics]:
    """The statistics of each channel and host, sorted."""
    by_host: dict[tuple[str, str], tuple[Counter[str], array[int], array[int]]] = {}
    for line in lines:
        where = line.channel, line.host
        states, queued, delivery = by_host.setdefault(where, (Counter(), array("q"), array("q")))
        states[line.state] += 1
        queued.append(line.queued)
        delivery.append(line.delivery)
    for (channel, host), (states, queued, delivery) in sorted(by_host.items()):
        delays = (percentile(one, share) for one in (queued, delivery) for share in (0.5, 0.95))
        yield HostStatistics(channel, host, dict(states), *delays)


def statistics(setup: Setup, file: str) -> Answer:
    """Print the numbers and delays in a file; lines of neither form are counted."""
    unread = 0

    def lines() -> Iterator[StatisticsLine]:
        nonlocal unread
        with open(files.open_file(file), encoding="utf-8", errors="replace") as log:
            for text in iter(lambda: log.readline(MAX_LINE), ""):
                if (line := parse_line(text)) is not None:
                    yield line
                else:
                    unread += 1

    try:
        rows = list(summarize(lines()))
    except OSError as error:
        fail(EX_IOERR, f"{safe_line(file)}: {error_text(error)}")
    total = sum(sum(one.states.values()) for one in rows)
    return Answer(
        lambda: {"file": file, "unread": unread, "hosts": [one._asdict() for one in rows]},
        lambda: [*_table(rows), f"recipients: {total:,}; other lines: {unread:,}"],
    )


def _table(rows: Sequence[HostStatistics]) -> Iterator[str]:
    """A line for each channel and host, with the states that occur in any of them."""
    occurring_states = {state for one in rows for state in one.states}
    states = [state for state in (*STATES, "expiry") if state in occurring_states]
    titles = [*(state.upper() for state in states), "DT1 p50", "p95", "DT2 p50", "p95"]
    yield "  ".join([*(f"{title:>7}" for title in titles), "CHANNEL/HOST"])
    for one in rows:
        numbers = [*(one.states.get(state, 0) for state in states), *one[3:]]
        where = safe_line(f"{one.channel}/{one.host}")
        yield "  ".join([*(f"{number:>7}" for number in numbers), where])
