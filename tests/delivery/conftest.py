"""Commands and queues for the tests of workers that deliver."""

from tests.tui.queues import root, spooldeck

__all__ = ["root", "spooldeck"]
