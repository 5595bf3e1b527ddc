"""The table of BullMQ's Lua scripts against the files of the installed package."""

import re
import sys
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from engine.formats.bullmq import package_scripts
from engine.formats.bullmq.package_scripts import PACKAGE_SCRIPTS, package_text
from engine.store import Unavailable
from tests.store_contents import naming

ALIASES = {
    "events": "event",
    "{id}": "job|producer",
    "{target}": "state|completed/failed",
    "{id}:lock": "lock",
    "metrics:{target}": "metrics",
    "pc": "pc|priority counter",
}
"""What a comment calls a key, if not by its name."""


OPTIONAL = {"moveToFinished": 1, "moveToDelayed": 1, "retryJob": 1, "pause": 1, "resume": 1}
"""How many arguments behind those of the table a file may have."""


def test_keys_and_arguments_are_those_of_the_file() -> None:
    """The table has as many keys as the file's name says, in the order of its KEYS comment, and the
    file uses no argument behind those of the table, but those that are optional. The package is not
    imported, which would load asyncio and a second client."""
    for name, script in PACKAGE_SCRIPTS.items():
        text = package_text(name)
        head = text.partition("]]")[0]
        comments = re.findall(r"^\s*KEYS\[(\d+)\],?\s+(.*)$", head, re.MULTILINE)
        with naming(name):
            named_keys = int(script.file.split("-")[1].split(".")[0])
            assert len(script.keys) == len(comments) == named_keys
            for at, (key, (number, comment)) in enumerate(
                zip(script.keys, comments, strict=True), 1
            ):
                assert int(number) == at
                assert re.search(ALIASES.get(key, key), comment.lower()), (at, key, comment)
            used = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", text)}
            assert max(used) == len(script.arguments) + OPTIONAL.get(name, 0)
    assert "bullmq" not in sys.modules


def test_without_the_package_one_line_says_so(monkeypatch: MonkeyPatch, tmp_path: Path) -> None:
    """Unavailable, with the command."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    package_scripts.scripts_folder.cache_clear()
    with pytest.raises(Unavailable, match=r"pip install 'spooldeck\[bullmq\]'"):
        package_scripts.scripts_folder()
