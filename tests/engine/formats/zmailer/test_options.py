"""The options of a scheduler."""

import pytest

from engine.formats.zmailer.options import SchedulerOptions, WrongOption, parse_options
from tests.store_contents import naming


def test_options_are_those_of_the_man_page() -> None:
    """Letters may be joined; -i, -v and -V keep the process at its terminal, -d does not."""
    for words, options, detaches in (
        ("", SchedulerOptions(), True),
        ("-i", SchedulerOptions(is_interactive=True), False),
        ("--exact -i", SchedulerOptions(is_exact=True, is_interactive=True), False),
        ("-vd", SchedulerOptions(is_verbose=True, is_daemon=True), True),
        ("-HH -E 10,15", SchedulerOptions(hash_levels=2, scan_files=10, scan_seconds=15), True),
        ("-E 500", SchedulerOptions(scan_files=500), True),
        (
            "-p smtp/mx -vF",
            SchedulerOptions(only="smtp/mx", is_verbose=True, is_frozen=True),
            False,
        ),
        ("-f/c -l /s -N64", SchedulerOptions(conf="/c", statistics="/s", open_files=64), True),
    ):
        assert parse_options(words.split()) == options
        assert options.detaches is detaches


def test_an_option_that_cannot_be_used_is_named() -> None:
    """The message has the option, its value and what was expected."""
    for words, why in (
        (["-x"], "option -x not recognized"),
        (["-E", "5"], "-E 5: expected a number from 10"),
        (["-E", "10,1"], "-E 1: expected a number from 2 to 15"),
        (["-M", "3"], "-M 3: expected a number from 1 to 2"),
        (["-p", "smtp"], "-p smtp: expected CHANNEL/HOST"),
        (["-f", ""], "-f: expected a path"),
        (["word"], "word: expected only options"),
        (["-f"], "option -f requires argument"),
    ):
        with naming(words, why), pytest.raises(WrongOption, match=why):
            parse_options(words)
