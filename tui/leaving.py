"""Close the top screen, or quit the console: ask first if something of it is still running."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tui.screens.base import BaseScreen
from tui.session.place_session import PlaceSession
from tui.terminal.safe_app import SafeApp


class ConsoleExit:
    """The ways out of the console. Each closes all places first, on their threads."""

    def __init__(self, app: SafeApp, sessions: Sequence[PlaceSession]) -> None:
        self._app, self._sessions = app, sessions

    async def close_screen(self, screen: BaseScreen, out: bool) -> None:
        """Close a screen; the last one quits the console if `out`."""
        if len(self._app.screen_stack) > 2:  # the first is Textual's empty screen
            self._app.pop_screen()
        elif out:
            await self._app.action_quit()
        else:
            screen.say("no screen to go back to; q quits the console")

    def quit(self) -> None:
        """Quit; ask first if a worker or an operation of this console is running."""
        pids = tuple(
            session.worker.pid for session in self._sessions if session.worker.pid is not None
        )
        works = [
            (work, session.inspector.states)
            for session in self._sessions
            for work in session.operations
            if work.ended is None
        ]
        if not pids and not works:
            self._leave("stop")
            return
        from tui.screens.quit import QuitScreen

        self._app.push_screen(QuitScreen(pids, works), self._leave)

    def end(self, code: int) -> None:
        """Quit with that exit code without asking: a signal arrived."""
        self._close(keep_worker=False, code=code)

    async def close_places(self, keep_worker: bool) -> None:
        """Close the places: their threads and temporary files are gone afterwards."""
        await asyncio.gather(*(session.close(keep_worker) for session in self._sessions))

    def _leave(self, answer: str | None) -> None:
        if answer:
            self._close(keep_worker=answer == "keep", code=0)

    def _close(self, keep_worker: bool, code: int) -> None:
        async def close() -> None:
            await self.close_places(keep_worker)
            self._app.exit(return_code=code)

        self._app.run_worker(close(), name="leave")
