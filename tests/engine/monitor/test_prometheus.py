"""Metrics: the real program's texts byte for byte, its counters shared, any other file read."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.monitor import prometheus
from engine.monitor.prometheus import BadMetrics, CounterFiles, QueueGauges, Samples
from engine.system import files
from tests.engine.task_builders import GOLDEN
from tests.tables import each

Said: TypeAlias = Callable[[str | bytes], Samples]


@pytest.fixture
def said(tmp_path: Path) -> Said:
    """Read metrics from their text."""

    def read(text: str | bytes) -> Samples:
        (tmp_path / "some.prom").write_bytes(text.encode() if isinstance(text, str) else text)
        return prometheus.read_metrics(str(tmp_path / "some.prom"))

    return read


AFTER_DLQ = {"processed_total": 1, "failed_total": 3, "retries_total": 2, "dlq_total": 1}


@each(("name", "gauges", "counters", "now"), [
    ("after-one-success", QueueGauges(1, 0, 0, 6.9), {"processed_total": 1}, 1795167681.5),
    ("after-dlq", QueueGauges(0, 0, 1), AFTER_DLQ, 1795167683),
])  # fmt: skip
def test_queue_metrics_are_those_of_the_real_program(
    tmp_path: Path, name: str, gauges: QueueGauges, counters: dict[str, int], now: float
) -> None:
    """Byte for byte those of the real program; read back, they have the time of the file."""
    text, path = prometheus.render_queue(gauges, counters, now), str(tmp_path / "queue.prom")
    assert text == (GOLDEN / f"queue.{name}.prom").read_bytes()
    files.replace_file(path, text)
    os.utime(path, (5, 1000.25))
    got = prometheus.read_metrics(path)
    metrics = ("tasks_pending", "dlq_total", "last_run_timestamp")
    values = [got.get(f"nftban_queue_{metric}") for metric in metrics]
    assert values == [gauges.pending, counters.get("dlq_total", 0), int(now)]
    assert got.modified == 1000.25


@each(("name", "failures", "last"), [("success", 0, 0), ("failure", 1, 1795167962)])
def test_the_real_programs_mail_metrics_are_read(name: str, failures: int, last: int) -> None:
    """Metrics with labels are found by their labels, and only by all of them."""
    got = prometheus.read_metrics(str(GOLDEN / f"mail.after-{name}.prom"))
    failed = "nftban_mail_send_failures_total"
    assert got.get(failed, transport="sendmail") == failures
    assert got.get("nftban_mail_last_failure_timestamp") == last
    assert got.get(failed, transport="pigeon") is got.get(failed) is None
    assert len(got.values) == 23


def test_a_label_names_the_place_of_samples(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of several places differ in each sample; they are read without the label."""
    plain = prometheus.render_queue(QueueGauges(1, 0, 0), {}, 5)
    mail = (GOLDEN / "mail.after-success.prom").read_bytes()
    for text in (plain, mail):
        labelled = prometheus.add_place(text, "mail out")
        lines = [line for line in labelled.decode().split("\n") if line and line[0] != "#"]
        assert all('{place="mail out"' in line for line in lines)
        assert said(labelled).values == said(text).values
        assert said(labelled + b"odd +Inf\n").values.items() >= said(text).values.items()
    assert b'send_failures_total{place="mail out",transport="sendmail"} 0' in labelled
    assert prometheus.add_place(plain, "") == plain
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    assert said(labelled).values


FORMS = {
    "a 3": (("a", ()), 3.0), "a 3.0": (("a", ()), 3.0), "a 1e3": (("a", ()), 1000.0),
    "a -0.5 1700000000000": (("a", ()), -0.5), "a +Inf": (("a", ()), math.inf),
    "  a\t7 ": (("a", ()), 7.0), "a 1\r": (("a", ()), 1.0),
    'a{z="1",b="2"} 1': (("a", (("b", "2"), ("z", "1"))), 1.0),
    'a{b="x\\"y\\\\z\\nq"} 1': (("a", (("b", 'x"y\\z\nq'),)), 1.0),
    'a{b="}#{ "} 1': (("a", (("b", "}#{ "),)), 1.0),
    'a{b="Grüße"} 1': (("a", (("b", "Grüße"),)), 1.0), "# TYPE a counter\na 1": (("a", ()), 1.0),
    "# TYPE a nonsense\n#\na 1\na 2": (("a", ()), 2.0),
}  # fmt: skip


def test_every_form_of_a_number_is_read(said: Said) -> None:
    """Numbers, labels and escapes mean what the format says; names stay as they are."""
    for line, (key, value) in FORMS.items():
        assert said(line + "\n").values == {key: value}
    assert said("").values == {}


REFUSED: dict[str | bytes, str] = {
    "a 1\n\nthis is no metric\n": "line 3: expected NAME",
    **dict.fromkeys(("a\n", "a x\n", "a 0x10\n", f"a {'9' * 400}\n", "{} 3\n"), "line 1"),
    **dict.fromkeys(('a{b="x} 1\n', "\x1b[31mred\x07\n"), "line 1"),
    b"a 1\n\xff\n": "not UTF-8 at byte 4",
    b"x" * (4 << 20) + b"x": "at most 4,194,304 bytes",
}


def test_simple_samples_agree_with_the_library(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain numbers with at most one label are read without the library; others by it."""
    text = 'a_total 3\nb{way="curl"} 1.25\nb{way="ü {}"} 0\nb{way="curl"} 2\nbig 123456789012345\n'
    ours = said(text).values
    by_library = dict(said(f"{text}odd +Inf\n").values)
    assert by_library.pop(("odd", ())) == math.inf
    assert ours == by_library
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    assert said(text).values == ours
    with pytest.raises(ImportError):
        said("a 1e400\n")


def test_a_file_without_metrics_is_refused(said: Said, tmp_path: Path) -> None:
    """With its line, safe to show; a FIFO is not waited for, a missing file an ordinary error."""
    for text, what in REFUSED.items():
        with pytest.raises(BadMetrics) as refused:
            said(text)
        message = str(refused.value)
        assert what in message and "some.prom: " in message and message.isprintable()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadMetrics, match="expected a file"):
        prometheus.read_metrics(str(tmp_path / "pipe"))
    with pytest.raises(FileNotFoundError):
        prometheus.read_metrics(str(tmp_path / "none.prom"))
    run, dead = "nftban_queue_last_run_timestamp", "nftban_queue_tasks_dlq"
    for value in ("NaN", "+Inf", "-Inf"):
        samples = said(f"{run} {value}\n{dead} 3\n")
        assert (samples.get(run), samples.get(dead)) == (None, 3)


def test_a_counter_is_a_decimal_in_a_file(tmp_path: Path) -> None:
    """Counting makes folder, file and lock file; a damaged one is 0, and no link is followed."""
    folder = tmp_path / "metrics" / "counters"
    counters = CounterFiles(str(folder))
    assert counters.read("processed_total") == 0
    assert [counters.add("processed_total", *more) for more in ((0,), (9,), ())] == [0, 9, 10]
    assert counters.read("processed_total") == 10
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert made == {"processed_total": "10\n", "processed_total.lock": ""}

    counters = CounterFiles(str(tmp_path))
    for content in (b"", b"abc\n", b"\xff\xfe", b"-5\n", b"1 2\n", b"9" * 400, b"1.5", b"0x10\n"):
        (tmp_path / "n").write_bytes(content)
        assert (counters.read("n"), counters.add("n", 3)) == (0, 3)
        assert (tmp_path / "n").read_bytes() == b"3\n"
    (tmp_path / "victim").write_text("41\n")
    (tmp_path / "link").symlink_to("victim")
    with pytest.raises(OSError, match="symbolic links"):
        counters.add("link")
    assert (tmp_path / "victim").read_text() == "41\n"


@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock(1)")
def test_a_shell_counts_beside_us(tmp_path: Path) -> None:
    """A shell that counts under flock, as the real program does, and we lose nothing."""
    script = """
    for i in $(seq 50); do
        (flock -x 9; n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n) 9> n.lock
    done
    """
    shell = subprocess.Popen(["bash", "-c", script], cwd=tmp_path)
    counters = CounterFiles(str(tmp_path))
    for _ in range(150):
        counters.add("n")
        assert counters.read("n") > 0
    assert shell.wait() == 0
    assert counters.read("n") == 200


def test_it_costs_nothing_to_be_there() -> None:
    """Counting and writing metrics load no parser and nothing else that is slow to load."""
    program = (
        "import sys; from engine.monitor import prometheus as metrics;"
        "metrics.render_queue(metrics.QueueGauges(0, 0, 0), {}, 0);"
        "slow = {'prometheus_client', 'dataclasses', 'json', 'pathlib'} & set(sys.modules);"
        "sys.exit(str(slow) if slow else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stderr, ran.returncode) == ("", 0)
