"""The tests of the package: the suite of all stores."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jobdir import JobStore

from spooldeck import conformance

globals().update(conformance.suite())


@pytest.fixture
def open_store(tmp_path: Path) -> Callable[[], JobStore]:
    """Open a further instance on the same file."""
    path = tmp_path / "a.jobs"
    path.write_text(json.dumps({"change": 0, "jobs": {}}))
    return lambda: JobStore(str(path), lambda: conformance.NOW)


@pytest.fixture
def shape() -> conformance.Shape:
    """The jobs of a file."""
    return conformance.Shape(
        ident=lambda number, kind: f"job-{number:04}-{kind}",
        description=lambda number, kind: "a job",
        kinds=("a", "b", "c"),
        kind="mail",
        filled=lambda task: task._replace(description="all of it", attempts=2, error="it broke"),
        claim_order=lambda tasks: sorted(tasks, key=lambda task: task.id),
    )
