"""What the console has to show, and which tests show it: one table, held against the tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent

ITEMS: dict[str, dict[str, tuple[str, ...]]] = {
    "overview": {
        "tui/test_overview.py": (
            "test_enter_on_a_cell_opens_its_tasks",
            "test_the_last_warnings_are_told",
            "test_tokens_are_told",
            "test_hostile_names_are_inert",
        ),
        "engine/test_alerts.py": (),
    },
    "queue": {
        "tui/test_acts_on_what_was_seen.py": ("test_what_is_acted_on_was_painted",),
        "tui/test_console.py": ("test_a_tab_for_each_state", "test_ghosts_are_not_counted"),
        "tui/test_wishes.py": ("test_each_order", "test_a_range_is_marked"),
        "tui/test_same_now.py": ("test_the_screen_follows_the_log",),
    },
    "task": {
        "tui/test_task_screen.py": (
            "test_every_field_is_shown",
            "test_a_spooled_mail_is_decoded",
            "test_each_file_is_told_of",
            "test_attempts_come_from_the_log",
            "test_a_payload_is_inert",
            "test_a_spooled_mail_is_read_as_one_does",
            "test_a_hostile_spool_is_shown_and_not_read",
        ),
        "tui/test_why.py": (
            "test_backoff_is_told_and_what_comes_after_it",
            "test_no_token_is_told_until_there_is_one",
            "test_the_lock_is_told_whoever_has_it",
            "test_the_configuration_says_who_has_a_handler",
            "test_those_before_it_are_counted",
            "test_a_worker_that_stays_away_is_missed",
        ),
    },
    "locks": {
        "tui/test_locks_board.py": (
            "test_a_line_for_each_lock",
            "test_the_evidence_and_what_waits",
        ),
        "tui/test_lock_screen.py": ("test_a_stuck_holder_is_ended_and_its_task_is_back",),
    },
    "transports": {
        "tui/test_transports.py": (
            "test_each_transport_is_a_row_and_the_one_under_the_cursor_is_told",
            "test_the_screen_changes_when_a_file_does",
            "test_each_says_whether_it_is_used_and_why_not",
            "test_the_last_errors_are_told_one_by_one",
            "test_enter_leads_from_an_error_to_the_log_at_that_moment",
            "test_the_plain_twin_says_by_which_way_mail_goes",
        ),
        "engine/test_transports.py": (),
        "engine/test_deliveries.py": (),
    },
    "suspended transports and test mail": {
        "tui/test_suspend.py": (
            "test_it_is_suspended_with_a_reason_and_resumed",
            "test_without_another_mail_waits",
            "test_a_plan_that_does_not_hold_any_more_is_withdrawn",
        ),
        "tui/test_trial.py": (
            "test_its_lines_are_shown_and_how_it_ended",
            "test_the_console_does_not_wait_for_it",
        ),
        "tui/test_mail_desk.py": (),
    },
    "log": {
        "tui/test_log.py": (
            "test_the_end_of_all_logs_by_time",
            "test_what_comes_is_shown",
            "test_scrolling_up_pauses_and_counts",
        ),
        "engine/test_logbook.py": (),
    },
    "filters": {
        "tui/test_filter.py": (
            "test_the_count_is_live",
            "test_what_left_nothing_is_named",
            "test_the_command_line_says_the_same",
            "test_a_bad_filter_is_a_usage_error",
        ),
        "engine/test_filters.py": (),
    },
    "help, palette, plain text, copies, exports": {
        "tui/test_wishes.py": (
            "test_the_command_line",
            "test_help_of_each_screen",
            "test_copies_reach_the_terminal",
            "test_the_screen_as_plain_text",
            "test_a_queue_is_exported",
            "test_the_overview_is_exported",
        ),
        "tui/test_keys.py": ("test_the_help_lists_every_key",),
        "tui/test_clipboard.py": ("test_more_than_a_terminal_takes_is_refused",),
    },
    "themes": {
        "tui/test_theme.py": (
            "test_what_comes_with_the_console",
            "test_a_theme_is_put_on_anew_when_its_file_changes",
            "test_a_wrong_theme_is_explained_and_the_old_one_stays",
        ),
        "tui/test_told_apart.py": ("test_no_two_look_alike_without_colour",),
    },
    "terminals": {
        "tui/test_terminals.py": (
            "test_every_terminal",
            "test_a_terminal_that_cannot_move_its_cursor",
            "test_nothing_in_the_data_reaches_the_terminal_raw",
            "test_a_storm_of_sizes_ends_in_a_right_screen",
            "test_ctrl_z_leads_to_the_shell_and_back",
            "test_signals_restore_the_terminal",
            "test_the_mouse_is_left_alone_unless_asked_for",
            "test_in_tmux",
        ),
        "tui/test_crash_report.py": ("test_a_crash_anywhere",),
        "tui/test_looks.py": ("test_looks",),
    },
    "progress": {
        "tui/test_wishes.py": (
            "test_a_long_first_look_is_told_of_and_stopped",
            "test_a_long_export_is_told_of_and_stopped",
        ),
    },
    "plain twins": {
        "tui/test_twins.py": (
            "test_the_screen_says_the_same",
            "test_the_locks",
            "test_the_log_on_screen_is_the_log_printed",
            "test_the_transports_on_screen_are_those_printed",
        ),
        "tui/test_same_now.py": ("test_the_screen_and_the_command_line_say_the_same",),
    },
    "screenshots": {"tui/test_looks.py": ("test_looks",)},
    "plans": {
        "engine/test_plans.py": (),
        "engine/test_operations.py": (
            "test_whatever_rivals_do_the_sums_add_up",
            "test_two_consoles_and_a_worker",
        ),
        "tui/test_plan_screen.py": (
            "test_a_task_is_left_out_by_hand",
            "test_a_reason_stands_in_the_journal",
            "test_what_is_in_work_is_touched_only_when_nobody_works_on_it",
        ),
        "crash/test_deeds.py": ("test_at_every_point_the_journal_tells_the_truth",),
    },
    "guards": {
        "tui/test_haste.py": (
            "test_a_paste_applies_no_plan",
            "test_a_key_for_a_task_that_just_changed_is_refused",
        ),
    },
    "replay": {
        "tui/test_jobs.py": (
            "test_a_cluster_is_replayed_in_at_most_eight_keys_and_its_count",
            "test_a_replay_stops_when_its_error_comes_back",
        ),
        "engine/test_replay.py": (
            "test_every_task_ends_in_one_count_among_rivals",
            "test_the_same_error_again_stops_it",
            "test_two_replays_share_one_bucket",
        ),
        "engine/test_fates.py": (),
        "engine/test_pacing.py": (),
        "tui/test_pace.py": (),
        "tui/test_replay_screen.py": ("test_killed_in_the_middle_nothing_is_lost",),
    },
    "purge and trash": {
        "tui/test_plan_screen.py": (
            "test_what_looks_odd_is_left_out_unless_it_is_taken_in",
            "test_everything_at_once_is_said_to_be_everything",
        ),
        "engine/test_trash.py": (),
        "tui/test_operate.py": ("test_after_a_day_the_trash_is_swept",),
    },
    "undo": {
        "engine/test_undo.py": ("test_what_is_taken_back_is_as_it_was",),
        "tui/test_jobs.py": ("test_a_purge_is_undone_byte_for_byte",),
        "tui/test_operations.py": ("test_it_is_taken_back_by_its_count",),
    },
    "journal": {
        "engine/test_journal.py": (),
        "tui/test_operate.py": ("test_the_journal_tells_what_was_done",),
    },
    "lock doctor": {
        "tui/test_lock_doctor.py": (
            "test_a_stuck_lock_is_freed_in_six_keys_and_the_pid",
            "test_an_abandoned_task_goes_where_it_is_told_to",
        ),
        "engine/test_vitals.py": (),
        "engine/test_triage.py": (),
    },
    "recorder": {
        "engine/test_recorder.py": ("test_of_two_one_records",),
        "tui/test_frozen.py": (
            "test_p_freezes_and_p_goes_on",
            "test_a_console_sees_what_a_worker_recorded_before",
        ),
    },
    "forecasts": {"engine/test_forecast.py": ()},
    "notes and edits": {"engine/test_notes.py": (), "tui/test_edit.py": ()},
}
"""What it is -> file -> tests; a file without names stands with all its tests."""


@cache
def found_in(path: str) -> dict[str, list[str]]:
    """The tests of a file by name, and what decorates each."""
    tree = ast.parse((TESTS / path).read_text())
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {
        node.name: [ast.unparse(decorator) for decorator in node.decorator_list]
        for node in found
        if node.name.startswith("test_")
    }


@pytest.mark.parametrize("item", ITEMS)
def test_what_shows_it_is_there(item: str) -> None:
    """Each is shown by tests that are there, and none of these is skipped or may fail."""
    shown = 0
    for path, names in ITEMS[item].items():
        there = found_in(path)
        assert set(names) <= set(there), (path, set(names) - set(there))
        decorators = " ".join(text for name in names or there for text in there[name])
        assert "mark.skip(" not in decorators, path
        assert "xfail" not in decorators, path
        shown += len(names or there)
    assert shown


def test_none_is_forgotten() -> None:
    """There are so many things to be shown: thirteen to be looked at, eleven to be done."""
    assert len(ITEMS) == 13 + 11
