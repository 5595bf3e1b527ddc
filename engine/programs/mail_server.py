"""What `engine.programs.mail_store.MailStore` needs of one mail server: a small protocol of calls
that run its programs. A format implements it and keeps no tasks itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from engine.model import Edges, Missing, Part, Problem, State, Task
from engine.store import Control, Outlook


class ListedMail(NamedTuple):
    """One message of a listing."""

    id: str
    record: bytes
    """As the program printed it, without the newline at its end."""


class ActResult(NamedTuple):
    """What one run of an act said about its messages. The printed lines decide, never the exit
    code."""

    done: Collection[str] = ()
    """Ids whose own line says that it was done."""
    refused: Mapping[str, str] = {}
    """Ids whose own line says why it was not, with that reason."""
    is_complete: bool = False
    """True if the program went through all ids: one without a line is not there any more. Else it
    must be looked at again."""
    why: str = ""
    """How the program ended, if it did not go through all ids."""


class MailServer(Protocol):
    """One mail server, reached through its programs; each method blocks, and raises Unavailable if
    no program can be run."""

    states: Mapping[State, str]
    words: Mapping[str, State]
    edges: Edges
    """As the rights of the user allow them now."""
    controls: Mapping[str, Control]
    ids_per_act: int
    """Ids that are given to one run of an act."""

    @abstractmethod
    def list_mails(self) -> Iterator[ListedMail | Problem]:
        """List all messages, while the program prints them. A message may be missing, or listed
        twice, as it moves meanwhile."""

    @abstractmethod
    def task_of(self, record: bytes) -> Task | Problem:
        """Make the task of a listed message."""

    @abstractmethod
    def show(self, ids: Sequence[str]) -> Iterator[Task | Missing | Problem]:
        """Look at these messages, cheaper than by a listing; a Problem names, by its id, one that
        cannot be looked at now."""

    @abstractmethod
    def act(self, olds: Sequence[Task], new: Task | None) -> ActResult:
        """Run one act on messages that all have one state and place, as they were looked at just
        before; `new` is the state that the first of them is to have."""

    @abstractmethod
    def parts(self, task: Task) -> Iterator[Part]:
        """See `ReadableStore.parts`."""

    @abstractmethod
    def read(self, task: Task, part: str) -> bytes:
        """See `ReadableStore.read`."""

    def control(self, name: str, target: str, value: str) -> str:
        """See `ChangeableStore.control`."""

    def forecast(self, name: str, target: str, value: str) -> Outlook:
        """See `ChangeableStore.forecast`."""
