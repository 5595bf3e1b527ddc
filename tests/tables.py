"""One test over the rows of a table: one case for all rows, and a failure names its row."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]


def each(
    names: str | Sequence[str], rows: Iterable[Any], **fresh: Callable[[Path], Any]
) -> Callable[[Test], Test]:
    """Run a test once for each row, in place of `pytest.mark.parametrize`, as one case.

    Every row has a folder of its own as `tmp_path`, its own `monkeypatch`, and what `fresh` makes
    in that folder; what is a context is entered for the row."""
    columns = [names] if isinstance(names, str) else list(names)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        kept = [p for p in signature.parameters.values() if p.name not in {*columns, *fresh}]
        folder = inspect.Parameter("tmp_path", inspect.Parameter.KEYWORD_ONLY)
        wants_folder = "tmp_path" in signature.parameters
        if fresh and not wants_folder:
            kept.append(folder)

        @wraps(test)
        def run(**fixtures: Any) -> None:
            above = fixtures.get("tmp_path")
            for number, row in enumerate(rows):
                values = dict(zip(columns, [row] if len(columns) == 1 else row, strict=True))
                with ExitStack() as stack:
                    if above is not None:
                        fixtures["tmp_path"] = above / str(number)
                        fixtures["tmp_path"].mkdir()
                    if "monkeypatch" in fixtures:
                        fixtures["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
                    for name, make in fresh.items():
                        values[name] = _entered(make(fixtures["tmp_path"]), stack)
                    given = {k: v for k, v in fixtures.items() if k in signature.parameters}
                    try:
                        test(**given, **values)
                    except BaseException as error:
                        error.add_note(f"row {number} of the table: {row!r}"[:500])
                        raise

        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate


def _entered(made: Any, stack: ExitStack) -> Any:
    if isinstance(made, AbstractContextManager) and not isinstance(made, Path):
        return stack.enter_context(made)
    return made
