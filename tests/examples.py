"""How many examples a property test tries: `make test` a fifth, `make deep` ten times as many."""

import os
from typing import Any

from hypothesis import settings

FACTOR = float(os.environ.get("SPOOLDECK_EXAMPLES", "1"))
LEAST = 5


def examples(count: int, **others: Any) -> settings:
    """Hypothesis settings for about `count` examples, times the factor of this run."""
    return settings(max_examples=max(LEAST, round(count * FACTOR)), **others)
