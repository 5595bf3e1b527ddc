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
    from engine.model import Lease as Lease
    from engine.model import Part as Part
    from engine.model import Problem as Problem
    from engine.model import State as State
    from engine.model import Task as Task
    from engine.store import Gone as Gone
    from engine.store import StoreError as StoreError
    from engine.store import Unavailable as Unavailable
    from engine.store import Unsupported as Unsupported

EXPORTED = {
    "Address": "engine.config.place_address",
    "CONTRACT": "engine.formats.base.format",
    "Finding": "engine.doctor.finding",
    "Format": "engine.formats.base.format",
    "Gone": "engine.store",
    "Grade": "engine.doctor.finding",
    "Lease": "engine.model",
    "Part": "engine.model",
    "Problem": "engine.model",
    "Setup": "engine.formats.base.format",
    "State": "engine.model",
    "StoreError": "engine.store",
    "conformance": "engine.formats.base.conformance",
    "Task": "engine.model",
    "Unavailable": "engine.store",
    "Unsupported": "engine.store",
}
"""What formats of other packages use, and the module that has it; each is imported when it is asked
for, so that the start of a command does not wait for them."""


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
    module = import_module(EXPORTED[name])
    return getattr(module, name, module)


def main() -> int:
    """Run the command line; returns the exit code."""
    use_own_modules()
    from tui.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
