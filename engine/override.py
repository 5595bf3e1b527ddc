"""`override`, which `typing` has since Python 3.12: the marked method has the docstring of that of
a base. Without one there, the type checker reports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import override as override
else:

    def override(method: Any) -> Any:
        """Return the method."""
        return method
