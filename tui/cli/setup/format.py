"""The description of another program's format (a row of `FORMATS`), and a place in it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from engine.policy import RetryPolicy
from engine.store import Store


class ForeignFormat(NamedTuple):
    """How places of one format are opened, worked and shown."""

    title: str
    """The format's name on screen, with its article."""
    parse_settings: Callable[[Any, Any], Any]
    """Value of `stores.NAME` and its location -> settings; raises ConfigError."""
    open_store: Callable[[str, Any], Store]
    """Path and settings -> its store."""
    state_folder: Callable[[str], str]
    """Path -> our own folder there: journal, notes, log, metrics."""
    required_folders: Callable[[str], tuple[str, str, str]]
    """Path -> the folders that must exist and be writable before a change; new files belong to the
    owner of the first.
    """
    work_command: tuple[str, ...]
    """The command that runs a worker, after the words that name the place."""
    retry_policy: Callable[[Any], RetryPolicy]
    """Settings -> retry policy."""
    why_unworkable: Callable[[Any], str]
    """Settings -> why no worker of ours can run there; "" if one can."""
    # Each of the following is "MODULE:FUNCTION" below `tui.cli`, or "". The function gets the
    # Setup; its module is loaded when it is needed.
    doctor: str
    """Checks a place; also gets the arguments of the command."""
    facts: str = ""
    """Facts about the whole queue: `tui.session.place.WholeQueueFigures`."""
    tokens: str = ""
    """State of its token bucket: a tuple of `engine.locks.token_buckets.BucketState`."""
    why_paused: str = ""
    """Why a worker would claim no task of a kind now, which is its second argument; else ""."""
    logs: str = ""
    """Paths of more logs to follow."""
    sends_mail: bool = False
    """True if its workers send by the transports of the mail settings, and record the results in
    mail.log and mail.prom in our folder.
    """
    claim_order: str = ""
    """The order in which due tasks are claimed, a name of `engine.index.backlog`; "" if unknown."""


def load_function(where: str) -> Callable[..., Any]:
    """Import and return the function of a "MODULE:FUNCTION" text."""
    module, name = where.split(":")
    found: Callable[..., Any] = getattr(import_module(f"tui.cli.{module}"), name)
    return found


class ForeignPlace(NamedTuple):
    """A place in another program's format."""

    name: str
    """The format's name: key of `stores` in the configuration, and word of its commands."""
    path: str
    """Absolute."""
    format: ForeignFormat
    settings: Any
    """As returned by the format's `check`."""

    @property
    def state_folder(self) -> str:
        """Our own folder there."""
        return self.format.state_folder(self.path)

    def open_store(self) -> Store:
        """Open its store.

        Raises:
            Unavailable: it cannot be reached.
        """
        return self.format.open_store(self.path, self.settings)
