"""The suite of all stores on a scheduler that is reached by MAILQ, which can only delete a message
and start a host now."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.formats.base import conformance
from engine.formats.base.conformance import NOW, Shape
from engine.formats.zmailer.mailq.connection import ServerAddress
from engine.formats.zmailer.mailq.queue_view import JobView, JobWait
from engine.formats.zmailer.mailq_store.store import MailqStore
from engine.formats.zmailer.mailq_store.tasks import parse_id, task_id
from engine.model import Edge, Edges, State, Task
from engine.store import ClaimFilter, Store, accept_all
from tests.mailq_server import RunningServer, SampleQueue, serving
from tests.store_contents import found

_shared = conformance.suite()
for _name in (
    "test_an_edge_leads_where_it_says",
    "test_a_swap_outside_of_the_edges_is_refused",
    "test_a_scan_for_names_shows_only_those",
    "test_a_scan_of_a_states_word_shows_that_state",
    "a_task",
):
    globals()[_name] = _shared[_name]


class FilledStore(MailqStore):
    """A store that can also add a message, as a router does, for the suite of all stores."""

    def __init__(self, running: RunningServer) -> None:
        address = ServerAddress("mailq+unix://x", running.path, user="root", password="s3cret")
        super().__init__(address, lambda: NOW)
        self._queue = running.queue
        own: Edges = {(None, State.PENDING): Edge(), (State.ACTIVE, None): Edge(undoable=False)}
        self.edges = {**self.edges, **own}

    def swap(self, old: Task | None, new: Task | None) -> str:
        """Add a message to the server's queue, or change one as the store does."""
        if old is not None or new is None or new.state is not State.PENDING:
            return super().swap(old, new)
        name = parse_id(new.id)
        assert name is not None
        job = JobView(
            name.path,
            name.channel,
            name.host,
            (10,),
            wait=JobWait.INACTIVE,
            attempts=0,
            error_address="a@b.test",
        )
        self._queue.all_jobs.append(job)
        return found(self, new.id).rev

    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        """Feed waiting messages to an agent, as the scheduler does."""
        queue = self._queue
        for place, job in enumerate(queue.all_jobs[:limit]):
            queue.all_jobs[place] = job._replace(wait=JobWait.RUNNING, pid=77, fed_at=now)
            yield found(self, task_id(job))


@pytest.fixture
def shape() -> Shape:
    """The tasks of this format."""
    return Shape(
        ident=lambda number, kind: f"{kind}/a.test/{1000 + number}",
        description=lambda number, kind: "1 recipient",
        kinds=("smtp",),
        kind="smtp",
        filled=lambda task: task,
        claim_order=list,
    )


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Open a further instance on the same server."""
    with serving(tmp_path, SampleQueue([], NOW)) as running, ExitStack() as opened:
        yield lambda: opened.enter_context(closing(FilledStore(running)))
