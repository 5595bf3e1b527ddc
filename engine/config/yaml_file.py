"""Read YAML with limits on size, nesting depth and number of values after alias expansion.

A few lines of nested aliases can expand to more values than fit in memory ("billion laughs"), and
endless brackets exhaust the stack. Both are counted during parsing, before any value is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1 << 20
"""Maximum size of a document in bytes."""

MAX_DEPTH = 32
"""Maximum nesting of lists and mappings."""

MAX_VALUES = 20_000
"""Maximum number of keys and values; those of an alias count each time it is used."""

MAX_NUMBER = 64
"""Maximum characters of a number or time: converting a base 60 number takes quadratic time."""

_NUMBERS = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))


class BadYaml(ValueError):
    """Invalid YAML or a limit exceeded; the message is one line, with the line number if known."""


class YamlBudget:
    """Counts the events of one YAML parser and enforces the limits."""

    def __init__(self) -> None:
        self._values = 0
        self._open: list[tuple[str | None, int]] = []
        """Anchor of each open list and mapping, and the count before it."""
        self._anchored: dict[str, int] = {}
        """Number of values of each anchor."""

    def count_event(self, event: yaml.Event) -> None:
        """Count one event. Raises BadYaml: a limit is exceeded, or an alias is inside its own
        anchor."""
        import yaml

        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == outer for outer, _ in self._open):
                raise _at(event, f"the alias *{anchor} contains itself")
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
            raise _at(event, f"more than {MAX_VALUES:,} values, aliases expanded")


def _require_short(event: yaml.ScalarEvent) -> None:
    if len(event.value) <= MAX_NUMBER:
        return
    import yaml

    tags = [event.tag]
    if event.implicit[0]:
        resolvers = yaml.SafeLoader.yaml_implicit_resolvers.get(event.value[0], ())
        tags = [tag for tag, pattern in resolvers if pattern.match(event.value)]
    if any(tag in _NUMBERS for tag in tags):
        raise _at(event, f"expected at most {MAX_NUMBER} characters in a number or a time")


_AMBIGUOUS_NUMBER = re.compile(r"[-+]?(?:0[0-9_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+)(\.[0-9_]*)?")
"""Plain numbers that YAML 1.1 reads in base 8 (or as text, if a digit is 8 or 9) or in base 60."""


def _require_one_reading(event: yaml.ScalarEvent) -> None:
    """Raise BadYaml for an unquoted number that YAML and its author read differently."""
    import yaml

    text = event.value
    if not event.implicit[0] or not _AMBIGUOUS_NUMBER.fullmatch(text):
        return
    value = yaml.safe_load(text)
    if value == text:
        reading = "text in YAML"
    elif ":" in text:
        reading = f"{value} in YAML (base 60)"
    else:
        reading = f"{value} in YAML (octal)"
    digits = text.lstrip("+-0").replace("_", "") or "0"
    plain = "" if ":" in text else f"{'-' if text.startswith('-') else ''}{digits}, or "
    raise _at(event, f'{text} is {reading}: write {plain}"{text}" for the text')


def _at(event: yaml.Event, what: str) -> BadYaml:
    mark = event.start_mark
    return BadYaml(f"line {mark.line + 1}: {what}" if mark else what)


@contextmanager
def _one_line() -> Iterator[None]:
    """Context manager: convert the parser's exceptions to a one-line message. Raises BadYaml: the
    parser refused the file."""
    import yaml

    try:
        yield
    except BadYaml:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        problem = error.problem or error.context
        if "nesting depth" in str(problem):  # PyYAML 6.0.4 has a limit of its own, above ours
            raise BadYaml(f"{line}nested more than {MAX_DEPTH} levels deep") from error
        raise BadYaml(f"{line}expected YAML: {problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise BadYaml(f"expected YAML: {' '.join(str(error).split())}") from error


def parse_nodes(data: bytes) -> tuple[Any, Any]:
    """Parse a document of settings; return its root node (None if empty) and the loader for
    `construct`. A number that can be read in two ways is refused. Raises BadYaml: invalid YAML, or
    a limit exceeded."""
    import yaml

    class Loader(yaml.SafeLoader):
        """A loader that counts each event."""

        budget = YamlBudget()

        def get_event(self) -> Any:
            event = super().get_event()  # type: ignore[no-untyped-call]
            self.budget.count_event(event)
            if isinstance(event, yaml.ScalarEvent):
                _require_one_reading(event)
            return event

    _require_size(data)
    with _one_line():
        loader = Loader(data)
        return loader.get_single_node(), loader


def build_value(node: Any, loader: Any) -> object:
    """Convert a node from `compose` to a Python value. Raises BadYaml: it has no valid value, such
    as a date that does not exist."""
    with _one_line():
        return loader.construct_document(node)


def load_yaml(data: bytes) -> object:
    """Parse a document to a Python value, with the C parser if available (ten times as fast).
    Raises BadYaml: invalid YAML, or a limit exceeded."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _require_size(data)
    with _one_line():
        budget = YamlBudget()
        for event in yaml.parse(data, loader):
            budget.count_event(event)
        return yaml.load(data, loader)


def _require_size(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise BadYaml(f"expected at most {MAX_BYTES:,} bytes")
