"""The faults that the tests must find: each a small change of the engine that breaks one promise."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A fault, and the test that finds it."""

    name: str
    what: str
    """The promise that it breaks."""
    file: str
    test: str
    """A test, or a file of tests, that passes without the fault and fails with it."""
    edits: tuple[tuple[str, str], ...]
    """Texts that are in the file exactly once, and their replacements."""
    patience: float = 60.0
    """Seconds after which a test with this fault hangs, which is to fail."""


def fault(
    name: str, what: str, file: str, test: str, *edits: tuple[str, str], patience: float = 60.0
) -> Fault:
    """Return a row of the table."""
    return Fault(name, what, file, test, edits, patience)


FAULTS: tuple[Fault, ...] = (
    fault("follows links", "a task file may be a symbolic link to any file",
          "engine/system/files.py", "tests/engine/test_files.py::test_what_is_no_plain_file_is_refused",
          ("_GUARDED = os.O_RDONLY | os.O_NOFOLLOW | ", "_GUARDED = os.O_RDONLY | ")),
    fault("blocks on a FIFO", "a FIFO in pending/ stops every worker",
          "engine/system/files.py", "tests/engine/test_files.py::test_what_is_no_plain_file_is_refused",
          ("_GUARDED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
           "_GUARDED = os.O_RDONLY | os.O_NOFOLLOW"), patience=2),
    fault("lets a shell's dollar pass", "a value is accepted that a shell expands, or runs",
          "engine/system/files.py",
          "tests/engine/test_files.py::test_what_shells_could_read_otherwise_is_refused",
          ('        if c in "$`":', '        if c in "`":')),
    fault("enters linked folders",
          "a payload path in a task file removes a file elsewhere, through a link",
          "engine/system/files.py",
          "tests/engine/test_files.py::test_a_folder_is_not_opened_through_a_link",
          ("_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
           "_FOLDER = os.O_RDONLY | os.O_DIRECTORY")),
    fault("hands on any payload", "a handler reads, sends or deletes whatever file a task names",
          "engine/work/payload.py",
          "tests/stores/test_hostile.py::test_a_task_that_names_a_file_elsewhere_is_never_run_with_it",
          ("        if task.payload:", "        if False:")),
    fault("escapes nothing",
          "a value that we write is expanded, or run, by a shell that sources it",
          "engine/system/files.py", "tests/engine/test_files.py::test_a_value_is_written_for_any_shell",
          ("_ESCAPED.get(c, c)", "c")),
    fault("retries with old attempts",
          "a task taken out of the dead-letter queue dies at its first failure",
          "engine/verbs.py", "tests/stores/test_nftban_form.py::test_a_tasks_life_in_golden_files",
          ('due=0.0, attempts=0, error="")', 'due=0.0, error="")')),
    fault("unlinks before it renames", "a process killed between the two loses the task",
          "engine/stores/nftban/staging.py",
          "tests/crash/test_crash.py::test_at_every_point_nothing_is_lost[power cut]",
          ("        files.rename(name, draft.withdrawn, src",
           "        files.unlink(draft.withdrawn, dir_fd=desk)\n"
           "        files.rename(name, draft.withdrawn, src")),
    fault("rewrites in place",
          "a process killed while it writes, or a power cut, leaves half a task",
          "engine/stores/nftban/staging.py",
          "tests/crash/test_crash.py::test_at_every_point_nothing_is_lost[power cut]",
          ("        files.rename(name, draft.withdrawn, src_dir_fd=desk, dst_dir_fd=desk)\n",
           '        with open(os.open(draft.withdrawn, os.O_WRONLY, dir_fd=desk), "wb") as file:\n'
           "            files.ftruncate(file.fileno(), 0)\n"
           "            files.write_all(file.fileno(), files.read_guarded(files.open_guarded(name, desk))[0])\n"
           "            files.fsync(file.fileno())\n"
           "        files.unlink(name, dir_fd=desk)\n")),
    fault("syncs no draft", "a power cut leaves an empty file in place of an acknowledged task",
          "engine/stores/nftban/staging.py",
          "tests/crash/test_crash.py::test_at_every_point_nothing_is_lost[power cut]",
          ("                files.fsync(draft[1])\n", "                pass\n")),
    fault("answers before it is done",
          "what was acknowledged is lost when the process or the power dies at once",
          "engine/stores/nftban/store.py",
          "tests/crash/test_crash.py::test_at_every_point_nothing_is_lost[power cut]",
          ("                outcomes = self._change_group(group)\n",
           "                yield from map(Outcome, group)\n"
           "                outcomes = self._change_group(group)\n"),
          ("                yield from outcomes\n", "")),
    fault("places over what stands there", "of two tasks with one id one is destroyed",
          "engine/stores/nftban/staging.py",
          "tests/stores/test_nftban_spool.py::test_where_a_file_stands_already_the_other_is_set_aside",
          ("        if name_exists(target, folder.fd):\n            self.keep_duplicate",
           "        if False:\n            self.keep_duplicate")),
    fault("changes what it has not seen", "of two who change a task at once, one's change is lost",
          "engine/stores/nftban/staging.py",
          "tests/stores/test_nftban_spool.py::test_a_file_rewritten_in_place_is_gone",
          ("            if files.file_revision(seen) != rev:", "            if False:"),
          ("        if files.file_revision(os.fstat(draft.seen_fd)) != change.rev:",
           "        if False:")),
    fault("claims whatever is there", "a task is run that was rewritten, and may not be due",
          "engine/stores/nftban/claims.py",
          "tests/stores/test_nftban_spool.py::test_a_file_replaced_as_we_claim_it_is_given_back",
          ("        if not files.is_same_file(seen, there):", "        if False:")),
    fault("recovers from the living",
          "a task that a stopped process is moving stands twice when it goes on",
          "engine/stores/nftban/recovery.py",
          "tests/stores/test_nftban_spool.py::test_what_a_living_process_moves_is_left_alone",
          ("            if not files.claim_flock(fd) or not self._has_name(name, fd, desk.folder):",
           "            if False:")),
    fault("runs through a shell", "what an argument holds is run",
          "engine/system/supervisor.py", "tests/engine/test_handlers.py::test_nothing_is_expanded",
          ("            program.argv,\n", '            " ".join(program.argv),\n'),
          ("start_new_session=True,", "start_new_session=True, shell=True,")),
    fault("ends only the first process", "what a handler has started runs on when its time is over",
          "engine/system/supervisor.py",
          "tests/engine/test_handlers.py::test_whom_it_leaves_behind_ends_with_it",
          ("os.killpg(self._pid, number)", "os.kill(self._pid, number)"), patience=3),
    fault("stores without looking at the lock",
          "a worker whose lock was taken away writes its outcome over the next one's",
          "engine/work/worker.py",
          "tests/engine/test_worker.py::test_a_worker_that_lost_its_lock_touches_nothing",
          ("        log = self._services.log\n"
           "        if self._lock is not None:\n"
           "            self._lock.check()",
           "        log = self._services.log")),
    fault("ignores the other program's lock", "two programs work on one queue",
          "engine/locks/queue_lock.py", "tests/engine/test_locks.py::test_the_lock_of_a_living_process_is_judged_by_its_age",
          ("        if not there or pid == scene.observer.pid:", "        if True:")),
    fault("kills by number", "a process that was given the holder's number meanwhile is killed",
          "engine/locks/lock_breaker.py",
          "tests/engine/test_pid_reuse.py::test_a_number_given_away_before_the_signal_is_spared",
          ("signal.pidfd_send_signal(pidfd, number)", "os.kill(pid, number)")),
    fault("looks only once",
          "after SIGTERM the lock is another's, and SIGKILL is sent all the same",
          "engine/locks/lock_breaker.py",
          "tests/engine/test_breaker.py::test_what_changes_after_sigterm_stays_sigkill",
          ("            if not _may_end(look(), pid, seen) or lock_holder.has_ended(pidfd):",
           "            if number is signal.SIGTERM and not _may_end(look(), pid, seen):"),
          patience=15),
    fault("acts before its intent is durable",
          "a power cut leaves tasks moved, and nothing tells by whom or takes it back",
          "engine/operations/journal.py",
          "tests/crash/test_powercut.py::test_a_power_cut_keeps_the_journal_of_what_moved[purge]",
          ("            files.fsync(fd)\n            files.fsync(folder)\n        except",
           "            files.fsync(folder)\n        except")),
    fault("acts on what was left out",
          "a task that the operator left out is purged with the others",
          "engine/operations/plans.py", "tests/engine/test_undo.py::test_the_journal_tells_what_was_done",
          ("        if row.id in self.excluded_ids:", "        if not row.id:")),
    fault("takes back what changed since", "an undo overwrites what somebody edited meanwhile",
          "engine/operations/undo.py",
          "tests/engine/test_operations.py::test_an_undo_among_rivals_takes_nothing_from_them",
          ('return "" if task.rev == rev else', 'return "" if task.rev else')),
    fault("asks a transport unmarked",
          "a crash while a mail is sent has it sent again, and nobody is told",
          "engine/mail/send/sender.py",
          "tests/mail/test_post.py::test_a_spooled_mail_is_delivered_as_it_was_composed",
          ("            self._spool.mark_trying(spooled, name, self._clock())\n", "")),
    fault("sends what was sent", "a mail whose task comes back arrives twice",
          "engine/mail/send/sender.py", "tests/mail/test_post.py::test_a_sent_mail_is_not_sent_again",
          ("        if spooled.sent is not None:", "        if False:")),
    fault("names an option",
          "a recipient becomes an option of sendmail, which opens a file of its choice",
          "engine/mail/transports/base.py",
          "tests/mail/test_handover.py::test_no_program_gets_a_hostile_address",
          ('        if not address or address.startswith("-") or not _PLAIN_CHARACTERS',
           "        if not address or not _PLAIN_CHARACTERS")),
    fault("speaks without TLS", "a password goes over the line as it is",
          "engine/mail/transports/curl.py",
          "tests/mail/test_programs.py::test_a_mail_is_encrypted_unless_plain_is_allowed",
          ('else ("ssl-reqd",))', 'else ("ssl",))')),
    fault("requeues what is being sent",
          "a mail that another process is sending is sent a second time",
          "engine/stores/kannader/recovery.py",
          "tests/stores/test_kannader_samples.py::test_what_was_in_flight_counts_as_an_attempt",
          (" or now - link.seen.st_ctime <= INFLIGHT_CHECK_SECONDS:", ":")),
    fault("finishes another's claim",
          "a worker whose lease has lapsed deletes the job that another one is sending",
          "engine/stores/zgb/row.py",
          "tests/stores/test_zgb_queue.py::test_a_late_outcome_touches_nothing",
          ("(*self[:5], self.locked)", "self[:4]")),
    fault("commits theirs before ours",
          "a process killed between the two files loses the job that it held",
          "engine/stores/zgb/store.py",
          "tests/crash/test_crash.py::test_at_every_point_nothing_is_lost[zgb]",
          ('                    ours.run("COMMIT")', "                    pass"),
          ("        if moved:\n            with suppress(Unavailable):",
           "        if ours is not None:\n"
           '            ours.run("COMMIT")\n'
           "        if moved:\n"
           "            with suppress(Unavailable):")),
    fault("opens a foreign database as root",
          "the owner of a database has root remove any file, by a journal beside it",
          "engine/stores/zgb/connection.py",
          "tests/stores/test_zgb_rights.py::test_a_planted_journal_removes_nothing_of_root[look-True-zgb.db]",
          ("self._account), users.files_as(self._account):",
           "self._account), users.files_as(None):")),
    fault("is sure after the last dot",
          "a mail that may have been accepted is said not to have been",
          "engine/mail/send/smtp_client.py",
          "tests/engine/test_smtp_handler.py::test_a_broken_connection_leaves_a_doubt_only_after_the_last_dot",
          ("        self._ended, self._doing = True,",
           "        self._ended, self._doing = False,")),
)  # fmt: skip
