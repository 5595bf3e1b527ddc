"""The numbers of mail as others scrape them: `mail.prom`, in the words of the real program."""

from collections.abc import Mapping
from typing import NamedTuple

SHOWN = ("sendmail", "postfix", "curl", "msmtp", "mailx", "exim")
"""The transports of which the real program tells, in its order, whatever is installed."""

NONE = "none"
"""What stands for a transport where there is none."""


class MailFigures(NamedTuple):
    """How mail stands at one moment. What is counted is counted since ever, by transport."""

    attempts: Mapping[str, int]
    success: Mapping[str, int]
    failures: Mapping[str, int]
    depth: int = 0
    """Mails that wait in the spool."""
    last_success: int = 0
    """Epoch seconds UTC, as `last_failure` is; 0 for never."""
    last_failure: int = 0
    oldest_age: float = 0
    """Seconds since the oldest mail of the spool was put there; 0 when there is none."""
    selected: str = ""
    """By which transport the next mail would go; "" for none."""


def render(figures: MailFigures) -> bytes:
    """The text of `mail.prom`."""
    blocks = [
        *(
            _block(name, "counter", summary, [(t, by_name.get(t, 0)) for t in SHOWN])
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
            [(figures.selected or NONE, 1)],
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
