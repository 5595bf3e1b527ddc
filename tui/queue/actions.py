"""Keys of the queue screen that open other screens, or act on the place as a whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from engine.config.saved_filters import SavedFilterError, save_filter
from engine.model import Task, own_word, state_words
from engine.text.safe import safe_line
from tui.plan.refusals import pause_control
from tui.queue.scope import QueueScope
from tui.screens.base import PASTED, Copy
from tui.screens.target import Target
from tui.text import keys, task_row
from tui.text.export import ExportTable, RowSink


class QueueLinks(QueueScope):
    """Keys that open other screens; what can be copied and exported."""

    def action_open(self) -> None:
        """Open the task, or the problems on their tab."""
        task = self.rows.view.task_here
        if self._on_problems and self._problems:
            from tui.queue.problems_screen import ProblemsScreen

            shared = (self.inspector.states, self.inspector.actions.preview_problem, self._clock())
            self.app.push_screen(ProblemsScreen(self._problems, *shared))
        elif self._on_problems:
            self.say("no problem to open")
        elif task is None:
            self.say("no task to open")
        else:
            self.rows.pin_cursor()
            self.go(Target(keys.TASK, id=task.id))

    def action_show(self, what: str) -> None:
        """Show full ids or a wide error column, or no longer."""
        row_options = self.list.signs
        self.list.show_signs(row_options._replace(shown=row_options.shown ^ {what}))
        on = what in self.list.signs.shown
        self.say({"ids": "full ids", "wide": "wide error column"}[what] + ("" if on else " off"))

    def action_log(self) -> None:
        """Open the log, filtered for the task under the cursor."""
        self.rows.pin_cursor()
        self.go(Target(keys.LOG, id=self.rows.view.cursor.id))

    def copies(self) -> tuple[Copy, ...]:
        """The task under the cursor, and the command that lists what is shown."""
        from tui.task.screen import task_copies

        task, state = self.rows.view.task_here, self.state
        if task is None or state is None:
            return ()
        known = self.inspector
        word = own_word(task, known.states, known.words)
        words = ",".join(state_words(state, known.states, known.words))
        command = [*self.place.command, "queue", "list", "--state", words]
        command += ["--filter", self._filter.filter.text] if self._filter.filter else []
        return task_copies(task, word, command, self._clock())

    def export_table(self) -> ExportTable | None:
        """Export: all tasks of the tab, as of now."""
        query, states, words = self.tab_query, self.inspector.states, self.inspector.words
        if query.state is None:
            return None

        async def hand(take: RowSink) -> int:
            def give(some: Sequence[Task], done: int, total: int) -> bool:
                values = [task_row.task_row(task, own_word(task, states, words)) for task in some]
                return take(values, done, total)

            return await self.inspector.queries.export(query, give)

        return ExportTable(f"{states[query.state]}", task_row.ROW_FIELDS, hand)

    def action_clusters(self) -> None:
        """Open the error clusters."""
        self.go(Target(keys.CLUSTERS))

    def action_groups(self) -> None:
        """Open the tasks by queue, kind, group or destination."""
        self.go(Target(keys.GROUPS))

    def action_note(self) -> None:
        """Prompt for a note on the task under the cursor."""
        self.rows.pin_cursor()
        super().action_note()

    def action_unlock(self) -> None:
        """Open the lock screen."""
        if refusal := self._lock_line.refusal:
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK))

    def action_controls(self) -> None:
        """Open the controls of this place."""
        self.go(Target(keys.CONTROLS))

    def action_pause_queue(self) -> None:
        """Open a plan to pause or resume the whole queue."""
        from tui.operations.control_screen import show_control_plan

        show_control_plan(self, self.session, self.context, pause_control(self.session))

    def action_next_place(self) -> None:
        """Go to the next place."""
        self._to_place(1)

    def action_previous_place(self) -> None:
        """Go to the previous place."""
        self._to_place(-1)

    def _to_place(self, step: int) -> None:
        if self.context.places == 1:
            self.say("only one place open")
        else:
            number = (self.session.number - 1 + step) % self.context.places + 1
            self.go(Target(keys.LIST, place=number))


class QueueActions(QueueLinks):
    """Keys that act on the console or the place as a whole."""

    def action_arm(self) -> None:
        """Arm or disarm."""
        if self.hasty:
            self.say(PASTED)
            return
        self.say(self._arming.toggle())
        self._paint_header()

    def action_worker(self) -> None:
        """Confirm starting a worker, or stopping the one started here."""
        from tui.operations.worker_screen import show_worker_plan

        show_worker_plan(self, self.session, self.context)

    def action_reread(self) -> None:
        """Scan the place again."""

        async def run() -> None:
            await self.inspector.scan_now()
            self.say("scanned again")

        self.run_worker(run, name="reread", exclusive=True, group="reread")  # type: ignore[arg-type]

    def action_leave(self) -> None:
        """Close this screen, or quit the console from the outermost one."""
        self.post_message(self.ActionRequest(self, "leave"))

    def action_save_filter(self, name: str = "") -> None:
        """Save the filter of this list under a name, for `@name`."""
        text = self._filter.filter.text
        if refusal := self._filter.error or ("" if text else "no filter to save: / opens one"):
            self.say(refusal)
            return

        async def save() -> None:
            filter_name = name.removeprefix("@")
            try:
                old = await asyncio.to_thread(save_filter, os.environ, filter_name, text)
            except SavedFilterError as error:
                self.say(f"not saved: {safe_line(str(error))}")
                return
            self._saved = None
            self.say(f"@{filter_name} {'replaced' if old else 'saved'}: {safe_line(text)}", "ok")

        self._run_query("save filter", save)
