"""How many examples a property test tries: `make test` a fifth, `make deep` ten times as many."""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

FACTOR = float(os.environ.get("SPOOLDECK_EXAMPLES", "1"))
LEAST = 5


def examples(count: int, **others: Any) -> settings:
    """Hypothesis settings for about `count` examples, times the factor of this run."""
    return settings(max_examples=max(LEAST, round(count * FACTOR)), **others)


def deep_but(quick: Collection[str], cases: Iterable[str]) -> list[Any]:
    """Parameters of a slow test: the named cases run in the quick suite, the others are `deep`."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.deep) for case in cases]
