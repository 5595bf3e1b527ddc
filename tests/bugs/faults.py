"""The faults that the tests must find: each a small change of the engine that breaks one promise."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A fault, and who finds it."""

    name: str
    what: str
    """What it breaks, in words."""
    file: str
    edits: tuple[tuple[str, str], ...]
    """Text that stands in the file exactly once, and what stands there instead."""
    tests: tuple[str, ...]
    """Tests that pass without it; at least one of them fails with it."""
    patience: float = 60.0
    """Seconds after which a test with this fault hangs, which is to fail."""


_FILES, _FORM, _POLICY = "engine/files.py", "engine/stores/nftban/form.py", "engine/policy.py"
_T_FILES, _T_FORM = "tests/engine/test_files.py", "tests/stores/test_nftban_form.py"
_T_SPOOL = "tests/stores/test_nftban_spool.py"


def _crash(table: str) -> tuple[str, ...]:
    return (f"tests/crash/test_crash.py::test_at_every_point_nothing_is_lost[{table}]",)


def _files(test: str) -> tuple[str, ...]:
    return (f"{_T_FILES}::{test}",)


READING = (
    Fault(
        "follows links",
        "a task file may be a symbolic link to any file",
        _FILES,
        (("_GUARDED = os.O_RDONLY | os.O_NOFOLLOW | ", "_GUARDED = os.O_RDONLY | "),),
        _files("test_what_is_no_plain_file_is_refused"),
    ),
    Fault(
        "blocks on a FIFO",
        "a FIFO in pending/ stops every worker",
        _FILES,
        (
            (
                "_GUARDED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
                "_GUARDED = os.O_RDONLY | os.O_NOFOLLOW",
            ),
        ),
        _files("test_what_is_no_plain_file_is_refused"),
        patience=2.0,
    ),
    Fault(
        "lets a shell's dollar pass",
        "a value is accepted that a shell expands, or runs",
        _FILES,
        (('        if c in "$`":', '        if c in "`":'),),
        _files("test_what_shells_could_read_otherwise_is_refused"),
    ),
    Fault(
        "enters linked folders",
        "a payload path in a task file removes a file elsewhere, through a link",
        _FILES,
        (
            (
                "_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
                "_FOLDER = os.O_RDONLY | os.O_DIRECTORY",
            ),
        ),
        _files("test_a_folder_is_not_opened_through_a_link"),
    ),
    Fault(
        "hands on any payload",
        "a handler reads, sends or deletes whatever file a task names",
        "engine/handlers/payload.py",
        (("        if task.payload:", "        if False:"),),
        (
            "tests/stores/test_hostile.py::test_a_task_that_names_a_file_elsewhere_is_never_run_with_it",
        ),
    ),
)

WRITING = (
    Fault(
        "escapes nothing",
        "a value that we write is expanded, or run, by a shell that sources it",
        _FILES,
        (("_ESCAPED.get(c, c)", "c"),),
        _files("test_a_value_is_written_for_any_shell"),
    ),
)

COUNTING = (
    Fault(
        "retries with old attempts",
        "a task taken out of the dead-letter queue dies at its first failure",
        "engine/verbs.py",
        (('due=0.0, attempts=0, error="")', 'due=0.0, error="")'),),
        ("tests/stores/test_nftban_form.py::test_a_tasks_life_in_golden_files",),
    ),
)

RUNNING = (
    Fault(
        "runs through a shell",
        "what an argument holds is run",
        "engine/supervisor.py",
        (
            ("            program.argv,\n", '            " ".join(program.argv),\n'),
            ("start_new_session=True,", "start_new_session=True, shell=True,"),
        ),
        ("tests/engine/test_handlers.py::test_nothing_is_expanded",),
    ),
    Fault(
        "ends only the first process",
        "what a handler has started runs on when its time is over",
        "engine/supervisor.py",
        (("os.killpg(self._pid, number)", "os.kill(self._pid, number)"),),
        ("tests/engine/test_handlers.py::test_whom_it_leaves_behind_ends_with_it",),
        patience=3.0,
    ),
    Fault(
        "stores without looking at the lock",
        "a worker whose lock was taken away writes its outcome over the next one's",
        "engine/worker.py",
        (
            (
                "        log = self._services.log\n        if self._lock is not None:\n            self._lock.check()",
                "        log = self._services.log",
            ),
        ),
        ("tests/engine/test_worker.py::test_a_worker_that_lost_its_lock_touches_nothing",),
    ),
)

_DESK = "engine/stores/nftban/desk.py"
_CLAIMS = "engine/stores/nftban/claims.py"
_RECOVERY = "engine/stores/nftban/recovery.py"
_ASIDE = "engine/stores/nftban/corrupt.py"


def _spool(*tests: str) -> tuple[str, ...]:
    return tuple(f"{_T_SPOOL}::{test}" for test in tests)


MOVING = (
    Fault(
        "unlinks before it renames",
        "a process killed between the two loses the task",
        _DESK,
        (
            (
                "        files.rename(name, draft.withdrawn, src",
                "        files.unlink(draft.withdrawn, dir_fd=desk)\n        files.rename(name, draft.withdrawn, src",
            ),
        ),
        _crash("power cut"),
    ),
    Fault(
        "rewrites in place",
        "a process killed while it writes, or a power cut, leaves half a task",
        _DESK,
        (
            (
                "        files.rename(name, draft.withdrawn, src_dir_fd=desk, dst_dir_fd=desk)\n",
                """\
        with open(os.open(draft.withdrawn, os.O_WRONLY, dir_fd=desk), "wb") as file:
            files.ftruncate(file.fileno(), 0)
            files.write_all(file.fileno(), files.read_guarded(files.open_guarded(name, desk))[0])
            files.fsync(file.fileno())
        files.unlink(name, dir_fd=desk)
""",
            ),
        ),
        _crash("power cut"),
    ),
    Fault(
        "syncs no draft",
        "a power cut leaves an empty file in place of an acknowledged task",
        _DESK,
        (("                files.fsync(draft[1])\n", "                pass\n"),),
        _crash("power cut"),
    ),
    Fault(
        "answers before it is done",
        "what was acknowledged is lost when the process or the power dies at once",
        "engine/stores/nftban/spool.py",
        (
            (
                "                outcomes = self._group(group)\n",
                "                yield from map(Outcome, group)\n"
                "                outcomes = self._group(group)\n",
            ),
            ("                yield from outcomes\n", ""),
        ),
        _crash("power cut"),
    ),
    Fault(
        "places over what stands there",
        "of two tasks with one id one is destroyed",
        _DESK,
        (
            (
                "        if there(target, folder.fd):\n            self.keep_twice",
                "        if False:\n            self.keep_twice",
            ),
        ),
        _spool("test_where_a_file_stands_already_the_other_is_set_aside"),
    ),
    Fault(
        "changes what it has not seen",
        "of two who change a task at once, one's change is lost",
        _DESK,
        (
            ("            if files.revision(seen) != rev:", "            if False:"),
            (
                "        if files.revision(os.fstat(draft.seen_fd)) != change.rev:",
                "        if False:",
            ),
        ),
        _spool("test_a_file_rewritten_in_place_is_gone"),
    ),
    Fault(
        "claims whatever is there",
        "a task is run that was rewritten, and may not be due",
        _CLAIMS,
        (("        if not files.same_file(seen, there):", "        if False:"),),
        _spool("test_a_file_replaced_as_we_claim_it_is_given_back"),
    ),
    Fault(
        "recovers from the living",
        "a task that a stopped process is moving stands twice when it goes on",
        _RECOVERY,
        (
            (
                "            if not files.claim_flock(fd) or not self._is_still(name, fd, desk.folder):",
                "            if False:",
            ),
        ),
        _spool("test_what_a_living_process_moves_is_left_alone"),
    ),
)

_LOCKS, _HOLDER, _BREAKER = "engine/locks.py", "engine/holder.py", "engine/breaker.py"


def _locks(test: str) -> tuple[str, ...]:
    return (f"tests/engine/test_locks.py::{test}",)


def _breaker(test: str) -> tuple[str, ...]:
    return (f"tests/engine/test_breaker.py::{test}",)


LOCKING = (
    Fault(
        "ignores the other program's lock",
        "two programs work on one queue",
        _LOCKS,
        (("        if not there or pid == scene.here.pid:", "        if True:"),),
        _locks("test_the_real_programs_lock_is_respected"),
    ),
    Fault(
        "kills by number",
        "a process that was given the holder's number meanwhile is killed",
        _BREAKER,
        (("signal.pidfd_send_signal(pidfd, number)", "os.kill(pid, number)"),),
        ("tests/engine/test_pid_reuse.py::test_a_number_given_away_before_the_signal_is_spared",),
    ),
    Fault(
        "looks only once",
        "after SIGTERM the lock is another's, and SIGKILL is sent all the same",
        _BREAKER,
        (
            (
                "            if not _may_end(look(), pid, seen) or holder.has_ended(pidfd):",
                "            if number is signal.SIGTERM and not _may_end(look(), pid, seen):",
            ),
        ),
        _breaker("test_what_changes_after_sigterm_stays_sigkill"),
        patience=15.0,
    ),
)

_JOURNAL, _PEN = "engine/journal.py", "engine/pen.py"
_UNDO, _OPERATIONS = "engine/undo.py", "engine/operations.py"
_T_POWER = "tests/crash/test_powercut.py"


def _journal(test: str) -> tuple[str, ...]:
    return (f"tests/engine/test_journal.py::{test}",)


def _operations(test: str) -> tuple[str, ...]:
    return (f"tests/engine/test_operations.py::{test}",)


ACTING = (
    Fault(
        "acts before its intent is durable",
        "a power cut leaves tasks moved, and nothing tells by whom or takes it back",
        _JOURNAL,
        (
            (
                "            files.fsync(fd)\n            files.fsync(folder)\n        except",
                "            files.fsync(folder)\n        except",
            ),
        ),
        (f"{_T_POWER}::test_a_power_cut_keeps_the_journal_of_what_moved[purge]",),
    ),
    Fault(
        "acts on what was left out",
        "a task that the operator left out is purged with the others",
        "engine/plans.py",
        (("        if row.id in self.left_out:", "        if not row.id:"),),
        ("tests/engine/test_undo.py::test_the_journal_tells_what_was_done",),
    ),
    Fault(
        "takes back what changed since",
        "an undo overwrites what somebody edited meanwhile",
        _UNDO,
        (('return "" if task.rev == rev else', 'return "" if task.rev else'),),
        _operations("test_an_undo_among_rivals_takes_nothing_from_them"),
    ),
)

_POST = "engine/mail/post.py"


def _post(test: str) -> tuple[str, ...]:
    return (f"tests/mail/test_post.py::{test}",)


MAILING = (
    Fault(
        "asks a transport unmarked",
        "a crash while a mail is sent has it sent again, and nobody is told",
        _POST,
        (("            self._spool.begin(spooled, name, self._clock())\n", ""),),
        _post("test_a_spooled_mail_is_delivered_as_it_was_composed"),
    ),
    Fault(
        "sends what was sent",
        "a mail whose task comes back arrives twice",
        _POST,
        (("        if spooled.sent is not None:", "        if False:"),),
        _post("test_a_sent_mail_is_not_sent_again"),
    ),
    Fault(
        "names an option",
        "a recipient becomes an option of sendmail, which opens a file of its choice",
        "engine/mail/transports/handover.py",
        (
            (
                '        if not address or address.startswith("-") or not _PLAIN',
                "        if not address or not _PLAIN",
            ),
        ),
        ("tests/mail/test_handover.py::test_no_program_is_told_a_hostile_address",),
    ),
    Fault(
        "speaks without TLS",
        "a password goes over the line as it is",
        "engine/mail/transports/curl.py",
        (('else ("ssl-reqd",))', 'else ("ssl",))'),),
        ("tests/mail/test_curl.py::test_a_mail_is_encrypted_unless_plain_is_allowed",),
    ),
)

_K, _Z = "engine/stores/kannader", "engine/stores/zgb"
_T_KANNADER, _T_SAMPLES = (
    "tests/stores/test_kannader_store.py",
    "tests/stores/test_kannader_samples.py",
)
_T_ZGB, _T_HOSTILE = "tests/stores/test_zgb_queue.py", "tests/stores/test_zgb_hostile.py"

LINKING = (
    Fault(
        "requeues what is being sent",
        "a mail that another process is sending is sent a second time",
        f"{_K}/recovery.py",
        ((" or now - link.seen.st_ctime <= INFLIGHT_DELAY:", ":"),),
        (f"{_T_SAMPLES}::test_what_was_in_flight_counts_as_an_attempt",),
    ),
)

LEASING = (
    Fault(
        "finishes another's claim",
        "a worker whose lease has lapsed deletes the job that another one is sending",
        f"{_Z}/row.py",
        (("(*self[:5], self.locked)", "self[:4]"),),
        (f"{_T_ZGB}::test_a_late_outcome_touches_nothing",),
    ),
    Fault(
        "commits theirs before ours",
        "a process killed between the two files loses the job that it held",
        f"{_Z}/store.py",
        (
            ('                    ours.run("COMMIT")', "                    pass"),
            (
                "        if moved:\n            with suppress(Unavailable):",
                '        if ours is not None:\n            ours.run("COMMIT")\n'
                "        if moved:\n            with suppress(Unavailable):",
            ),
        ),
        _crash("zgb"),
    ),
    Fault(
        "opens a foreign database as root",
        "the owner of a database has root remove any file, by a journal beside it",
        f"{_Z}/wire.py",
        (
            (
                "self._account), accounts.files_as(self._account):",
                "self._account), accounts.files_as(None):",
            ),
        ),
        (
            "tests/stores/test_zgb_rights.py::"
            "test_a_planted_journal_removes_nothing_of_root[look-True-zgb.db]",
        ),
    ),
)

_SMTP, _T_SMTP = "engine/mail/smtp.py", "tests/engine/test_smtp_handler.py"

POSTING = (
    Fault(
        "is sure after the last dot",
        "a mail that may have been accepted is said not to have been",
        _SMTP,
        (
            (
                "        self._ended, self._doing = True,",
                "        self._ended, self._doing = False,",
            ),
        ),
        (f"{_T_SMTP}::test_a_connection_that_breaks_after_the_last_dot_leaves_a_doubt",),
    ),
)

FAULTS: tuple[Fault, ...] = (
    *(*READING, *WRITING, *COUNTING, *MOVING, *RUNNING, *LOCKING, *ACTING, *MAILING),
    *(*LINKING, *LEASING, *POSTING),
)
"""All of them, in the order in which they are listed."""
