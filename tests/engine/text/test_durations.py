"""The one grammar of a duration, and that options, settings, schedules and filters have it."""

import pytest

from engine.config.validators import ConfigError, ConfigLocation, duration_check
from engine.index.filter_language import parse_filter
from engine.schedules import parse_schedule
from engine.text.durations import parse_duration
from engine.text.time_expressions import RelativeTime, parse_time
from tui.cli import make_parser

EXAMPLES = {"90s": 90.0, "5m": 300.0, "1h30m": 5400.0, "1.5h": 5400.0, "1w": 604_800.0}
EXAMPLES |= {"2D": 172_800.0, "1m500ms": 60.5, "20ms": 0.02}
AT = ConfigLocation("some.yaml", "key")


def _refusal(text: str, bare: str = "") -> str:
    with pytest.raises(ValueError, match="expected") as refused:
        parse_duration(text, bare)
    return str(refused.value)


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_input_reads_the_same_durations(text: str) -> None:
    """A filter, a time, an option, a setting and a schedule read one text as the same seconds."""
    seconds = EXAMPLES[text]
    age, since = parse_filter(f"age>{text}", {}, 0.0), parse_time(f"-{text}", 0.0)
    assert (age.clauses[0].values, since) == ((RelativeTime(seconds),), RelativeTime(seconds))
    assert make_parser(["wait"]).parse_args(["wait", "--timeout", text]).timeout == seconds
    delay = make_parser(["bullmq", "add"]).parse_args(["bullmq", "add", "q", "n", "--delay", text])
    assert (delay.delay, duration_check(0)(text, AT)) == (seconds, seconds)
    assert duration_check(0, "hours")(text, AT) == seconds / 3600
    assert parse_schedule(f"fixed {text}").waits == (seconds,)


def test_a_text_that_is_no_duration_is_refused() -> None:
    """In one sentence; a number alone has the unit of its setting, which the sentence names."""
    expected_text = "expected a duration such as 30s, 5m, 2h, 1d or 1h30m"
    for text in ("", "s", "5x", "1h30", "-5s", "1e9s", "\u0665s", "5 m", "1..5s", "nan"):
        assert _refusal(text) == expected_text
        assert _refusal(text, "d") == f"{expected_text}, or a number of days"
    assert (parse_duration("90", "s"), parse_duration("1.5", "h")) == (90.0, 5400.0)
    assert _refusal("90").startswith("expected a duration")
    assert duration_check(1, "hours")(24, AT) == duration_check(1, "hours")("1d", AT) == 24
    assert duration_check(1, whole=True)("2m", AT) == 120
    with pytest.raises(ConfigError, match=r"a whole one, at least 1, not '1500ms'"):
        duration_check(1, whole=True)("1500ms", AT)
    assert _refusal("999999999w") == "expected a duration of at most 1,000,000,000 seconds"
