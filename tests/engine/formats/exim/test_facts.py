"""Facts and warnings about a real Exim, and what the doctor finds there."""

from __future__ import annotations

from pathlib import Path

from engine.formats.exim import facts, rules
from engine.formats.exim.facts import LastListing, QueueCounts
from engine.formats.exim.place import check_place, find_exim
from engine.places.place import WholeQueueFigures
from tests.engine.formats.exim.exim_places import setup_of, tasks_of
from tests.exim_server import EximServer


def figures_of(exim: EximServer, state: Path, counts: QueueCounts | None) -> WholeQueueFigures:
    """The facts of this moment."""
    return facts.read_figures(find_exim(setup_of(exim, state)), counts)


def test_no_daemon_is_a_warning(exim: EximServer, state: Path) -> None:
    """Without a daemon it is stopped; with one, its PID and the time between queue runs are
    shown."""
    without = figures_of(exim, state, QueueCounts(waiting=12))
    pid = exim.start("17m")
    running = figures_of(exim, state, None)

    assert without.server is not None and running.server is not None
    assert without.server.describe(12, 0.0) == "no Exim daemon runs: 12 wait"
    assert without.warnings == ()
    assert without.has_worker is False
    assert running.warnings == ()
    assert running.server.describe(None, 0.0) == f"Exim delivers: running, PID {pid}"
    assert running.workers == ()  # it is behind a prefix: the PID is none of this host
    assert dict(running.rows)["queue run"] == "every 17m"
    assert dict(running.rows)["frozen"] == "? (not listed yet)"


def test_a_daemon_is_found_without_its_pid_file(exim: EximServer, state: Path) -> None:
    """A daemon whose PID file is missing is found by its program."""
    pid = exim.start()
    (exim.spool / "exim.pid").unlink()

    server = figures_of(exim, state, None).server
    assert server is not None and server.pid == pid


def test_settings_and_logs_are_warnings(exim: EximServer, state: Path) -> None:
    """queue_only, a load limit, the panic log and too little space are warnings."""
    exim.configure("queue_only\nqueue_only_load = 0\ncheck_spool_space = 4000000G\n")
    exim.start()
    (exim.log.parent / "paniclog").write_text("first\n2026-11-29 10:00:00 last\x1b[2J line\n")

    warnings = figures_of(exim, state, None).warnings

    assert any(one.startswith("queue_only is set") for one in warnings)
    assert any("is above queue_only_load = 0" in one for one in warnings)
    (panic,) = (one for one in warnings if "paniclog is not empty" in one)
    assert "last" in panic and "\x1b" not in panic
    assert any("Exim takes no mail" in one for one in warnings)


def test_a_listing_is_counted(exim: EximServer, state: Path) -> None:
    """The last listing of the process has the numbers of frozen, bounced and trashed messages."""
    exim.configure("timeout_frozen_after = 2h\n")
    _, frozen, trashed = exim.submit(number=3)
    (bounce,) = exim.submit(sender="")
    exim.run("-Mf", frozen, bounce)
    exim.run("-MG", "spooldeck-trash", trashed)
    setup = setup_of(exim, state)
    store = setup.open_store()
    assert len(tasks_of(store)) == 4
    store.close()

    counts = setup.settings.listing.counts

    assert counts == QueueCounts(
        waiting=1, frozen=2, bounces=1, ending=2, trashed=1, overdue=0, by_hand=1
    )
    warnings = figures_of(exim, state, counts).warnings
    assert any("1 message frozen" in one for one in warnings)
    assert any("2 frozen messages cancelled or thawed by Exim" in one for one in warnings)
    assert any("1 message in the trash queue moved by hand" in one for one in warnings)


def test_counts_of_records() -> None:
    """A message that we moved to the trash is overdue after its hours."""
    listing = LastListing()
    record = b"\t%d\tspooldeck\t\t\t\nt12\t\ta@b.test\nc@d.test"

    listing.count({"a": record % 1000}, rules.HoldLimits(0, 0, 0), 24, 1000 + 25 * 3600)

    assert listing.counts == QueueCounts(trashed=1, overdue=1)


def test_the_doctor(exim: EximServer, state: Path) -> None:
    """The doctor checks prefix, program, rights, trash queue, daemon, log and settings."""
    exim.configure("timeout_frozen_after = 7d\nlog_selector = +arguments\n")
    exim.submit()
    findings = [*check_place(setup_of(exim, state))]

    texts = [f"{finding.grade} {check}: {finding.problem}" for check, finding in findings]
    assert any(one.startswith("ok program: Exim 4") for one in texts)
    assert "bad daemon: no Exim daemon runs" in texts
    assert "ok rights: an admin user of Exim" in texts
    assert any("timeout_frozen_after 7d" in one for one in texts)
    assert any(one.startswith("warn log: log_selector has +arguments") for one in texts)


def test_a_user_without_rights_is_named_by_the_doctor(exim: EximServer, state: Path) -> None:
    """The rights that are missing are a finding, not a failure."""
    setup = setup_of(exim, state)
    words = (*exim.prefix, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    setup = setup._replace(config=setup.config._replace(via={"jail": words}))

    findings = dict(check_place(setup))

    assert "only root and Exim's admin_groups" in findings["rights"].fix
