"""Tests of the tests: each planted fault turns one of them red, and the list of faults is true."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bugs import plant
from tests.bugs.faults import FAULTS, Fault

PLANT = Path(__file__).with_name("plant.py")


@pytest.fixture(scope="module")
def judged() -> Iterator[Callable[[str], str]]:
    """What becomes of a fault by name, as plant.py says it; one process plants them all."""
    with subprocess.Popen(
        [sys.executable, str(PLANT), "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as planter:
        assert planter.stdin is not None and planter.stdout is not None
        asked, said = planter.stdin, planter.stdout

        def ask(name: str) -> str:
            asked.write(f"{name}\n")
            asked.flush()
            return said.readline()

        yield ask


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, judged: Callable[[str], str]) -> None:
    """The tests named for a fault pass without it, and one of them fails with it."""
    name, outcome, _ = judged(fault.name).split(" | ")
    if plant.SKIPPED in outcome:
        pytest.skip(outcome)

    assert name == fault.name
    assert outcome.startswith("tests/"), outcome


HARMLESS = """
from tests.bugs import plant
from tests.bugs.faults import FAULTS
edits = (("class Refused(Exception):", "class  Refused(Exception):"),)
with plant.copied() as copy:
    print(plant.Planter(copy).judge(FAULTS[0]._replace(edits=edits)))
"""


def test_what_is_no_fault_is_not_found() -> None:
    """A change that breaks nothing survives: it is the fault that turns the tests red."""
    judged = subprocess.run(
        [sys.executable, "-c", HARMLESS], capture_output=True, text=True, check=True
    )

    assert "red='', why='survived: " in judged.stdout


def test_a_stale_fault_is_an_error() -> None:
    """A fault whose place is not found in the code exactly once is not planted."""
    for text in ("", "ab ab"):
        with pytest.raises(plant.Stale, match="expected once"):
            plant.patched(FAULTS[0]._replace(edits=(("ab", "c"),)), text)


def test_names_are_given_once() -> None:
    """No two faults have one name, and none has a separator in it."""
    names = [fault.name for fault in FAULTS]

    assert len(set(names)) == len(names)
    assert not any("|" in fault.name or "|" in fault.what for fault in FAULTS)


def test_the_list_for_contributors_is_true() -> None:
    """CONTRIBUTING.md lists the faults as they are; `plant.py --table` prints the list anew."""
    assert plant.table() in (plant.ROOT / "CONTRIBUTING.md").read_text()
