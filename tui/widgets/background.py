"""Work that a screen or the app does beside its keys."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from textual.dom import DOMNode


def run_in_background(
    node: DOMNode,
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    name: str = "",
    group: str = "default",
    exclusive: bool = False,
) -> None:
    """Run `work()` until it ends, or until `node`, a screen or the app, is closed.

    It takes a function and not its coroutine: a coroutine that is cancelled before it starts, for
    example while the console quits, is never awaited, and Python warns of it. `exclusive` cancels
    what else runs for this node in its `group`.
    """
    # The library's own type of `work` lets no function through whose coroutine is typed.
    node.run_worker(work, name=name, group=group, exclusive=exclusive)  # type: ignore[arg-type]
