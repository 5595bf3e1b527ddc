"""Facts and warnings about a real Exim, and what the doctor finds there."""

from contextlib import closing

from engine.formats.exim import facts, rules
from engine.formats.exim.facts import LastListing, QueueCounts
from engine.formats.exim.place import check_place, find_exim
from engine.model import State
from engine.places.place import WholeQueueFigures
from engine.programs.prefix import Prefix
from tests.engine.formats.exim.exim_places import USER, a_prefix, open_by, setup_of
from tests.exim_server import EximServer, Sink
from tests.store_contents import tasks_in
from tests.tables import each


def figures_of(exim: EximServer, counts: QueueCounts | None) -> WholeQueueFigures:
    """The facts of this moment."""
    place = find_exim(setup_of(exim))
    return facts.describe_facts(place, facts.read_host(place, counts), counts)


def test_no_daemon_is_a_warning(exim: EximServer) -> None:
    """Without a daemon it is stopped; with one, its PID and the queue runs are shown."""
    without = figures_of(exim, QueueCounts(waiting=12))
    pid = exim.start("17m")
    running = figures_of(exim, None)
    assert without.server is not None and running.server is not None
    assert without.server.describe(12, 0.0) == "no Exim daemon runs: 12 wait"
    assert (without.warnings, without.has_worker, running.warnings) == ((), False, ())
    assert running.server.describe(None, 0.0) == f"Exim delivers: running, PID {pid}"
    assert running.workers == ()  # it is behind a prefix: the PID is none of this host
    rows = dict(running.rows)
    assert (rows["queue run"], rows["frozen"]) == ("every 17m", "? (not listed yet)")


def test_without_root_a_daemon_without_its_pid_file_is_unknown(exim: EximServer) -> None:
    """Only root sees which program a process runs: not to see one proves nothing."""
    exim.configure("admin_groups = staff\n")
    pid = exim.start()
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--groups=staff")
    place, by_root = find_exim(setup_of(exim, *user)), find_exim(setup_of(exim))
    assert (place.refusal, place.list_refusal) == ("", "")
    assert facts.server_state(facts.find_daemon(place)).pid == pid
    (exim.spool / "exim.pid").unlink()
    server = facts.server_state(facts.find_daemon(place))
    assert (server.is_running, server.why) == (None, "its processes cannot be read")
    assert facts.server_state(facts.find_daemon(by_root)).pid == pid


def test_settings_and_logs_are_warnings(exim: EximServer) -> None:
    """queue_only, a load limit, the panic log and too little space are warnings."""
    exim.configure("queue_only\nqueue_only_load = 0\ncheck_spool_space = 4000000G\n")
    exim.start()
    (exim.log.parent / "paniclog").write_text("first\n2026-11-29 10:00:00 last\x1b[2J line\n")
    warnings = figures_of(exim, None).warnings
    for text in ("queue_only is set", "is above queue_only_load = 0", "Exim takes no mail"):
        assert any(text in one for one in warnings)
    (panic,) = (one for one in warnings if "paniclog is not empty" in one)
    assert "last" in panic and "\x1b" not in panic


def test_hosts_in_trouble_are_named(exim: EximServer) -> None:
    """While mail waits; without the right to the database they are unknown."""
    shut, grey = Sink("127.0.0.4"), Sink("127.0.0.5", "450 4.7.1 greylisted")
    exim.configure(sinks=[("shut.example.test", shut), ("grey.example.test", grey)])
    counts = QueueCounts(waiting=2)
    assert dict(figures_of(exim, counts).rows)["hosts"] == "none"
    shut.close()
    for domain in ("shut", "grey"):
        (ident,) = exim.submit(recipients=[f"a@{domain}.example.test"])
        exim.run("-M", ident)
    figures = figures_of(exim, counts)
    row = dict(figures.rows)["hosts"]
    assert row in figures.warnings
    assert row.startswith("2 hosts in trouble: ") and "; next try in " in row
    assert "127.0.0.4" in row and "grey.example.test" in row
    assert "hosts" not in dict(figures_of(exim, QueueCounts()).rows)
    place = find_exim(setup_of(exim))
    other = place._replace(prefix=Prefix("jail", (*exim.prefix, *USER)))
    assert "Permission denied" in facts.read_hosts(other)[0]


def test_a_listing_is_counted(exim: EximServer) -> None:
    """The last listing of the process has the numbers of frozen, bounced and trashed messages."""
    exim.configure("timeout_frozen_after = 2h\n")
    _, frozen, trashed = exim.submit(number=3)
    (bounce,) = exim.submit(sender="")
    exim.run("-Mf", frozen, bounce)
    exim.run("-MG", "spooldeck-trash", trashed)
    setup = setup_of(exim)
    with closing(setup.open_store()) as store:
        assert len(tasks_in(store)) == 4
    counts = setup.settings.listing.counts
    expected = QueueCounts(waiting=1, frozen=2, bounces=1, ending=2, trashed=1, by_hand=1)
    assert counts == expected._replace(overdue=0)
    figures = figures_of(exim, counts)
    warnings = figures.warnings
    assert dict(figures.rows)["frozen"] == "2, of these 1 bounce"
    assert any("1 message frozen" in one for one in warnings)
    assert "2 frozen, ended by Exim within 24h: X to its trash queue" in warnings
    assert "1 in the trash queue moved by hand: never deleted" in warnings


def test_counts_of_records() -> None:
    """A message that we moved to the trash is overdue after its hours."""
    listing = LastListing()
    record = b"\t%d\tspooldeck\t\t\t\nt12\t\ta@b.test\nc@d.test"
    listing.count({"a": record % 1000}, rules.HoldLimits(0, 0, 0), 24, 1000 + 25 * 3600)
    assert listing.counts == QueueCounts(trashed=1, overdue=1)


def test_the_doctor(exim: EximServer) -> None:
    """The doctor checks prefix, program, rights, trash queue, daemon, log and settings; missing
    rights, and a name that `via` does not have, are findings, not failures."""
    exim.configure("timeout_frozen_after = 7d\nlog_selector = +arguments\n")
    exim.submit()
    findings = check_place(setup_of(exim))
    texts = [f"{finding.grade} {check}: {finding.problem}" for check, finding in findings]
    assert {"bad daemon: no Exim daemon runs", "ok rights: an admin user of Exim"} <= {*texts}
    for start in ("ok program: Exim 4", "warn log: log_selector has +arguments"):
        assert any(one.startswith(start) for one in texts)
    assert any("timeout_frozen_after 7d" in one for one in texts)
    rights = dict(check_place(setup_of(exim, *USER)))["rights"]
    assert "only root and Exim's admin_groups" in rights.fix
    setup = setup_of(exim)
    setup = setup._replace(address=setup.address._replace(text="exim://other/var/spool/exim4"))
    ((check, finding),) = check_place(setup)
    assert check == "program" and "jail" in finding.problem


def test_the_doctor_warns_of_a_daemon_without_queue_runs(exim: EximServer) -> None:
    """Such a daemon takes mail, and tries none a second time; one with them is no warning."""
    for interval, warnings in (("", 1), ("30m", 0)):
        pid = exim.start(interval)
        found = [one for check, one in check_place(setup_of(exim)) if check == "daemon"]
        assert found[0].problem.startswith(f"PID {pid}")
        assert [one.problem for one in found[1:]] == ["no process has -q with a time"] * warnings
        exim.stop()


@each(
    ("log", "warning"),
    [
        ("10:00:00 Start queue run: pid=1\n10:05:00 x\n", ""),
        ("10:00:00 Start queue run: pid=1\n11:05:00 x\n", "no queue run for 1h05m"),
        ("10:00:00 x\n10:59:00 x\n", ""),
        ("09:00:00 x\n10:01:00 x\n", "no queue run for 1h01m"),
        ("", ""),
    ],
)
def test_a_queue_runner_that_stopped_is_a_warning(exim: EximServer, log: str, warning: str) -> None:
    """Without a queue run in twice its interval there is a warning; a short log proves nothing."""
    exim.log.write_text("".join(f"2026-11-29 {line}\n" for line in log.splitlines()))
    place = find_exim(setup_of(exim))._replace(refusal="")
    written = exim.log.stat().st_mtime
    texts = [*facts.log_warnings(place, 1800.0, written)]
    assert [one.partition(",")[0] for one in texts] == [warning] * bool(warning)
    silent = [*facts.log_warnings(place, 1800.0, written + 7200)]
    assert bool(silent) is bool(log)


def test_a_log_that_cannot_be_read_is_a_warning(exim: EximServer) -> None:
    """With the reason; the output of a container is not read, which would wait for ever."""
    exim.submit()
    place = find_exim(setup_of(exim))
    other = place._replace(helpers=Prefix("jail", (*exim.prefix, *USER)))
    container = place._replace(settings={**place.settings, "log_file_path": "/dev/stdout"})
    for readable in (place, container):
        assert [*facts.log_warnings(readable, None, 0.0)] == []
    (warning,) = facts.log_warnings(other, 1800.0, 0.0)
    assert warning.startswith("log unreadable: tail: ") and "Permission denied" in warning
    assert container.log_paths("panic") == ()


def test_an_exim_without_named_queues_purges_nothing(exim: EximServer) -> None:
    """If -MG is not known, purge is refused with the version, and all else works."""
    exim.submit()
    answer = "echo 'exim abandoned: unknown, malformed, or incomplete option -MG' >&2; exit 1"
    with closing(open_by(a_prefix(exim, f"*' -MG '*) {answer}"), exim.state)) as store:
        (task,) = tasks_in(store).values()
        refusal = store.edges[State.PENDING, State.TRASH].refusal
        assert refusal.startswith("Exim 4.") and "unknown, malformed" in refusal
        assert store.swap(task, task._replace(state=State.HELD))
