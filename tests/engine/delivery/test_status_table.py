"""What an answer means for its task, and how long a peer asks to wait."""

import pytest

from engine.delivery.status_table import make_outcomes, outcome, retry_after

OUTCOMES: dict[tuple[str, str], list[int | str]] = {
    ("done", "done"): [200, 204],
    ("retry", "retry"): [408, 425, 429, 500, 503, 599, "DNS", "TLS", "UNKNOWN"],
    ("fatal", "retry"): [302, 400, 404, 409, "BLOCKED_URL", "TOO_LARGE"],
}


@pytest.mark.parametrize(
    ("default", "sipher", "what"), [(*both, one) for both, some in OUTCOMES.items() for one in some]
)
def test_the_table_of_each_profile(default: str, sipher: str, what: int | str) -> None:
    """By default what cannot succeed is fatal; the profile sipher tries everything again."""
    assert outcome(make_outcomes("default"), what) == default
    assert outcome(make_outcomes("sipher"), what) == sipher


def test_the_configuration_changes_a_status_a_class_or_a_code() -> None:
    """The status itself comes before its class."""
    changed = make_outcomes("default", {"404": "retry", "4xx": "done", "TLS": "fatal"})
    outcomes = [outcome(changed, what) for what in (404, 410, "TLS", 429)]
    assert outcomes == ["retry", "done", "fatal", "retry"]


NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(("header", "date", "seconds"), [
    ("7", "", 7), (" 0 ", "", 0),
    ("99999999999999999999", "", 86400),
    *((text, "", None) for text in ("-1", "1.5", "soon", "", "Tue, 14 Nov 2023 22:13:99 GMT")),
    ("Tue, 14 Nov 2023 22:14:20 GMT", "", 60),
    ("Tue, 14 Nov 2023 22:00:00 GMT", "", 0),
    ("Wed, 14 Nov 9999 22:00:00 GMT", "", 86400),
    ("Wed, 15 Nov 2023 22:14:20 GMT", "Wed, 15 Nov 2023 22:13:20 GMT", 60),
    ("Mon, 13 Nov 2023 22:14:20 GMT", "Mon, 13 Nov 2023 22:13:20 GMT", 60),
    ("Tue, 14 Nov 2023 22:14:20 GMT", "nonsense", 60),
])  # fmt: skip
def test_retry_after_is_seconds_or_a_date(header: str, date: str, seconds: float | None) -> None:
    """A date counts from the peer's own clock, which may be a day off; a wait has a limit."""
    assert retry_after({"retry-after": header, "date": date}, NOW) == seconds
