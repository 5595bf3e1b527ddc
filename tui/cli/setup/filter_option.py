"""Parse the option `--filter`, in which `@name` is a saved filter of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping

from engine.config.saved_filters import lookup_in
from engine.index.filter_language import BadFilter, Filter, parse_filter
from engine.model import State
from engine.text.safe import safe_line
from tui.cli.setup.errors import EX_USAGE, fail


def parse_filter_option(
    text: str, states: Mapping[State, str], now: float, words: Mapping[str, State]
) -> Filter:
    """Parse `--filter` with the states and words of a store; times are resolved at `now`.

    Raises:
        CommandError: it is no valid filter; the message has the position and what was expected.
    """
    try:
        return parse_filter(text, states, now, words, lookup_in(os.environ))
    except BadFilter as error:
        fail(EX_USAGE, f"--filter: {safe_line(error.message)}")
