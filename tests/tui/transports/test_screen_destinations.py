"""Destinations on screen and in `destinations`: their state and tasks; retry, block and probe."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.config.place_address import parse_address
from engine.config.queue_config import Config
from engine.destinations.destination import Destination
from engine.destinations.sql_registry import SqlRegistry
from engine.destinations.watch import NO_TASKS, DestinationState, SeenDestination
from engine.formats.base.destination_controls import place_destinations
from engine.formats.bullmq.federation.jobs import POST, delivery_job
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.formats.bullmq.watch import URL_FIELDS
from engine.formats.known_formats import setup_for
from engine.model import State, Task
from engine.monitor.transport_health import MailHealth
from engine.operations.journal import Journal
from engine.places.place import Place
from engine.store import Unavailable
from tests.bullmq_jobs import write_failed
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_operator import words as text_of
from tests.console_places import NOW, a_memory, a_place, a_task
from tests.nftban_queues import Run
from tests.redis_server import TestServer
from tests.tables import each
from tui.confirm.action_screen import ActionScreen
from tui.operations.screen import OperationsScreen
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.target import Target
from tui.task.screen import TaskScreen
from tui.text import keys
from tui.transports.destination_lines import brief_lines, detail_lines
from tui.transports.mixed_table import MAX_ROWS, sending_rows, table
from tui.transports.screen import TransportsScreen
from tui.widgets.line_widgets import LongText

DOWN, FINE, SHUT, NEW = (f"https://{name}.example" for name in ("down", "fine", "shut", "new"))
KEY = "A" * 43 + "="
SHA = "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"

ILL = {"healthy": False, "reason": "REFUSED", "since": NOW - 720, "last_failure": NOW - 60}
KEYS = {"publicKey": KEY, "x": {"publicKey": 1}}
KNOWN = (
    Destination(DOWN, probes=2, next_probe=NOW + 480, **ILL),  # type: ignore[arg-type]
    Destination(FINE, since=NOW - 300, last_success=NOW - 7, extra=KEYS),
    Destination(SHUT, "spam \x1b[31m", NOW - 7200),
)


def delivery(number: int, to: str, error: str = "") -> Task:
    """A task that is a delivery; with an error it is dead."""
    state = State.DEAD if error else State.PENDING
    return a_task(number, state, destination=to, error=error, kind="deliver")


TASKS = [
    *(delivery(n, DOWN) for n in range(3)),
    *(delivery(n, DOWN, "[REFUSED] down.example: Connection refused") for n in (3, 4)),
    delivery(5, DOWN, "no code"),
    *(delivery(n, FINE, "[TIMEOUT] fine.example") for n in (6, 7)),
    delivery(8, FINE, "[HTTP_404] fine.example: Not Found"),
    delivery(9, NEW),
    delivery(10, "ann@fine.example"),
]


class Deliveries:
    """A place with deliveries in memory, and a registry in SQLite."""

    def __init__(self, folder: Path, known: tuple[Destination, ...] = KNOWN) -> None:
        self.memory = a_memory(TASKS)
        address = parse_address(f"sqlite://{folder}/destinations.db")
        self.registry = SqlRegistry(address, creates=True)
        for one in known:
            self.registry.swap(None, one)
        spool = folder / "spool"
        (spool / "queue" / "pending").mkdir(parents=True)
        setup = setup_for(Config(destinations=address), str(spool), {})
        self.journal = Journal(f"{setup.state_folder}/journal", setup.queue.root)
        operator = place_destinations(setup, lambda: NOW)
        assert operator is not None
        self.destinations = operator._replace(tasks_unknown="")

    def place(self, **fields: Any) -> Place:
        """The place."""
        return a_place(self.memory, destinations=self.destinations, journal=self.journal, **fields)

    def close(self) -> None:
        """Close the connections to the registry."""
        self.registry.close()
        self.destinations.close()

    async def now(self, origin: str) -> Destination:
        """What the registry has of a destination."""
        return await asyncio.to_thread(self.registry.get, origin)

    @asynccontextmanager
    async def screen(
        self, on: str, size: tuple[int, int] = (80, 24), **fields: Any
    ) -> AsyncIterator[ConsoleOperator]:
        """The transports screen, with the cursor on a destination."""
        async with an_operator(self.place(**fields), size=size) as operator:
            operator.console.navigator.goto(Target(keys.TRANSPORTS))
            await operator.opens(TransportsScreen)
            await operator.until(lambda: on.partition("://")[2] in operator.rows)
            operator.picker.select_key(on)
            yield operator


@pytest.fixture
def deliveries(tmp_path: Path) -> Iterator[Deliveries]:
    """One destination each that is down, healthy again, blocked and new."""
    found = Deliveries(tmp_path)
    yield found
    found.close()


async def test_each_destination_is_a_row_with_its_tasks(deliveries: Deliveries) -> None:
    """The worst first, with tasks, ages and reason; details have codes and fingerprints. R plans
    exactly the dead tasks of the destination, paced; Enter lists them."""
    async with deliveries.screen(DOWN, size=(120, 40)) as operator:
        await operator.until(lambda: "REFUSED 2, other 1" in operator.rows)  # the tasks are counted
        await operator.sees("last failed 09:41:08Z (1m ago), a task or a probe")
        first, *rows = [line.replace("!", " ").split() for line in operator.rows.splitlines()]
        assert first[:4] == ["down.example", "UNHEALTHY", "3", "3"]
        assert " ".join(first).endswith("REFUSED 12m ago, probe in 8m REFUSED 2, other 1")
        others = ["fine.example OK", "shut.example BLOCKED", "new.example unused"]
        assert [" ".join(row[:2]) for row in rows] == others
        await operator.sees("next probe", "after 2 probes", "3 need attention")
        operator.picker.select_key(FINE)
        await operator.sees(
            f"{SHA[:16]}... (y copies it)",
            "3: TIMEOUT 2, HTTP_404 1",
            "R sends 3 failed again",
        )
        operator.picker.select_key(SHUT)
        await operator.sees("spam \ufffd[31m", "S unblocks it")
        operator.assert_inert()
        await operator.press("tab")
        assert operator.console.screen.query_one(LongText).has_class("-focused")
        operator.picker.select_key(DOWN)
        await operator.step("R", PlanScreen, "REPLAY 3 TASKS", "dest=https://down.example")
        await operator.opens(TransportsScreen, "escape")
        await operator.step("enter", QueueScreen, "of 6", "https://down.example")


async def test_the_newest_log_lines_of_a_destination_come_first(
    deliveries: Deliveries, tmp_path: Path
) -> None:
    """So those that fit are of its last failures, with their errors: the kind is not said twice."""
    error = "[REFUSED] down.example: Connection refused"
    text = "[2026-11-20 09:{:02}:00] [ERROR] Task failed: mail/{} (mail): {}\n"
    log = tmp_path / "queue.log"
    log.write_text("".join(text.format(n, n, error) for n in range(20)))
    async with deliveries.screen(DOWN, logs=(str(log),)) as operator:
        await operator.sees("Log, newest first", "Task failed: mail/19: [REFUSED]")
        lines = operator.text.splitlines()
        at = next(n for n, line in enumerate(lines) if "Log, newest first" in line)
        assert ["mail/19:" in lines[at + 1], "mail/18:" in lines[at + 2]] == [True, True]


async def test_a_block_is_journaled_and_undone(deliveries: Deliveries) -> None:
    """S blocks with a reason; u on the operation plans the unblock. A destination that another
    operator blocked meanwhile is left as it is. O sets the next probe of an unhealthy destination
    to now; a healthy one has none."""
    async with deliveries.screen(FINE) as operator:
        await operator.step("O", "is healthy: nothing to probe")
        await operator.opens(ActionScreen, "S")
        await operator.sees("nothing is delivered to it until it is unblocked", "not blocked")
        await operator.press("tab", *"moved", "enter")
        await operator.opens(TransportsScreen, "y")
        await operator.until(lambda: "BLOCKED" in operator.rows.splitlines()[1])
        assert (await deliveries.now(FINE)).blocked == "moved"
        await operator.step("u", OperationsScreen, f"block {FINE}")
        await operator.step("u", ActionScreen, "deliveries go to it again", "blocked: moved")
        await operator.step("y", OperationsScreen, f"unblock {FINE}"[:20], "u undo")
        assert not (await deliveries.now(FINE)).blocked

        await operator.opens(TransportsScreen, "escape")
        operator.picker.select_key(DOWN)
        await operator.step(
            "O", ActionScreen, "unhealthy: REFUSED; probe at", "it cannot be undone"
        )
        await operator.opens(TransportsScreen, "y")
        await operator.until(lambda: "probe now" in operator.rows)
        assert (await deliveries.now(DOWN)).next_probe == NOW

        await operator.opens(ActionScreen, "S")
        old = await deliveries.now(DOWN)
        await asyncio.to_thread(deliveries.registry.swap, old, old._replace(blocked="theirs"))
        await operator.step("y", "theirs")
        assert (await deliveries.now(DOWN)).blocked == "theirs"


async def test_the_overview_lists_destinations(deliveries: Deliveries) -> None:
    """Below the transports, the worst first, also while time is frozen; Enter opens one."""
    place = a_place(deliveries.memory, destinations=deliveries.destinations)
    async with an_operator(place, size=(120, 40)) as operator:
        operator.console.navigator.goto(Target(keys.OVERVIEW))
        screen = await operator.opens(OverviewScreen)
        await operator.sees("Transports and destinations", "!", "3 wait, 3 failed")

        def names() -> list[str]:
            rows = [line for line in operator.text.splitlines() if " wait, " in line]
            return [row.partition(".example")[0].split()[-1] for row in rows]

        await operator.until(lambda: names() == ["down", "fine", "shut", "new"])
        await operator.press("p")
        await operator.sees("3 wait, 3 failed")
        await operator.press("p")
        while screen.parts.focus.pane != "transports":
            await operator.press("tab")
        await operator.opens(TransportsScreen, "enter")
        await operator.sees("acts on down.example")


def test_what_workers_record_meanwhile_is_kept(deliveries: Deliveries) -> None:
    """A block of a destination that had a success since it was seen keeps that success."""
    one = deliveries.registry.get(FINE)
    deliveries.registry.swap(one, one._replace(last_success=NOW))
    assert deliveries.destinations.change("block", one, "mine") == ""
    now = deliveries.registry.get(FINE)
    assert (now.last_success, now.blocked) == (NOW, "mine")


async def test_without_a_registry_the_tasks_stay(deliveries: Deliveries) -> None:
    """While it cannot be read its rows are unknown, but failed tasks can be retried."""
    why = "sqlite:///d.db: locked by another process for 1 s"

    def fail() -> Any:
        raise Unavailable(why)

    deliveries.destinations = deliveries.destinations._replace(read=fail)
    async with deliveries.screen(DOWN) as operator:
        assert "down.example" in operator.rows and " ? " in operator.rows
        await operator.press("S")
        await operator.sees(f"destinations unknown: {why}")
        await operator.opens(PlanScreen, "R")


async def test_jobs_of_a_federation_name_their_destination(
    redis_url: str, redis_server: TestServer, deliveries: Deliveries
) -> None:
    """Failed jobs count for their server; the task screen shows URL, method and size."""
    job = delivery_job(POST, DOWN, f"{DOWN}/in", '{"method":"FEDERATE_POST"}')
    error = "[REFUSED] down.example: Connection refused"
    with redis_server.client() as client:
        for number in ("1", "2"):
            write_failed(client, number, job.queue, data=job.data, failedReason=error)
    place = parse_place(parse_address(redis_url))
    fields: dict[str, Any] = {"open": lambda: BullmqStore(place), "lock": None, "has_leases": True}
    async with deliveries.screen(DOWN, url_fields=URL_FIELDS, **fields) as operator:
        await operator.sees("failed 2: REFUSED 2")
        await operator.opens(QueueScreen, "enter")
        await operator.sees("2 of 2")
        await operator.opens(TaskScreen, "enter")
        await operator.sees(f"url {DOWN}/in", "method POST", "body 26 bytes", f"destination {DOWN}")


# ---- the command


@pytest.fixture
def config(deliveries: Deliveries, tmp_path: Path, root: str) -> list[str]:
    """The options of a place with this registry."""
    path = tmp_path / "config.yaml"
    registry = f"destinations: sqlite://{tmp_path}/destinations.db\n"
    path.write_text(f"{registry}handlers: {{deliver: {{deliver: {{}}}}}}\n")
    return ["--config", str(path), "--root", root]


def test_destinations_are_listed(
    deliveries: Deliveries, config: list[str], spooldeck: Run, root: str
) -> None:
    """All of them, with the tasks that name them in their payload; exit 1 if one is unhealthy."""
    payload = Path(root, "mailspool", "request.json")
    payload.parent.mkdir(exist_ok=True)
    payload.write_text(json.dumps({"url": f"{DOWN}/in", "method": "POST"}))
    assert spooldeck("queue", *config, "add", "deliver", "a request", payload).returncode == 0
    for number in range(MAX_ROWS + 1):
        deliveries.registry.swap(None, Destination(f"https://p{number}.example"))
    ended = spooldeck("destinations", *config, COLUMNS="100")
    answer = json.loads(spooldeck("destinations", *config, "--json").stdout)

    assert (ended.returncode, ended.stderr) == (1, "")
    first, second, *_ = ended.stdout.splitlines()[1:]
    assert first.split()[:3] == ["!", "down.example", "UNHEALTHY"]
    assert second.split()[:2] == ["shut.example", "BLOCKED"]
    assert len(re.findall(r"^ *p\d+\.example ", ended.stdout, re.MULTILINE)) == MAX_ROWS + 1
    rows = {row["destination"]: row for row in answer["destinations"]}
    assert (rows[DOWN]["state"], rows[DOWN]["reason"]) == ("unhealthy", "REFUSED")
    assert (rows[DOWN]["waiting"], rows[FINE]["waiting"]) == (1, 0)
    assert rows[FINE]["fingerprints"] == {"signing key": SHA}
    assert rows[SHUT]["blocked_since"] == NOW - 7200
    assert "down.example unhealthy" in spooldeck("status", *config).stdout


def test_names_of_destinations_keep_what_differs() -> None:
    """Without their schemes, and cut in the middle: two ports of one host are two names at 80
    columns. The words of an error are louder than the fingerprint of a key."""
    origins = [f"http://127.0.0.1.{'name' * 9}.example:{port}" for port in (35017, 35023)]
    listed = [
        SeenDestination(Destination(one, extra=KEYS), None, DestinationState.OK) for one in origins
    ]
    rows = sending_rows(MailHealth(()), listed, 1.0, NOW, None)
    for lines in (
        [line for _, line in table(rows, 80)[1]],
        brief_lines(listed, NOW, 45),
    ):
        shown = [text_of([line]) for line in lines]
        assert all("127." in text and "http" not in text for text in shown)
        assert ":35017" in shown[0] and ":35023" in shown[1]
    looks = {style for line in detail_lines(listed[0], "", NOW, 120) for _, style in line}
    assert "accent" not in looks


@each("width", [76, 116, 196])
def test_the_reason_of_a_destination_is_whole(width: int) -> None:
    """Its row has the reason, since when and the next probe in seconds, also at 80 columns."""
    ill = Destination("https://social.example.org", healthy=False, reason="REFUSED", since=NOW - 38)
    listed = [SeenDestination(ill._replace(next_probe=NOW + 2), None, DestinationState.UNHEALTHY)]
    rows = sending_rows(MailHealth(()), listed, 1.0, NOW, None)
    assert "REFUSED 38s ago, probe in 2s" in text_of([line for _, line in table(rows, width)[1]])
    assert "(in 2s)" in text_of(detail_lines(listed[0], "", NOW, width))


@each(("second", "shown"), [
    (KEY, [("signing key", ""), ("encryption", " (y copies both)")]),
    ("no base64!", [("signing key", " (y copies it)")]),
    ("", [("signing key", " (y copies it)")]),
])  # fmt: skip
def test_a_cut_key_names_the_key_that_copies_it(second: str, shown: list[tuple[str, str]]) -> None:
    """Once, behind the last key that is cut; what is wrong with another one is whole."""
    keyed = Destination(FINE, extra={"publicKey": KEY, "encryptionPublicKey": second})
    one = SeenDestination(keyed, NO_TASKS, DestinationState.OK)
    lines = text_of(detail_lines(one, "", NOW, 80, has_full_keys=False)).splitlines()
    cut = [line.strip() for line in lines if f"{SHA[:16]}..." in line]
    assert cut == [f"{label:<12} {SHA[:16]}...{hint}" for label, hint in shown]
    assert ("not a key in base64" in str(lines)) == (second == "no base64!")


def test_tasks_that_name_no_destination_are_unknown() -> None:
    """A format whose tasks name none says so, instead of 0 tasks."""
    one = SeenDestination(Destination(FINE), NO_TASKS, DestinationState.OK)
    lines = detail_lines(one, "tasks of this format do not", NOW, 80)
    assert "? tasks of this format do not" in "".join(text for line in lines for text, _ in line)


def test_a_block_has_a_preview(deliveries: Deliveries, config: list[str], spooldeck: Run) -> None:
    """Without --apply nothing changes; the journal records it; what is done is refused."""
    words = ("destinations", "block", f"{FINE}:443/inbox", *config, "--reason", "spam")
    apply, undo = (*words, "--apply", "1"), ("destinations", "unblock", FINE, *config)

    ended = spooldeck(*words)
    assert (ended.returncode, ended.stderr) == (0, "")
    command = f"destinations block {FINE} --reason spam --apply 1"
    assert command in ended.stdout.splitlines()[-1]
    assert json.loads(spooldeck(*words, "--json").stdout)["destination"] == FINE
    assert deliveries.registry.get(FINE).blocked == ""

    done = spooldeck(*apply)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Destination {FINE} blocked by " in done.stdout
    assert deliveries.registry.get(FINE).blocked == "spam"
    assert f"| block {FINE} | done | reason spam" in spooldeck("journal", *config).stdout
    again = spooldeck(*apply)
    assert again.returncode == 1
    assert "is blocked already; nothing was changed" in again.stderr
    freed = spooldeck(*undo, "--apply", "1", "--json")
    assert json.loads(freed.stdout)["destination"] == FINE


@each(("words", "message"), [
    (("block", "example"), "expected a URL that begins with http://HOST"),
    (("block",), "expected block ORIGIN"),
    (("unblock", FINE), "is not blocked"),
    (("probe", FINE), "is healthy: nothing to probe"),
    (("a", "b"), "expected block, unblock, probe and an ORIGIN"),
    (("block", FINE, "--apply", "2"), "1 destination, not 2"),
])  # fmt: skip
def test_a_wrong_change_is_refused(
    words: tuple[str, ...], message: str, config: list[str], spooldeck: Run
) -> None:
    """The line says what was expected."""
    ended = spooldeck("destinations", *words, *config)
    assert ended.returncode != 0 and message in ended.stderr


def test_an_unreadable_registry_is_not_an_empty_one(
    tmp_path: Path, config: list[str], root: str, spooldeck: Run
) -> None:
    """The reason is the only line; without a registry the line names the setting."""
    (tmp_path / "destinations.db").write_bytes(b"no database\n" * 200)
    (tmp_path / "idle.yaml").write_text(f"destinations: sqlite://{tmp_path}/none.db\n")
    for words, code, out, error in (
        (("destinations", *config), 1, "", "destinations.db: not a SQLite database"),
        (("destinations", root), 0, "no registry: set destinations", ""),
        (("--config", tmp_path / "idle.yaml", "destinations", root), 0,
         "nothing is delivered here", ""),
        (("destinations", "block", FINE, root), 78, "", "no registry: set destinations"),
    ):  # fmt: skip
        ended = spooldeck(*words)
        assert ended.returncode == code
        for text, printed in ((out, ended.stdout), (error, ended.stderr)):
            assert text in printed and bool(text) == bool(printed)
