"""Values to JSON and back by their types: named tuples, enums, mappings, tuples, unions and plain
values. A value of another type is refused with the path of its field."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast

from engine.text.decode import Malformed, check_count, check_epoch, check_number, check_object

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any, str], Any]
"""Makes a JSON value one of a type; the text is its path in the document."""
FieldsReader: TypeAlias = Callable[[Any, Mapping[str, Reader], Any, str], Any]
"""Makes a JSON value a named tuple of a type, with the readers of its fields."""

Epoch: TypeAlias = Annotated[float, check_epoch]
"""Epoch seconds UTC. A type that is annotated with a reader is read by that one."""


def to_json(value: Any) -> Any:
    """Make objects of named tuples and arrays of other tuples, at any depth. Values that are stored
    by position need no such step: `json` writes every tuple as an array."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(getattr(value, name)) for name in value._fields}
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    return [*map(to_json, value)] if isinstance(value, tuple | list) else value


def from_json(kind: type[T], value: Any, what: str, *, exact: bool = False) -> T:
    """Read a value of a type from a JSON value, which errors call `what`.

    Fields that a file of an earlier version lacks get their defaults; those of a later one are
    ignored, or refused if `exact`. Whole numbers are not negative. Of a union, the first type that
    fits is read.

    Raises:
        Malformed: it has another type or a wrong value: `pace.stops.rest: expected ...`."""
    form = _read_exactly if exact else _read_fields
    read: Callable[[Any, str], T] = _reader(cast(Any, kind), form)
    return read(value, what)


def from_array(kind: type[T], value: Any, what: str) -> T:
    """Read a named tuple that is stored by position, as all that are in it."""
    read: Callable[[Any, str], T] = _reader(cast(Any, kind), _read_by_position)
    return read(value, what)


def _check_array(value: Any, path: str, least: int, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        amount = f"{most}" if least == most else f"{least} to {most}"
        raise Malformed(f"{path}: expected an array of {amount} values")
    return value


def _check_type(expected: type, name: str, value: Any, path: str) -> Any:
    if not isinstance(value, expected):
        raise Malformed(f"{path}: expected {name}")
    return value


_PLAIN: Mapping[Any, Reader] = {
    Any: lambda value, path: value,
    bool: partial(_check_type, bool, "true or false"),
    float: check_number,
    int: check_count,
    str: partial(_check_type, str, "a text"),
}


@cache
def _reader(kind: Any, read_fields: FieldsReader) -> Reader:
    origin, types = typing.get_origin(kind), typing.get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin is Annotated:
        own: Reader = types[1]
        return own
    if hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind, include_extras=True)
        by_name = {name: _reader(hints[name], read_fields) for name in kind._fields}
        return partial(read_fields, kind, by_name)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_read_member, kind)
    readers = [_reader(each, read_fields) for each in types if each not in (NoneType, ...)]
    if origin in (Union, UnionType):
        return partial(_read_union, readers, NoneType in types)
    if origin is Mapping:
        return partial(_read_mapping, readers[0], readers[1])
    if origin is tuple:
        return partial(_read_tuple, readers, ... in types)
    raise TypeError(f"no JSON value is a {kind}")


def _read_fields(kind: Any, readers: Mapping[str, Reader], value: Any, path: str) -> Any:
    fields = check_object(value, path)
    pairs = [(name, read) for name, read in readers.items() if name in fields]
    read_fields = {name: read(fields[name], f"{path}.{name}") for name, read in pairs}
    if missing := readers.keys() - fields.keys() - kind._field_defaults.keys():
        raise Malformed(f"{path}.{min(missing)}: missing")
    return kind(**read_fields)


def _read_exactly(kind: Any, readers: Mapping[str, Reader], value: Any, path: str) -> Any:
    if unknown := check_object(value, path).keys() - readers.keys():
        raise Malformed(f"{path}: unknown field {min(unknown)[:40]!r}")
    return _read_fields(kind, readers, value, path)


def _read_by_position(kind: Any, readers: Mapping[str, Reader], value: Any, path: str) -> Any:
    most = len(readers)
    items = _check_array(value, path, most - len(kind._field_defaults), most)
    triples = zip(readers, readers.values(), items, strict=False)
    return kind(*[read(item, f"{path}.{name}") for name, read, item in triples])


def _read_member(kind: type[Enum], value: Any, path: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(str(member.value) for member in kind)
        raise Malformed(f"{path}: expected one of {names}") from None


def _read_union(readers: Sequence[Reader], is_optional: bool, value: Any, path: str) -> Any:
    if value is None and is_optional:
        return None
    for read in readers[:-1]:
        try:
            return read(value, path)
        except Malformed:
            continue
    return readers[-1](value, path)


def _read_mapping(read_key: Reader, read: Reader, value: Any, path: str) -> dict[Any, Any]:
    items = check_object(value, path).items()
    return {read_key(key, path): read(item, f"{path}.{key}") for key, item in items}


def _read_tuple(readers: list[Reader], is_any_length: bool, value: Any, path: str) -> Any:
    if is_any_length:
        readers = readers * len(_check_type(list, "an array", value, path))
    items = _check_array(value, path, len(readers), len(readers))
    return tuple([read(items[at], f"{path}[{at}]") for at, read in enumerate(readers)])
