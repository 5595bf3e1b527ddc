"""spooldeck: the one name that this program takes among the packages of Python.

In the repository this file is beside the folders `engine`, `tui` and `themes`; installed, they are
in the package `spooldeck`, and this file is its `__init__.py`. In both they are imported by their
own names, from the folder of this file. Formats of other packages import what they need from here:

    from spooldeck import Format, Setup, StoreBase, Task
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.config.place_address import Address as Address
    from engine.doctor.finding import Finding as Finding
    from engine.doctor.finding import Grade as Grade
    from engine.formats.base import conformance as conformance
    from engine.formats.base.format import CONTRACT as CONTRACT
    from engine.formats.base.format import Format as Format
    from engine.formats.base.format import Setup as Setup
    from engine.model import ChangeSource as ChangeSource
    from engine.model import Edge as Edge
    from engine.model import Lease as Lease
    from engine.model import Missing as Missing
    from engine.model import Move as Move
    from engine.model import Outcome as Outcome
    from engine.model import Part as Part
    from engine.model import Problem as Problem
    from engine.model import State as State
    from engine.model import Task as Task
    from engine.store import Gone as Gone
    from engine.store import Store
    from engine.store import StoreError as StoreError
    from engine.store import Unavailable as Unavailable
    from engine.store import Unsupported as Unsupported
    from engine.store import accept_all as accept_all
    from engine.store import require_edge as require_edge

    StoreBase = Store

EXPORTED = {
    "Address": "engine.config.place_address.Address",
    "CONTRACT": "engine.formats.base.format.CONTRACT",
    "ChangeSource": "engine.model.ChangeSource",
    "Edge": "engine.model.Edge",
    "Finding": "engine.doctor.finding.Finding",
    "Format": "engine.formats.base.format.Format",
    "Gone": "engine.store.Gone",
    "Grade": "engine.doctor.finding.Grade",
    "Lease": "engine.model.Lease",
    "Missing": "engine.model.Missing",
    "Move": "engine.model.Move",
    "Outcome": "engine.model.Outcome",
    "Part": "engine.model.Part",
    "Problem": "engine.model.Problem",
    "Setup": "engine.formats.base.format.Setup",
    "State": "engine.model.State",
    "StoreBase": "engine.store.Store",
    "StoreError": "engine.store.StoreError",
    "Task": "engine.model.Task",
    "Unavailable": "engine.store.Unavailable",
    "Unsupported": "engine.store.Unsupported",
    "accept_all": "engine.store.accept_all",
    "conformance": "engine.formats.base.conformance",
    "require_edge": "engine.store.require_edge",
}
"""What formats of other packages use, and where it is; it is imported when it is asked for, so that
the start of a command does not wait for it."""


def use_own_modules() -> None:
    """Import `engine`, `tui` and `themes` from the folder of this file, also where another package
    has one of these names.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def __getattr__(name: str) -> Any:
    if name not in EXPORTED:
        raise AttributeError(f"module 'spooldeck' has no attribute {name!r}")
    use_own_modules()
    parent, _, attribute = EXPORTED[name].rpartition(".")
    found = getattr(import_module(parent), attribute, None)
    return import_module(EXPORTED[name]) if found is None else found


def main() -> int:
    """Run the command line; returns the exit code."""
    use_own_modules()
    from tui.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
