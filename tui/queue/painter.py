"""Painting of the queue screen: panes and their frames, facts, next step, hints."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model import Problem, State
from engine.monitor.metrics_check import OwnCounts
from engine.operations import plans
from engine.text.safe import safe_line, state_name
from tui.plan import planning
from tui.plan.refusals import control_refusal, pause_control
from tui.queue import metrics_pane
from tui.queue.lock_line import LockLineFacts, slowest_latency
from tui.queue.next_step import Situation, next_step
from tui.queue.panes import divide_screen
from tui.queue.task_details import PlaceTerms, brief_lines, detail_lines
from tui.queue.view import QueueView
from tui.screens.two_panes import frame_panes
from tui.text import keys
from tui.text.flow_graph import AXIS_CELLS, time_axis
from tui.text.frames import RULE
from tui.text.header import tab_line
from tui.text.hints import Scope, hint_lines, next_line, scope_words
from tui.text.lines import Line, cut_line
from tui.text.progress_bar import first_scan_line
from tui.text.task_list import short_id
from tui.widgets.line_widgets import Frame

TASK_ACTIONS = frozenset(
    {
        "show('ids')",
        "show('wide')",
        "filter",
        "clusters",
        "groups",
        "order",
        "log",
        "mark",
        "range",
        "mark_all",
        "unmark",
    }
    | {key.action for key in keys.verb_keys()}
)
"""Actions on tasks, hidden on the problems tab."""

LOW_PRIORITY_ACTIONS = frozenset(
    {"order", "mark_all", "unmark", "note", "unlock", "worker", "pause_queue", "tab"}
    | {"reread", "palette", "log", "mark", "pane(1)", "show('ids')", "show('wide')"}
)
"""Actions whose hints are dropped first on narrow screens; the help lists them."""

TYPING_HINTS = (keys.Hint("Enter", "apply"), keys.Hint("Esc", "clear"))
"""Hints while typing a filter."""

FRAME_KEYS = {State.PENDING: "2", State.ACTIVE: "3", State.DEAD: "4"}
"""Digit keys that open a state's tab, in the title of its list."""

ORDER_NAMES = {"created": "age", "died": "time of death", "since": "time in work"}
"""Orders of the index whose names on screen differ."""


class QueuePanes(QueueView):
    """Paints the panes: list, details, log, graph, states."""

    def _lay_out(self) -> None:
        """Divide the screen; the panes get their heights."""
        filtered = self._filter.is_visible and self.state is not None
        rows = len(self._problems) if self._on_problems else self.rows.view.matching
        facts = min(metrics_pane.MAX_FACTS, len(self.session.readings.queue_figures.rows))
        states = len(self.inspector.states)
        alarms = self._lock_line.alarms
        frame = divide_screen(self.size, states, filtered, rows=rows, alarms=alarms, facts=facts)
        if frame == self._frame:
            return
        self._frame = frame
        frame_panes(self, frame.border)
        self._middle.styles.layout = "horizontal" if frame.wide else "vertical"
        self._side.styles.width = frame.side if frame.wide else "1fr"
        self._side.styles.height = "1fr" if frame.wide else frame.details
        self._side.display = frame.details > 0
        self._lock_line.display = frame.facts > 0
        for pane, height in (
            (self._log, frame.log),
            (self._graph, frame.graph),
            (self._states, frame.states),
        ):
            pane.styles.height = height
            pane.display = height > 0
        self.call_after_refresh(self.paint)

    def paint(self) -> None:
        """Repaint all parts."""
        raise NotImplementedError

    def _paint_list_frame(self) -> None:
        """The title of the list: how many match of how many, and their order."""
        if self._on_problems:
            listed, known = len(self._problems), self._change.problems
            of = f" of {known:,}" if known > listed else ""
            plus = "" if self._change.is_complete else "+"
            title = Frame("Problems", amount=f"{listed:,}{of}{plus}")
            self._problem_list.show_frame(title, focused=not self._details.has_focus)
            return
        state = self.state
        word = self.inspector.states.get(state, "") if state else ""
        total = self._change.counts.get(state, 0) if state else 0
        amount = (
            f"{self.rows.view.matching_words} of {total:,}" if self._filter.filter else f"{total:,}"
        )
        if state is None or self._change.unavailable:
            amount = "?"
        order, falling = self._order
        name = ORDER_NAMES.get(order, order) + (" (reverse)" if falling else "")
        right: Line = (("order: ", "muted"), (name, ""), ("  o", "key"))
        if self._frame.border == RULE and self.list.row_words:  # it has no lower line
            right = ((f"{self.list.row_words}   ", "muted"), *right)
        if self.rows.view.fresh and not self._filter.is_visible:
            right = ((f"{self.rows.view.fresh:,} new   ", "ok"), *right)
        key = FRAME_KEYS.get(state, "") if state else ""
        frame = Frame(state_name(word) or "Tasks", key, amount, right)
        frame = frame._replace(bottom=self.list.row_words)
        self.list.show_frame(frame, focused=not self._details.has_focus)

    @property
    def _problem_here(self) -> Problem | None:
        key = self._problem_list.key
        return next((each for each in self._problems if each.where == key), None)

    def _paint_details(self) -> None:
        wide = self._frame.wide
        if not self._frame.details or not self._details.size.height:
            return
        width = self._details.size.width
        if self._on_problems:
            from tui.queue.problems_screen import problem_details

            problem, facts = self._problem_here, (self.inspector.states, self._clock(), width)
            self._details.show(problem_details(problem, *facts) if problem else [])
            self._details.show_frame(Frame("Problem"), focused=self._details.has_focus)
            return
        task, now = self.rows.view.task_here, self._clock()
        if task is None:
            self._details.show([])
            self._details.show_frame(Frame("Task"))
            return
        trash = None if self.place.trash is None else self.place.trash.hours
        terms = PlaceTerms(self.inspector.states, self.place.max_attempts, trash)
        findings = self._findings if self._findings.id == task.id else type(self._findings)()
        show = detail_lines if wide else brief_lines
        self._details.show(show(task, findings, terms, now, width))
        right: Line = ((safe_line(task.kind), "muted"),)
        frame = Frame(short_id(task.id), right=right)
        self._details.show_frame(frame, focused=self._details.has_focus)

    def _paint_graph(self) -> None:
        if not self._frame.graph or not self._graph.size.height:
            return
        pane, now, size = self._graph_pane, self._clock(), self._graph.size
        self._graph.show(pane.lines(self.session, now, size.width, size.height))
        title = f"{self.session.name}, last {pane.range}"
        right: Line = (("z", "key"), (" range", "muted"))
        axis = time_axis(now, pane.seconds, size.width - AXIS_CELLS)
        self._graph.show_frame(Frame(title, right=right, bottom=axis))

    def _paint_figures(self) -> None:
        """The states as bars; without room for them one line, where the metrics file differs."""
        change, now, readings = self._change, self._clock(), self.session.readings
        complete = change.is_counted and not change.unavailable
        samples = self.session.count_samples
        own_counts = OwnCounts(self.inspector.states, change.counts, complete, samples)
        warning = metrics_pane.metrics_warning(readings.queue, own_counts, now)
        if change.unavailable:
            warning = "", ""  # the reason is on screen; no next run writes the file
        pane = self._states
        if self._frame.states and pane.size.height:
            width, reachable = pane.size.width, not self._change.unavailable
            rows = metrics_pane.state_lines(readings.queue, own_counts, reachable, width)
            pane.show([*rows, *metrics_pane.fact_rows(readings.queue_figures.rows, width)])
            run = metrics_pane.metrics_run(readings.queue, own_counts, now)
            pane.show_frame(Frame("States", right=(run,) if run[0] else ()))
        is_visible = bool(warning[0]) and self.size.height >= 12
        self._warning.display = is_visible
        self._warning.show([cut_line(((" ", ""), warning), self.size.width)] * is_visible)

    def _paint_log(self) -> None:
        self._log.show_log(self.session.readings.log)
        right: Line = ((" FOLLOW ", "chip"),)
        self._log.show_frame(Frame(f"Log of {self.session.name}", "7", right=right))

    def _paint_problems(self) -> None:
        from tui.queue.problems_screen import problem_rows

        width = self._problem_list.size.width or self.size.width
        rows, head = problem_rows(self._problems, self._clock(), width)
        self._problem_list.show_rows(
            rows, [head] if rows else [(("   no damaged files", "muted"),)]
        )


class QueuePainter(QueuePanes):
    """Paints the lines above and below the panes."""

    def paint(self) -> None:
        """Repaint all parts."""
        if not self.is_paintable or not self.size.width:
            return
        self._lay_out()
        self.list.show_signs(self.list.signs._replace(notice=self._notice()))
        self._paint_header()
        self._paint_tabs()
        self._paint_lock()
        self._paint_filter()
        if self._on_problems:
            self._paint_problems()
        self._paint_list_frame()
        self._paint_details()
        self._paint_figures()
        self._paint_graph()
        self._paint_log()
        self._paint_scope()

    def _paint_header(self) -> None:
        context = self.context
        number = f" ({self.session.number}/{context.places})" if context.places > 1 else ""
        self._top.update_line(context, (f"{self.session.name}{number}",))

    def _paint_tabs(self) -> None:
        states, change = self.inspector.states, self._change
        reached = not change.unavailable
        names = [*states.values(), "problems"] if states else []
        counts = [change.counts.get(state, 0) if reached else None for state in states]
        counts += [change.problems if reached else None] if states else []
        within = {
            [*states].index(self.inspector.words[word]): f"{tasks:,} {word}"
            for word, tasks in change.words.items()
        }
        complete = change.is_counted
        partial = () if change.is_complete else (len(states),)  # a server counts no problems
        tabs = (names, counts, self._tab, complete, self.size.width, within, partial)
        line = tab_line(*tabs)
        self._tab_line.show([line])

    def _paint_lock(self) -> None:
        now, readings = self._clock(), self.session.readings
        worker = self.worker.pid if self.place.has_leases else None
        latency = slowest_latency(readings.kinds or ())
        rates = None if self._change.unavailable else self.session.flow.rates(now)
        facts = LockLineFacts(rates, readings.tokens, latency, worker)
        self._lock_line.show_facts(readings.lock, facts, now, self.size.width)

    def _paint_filter(self) -> None:
        line = self._filter
        if line.is_visible and self.state is not None:
            of = self._change.counts.get(self.state, 0)
            query, why = self._explained
            nothing = not self.rows.view.matching and self.rows.view.loaded
            why = why if nothing and query == self.tab_query else ""
            marked = len(self._marks.get(self.state, ()))
            line.show_count(self.rows.view.matching_words, of, why, marked, self.rows.view.fresh)

    def _scope(self) -> Scope:
        """What a verb would act on."""
        raise NotImplementedError

    def _paint_scope(self) -> None:
        alarms = self._lock_line.alarms
        scope, change = self._scope(), self._change
        on_problems = self._on_problems
        rows = len(self._problems) if on_problems else self.rows.view.matching
        if on_problems or self.rows.view.loaded or change.unavailable:
            self._next = (
                self.state,
                next_step(
                    Situation(
                        self.state,
                        self.inspector.states,
                        change.counts,
                        rows,
                        scope,
                        has_filter=bool(self._filter.filter),
                        is_one_cluster=self._filter.filter.is_only("cluster"),
                        unavailable=bool(change.unavailable),
                        read_only=self._arming.read_only,
                        lacks_worker=self._lacks_worker,
                        lock_alarms=alarms,
                        can_start_worker=bool(self.place.worker_command),
                        problem=self._problem_here if on_problems else None,
                        at=self._clock(),
                    )
                ),
            )
        state, (key, does) = self._next
        if state is not self.state:  # the rows of another tab are read now
            key = does = ""
        right = scope_words(scope)
        width = self.size.width
        message = "" if scope.filter_error else self._timed_message[0]  # the scope shows the error
        line = next_line(key, does, right, width, message)
        self._scope_line.show([line])
        self._paint_hints()

    # Hints

    def without(self) -> set[str]:
        """Actions that are hidden now."""
        without = {"next_place", "previous_place"} if self.context.places == 1 else set()
        without |= planning.absent_verbs(self.inspector.edges)
        without |= set() if self.place.worker_command else {"worker"}
        if self._arming.read_only:
            without |= {key.action for key in keys.verb_keys()} | {"arm", "worker", "unlock"}
            without |= {"mark", "mark_all", "unmark", "note", "pause_queue"}
        without |= set() if self.session.has_queue_figures else {"controls"}
        without |= set() if self.inspector.controls else {"pause_queue"}
        without |= {"unlock"} if self.place.has_leases else set()
        return without

    def verb_refusal_here(self, verb: str) -> str:
        """Why a verb is not available now; "" if it is."""
        if self._on_problems:
            return "problems cannot be changed here: Enter shows them"
        return self._filter.error or self.verb_refusal(verb, self.state, self.selected_task())

    def _grey(self) -> set[str]:
        grey = {key.action for key in keys.verb_keys() if self.verb_refusal_here(key.verb)}
        if not self.place.worker_command:
            grey.add("worker")
        if self._lock_line.refusal:
            grey.add("unlock")
        if control_refusal(self.session, self.context, pause_control(self.session)):
            grey.add("pause_queue")
        if self._on_problems and not self._problems:
            grey.add("open")
        return grey

    def _hint_input(self) -> tuple[object, ...]:
        """Input of the hints; compared on each cursor move instead of rebuilding them."""
        arming, change, edges = self._arming, self._change, self.inspector.edges
        verbs = [planning.verb_in_state(key.verb, self.state, edges) for key in keys.verb_keys()]
        task, now = self.selected_task(), self._clock()
        bars = [task and plans.bar_reason(edges, verb, task, now=now) for verb in verbs]
        return (
            self.size.width,
            self.context.places,
            arming.read_only,
            arming.is_armed,
            self.worker.pid,
            self._on_problems,
            self.state,
            bool(change.unavailable),
            bool(self._problems),
            edges,
            self._lock_line.refusal,
            self._is_typing,
            self._filter.error,
            self.inspector.controls,
            bars,
        )

    @property
    def _is_typing(self) -> bool:
        """True if keys go into the filter line."""
        return self._filter.is_visible and self._filter.has_focus_within

    def _hint_rows(self) -> list[Line]:
        grounds = self._hint_input()
        if self._hinted[0] != grounds:
            words = {"arm": keys.arm_hint(self._arming.is_armed)}
            words |= {"open": "details"} if self._on_problems else {}
            # Verbs for other states would displace those that work here.
            words |= planning.hint_words(self.inspector.edges, self.state)
            elsewhere = planning.verbs_elsewhere(self.inspector.edges, self.state)
            without = self.without() | elsewhere | (TASK_ACTIONS if self._on_problems else set())
            without.add("screen")  # the digits are in the titles of the panes
            closed = planning.closed_verbs(self.inspector.edges, self.state)
            hints = list_hints(self._grey(), without, words, closed)
            if self._is_typing:
                hints = TYPING_HINTS
            self._hinted = grounds, hint_lines(hints, self.size.width)
        return self._hinted[1].copy()

    def _paint_hints(self) -> None:
        rows = self._hint_rows()
        change, states = self._change, self.inspector.states
        seconds = self._clock() - self.session.opened_at
        if far := first_scan_line(change, states, seconds, self.size.width):
            rows[0] = cut_line(far, self.size.width)
        self._hints.show(rows)

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message in place of the next step for some seconds."""
        self._timed_message = (safe_line(text), self._clock())
        self._paint_scope()


def list_hints(
    grey: set[str], without: set[str], words: dict[str, str], closed: set[str]
) -> Sequence[keys.Hint]:
    """The hints; those that are refused now or are listed in the help are dropped first, but those
    in `closed`, which the store refuses for all tasks, stay.

    Verbs stay before what is the same in every tab.
    """
    verbs = {key.shown for key in keys.verb_keys()}
    stays = {key.shown for key in keys.keys_on(keys.LIST) if key.action in closed}
    low = {key.shown for key in keys.keys_on(keys.LIST) if key.action in LOW_PRIORITY_ACTIONS}
    hints = []
    for hint in keys.hints_of(keys.LIST, grey, without, words):
        is_same = hint.is_minor and hint.shown not in verbs
        hints.append(
            hint._replace(
                is_minor=is_same
                or hint.shown in low
                or (hint.is_refused and hint.shown not in stays)
            )
        )
    return hints
