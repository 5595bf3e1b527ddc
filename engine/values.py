"""Like `typing.NamedTuple`, but creating a class takes a seventh of the time.

`typing.NamedTuple` evaluates each annotation and compiles a constructor for each class: 120 to
220 us, for some 500 classes of which a command uses few. Here annotations are kept as the body has
them, and the constructor is compiled at a class's first call; until then `inspect.signature` knows
no names. The type checker sees `typing.NamedTuple`. A second base with a metaclass of its own, such
as `Protocol`, is a conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter  # as `collections.namedtuple` has it

    _MADE = ("__new__", "__getnewargs__", "_asdict", "_fields", "_make", "_replace")

    class _ValueType(type):
        """Makes the class of a `NamedTuple` from the annotations in its body. A subclass of such a
        class has the same fields: its own annotations are not fields."""

        def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
            if not any(type(base) is _ValueType and not hasattr(base, "_fields") for base in bases):
                return super().__new__(cls, name, bases, space)
            # Since Python 3.14 `__annotate_func__(1)` returns them with their values.
            hints = space.get("__annotations__") or space.get("__annotate_func__", lambda _: {})(1)
            fields = tuple(hints)
            if own := [each for each in _MADE if each in space]:
                raise TypeError(f"{name}: {own[0]} is made for it; a subclass may have its own")
            if wrong := [each for each in fields if each.startswith("_")]:
                raise TypeError(f"{name}: the field {wrong[0]} begins with an underscore")
            defaults = {field: space[field] for field in fields if field in space}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows one with a default")
            space |= {n: _tuplegetter(at, f"Field {n}") for at, n in enumerate(fields)}
            space |= {"_fields": fields, "__match_args__": fields, "_field_defaults": defaults}
            return super().__new__(cls, name, bases, {"__slots__": (), **space})

    class NamedTuple(tuple, metaclass=_ValueType):
        """Base of a class of values."""

        __slots__ = ()

        def __new__(cls, /, *values: Any, **named: Any) -> Any:
            """Make the constructor of the class that has the fields, and call it."""
            owner = next(base for base in cls.__mro__ if "_fields" in vars(base))
            fields = ", ".join(owner._fields)
            comma = "," if owner._fields else ""
            code = f"lambda _cls, {fields}: _new(_cls, ({fields}{comma}))"
            new = eval(code, {"_new": tuple.__new__, "__builtins__": {}})
            new.__name__, new.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
            new.__defaults__ = tuple(owner._field_defaults.values()) or None
            owner.__new__ = staticmethod(new)
            return new(cls, *values, **named)

        @classmethod
        def _make(cls, values: Any) -> Any:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **named: Any) -> Any:
            made = self._make(map(named.pop, self._fields, self))
            if named:
                raise TypeError(f"Got unexpected field names: {[*named]!r}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            pairs = zip(self._fields, self, strict=True)
            named = ", ".join(f"{name}={value!r}" for name, value in pairs)
            return f"{type(self).__name__}({named})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)
