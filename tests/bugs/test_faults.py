"""The table of planted faults fits the code and the tests; `make deep` plants each of them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from engine.formats.base import conformance
from tests.bugs import plant
from tests.bugs.faults import FAULTS
from tests.rules.syntax_trees import FUNCTIONS, parsed, walked

HARMLESS = """
from tests.bugs import plant
from tests.bugs.faults import FAULTS
edits = (("class SqlRegistry:", "class  SqlRegistry:"),)
(fault, *_) = (one for one in FAULTS if one.file.endswith("/sql_registry.py"))
with plant.copied() as copy:
    print(plant.Planter(copy).judge(fault._replace(edits=edits)))
"""


def test_each_fault_fits_the_code() -> None:
    """The text that each fault replaces is in its file exactly once, and each has its own name."""
    for fault in FAULTS:
        plant.patched(fault, (plant.ROOT / fault.file).read_text())
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_each_fault_names_tests_that_exist() -> None:
    """Each test that is to fail is in the file named for it, or in the suite of all stores."""
    for test in {fault.test for fault in FAULTS}:
        path, _, name = test.partition("::")
        nodes = walked(parsed(plant.ROOT / path))
        functions = {each.name for each in nodes if isinstance(each, FUNCTIONS)}
        if "conformance.suite()" in (plant.ROOT / path).read_text():
            functions |= conformance.suite().keys()
        assert not name or re.sub(r"\[.*", "", name) in functions, test


@pytest.mark.deep
def test_a_change_that_breaks_nothing_is_not_found() -> None:
    """A change without effect survives: it is the fault that makes the tests fail."""
    judged = subprocess.run(
        [sys.executable, "-c", HARMLESS], capture_output=True, text=True, check=True
    )
    assert "red='', why='survived: " in judged.stdout


@pytest.mark.parametrize("text", ["", "ab ab"])
def test_a_fault_that_no_longer_fits_is_an_error(text: str) -> None:
    """A fault whose text is not in the code exactly once is not planted."""
    with pytest.raises(plant.Stale, match="expected once"):
        plant.patched(FAULTS[0]._replace(edits=(("ab", "c"),)), text)
