"""Rates and numbers in words, with what is not known of them."""

from engine.text.figure import Figure
from engine.text.figures import format_rate, format_rates

RATES = {
    0.0: "0.0/s", 2.52: "2.5/s", 0.1: "0.1/s", 5 / 60: "5/min", 40 / 3600: "40/h",
    1 / 86400: "<1/h", 99.97: "100/s", 12_345.0: "12345/s", 1_234_567.0: "1.23M/s",
    float("nan"): "?", float("inf"): "?",
}  # fmt: skip


def test_rates_and_figures_in_words() -> None:
    """Only no events are 0.0; without a unit it is the title's; a lower bound has `+`."""
    assert {per_second: format_rate(per_second) for per_second in RATES} == RATES
    columns = {0.0: "0.0", 0.7: "0.7", 0.05: "0.05", 0.001: "<0.01", 118.0: "118"}
    assert {n: format_rate(n / 60, "/min", is_titled=True) for n in columns} == columns
    assert [Figure(known).text() for known in (1204, 0, None)] == ["1,204", "0", "?"]
    assert [Figure(known, is_exact=False).text() for known in (1204, 0)] == ["1,204+", "?"]


def test_rates_to_compare_have_one_unit() -> None:
    """In minutes where their own units differ; an unknown one has none."""
    assert format_rates(2 / 60, 59 / 3600) == ["120/h", "59.0/h"]
    assert format_rates(0.0, 2 / 3600) == ["0.0/h", "2.0/h"]
    assert format_rates(2.1, 1.5) == ["2.1/s", "1.5/s"]
    assert format_rates(2.1, float("nan")) == ["2.1/s", "?"]
