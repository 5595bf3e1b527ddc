"""The clauses of a scheduler."""

from __future__ import annotations

import pytest

from engine.formats.zmailer.scheduler.clauses import scheduler_niceness
from engine.formats.zmailer.spool.scheduler_conf import parse_conf


@pytest.mark.parametrize(
    ("words", "niceness"),
    [("", 3), ("sysnice=5", 8), ("sysnice=-40", -20), ("syspriority=-2", -2), ("nice=9", 3)],
)
def test_the_niceness_of_the_scheduler_itself(words: str, niceness: int) -> None:
    """sysnice is added to its own one, here 3; syspriority replaces it; nice is for agents."""
    conf = parse_conf(f"*/* {words} interval=1m\n", {})
    assert not conf.errors
    assert scheduler_niceness(conf, 3) == niceness
