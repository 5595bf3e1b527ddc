"""The suite of all stores, run on each of ours, also on places that others use."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.formats.base import conformance
from engine.formats.base.conformance import NOW, Factory, Opener, Shape, put
from engine.formats.nftban.store import SpoolFolders
from engine.model import State, Task
from tests.conformance.conftest import IN_USE
from tests.store_contents import every_file

globals().update(conformance.suite())
test_a_place_in_use_keeps_the_rules = pytest.mark.parametrize("open_store", IN_USE, indirect=True)(
    globals()["test_a_place_in_use_keeps_the_rules"]
)


def stamped(number: int, kind: str) -> str:
    """An id of an NFTBan task."""
    return f"20261120T094115Z-{kind}-{number:08x}"


_tasks_of_our_own = Shape(
    ident=stamped,
    description=lambda number, kind: "a job",
    kinds=("a", "b", "c"),
    kind="job",
    filled=lambda task: task._replace(description="all of it", attempts=2, error="it broke"),
    claim_order=lambda tasks: sorted(tasks, key=lambda task: task.id),
)

SHAPES: Mapping[str, Shape] = {
    "memory": _tasks_of_our_own._replace(can_renew=True),
    "nftban": _tasks_of_our_own,
    "nftban-durable": _tasks_of_our_own,
    "kannader": _tasks_of_our_own._replace(
        destination="ops@example.org",
        own_fields=frozenset({"group", "payload", "extra", "sender", "recipients"}),
    ),
    # The kind is the queue, the group the job's name; queues are claimed from one after the other.
    "bullmq": Shape(
        ident=lambda number, kind: f"{kind}/t{1000 + number}",
        description=lambda number, kind: "",
        kinds=("a", "b", "c"),
        kind="mails",
        filled=lambda task: task._replace(group="all of it"),
        claim_order=lambda tasks: sorted(tasks, key=lambda task: task.kind),
        can_renew=True,
        claim_rev=lambda task: "" if task.lease is None else task.lease.token,
        own_fields=frozenset({"description", "word"}),
    ),
    # A number and one of two kinds are all that there is to a job, and first come is first served.
    "zgb": Shape(
        ident=lambda number, kind: f"{1000 + number}-{kind}",
        description=lambda number, kind: f"{kind} mail of registration {1000 + number}",
        kinds=("user", "organizer"),
        kind="user",
        filled=lambda task: task._replace(error="all of it", attempts=3),
        claim_order=list,
        can_renew=True,
    ),
}


@pytest.fixture
def shape(request: pytest.FixtureRequest) -> Shape:
    """The shape of the store under test."""
    return SHAPES[request.node.callspec.params["open_store"].removesuffix("-in-use")]


@pytest.fixture
def payload(request: pytest.FixtureRequest, spool: SpoolFolders) -> str:
    """A path in the mail spool where tasks have payloads."""
    name = request.node.callspec.params["open_store"]
    return f"{spool.mail_spool}/one" if name in PAYLOADS else ""


PAYLOADS = ("memory", "nftban", "nftban-durable")


def test_looking_and_reading_write_nothing(
    open_store: Opener, a_task: Factory, spool: SpoolFolders, kannader: Path, tmp_path: Path
) -> None:
    """No look and no read changes a name, a time or a byte, or makes a file or a folder."""
    filler = open_store()
    put(filler, a_task(1))
    put(filler, a_task(2, due=NOW + 50), State.HELD)
    (Path(spool.pending) / "broken.task").write_text("nothing\n")
    (Path(spool.pending) / "README").write_text("not ours\n")
    (kannader / "queue" / "strange").symlink_to("/etc/passwd")
    (kannader / "data" / "README").write_text("not ours")
    before = every_file(tmp_path)
    store = open_store()
    items = list(store.scan())
    items += store.scan({*store.states.values(), a_task(1).id, "no-task"})
    for item in items:
        if isinstance(item, Task):
            store.size(item)
            for part in store.parts(item):
                store.read(item, part.name)
    assert every_file(tmp_path) == before
