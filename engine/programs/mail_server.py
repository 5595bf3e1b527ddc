"""What `engine.programs.mail_store.MailStore` needs of one mail server: a small protocol of calls
that run its programs. A format implements it and keeps no tasks itself.

A revision is `IDENTITY.QUEUE.DETAIL`: IDENTITY and QUEUE have no full stop. A message with another
IDENTITY or QUEUE has changed; DETAIL differs whenever something else that is shown does. It ends
with `UNSURE` if a look did not show all that DETAIL depends on. A listing and a look at one message
make the same revision of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from engine.model import Edges, Missing, Part, Problem, State, Task
from engine.programs.mail_accounts import MailAccounts
from engine.store import Control, Outlook, Unsupported
from engine.values import NamedTuple

UNSURE = "?"
"""End of a revision of a task some of whose facts only a listing has."""


class ListedMail(NamedTuple):
    """One message of a listing."""

    id: str
    record: bytes
    """What the program printed of it, as the format keeps it."""


class MailSummary(NamedTuple):
    """What of a record is known without parsing it in full."""

    state: State
    word: str
    """See `Task.word`."""
    rev: str


def describe_later(why: str, what: str) -> str:
    """What another look has shown of a message whose act ended, for a reason, without a line for
    it."""
    return f"{why}; looked again: {what}"


class ActResult(NamedTuple):
    """What one run of an act printed about its messages. The printed lines decide, never the exit
    code."""

    done: Mapping[str, str] = {}
    """Ids whose own line shows that it was done, each with its new revision."""
    refused: Mapping[str, str] = {}
    """Ids whose own line has the reason why it was not, with that reason."""
    is_complete: bool = False
    """True if the program went through all ids: one without a line is not there any more. Else it
    must be looked at again."""
    notes: Mapping[str, str] = {}
    """How far it has come with those that are done, for `Outcome.note`."""
    why: str = ""
    """How the program ended, if it did not go through all ids."""


class MailServer(Protocol):
    """One mail server, reached through its programs. Each method blocks, and raises Unavailable if
    no program can be run, or none may be; one thread at a time uses it."""

    states: Mapping[State, str]
    words: Mapping[str, State]
    edges: Edges
    """As the rights of the user allow them now; a listing may change them, as `controls`."""
    controls: Mapping[str, Control]
    ids_per_act: int
    """Ids that are given to one run of an act."""
    poll_seconds: float = 5.0
    """Least seconds between two listings."""
    accounts: MailAccounts | None = None
    """The accounts of messages that only looks show; None: its listings have them."""

    @abstractmethod
    def list_mails(self) -> Iterator[ListedMail | Problem]:
        """List all messages, while the program prints them. A message may be missing, or listed
        twice, as it moves meanwhile. Raises Unavailable at its end if the listing is not whole."""

    def complete(self, records: dict[str, bytes]) -> Sequence[Problem]:
        """Change the records of a whole listing in place: add what other programs show of these
        messages. Return the damaged ones."""
        return ()

    @abstractmethod
    def summarize(self, ident: str, record: bytes) -> MailSummary:
        """State, word and revision of a listed message; called for each at each listing."""

    def fingerprint(self) -> bytes:
        """Bytes that differ if a listing would: called to notice changes, so it is cheap."""
        digest = blake2b()
        records = dict[str, bytes]()
        for item in self.list_mails():
            if isinstance(item, ListedMail):
                records[item.id] = item.record
        problems = self.complete(records)
        for ident, record in records.items():
            digest.update(b"%b\n%b\n" % (ident.encode(), record))
        digest.update(repr(problems).encode("utf-8", "backslashreplace"))
        return digest.digest()

    @abstractmethod
    def task_of(self, ident: str, record: bytes) -> Task | Problem:
        """Make the task of a listed message, with the revision of `summarize`."""

    @abstractmethod
    def is_id(self, text: str) -> bool:
        """True if a text may be given to a program as an id."""

    @abstractmethod
    def show(
        self, ids: Sequence[str], records: Mapping[str, bytes]
    ) -> Iterator[Task | Missing | Problem]:
        """Look at these messages, cheaper than by a listing. A Problem names, by its id, one that
        cannot be looked at now. One that this look does not reach is not yielded at all: a listing
        decides. `records` are those of the last listing: of an unchanged message it has what this
        look does not show."""

    def account_order(self, record: bytes) -> int:
        """The larger, the sooner is the account of this message read."""
        return 0

    def read_accounts(self, ids: Sequence[str]) -> Collection[str]:
        """Look at these messages, and note their accounts in `accounts`; return the ids of those
        that the look has reached."""
        return ()

    @abstractmethod
    def queue_of(self, task: Task) -> str:
        """The place of a message inside its server: those in one place may share an act."""

    @abstractmethod
    def act(self, olds: Sequence[Task], new: Task | None) -> ActResult:
        """Run one act on messages that all have one state and place, as they were looked at just
        before; `new` is what the first of them is to be, None to delete them."""

    def find_new_ids(self, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        """See `ChangeableStore.find_new_ids`."""
        return {}

    @abstractmethod
    def parts(self, task: Task) -> Iterator[Part]:
        """See `ReadableStore.parts`."""

    @abstractmethod
    def read(self, task: Task, part: str) -> bytes:
        """See `ReadableStore.read`. The default part begins with the line `id: ID`, and is the same
        in each state."""

    def control(self, name: str, target: str, value: str) -> str:
        """See `ChangeableStore.control`; it is there, and not refused."""
        raise Unsupported(f"no control {name!r} here")

    def forecast(self, name: str, target: str, value: str) -> Outlook:
        """See `ChangeableStore.forecast`."""
        raise Unsupported(f"no control {name!r} here that counts what it would change")

    def close(self) -> None:
        """Release what it has open."""
        return
