"""The functions of the commands, and the rows of the command table that name them."""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

from tui.cli.command_table import load_function
from tui.cli.commands import COMMAND_WORDS, CommandWord

BY_DISPATCHER = {"setup", "root", "config"}
"""What a function may name and its row does not give: the setup of the place, common options."""

FOR_TESTS = {"clock", "pause"}
"""Parameters that no command gives."""


def given_by(word: CommandWord) -> set[str]:
    """The names of the values that a row gives."""
    longest = ((names[-1].lstrip("-"), options) for names, options in word.arguments)
    return {options.get("dest", name.replace("-", "_")) for name, options in longest}


def test_a_function_names_the_arguments_of_its_rows() -> None:
    """It has each argument and no other, and a default for what only some rows give."""
    wrong: list[tuple[tuple[str, ...], str]] = []
    given: dict[Any, set[str]] = defaultdict(set)
    optional: dict[Any, set[str]] = defaultdict(set)
    for word in COMMAND_WORDS:
        if not word.function:
            continue
        function = load_function(word.function)
        inner = getattr(function, "func", function)
        signature = inspect.signature(function)
        values = given_by(word)
        is_answer = "Answer" in str(signature.return_annotation)
        omitted = values - signature.parameters.keys()
        wrong += [(word.path, "json")] if is_answer and "json" not in values else []
        wrong += [
            (word.path, name) for name in omitted - {"place"} - ({"json"} if is_answer else set())
        ]
        needed = {n for n, one in signature.parameters.items() if one.default is one.empty}
        wrong += [(word.path, name) for name in needed - values - BY_DISPATCHER]
        given[inner] |= values
        optional[inner] |= signature.parameters.keys() - needed
    assert not wrong
    assert {name for one in optional for name in optional[one] - given[one]} <= FOR_TESTS
