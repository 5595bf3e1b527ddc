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
    from engine.config.queue_config import Queue as Queue
    from engine.config.validators import ConfigError as ConfigError
    from engine.config.validators import ConfigLocation as ConfigLocation
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
    from engine.model import Relatives as Relatives
    from engine.model import State as State
    from engine.model import Task as Task
    from engine.model import TaskWarning as TaskWarning
    from engine.places.place import Place as Place
    from engine.places.place import WholeQueueFigures as WholeQueueFigures
    from engine.policy import RetryPolicy as RetryPolicy
    from engine.policy import retries_of as retries_of
    from engine.store import MAX_PART_BYTES as MAX_PART_BYTES
    from engine.store import ClaimRules as ClaimRules
    from engine.store import Control as Control
    from engine.store import Full as Full
    from engine.store import Gone as Gone
    from engine.store import Store
    from engine.store import StoreError as StoreError
    from engine.store import StoreSample as StoreSample
    from engine.store import Unavailable as Unavailable
    from engine.store import Unsupported as Unsupported
    from engine.store import accept_all as accept_all
    from engine.store import require_edge as require_edge

    StoreBase = Store

EXPORTED = {
    "accept_all": "engine.store.accept_all",
    "Address": "engine.config.place_address.Address",
    "ChangeSource": "engine.model.ChangeSource",
    "ClaimRules": "engine.store.ClaimRules",
    "ConfigError": "engine.config.validators.ConfigError",
    "ConfigLocation": "engine.config.validators.ConfigLocation",
    "conformance": "engine.formats.base.conformance",
    "CONTRACT": "engine.formats.base.format.CONTRACT",
    "Control": "engine.store.Control",
    "Edge": "engine.model.Edge",
    "Finding": "engine.doctor.finding.Finding",
    "Format": "engine.formats.base.format.Format",
    "Full": "engine.store.Full",
    "Gone": "engine.store.Gone",
    "Grade": "engine.doctor.finding.Grade",
    "Lease": "engine.model.Lease",
    "MAX_PART_BYTES": "engine.store.MAX_PART_BYTES",
    "Missing": "engine.model.Missing",
    "Move": "engine.model.Move",
    "Outcome": "engine.model.Outcome",
    "Part": "engine.model.Part",
    "Place": "engine.places.place.Place",
    "Problem": "engine.model.Problem",
    "Queue": "engine.config.queue_config.Queue",
    "Relatives": "engine.model.Relatives",
    "require_edge": "engine.store.require_edge",
    "retries_of": "engine.policy.retries_of",
    "RetryPolicy": "engine.policy.RetryPolicy",
    "Setup": "engine.formats.base.format.Setup",
    "State": "engine.model.State",
    "StoreBase": "engine.store.Store",
    "StoreError": "engine.store.StoreError",
    "StoreSample": "engine.store.StoreSample",
    "Task": "engine.model.Task",
    "TaskWarning": "engine.model.TaskWarning",
    "Unavailable": "engine.store.Unavailable",
    "Unsupported": "engine.store.Unsupported",
    "WholeQueueFigures": "engine.places.place.WholeQueueFigures",
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
    if name == "conformance":
        import pytest

        pytest.register_assert_rewrite(EXPORTED[name])  # else a failure shows no values
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
