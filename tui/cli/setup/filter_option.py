"""Parse the options `--filter`, in which `@name` is a saved filter of the user, `--state` and
`--since`; read the data that a filter may mention."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from engine.config.saved_filters import lookup_in
from engine.index.filter_language import BadFilter, Filter, parse_filter
from engine.logs.log_file import NO_TIME
from engine.logs.log_filter import parse_typed_time
from engine.model import State, Task, state_words
from engine.store import ReadableStore, StoreError, Unsupported
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line

T = TypeVar("T")


def parse_filter_option(
    text: str,
    states: Mapping[State, str],
    now: float,
    words: Mapping[str, State],
    *,
    reads_data: bool = False,
) -> Filter:
    """Parse `--filter` with the states and words of a store; times are resolved at `now`."""
    try:
        saved = lookup_in(os.environ)
        return parse_filter(text, states, now, words, saved, reads_data=reads_data)
    except BadFilter as error:
        fail(EX_USAGE, f"--filter: {safe_line(error.message)}")


def parse_since_option(text: str) -> float:
    """Parse `--since` to epoch seconds UTC; `NO_TIME` without it."""
    if not text:
        return NO_TIME
    try:
        return parse_typed_time(text, time.time())
    except ValueError as error:
        fail(EX_USAGE, f"--since {safe_line(text)}: {error}")


def note_searched(store: ReadableStore, tasks: Iterable[T], filter: Filter) -> Iterator[T]:
    """Pass the tasks of a store through that a filter is to search, with their accounts if it needs
    them; say on standard error at the end if not all recipients and accounts were searched."""
    from engine.index.filter_language import ACCOUNT_FIELD, RECIPIENTS_FIELDS
    from engine.index.mail_columns import count_searched

    searched = total = mails = unread = 0
    if needs_accounts := filter.mentions_field(ACCOUNT_FIELD):
        store.read_accounts_first()
    counts = any(map(filter.mentions_field, RECIPIENTS_FIELDS))
    for task in tasks:
        if needs_accounts and isinstance(task, Task):
            mails, unread = mails + 1, unread + (task.account is None)
        if counts and isinstance(task, Task):
            number = count_searched(task)
            if number < len(task.recipients):
                searched, total = searched + number, total + len(task.recipients)
        yield task
    if total:
        print_error(f"--filter: searched {searched:,} of {total:,} recipients")
    if unread:
        print_error(f"--filter: accounts of {mails - unread:,} of {mails:,} read")


def read_data(store: ReadableStore, task: Task) -> str | None:
    """What a task carries, for `data~`: its parts behind the first, or the first if it is alone.
    None if one cannot be read or only in part: what was not searched must not count as without the
    word. That is said on standard error. A NUL, which would end the text for SQLite, is U+FFFD."""
    try:
        first, *others = store.parts(task)
        texts = []
        for part in others or [first]:
            if part.refusal:
                raise Unsupported(f"{part.name}: {part.refusal}")
            data = store.read(task, part.name)
            if part.size is not None and len(data) < part.size:
                read = f"{part.name}: only {len(data):,} of {part.size:,} bytes can be read"
                raise Unsupported(read)
            texts.append(data.decode("utf-8", "replace").replace("\0", "\ufffd"))
    except StoreError as error:
        print_error(safe_line(f"{task.id}: not searched: {error}"))
        return None
    return "\n".join(texts)


def parse_states(
    store: ReadableStore, state: str, among: Iterable[State] = State
) -> dict[str, State]:
    """The words of the store's states that `--state` names, with commas; all of them by default."""
    known = {
        word: of
        for of in among
        if of in store.states
        for word in state_words(of, store.states, store.words)
    }
    named = state.split(",") if state else [*known]
    if unknown := [word for word in named if word not in known]:
        fail(EX_USAGE, f"--state {safe_line(unknown[0])}: expected one of {', '.join(known)}")
    return {word: known[word] for word in known if word in named}
