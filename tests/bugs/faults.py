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
_T_SPOOL, _POWER = "tests/stores/test_nftban_spool.py", "tests/crash/test_powercut.py"


def _power(verb: str) -> tuple[str, ...]:
    return (f"{_POWER}::test_a_power_cut_takes_nothing_that_was_answered[{verb}]",)


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
        (("os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY", "os.O_CLOEXEC | os.O_NOCTTY"),),
        _files("test_what_is_no_plain_file_is_refused"),
        patience=2.0,
    ),
    Fault(
        "reads second links",
        "a task file may be a hard link to a file elsewhere",
        _FILES,
        (("    if seen.st_nlink > 1:", "    if False:"),),
        _files("test_what_is_no_plain_file_is_refused"),
    ),
    Fault(
        "reads files of any size",
        "a sparse file of a gigabyte exhausts the memory",
        _FILES,
        (
            ("    if seen.st_size > limit:", "    if False:"),
            ("    if len(data) > limit:", "    if False:"),
        ),
        _files("test_what_is_no_plain_file_is_refused"),
    ),
    Fault(
        "accepts no newline at the end",
        "the first half of a file that is just being written is a task",
        _FILES,
        (('    if not data.endswith(b"\\n"):', "    if False:"),),
        _files("test_what_shells_could_read_otherwise_is_refused"),
    ),
    Fault(
        "accepts a key twice",
        "we and a shell read different values from one file",
        _FILES,
        (("        if key in values:", "        if False:"),),
        _files("test_what_shells_could_read_otherwise_is_refused"),
    ),
    Fault(
        "takes every backslash for an escape",
        "we and a shell read different values from one file",
        _FILES,
        (
            (
                'if c == "\\\\" and rest[at + 1 : at + 2] in _ESCAPED:',
                'if c == "\\\\" and rest[at + 1 :]:',
            ),
        ),
        _files("test_what_every_shell_reads_alike_is_accepted"),
    ),
    Fault(
        "lets a shell's dollar pass",
        "a value is accepted that a shell expands, or runs",
        _FILES,
        (('        if c in "$`":', '        if c in "`":'),),
        _files("test_what_shells_could_read_otherwise_is_refused"),
    ),
    Fault(
        "climbs out by ..",
        "a payload path in a task file removes any file",
        _FILES,
        (('part in ("", ".", "..")', 'part in ("", ".")'),),
        _files("test_a_path_that_leads_elsewhere_is_refused"),
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
    Fault(
        "stores any payload",
        "whoever may add a task has any file handed to its handler",
        "engine/stores/nftban/spool.py",
        (("        self.has_payload(task.payload)\n", ""),),
        ("tests/stores/test_hostile.py::test_a_payload_elsewhere_is_not_added",),
    ),
    Fault(
        "shows any payload",
        "a payload that is a second link to any file can be read on screen",
        "engine/stores/nftban/parts.py",
        (("        if why := _why_not(os.fstat(opened), spool):", '        if why := "":'),),
        (
            "tests/stores/test_parts.py"
            "::test_a_payload_that_is_no_plain_file_is_not_opened[a second link]",
        ),
    ),
    Fault(
        "trusts files of anybody",
        "whoever can write one file has a task run",
        _FILES,
        (
            (
                "    if folder is not None and (why := distrust(seen, folder)):",
                '    if folder is not None and (why := ""):',
            ),
        ),
        ("tests/stores/test_hostile.py::test_what_is_no_task_file_is_set_aside[open to all]",),
    ),
    Fault(
        "believes a backslash behind any character",
        "in a GBK locale bash runs what we read as text",
        _FILES,
        (('rest[at - 1 : at] > "\\x7f":', "False:"),),
        _files("test_what_shells_could_read_otherwise_is_refused"),
    ),
    Fault(
        "believes the file, not its name",
        "one file's outcome is written over another task",
        _FORM,
        (("    if record.id != ident:", "    if False:"),),
        (f"{_T_FORM}::test_a_bad_file_is_refused_with_its_reason",),
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
    Fault(
        "writes beyond ASCII",
        "bash in some locales swallows the backslash behind a multi-byte character",
        _FILES,
        (
            ('if c < "\\x7f" else "_" for c in value', 'if c < "\\x7f" else c for c in value'),
            ('.encode("ascii")\n\n\ndef parse_ass', ".encode()\n\n\ndef parse_ass"),
        ),
        _files("test_a_value_is_written_for_any_shell"),
    ),
    Fault(
        "writes once",
        "what a short write left out is missing",
        _FILES,
        (("    while done < len(data):", "    while False:"),),
        _files("test_every_byte_is_written"),
    ),
    Fault(
        "publishes in place",
        "a reader of the metrics sees half of them",
        _FILES,
        (
            (
                '    new = f"{name}.{os.urandom(6).hex()}.tmp"\n    try:\n'
                "        fd = create(new, dir_fd, owner_for(os.fstat(dir_fd)), mode)",
                "    new = name\n    try:\n"
                "        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode, dir_fd=dir_fd)",
            ),
        ),
        _files("test_what_cannot_be_published_leaves_the_old"),
    ),
    Fault(
        "opens what is there as new",
        "a draft is written over another process's",
        _FILES,
        (("_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL", "_NEW = os.O_WRONLY | os.O_CREAT"),),
        _files("test_a_new_file_is_new"),
    ),
    Fault(
        "forgets new folders' names",
        "a power cut takes a new folder with every task moved into it",
        _FILES,
        (("            fsync(above)\n", ""),),
        _power("hold, no desk yet"),
    ),
)

COUNTING = (
    Fault(
        "parks tasks for years",
        "a clock that jumped once starves a task for good",
        _POLICY,
        (("    if due <= now + FURTHEST:", "    if True:"),),
        ("tests/engine/test_policy.py::test_a_clock_that_jumped_parks_no_task",),
    ),
    Fault(
        "buries a retry late",
        "a task is tried once more than the contract says",
        _POLICY,
        (("None if retries >= limit else", "None if retries > limit else"),),
        ("tests/engine/test_policy.py::test_failures_wait_as_the_tables_say",),
    ),
    Fault(
        "rescues for nothing",
        "a task that kills its worker each time is tried for ever",
        "engine/rescuer.py",
        (
            (
                "Move(task, outcome_of_failure(task, reason, retry, now, end))",
                "Move(task, verbs.unclaim(task))",
            ),
        ),
        ("tests/engine/test_rescuer.py::test_a_task_that_ends_its_workers_is_given_up",),
    ),
    Fault(
        "retries with old attempts",
        "a task taken out of the dead-letter queue dies at its first failure",
        "engine/verbs.py",
        (('due=0.0, attempts=0, error="")', 'due=0.0, error="")'),),
        ("tests/stores/test_nftban_form.py::test_a_tasks_life_in_golden_files",),
    ),
    Fault(
        "counts without the lock",
        "two processes raise a counter and one count is lost",
        "engine/metrics.py",
        (
            (
                "            files.Flock(lock),\n            _own(name, here) as fd,\n",
                "            _own(name, here) as fd,\n",
            ),
        ),
        ("tests/engine/test_counting.py::test_reading_and_writing_a_number_are_one[counter]",),
    ),
    Fault(
        "spends without the lock",
        "two processes take one token",
        "engine/limits.py",
        (("                files.Flock(fd),\n", ""),),
        ("tests/engine/test_counting.py::test_reading_and_writing_a_number_are_one[bucket]",),
    ),
)

RUNNING = (
    Fault(
        "hands on every descriptor",
        "whoever a handler leaves behind holds the queue's lock, and all else that was open",
        "engine/handlers/command.py",
        (("                pass_fds=context.inherit,", "                close_fds=False,"),),
        ("tests/engine/test_handlers.py::test_it_inherits_what_it_shall_and_nothing_else",),
    ),
    Fault(
        "runs through a shell",
        "what an argument holds is run",
        "engine/handlers/command.py",
        (
            ("                self._argv,\n", '                " ".join(self._argv),\n'),
            ("start_new_session=True,", "start_new_session=True, shell=True,"),
        ),
        ("tests/engine/test_handlers.py::test_nothing_is_expanded",),
    ),
    Fault(
        "ends only the first process",
        "what a handler has started runs on when its time is over",
        "engine/handlers/command.py",
        (("os.killpg(process.pid, number)", "os.kill(process.pid, number)"),),
        ("tests/engine/test_handlers.py::test_whom_it_leaves_behind_ends_with_it",),
        patience=3.0,
    ),
    Fault(
        "ends with a handler's error",
        "a handler's bug is the worker's end, and its task stays claimed",
        "engine/worker.py",
        (
            (
                "            except Exception as error:\n                # Whatever",
                "            except Failed as error:\n                # Whatever",
            ),
        ),
        ("tests/engine/test_worker.py::test_whatever_a_handler_raises_is_its_tasks_failure",),
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
    Fault(
        "drops an outcome that cannot be stored",
        "a full disk makes a task that was done be done again",
        "engine/worker.py",
        (("            self._owed.append(owed)\n", "            pass\n"),),
        ("tests/engine/test_worker.py::test_an_outcome_the_disk_refused_is_stored_later",),
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
        _power("edit"),
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
        _power("edit"),
    ),
    Fault(
        "syncs no draft",
        "a power cut leaves an empty file in place of an acknowledged task",
        _DESK,
        (("                files.fsync(draft[1])\n", "                pass\n"),),
        _power("enqueue"),
    ),
    Fault(
        "syncs not where a new task stands",
        "a power cut takes an acknowledged task",
        _DESK,
        (("            self._confirm(pending, answers)\n", "            pass\n"),),
        _power("enqueue"),
    ),
    Fault(
        "syncs not where a task goes to",
        "a power cut undoes what was acknowledged",
        _DESK,
        (
            (
                "            assert state is not None\n            try:\n                self._folders[state].sync()",
                "            assert state is not None\n            try:\n                pass",
            ),
        ),
        _power("retry"),
    ),
    Fault(
        "syncs not what a task leaves",
        "a power cut leaves a task in two states at once",
        _DESK,
        (("        for state in left if self._durable else ():", "        for state in ():"),),
        _power("take, nack"),
    ),
    Fault(
        "syncs not what is removed for good",
        "a power cut brings an expunged task back",
        _DESK,
        (("        if gone and self._durable:", "        if False:"),),
        _power("expunge"),
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
        _power("enqueue, 3 together"),
    ),
    Fault(
        "swallows the disk's error",
        "a change that the disk refused is said to be done",
        _DESK,
        (
            (
                "            draft.error = _failure(draft.change.id, error)\n            self._undo(draft)",
                "            draft.error = None if isinstance(error, OSError) else _failure('', error)",
            ),
        ),
        _spool("test_a_killed_process_loses_nothing[edit]"),
    ),
    Fault(
        "swallows the last fsync's error",
        "a task is acknowledged that the disk does not have",
        _DESK,
        (("                    answers[at] = _unsure(folder, error)", "                    pass"),),
        ("tests/stores/test_durable_answers.py::test_no_fsync_may_fail_unsaid[enqueue-alone]",),
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
        "adds over what stands there",
        "a new task destroys one of the same id",
        _DESK,
        (("            if self.stands(ident):\n", "            if False:\n"),),
        ("tests/stores/test_conformance.py::test_an_id_is_given_only_once[nftban-pending]",),
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
        "completes another task than it claimed",
        "a task that took the place of a claimed one is removed undone",
        "engine/stores/nftban/spool.py",
        (
            (
                "            if files.revision(work.state_of(name)) == task.rev:",
                "            if work.state_of(name):",
            ),
        ),
        _spool("test_a_file_rewritten_in_place_is_gone"),
    ),
    Fault(
        "withdraws whatever is there",
        "a file that another program put there meanwhile is overwritten",
        _DESK,
        (("        if not files.same_file(seen, there):", "        if False:"),),
        _spool("test_a_file_replaced_as_we_grasp_it_is_put_back"),
    ),
    Fault(
        "claims whatever is there",
        "a task is run that was rewritten, and may not be due",
        _CLAIMS,
        (("        if not files.same_file(seen, there):", "        if False:"),),
        _spool("test_a_file_replaced_as_we_claim_it_is_given_back"),
    ),
    Fault(
        "claims what is being written",
        "a task runs without the fields that its writer has not come to",
        _CLAIMS,
        (("            if form.is_being_written(data, seen, now):", "            if False:"),),
        ("tests/stores/test_half_written.py::test_a_file_that_is_being_written_is_nobodys",),
    ),
    Fault(
        "moves what is being written",
        "what its writer adds to a file goes into one that is there no more",
        _DESK,
        (("        if form.is_being_written(draft.data, draft.seen, now):", "        if False:"),),
        ("tests/stores/test_half_written.py::test_a_file_that_is_being_written_is_nobodys",),
    ),
    Fault(
        "believes a hint for ever",
        "a task that came due is not found until another arrives",
        "engine/stores/nftban/hint.py",
        (("        fresh = written <= now < written + BELIEVED", "        fresh = True"),),
        ("tests/stores/test_nftban_take.py::test_a_hint_in_doubt_is_no_hint",),
    ),
    Fault(
        "grasps what another holds",
        "two processes move one task at once",
        _DESK,
        (("            if not files.claim_flock(fd):", "            if False:"),),
        _spool("test_a_file_in_somebodys_hand_is_gone"),
    ),
    Fault(
        "calls a draft a task",
        "the other program, which searches folders to any depth, runs half a file",
        _DESK,
        (
            (
                '        name = f"T.{ident}.{self._token}-{self._count}"',
                '        name = f"T.{ident}.{self._token}-{self._count}.task"',
            ),
        ),
        _spool("test_no_draft_is_ever_called_a_task"),
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
    Fault(
        "recovers whatever it finds as done",
        "a change that was not committed is carried out with the old text",
        _RECOVERY,
        ((" and zlib.crc32(data) == moving.crc:", ":"),),
        _spool("test_a_committed_move_is_finished_any_other_taken_back"),
    ),
    Fault(
        "sweeps drafts at once",
        "a draft that another process is writing is gone",
        _RECOVERY,
        (("            if old and files.claim_flock(fd) and", "            if"),),
        _spool("test_only_old_drafts_of_the_dead_are_litter"),
    ),
    Fault(
        "keeps second names for second tasks",
        "a task of which a power cut left two names can never be read again",
        _RECOVERY,
        (("            if self._has_second_name(fd, moving.id):", "            if False:"),),
        _power("take, unclaim"),
    ),
    Fault(
        "sets aside at once",
        "a file that the other program is just writing is taken from under its hands",
        _ASIDE,
        (("        if now - seen.st_ctime < UNCHANGED:", "        if False:"),),
        ("tests/stores/test_hostile.py::test_what_may_still_be_written_is_left",),
    ),
    Fault(
        "sets aside without a durable reason",
        "a power cut leaves a file of which nobody knows what it was",
        _ASIDE,
        (
            (
                "            files.fsync(fd)\n            self._folder.sync()\n        except",
                "        except",
            ),
        ),
        _power("set aside"),
    ),
)

_LOCKS, _HOLDER, _BREAKER = "engine/locks.py", "engine/holder.py", "engine/breaker.py"


def _locks(test: str) -> tuple[str, ...]:
    return (f"tests/engine/test_locks.py::{test}",)


def _breaker(test: str) -> tuple[str, ...]:
    return (f"tests/engine/test_breaker.py::{test}",)


LOCKING = (
    Fault(
        "locks as POSIX does",
        "the lock is gone as soon as its holder closes any other descriptor of the file",
        _FILES,
        (
            (
                "        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
                "        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            ),
        ),
        _locks("test_a_process_does_not_take_its_own_lock_twice"),
    ),
    Fault(
        "removes a stale lock to make it anew",
        "of two who break a lock at once, both have it",
        _LOCKS,
        (
            (
                "        claim = lockfile.claim_of_ours(os.urandom(_TOKEN).hex(), clock(), uptime())\n        _write(fd, claim)\n        if not",
                "        files.unlink(path)\n        claim = lockfile.claim_of_ours(os.urandom(_TOKEN).hex(), clock(), uptime())\n        _write(fd, claim)\n        if not",
            ),
        ),
        _breaker("test_a_stuck_holder_ends_at_sigterm"),
    ),
    Fault(
        "releases whatever lock is there",
        "a worker whose lock was taken away removes the next one's",
        _LOCKS,
        (
            (
                "            if _is_at(self.path, self.fd):\n                folder",
                "            if True:\n                folder",
            ),
        ),
        _locks("test_a_lock_that_was_taken_away_is_lost"),
    ),
    Fault(
        "ignores the other program's lock",
        "two programs work on one queue",
        _LOCKS,
        (("        if not there or pid == scene.here.pid:", "        if True:"),),
        _locks("test_the_real_programs_lock_is_respected"),
    ),
    Fault(
        "takes an empty lock at once",
        "a lock that is just being written is taken over",
        _LOCKS,
        (("    elif abs(now - since) <= WRITING:", "    elif False:"),),
        _locks("test_an_empty_lock_may_be_one_being_written"),
    ),
    Fault(
        "breaks the lock of somebody at work",
        "a healthy worker is ended in the middle of its task",
        _BREAKER,
        (
            (
                "            if evidence.verdict is not Verdict.STUCK:\n                raise",
                "            pass",
            ),
            (
                '(now.verdict, now.doubt, now.seen) == (Verdict.STUCK, "", seen)',
                '(now.doubt, now.seen) == ("", seen)',
            ),
        ),
        _breaker("test_a_holder_at_work_is_left_alone"),
    ),
    Fault(
        "kills by number",
        "a process that was given the holder's number meanwhile is killed",
        _BREAKER,
        (("signal.pidfd_send_signal(pidfd, number)", "os.kill(pid, number)"),),
        ("tests/engine/test_pid_reuse.py::test_a_number_given_away_before_the_signal_is_spared",),
    ),
    Fault(
        "believes a number without its start",
        "a process that was given the holder's number is taken for the holder",
        _HOLDER,
        (
            (
                "return named if named.hidden or named.started == mark.started else None",
                "return named",
            ),
        ),
        _breaker("test_a_number_that_was_given_away_is_nobodys"),
    ),
    Fault(
        "believes a lock of another boot",
        "after a restart a process with the old holder's number is signalled",
        _HOLDER,
        (("        if mark.boot != here.boot:", "        if False:"),),
        _breaker("test_a_lock_that_does_not_fit_its_holder_is_left_alone"),
    ),
    Fault(
        "believes a lock of another host",
        "a process with the number of a holder on another machine is signalled",
        _HOLDER,
        (("        if mark.host != here.host:", "        if False:"),),
        _breaker("test_a_lock_that_does_not_fit_its_holder_is_left_alone"),
    ),
    Fault(
        "believes whoever wrote the file",
        "a forged lock file has an innocent process ended",
        _HOLDER,
        (("    if process.taker is None:\n        yield", "    if False:\n        yield"),),
        _breaker("test_a_forged_lock_whose_flock_is_held_by_another_harms_nobody"),
    ),
    Fault(
        "ends who started it",
        "the shell or service that runs the recovery is ended by it",
        _HOLDER,
        (("    if pid in here.ancestors:", "    if False:"),),
        _breaker("test_we_do_not_end_who_started_us"),
        patience=15.0,
    ),
    Fault(
        "takes what hides for dead",
        "a holder of another user, whom we may not look into, has its lock taken from it",
        _HOLDER,
        (
            ('        return Process(pid, "/proc hides it from us")', "        return None"),
            ("        return process._replace(files_hidden=True)", "        raise"),
        ),
        _locks("test_a_process_that_may_not_be_signalled_lives"),
    ),
    Fault(
        "takes the dead for living",
        "a holder that nobody has waited for keeps its lock for good",
        _HOLDER,
        (
            (
                "        if has_ended(pidfd):\n            return None\n        # While",
                "        # While",
            ),
        ),
        ("tests/engine/test_holder.py::test_who_has_ended_is_not_there",),
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
    Fault(
        "measures silence by the date",
        "a clock set ahead makes every healthy worker stuck",
        _HOLDER,
        (("    if mark is not None and mark.boot == scene.here.boot:", "    if False:"),),
        _breaker("test_a_clock_that_jumps_makes_nobody_stuck"),
    ),
)

_JOURNAL, _PEN = "engine/journal.py", "engine/pen.py"
_UNDO, _OPERATIONS = "engine/undo.py", "engine/operations.py"
_T_DEEDS = "tests/crash/test_deeds.py"


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
        (f"{_T_DEEDS}::test_a_power_cut_leaves_what_tells_and_takes_back[purge]",),
    ),
    Fault(
        "changes what was not kept durably",
        "a power cut leaves tasks changed, and what they were is lost",
        _PEN,
        (("            files.fsync(self._before)\n", ""),),
        (f"{_T_DEEDS}::test_a_power_cut_leaves_what_tells_and_takes_back[retry]",),
    ),
    Fault(
        "says done what may be undone",
        "a task whose move the disk did not confirm is told, and written down, as done",
        _OPERATIONS,
        (
            (
                "                if error is None:\n                    ended",
                "                if error is None or isinstance(error, Unavailable):\n                    ended",
            ),
        ),
        (f"{_T_DEEDS}::test_at_every_point_the_journal_tells_the_truth[purge]",),
    ),
    Fault(
        "acts on what was left out",
        "a task that the operator left out is purged with the others",
        "engine/plans.py",
        (("        if row.id in self.left_out:", "        if not row.id:"),),
        ("tests/engine/test_undo.py::test_the_journal_tells_what_was_done",),
    ),
    Fault(
        "forgets what was left out",
        "going on with an interrupted purge purges what the operator had left out",
        _PEN,
        (
            (
                "    excluded = [Ended(row, End.EXCLUDED, why) for row, why in plan.excluded]\n    lines",
                "    excluded: list[Ended] = []\n    lines",
            ),
        ),
        _journal("test_cut_off_anywhere_it_says_no_more_than_was_durable"),
    ),
    Fault(
        "takes back what changed since",
        "an undo overwrites what somebody edited meanwhile",
        _UNDO,
        (('return "" if task.rev == rev else', 'return "" if task.rev else'),),
        _operations("test_an_undo_among_rivals_takes_nothing_from_them"),
    ),
    Fault(
        "takes back without an image",
        "an undo makes a dead task up: its attempts and its error are gone",
        _OPERATIONS,
        (
            (
                "            raise Unsupported(NOT_KEPT)\n",
                "            return Move(task, moved(task, row.end))\n",
            ),
        ),
        _operations("test_without_its_image_nothing_is_taken_back"),
    ),
    Fault(
        "settles what still runs",
        "two consoles write down different outcomes of one operation",
        _JOURNAL,
        (
            (
                "            files.Flock(fd, MOMENT).__enter__()\n            end_torn",
                "            end_torn",
            ),
        ),
        _journal("test_nobody_else_writes_while_it_runs"),
    ),
    Fault(
        "claims what another did",
        "an interrupted operation counts the tasks of the one that went on with it",
        _UNDO,
        (
            (
                '        return f"another operation did it ({op})" if op else ""',
                '        return ""',
            ),
        ),
        _operations("test_what_another_operation_did_is_not_claimed"),
    ),
    Fault(
        "judges what is being moved",
        "a task that a crash left on the desk is written down as gone, and comes back",
        _UNDO,
        (
            (
                "    if not (tasks or missing) or row.id in evidence.in_work:",
                "    if row.id in evidence.in_work:",
            ),
        ),
        _operations("test_what_lies_on_the_desk_is_not_judged"),
    ),
    Fault(
        "writes where nobody reads",
        "a plan goes on although its journal was removed, and cannot be taken back",
        _PEN,
        (
            (
                "        if there is None or (there.st_dev",
                "        if there is not None and (there.st_dev",
            ),
            ("!= (ours.st_dev, ours.st_ino):", "== (0, 0):"),
        ),
        _journal("test_a_journal_that_is_removed_is_noticed"),
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
        _post("test_the_marks_frame_the_attempt"),
    ),
    Fault(
        "sends what was sent",
        "a mail whose task comes back arrives twice",
        _POST,
        (("        if spooled.sent is not None:", "        if False:"),),
        _post("test_what_was_sent_is_not_sent_again"),
    ),
    Fault(
        "forgets a doubt",
        "a mail that a silent transport took arrives twice, and nobody is told",
        _POST,
        (("            if not failure.doubtful:", "            if True:"),),
        _post("test_an_attempt_without_an_answer_leaves_its_doubt"),
    ),
    Fault(
        "asks again after a refusal for good",
        "a server is asked three times for a user that it does not know",
        _POST,
        (("            if failure.permanent or made == most", "            if made == most"),),
        _post("test_a_refusal_for_good_is_not_retried"),
    ),
    Fault(
        "uses what is suspended",
        "mail goes by a transport that an operator has stopped",
        "engine/mail/transports/__init__.py",
        (("            if why is None and name in suspended:", "            if False:"),),
        ("tests/mail/test_ways.py",),
    ),
    Fault(
        "believes who did not read",
        "a mail that a program never read is taken for sent",
        "engine/mail/reasons.py",
        (("        if not ran.unread:", "        if True:"),),
        ("tests/mail/test_reasons.py::test_a_program_that_did_not_read_has_not_sent",),
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
        "counts before it moves",
        "a mail in the trash has the attempts of an undo that never happened",
        f"{_K}/desk.py",
        (
            (
                "            start = STATES[link.state]",
                "            start = self._spool.states[link.state].word",
            ),
        ),
        (
            "tests/stores/test_kannader_killed.py::test_a_killed_process_loses_nothing[undo a purge]",
        ),
    ),
    Fault(
        "leaves half a mail enqueued",
        "a recipient gets a mail that its sender was told had failed",
        f"{_K}/enqueuing.py",
        (("            files.unlink(ident, dir_fd=queue)", "            pass"),),
        (f"{_T_KANNADER}::test_a_full_disk_at_the_second_link_takes_back_the_first",),
    ),
    Fault(
        "moves a mail before its schedule",
        "killed in between, a mail that has just failed is sent again at once",
        f"{_K}/desk.py",
        (
            (
                "                drafts.put()\n                self._move(link, target)",
                "                self._move(link, target)\n                drafts.put()",
            ),
        ),
        (f"{_T_KANNADER}::test_the_new_schedule_is_written_before_the_link_moves_back",),
    ),
    Fault(
        "erases what is nobody's",
        "a file that somebody put beside a mail's own goes with it",
        f"{_K}/erasing.py",
        (
            (
                "            if name not in order and not form.is_draft(name):",
                "            if False:",
            ),
        ),
        (f"{_T_KANNADER}::test_what_is_nobodys_is_not_erased",),
    ),
    Fault(
        "believes any link",
        "a link in a spool makes us read and erase what lies outside it",
        f"{_K}/form.py",
        (
            (
                '_link = re.compile(rf"\\.\\./data/({_UUID})/({_UUID})").fullmatch',
                '_link = re.compile(rf"data/({_UUID})/({_UUID})").search',
            ),
        ),
        ("tests/stores/test_kannader_form.py::test_a_link_that_leads_elsewhere_is_refused",),
    ),
    Fault(
        "requeues what is being sent",
        "a mail that another process is sending is sent a second time",
        f"{_K}/recovery.py",
        ((" or now - link.seen.st_ctime <= INFLIGHT_DELAY:", ":"),),
        (f"{_T_SAMPLES}::test_what_was_in_flight_counts_as_an_attempt",),
    ),
    Fault(
        "takes mails from a living Kannader",
        "a mail that it is sending goes back into the queue, and is sent twice",
        f"{_K}/store.py",
        (("        if foreign and self.kannaders:", "        if False:"),),
        (f"{_T_KANNADER}::test_what_a_living_kannader_may_be_sending_is_left",),
    ),
    Fault(
        "says other than it does",
        "an operator agrees to less than recovery then does",
        f"{_K}/recovery.py",
        (("            self._planned.add(found.where)", "            pass"),),
        (f"{_T_SAMPLES}::test_recovery_knows_the_whole_catalogue[bad6]",),
    ),
)

LEASING = (
    Fault(
        "keeps what a dead maker left",
        "a queue whose making was interrupted can never be made",
        f"{_Z}/schema.py",
        ((" or not _holds_nothing(path):", " or True:"),),
        ("tests/stores/test_zgb_crash.py::test_whoever_dies_making_a_queue_keeps_nobody_from_it",),
    ),
    Fault(
        "claims for nothing",
        "more mails are sent than the host allows",
        f"{_Z}/taking.py",
        (("        self._write(wire, spent)", "        self._write(wire, current)"),),
        (f"{_T_ZGB}::test_each_attempt_costs_a_token",),
    ),
    Fault(
        "finishes another's claim",
        "a worker whose lease has lapsed deletes the job that another one is sending",
        f"{_Z}/row.py",
        (("(*self[:5], self.locked)", "self[:4]"),),
        (f"{_T_ZGB}::test_a_late_outcome_touches_nothing",),
    ),
    Fault(
        "deletes however many orphans",
        "registrations that are gone for a moment take the whole queue with them",
        f"{_Z}/taking.py",
        (("    if counted.too_many and not asked:", "    if False:"),),
        (f"{_T_ZGB}::test_too_many_orphans_are_asked_about",),
    ),
    Fault(
        "deletes orphans as it claims",
        "registrations that vanish while a run claims take the whole queue with them",
        f"{_Z}/taking.py",
        (
            (
                "                self._passed.add(row.key)",
                '                wire.change("DELETE FROM mail_queue WHERE rowid = ?", (row.key,))',
            ),
        ),
        (
            "tests/stores/test_zgb_laws.py::"
            "test_orphans_of_a_table_that_is_emptied_meanwhile_are_asked_about",
        ),
    ),
    Fault(
        "gives a job to the number's next owner",
        "what is taken back sends somebody another's confirmation",
        f"{_Z}/moving.py",
        (("        if kept.registration and now != kept.registration:", "        if False:"),),
        (f"{_T_ZGB}::test_a_number_that_was_given_out_again_keeps_an_old_job_out",),
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
        ("tests/stores/test_zgb_crash.py::test_whoever_dies_leaves_a_whole_queue[hold-delete]",),
    ),
    Fault(
        "ends a lease with summer time",
        "a mail that is being sent when clocks are set back is sent again by the next run",
        f"{_Z}/times.py",
        (("        if local.fold and now < seconds and not", "        if False and not"),),
        ("tests/stores/test_zgb_database.py::test_a_lease_outlives_the_end_of_summer_time",),
    ),
    Fault(
        "opens whatever is there",
        "a FIFO in the place of a database stops a console for good",
        f"{_Z}/wire.py",
        (("        if not stat.S_ISREG(before.st_mode):", "        if False:"),),
        (f"{_T_HOSTILE}::test_only_a_plain_file_is_a_database[fifo-False]",),
    ),
    Fault(
        "puts aside beside the link",
        "who reaches the database by another name does not see what is held, nor gets it back",
        f"{_Z}/place.py",
        (("{os.path.realpath(self.path)}", "{self.path}"),),
        (f"{_T_HOSTILE}::test_a_link_to_it_is_the_same_queue",),
    ),
)

_SMTP, _T_SMTP = "engine/mail/smtp.py", "tests/engine/test_smtp_handler.py"

POSTING = (
    Fault(
        "sends what ends before its end",
        "who may send one mail has another sent by whomever they name",
        "engine/mail/wire.py",
        (("    if 0 <= alone < size - len(END):", "    if False:"),),
        (f"{_T_SMTP}::test_what_is_not_in_wire_form_reaches_no_server",),
    ),
    Fault(
        "tells a server any address",
        "an address that holds a line's end is a command",
        _SMTP,
        (("    if not address.isprintable() or not _ADDRESS(address):", "    if False:"),),
        (f"{_T_SMTP}::test_no_address_holds_another_command",),
    ),
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
    Fault(
        "tells a password in the clear",
        "whoever listens on the way to a relay has its password",
        _SMTP,
        (("        if self.user and plain:", "        if False:"),),
        (f"{_T_SMTP}::test_a_password_is_told_nobody_in_the_clear",),
    ),
    Fault(
        "believes any certificate",
        "whoever stands between us and a relay reads all mail",
        _SMTP,
        (("    if to.encryption == OPPORTUNISTIC:", "    if True:"),),
        (f"{_T_SMTP}::test_a_server_that_nobody_vouches_for_is_told_nothing",),
    ),
    Fault(
        "answers bounces",
        "two mail systems return one mail to each other for ever",
        "engine/mail/bounce.py",
        (('    if mail.sender in ("", "<>"):', "    if False:"),),
        ("tests/mail/test_bounce.py::test_nobody_is_told_of_a_bounce_that_was_not_delivered",),
    ),
    Fault(
        "returns a mail whenever it is given up",
        "a disk that refuses an outcome fills the sender's mailbox with bounces",
        "tui/cli/kannader.py",
        (('seed=f"bounce of {task.id}"', 'seed=""'),),
        (
            "tests/tui/test_kannader_cli.py::"
            "test_a_mail_is_returned_once_however_often_it_is_given_up",
        ),
    ),
)

FAULTS: tuple[Fault, ...] = (
    *(*READING, *WRITING, *COUNTING, *MOVING, *RUNNING, *LOCKING, *ACTING, *MAILING),
    *(*LINKING, *LEASING, *POSTING),
)
"""All of them, in the order in which they are listed."""
