"""How much a test tries: `make test` a fifth of the examples, `make deep` ten times as many."""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

FACTOR = float(os.environ.get("SPOOLDECK_EXAMPLES", "1"))
IS_DEEP = FACTOR >= 10
"""Whether this is `make deep`, which tries every case."""
LEAST = 5


def examples(count: int, **others: Any) -> settings:
    """Hypothesis settings for about `count` examples, times the factor of this run."""
    return settings(max_examples=max(LEAST, round(count * FACTOR)), **others)


def few_of(quick: Collection[str], cases: Iterable[str]) -> list[str]:
    """Parameters of one path with many cases: `make deep` runs all, other runs the named ones."""
    return [case for case in cases if IS_DEEP or case in quick]


def deep_but(quick: Collection[str], cases: Iterable[str]) -> list[Any]:
    """Parameters of a slow test: the named cases run in the quick suite, the others are `deep`."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.deep) for case in cases]
