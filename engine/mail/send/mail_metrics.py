"""Render `mail.prom`: the mail metrics for Prometheus, with the names of the real program."""

from collections.abc import Mapping
from typing import NamedTuple

METRIC_TRANSPORTS = ("sendmail", "postfix", "curl", "msmtp", "mailx", "exim")
"""The transports in the metrics of the real program, in its order, installed or not."""

NONE_LABEL = "none"
"""The label of a missing transport."""


class MailFigures(NamedTuple):
    """Values for one export. Counters are totals by transport and are never reset."""

    attempts: Mapping[str, int]
    success: Mapping[str, int]
    failures: Mapping[str, int]
    depth: int = 0
    """Number of mails in the spool."""
    last_success: int = 0
    """Epoch seconds UTC, like `last_failure`; 0 for never."""
    last_failure: int = 0
    oldest_age: float = 0
    """Age of the oldest mail in the spool, seconds; 0 if the spool is empty."""
    selected: str = ""
    """The transport for the next mail; "" for none."""


def render_metrics(figures: MailFigures) -> bytes:
    """Return the text of `mail.prom`."""
    blocks = [
        *(
            _block(name, "counter", summary, [(t, by_name.get(t, 0)) for t in METRIC_TRANSPORTS])
            for (name, summary), by_name in zip(_COUNTERS, figures[:3], strict=True)
        ),
        _block("spool_depth", "gauge", "Number of mails in retry spool", figures.depth),
        _block(
            "last_success_timestamp",
            "gauge",
            "Unix timestamp of last successful send",
            figures.last_success,
        ),
        _block(
            "last_failure_timestamp",
            "gauge",
            "Unix timestamp of last failed send (A2a)",
            figures.last_failure,
        ),
        _block(
            "spool_oldest_age_seconds",
            "gauge",
            "Age of the oldest spooled mail in seconds (A2a)",
            max(0, int(figures.oldest_age)),
        ),
        _block(
            "transport_selected",
            "gauge",
            "Currently selected mail transport (1=selected) (A2a)",
            [(figures.selected or NONE_LABEL, 1)],
        ),
    ]
    return "\n".join(blocks).encode("ascii")


_COUNTERS = (
    ("send_attempts_total", "Total mail send attempts"),
    ("send_success_total", "Total successful mail sends"),
    ("send_failures_total", "Total failed mail sends"),
)


def _block(name: str, kind: str, summary: str, value: int | list[tuple[str, int]]) -> str:
    name = f"nftban_mail_{name}"
    if isinstance(value, int):
        lines = [f"{name} {value}\n"]
    else:
        lines = [f'{name}{{transport="{label}"}} {number}\n' for label, number in value]
    return f"# HELP {name} {summary}\n# TYPE {name} {kind}\n{''.join(lines)}"
