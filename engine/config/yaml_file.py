"""Read YAML within limits on its bytes, its depth, and its values with aliases expanded.

A few lines of aliases to aliases stand for more values than memory can hold, and brackets without
end exhaust the stack: both are counted while the file is parsed, before anything is built of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1 << 20
"""Bytes of a document."""

MAX_DEPTH = 32
"""How deep lists and mappings may be nested."""

MAX_VALUES = 20_000
"""Keys and values, those of an alias each time that it is used."""

MAX_NUMBER = 64
"""Characters of a number or a time: the conversion of one in base 60 takes quadratic time."""

_NUMBERS = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))


class BadYaml(ValueError):
    """A file that is not YAML, or beyond a limit: one line with its line number, if known."""


class Budget:
    """Counts the events of one YAML parser, and refuses what goes beyond a limit."""

    def __init__(self) -> None:
        self._values = 0
        self._open: list[tuple[str | None, int]] = []
        """The anchor of each list and mapping that has not ended, and the count before it."""
        self._anchored: dict[str, int] = {}
        """How many values each anchor stands for."""

    def see(self, event: yaml.Event) -> None:
        """Count one event.

        Raises:
            BadYaml: it goes beyond a limit, or an alias is within what it stands for.
        """
        import yaml

        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == outer for outer, _ in self._open):
                raise _at(event, f"the alias *{anchor} is part of what it stands for")
            self._values += self._anchored.get(anchor or "", 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append((anchor, self._values))
            self._values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._open.pop()
            self._anchored[anchor or ""] = self._values - before
        elif isinstance(event, yaml.ScalarEvent):
            _require_short(event)
            self._values += 1
            self._anchored[anchor or ""] = 1
        if len(self._open) > MAX_DEPTH:
            raise _at(event, f"nested more than {MAX_DEPTH} levels deep")
        if self._values > MAX_VALUES:
            raise _at(event, f"more than {MAX_VALUES:,} values, those of aliases counted each time")


def _require_short(event: yaml.ScalarEvent) -> None:
    """Raises BadYaml: a number or a time is longer than `MAX_NUMBER`."""
    if len(event.value) <= MAX_NUMBER:
        return
    import yaml

    tags = [event.tag]
    if event.implicit[0]:
        resolvers = yaml.SafeLoader.yaml_implicit_resolvers.get(event.value[0], ())
        tags = [tag for tag, pattern in resolvers if pattern.match(event.value)]
    if any(tag in _NUMBERS for tag in tags):
        raise _at(event, f"expected at most {MAX_NUMBER} characters in a number or a time")


def _at(event: yaml.Event, what: str) -> BadYaml:
    mark = event.start_mark
    return BadYaml(f"line {mark.line + 1}: {what}" if mark else what)


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn what the parser raises into one line.

    Raises:
        BadYaml: the parser refused the file.
    """
    import yaml

    try:
        yield
    except BadYaml:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise BadYaml(f"{line}expected YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise BadYaml(f"expected YAML: {' '.join(str(error).split())}") from error


def compose(data: bytes) -> tuple[Any, Any]:
    """The root node of a document and the loader that makes values of it; None: it is empty.

    Raises:
        BadYaml: it is no YAML, or beyond a limit.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Composes a node of each event that the budget allows."""

        budget = Budget()

        def get_event(self) -> Any:
            event = super().get_event()  # type: ignore[no-untyped-call]
            self.budget.see(event)
            return event

    _require_size(data)
    with _one_line():
        loader = Loader(data)
        return loader.get_single_node(), loader


def construct(node: Any, loader: Any) -> object:
    """The value of a node that `compose` returned.

    Raises:
        BadYaml: it has no value, such as a date that does not exist.
    """
    with _one_line():
        return loader.construct_document(node)


def load(data: bytes) -> object:
    """The value of a document, by the parser in C where there is one: ten times as fast.

    Raises:
        BadYaml: it is no YAML, or beyond a limit.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _require_size(data)
    with _one_line():
        budget = Budget()
        for event in yaml.parse(data, loader):
            budget.see(event)
        return yaml.load(data, loader)


def _require_size(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise BadYaml(f"expected at most {MAX_BYTES:,} bytes")
