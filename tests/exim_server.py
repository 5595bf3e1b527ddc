"""A real Exim for tests: Debian's package, unpacked into an overlay over `/` and run by `chroot`.

The package conflicts with the mail server of this machine, so it is never installed. The overlay
is in a mount namespace of its own: it ends with the process that has it, and nothing on the machine
changes. `chroot` is also a real prefix of a place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from tests.programs import needs, needs_root

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "exim4"
PACKAGES = ("exim4-daemon-light", "exim4-base")
SPOOL, LOG, CONFIG = "/var/spool/exim4", "/var/log/exim4/mainlog", "/etc/exim4/exim4.conf"
START_SECONDS = 30.0

MOUNT = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/merged"
shift_folder=$1
shift
for package in "$@"; do dpkg -x "$package" "$shift_folder/upper"; done
cd "$shift_folder"
# The folder would hide the link /lib.
if [ -d upper/lib ]; then
    mkdir -p upper/usr/lib
    cp -a upper/lib/. upper/usr/lib/
    rm -r upper/lib
fi
mkdir -p upper/etc/exim4
cp /etc/passwd /etc/group upper/etc
echo 'Debian-exim:x:100:102::/var/spool/exim4:/usr/sbin/nologin' >>upper/etc/passwd
echo 'Debian-exim:x:102:' >>upper/etc/group
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work merged
mount --rbind /proc merged/proc
mount --rbind /dev merged/dev
mount -t tmpfs tmpfs merged/tmp
mkdir -p merged/var/spool/exim4 merged/var/log/exim4
chown 100:102 merged/var/spool/exim4 merged/var/log/exim4
echo ready
exec cat
"""

SETTINGS = """
primary_hostname = mx.example.test
spool_directory = /var/spool/exim4
log_file_path = /var/log/exim4/%slog
pid_file_path = /var/spool/exim4/exim.pid
notifier_socket =
local_interfaces = 127.0.0.1
daemon_smtp_ports = {port}
keep_environment =
tls_advertise_hosts =
acl_smtp_rcpt = accept
domainlist local_domains =
smtp_accept_max = 200
queue_run_max = 5
recipients_max = 50000
{more}
begin routers
sinks:
  driver = manualroute
  route_data = ${{lookup{{$domain}}lsearch{{/etc/exim4/routes}}}}
  self = send
  transport = remote_smtp
begin transports
remote_smtp:
  driver = smtp
  allow_localhost
begin retry
* * F,2h,2m
"""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


class Sink:
    """An SMTP server that takes mail, refuses each recipient for now, or answers when released.

    Each has an address of its own: Exim takes all ports of an address as one host.
    """

    def __init__(self, host: str, refusal: str = "", *, is_slow: bool = False) -> None:
        """`refusal` is the answer to RCPT; a slow one takes no message before `release`."""
        self.host, self._refusal = host, refusal
        self.bodies: list[bytes] = []
        """The messages that were taken."""
        self.waiting = threading.Semaphore(0)
        """Released once for each message that waits for `release`."""
        self._go = threading.Event()
        if not is_slow:
            self._go.set()
        self._server = socket.create_server((host, 0), backlog=200)
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def release(self) -> None:
        """Take the messages that wait, and all later ones."""
        self._go.set()

    def close(self) -> None:
        """Accept no more connections."""
        self._go.set()
        with suppress(OSError):  # closed before
            self._server.shutdown(socket.SHUT_RDWR)  # ends the wait of its thread
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                peer, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, suppress(OSError), peer.makefile("rwb", buffering=0) as stream:
            stream.write(b"220 sink.example.test ESMTP\r\n")
            while line := stream.readline():
                word = line[:4].upper()
                if word == b"QUIT":
                    stream.write(b"221 bye\r\n")
                    return
                if word == b"DATA":
                    stream.write(b"354 go on\r\n")
                    body = b"".join(iter(stream.readline, b".\r\n"))
                    if not self._go.is_set():
                        self.waiting.release()
                    self._go.wait()
                    self.bodies.append(body)
                if word == b"RCPT" and self._refusal:
                    stream.write(f"{self._refusal}\r\n".encode())
                    continue
                stream.write(b"250 ok\r\n")


class EximServer:
    """A spool of its own, a configuration that tests may change, and the programs of Exim."""

    def __init__(self, pid: int, merged: Path) -> None:
        """`merged` is the overlay in the mount namespace of a process."""
        # A program is setuid only in its own mount namespace: see mnt_may_suid in the kernel.
        self.prefix = ("nsenter", f"--target={pid}", "--mount", "--root", "chroot", str(merged))
        """The words that run a program there."""
        self.root = Path(f"/proc/{pid}/root{merged}")
        self.state = self.root
        """Our own folder for its place; a test has its own."""
        self.port = free_port()
        self.spool, self.log = self.root / SPOOL[1:], self.root / LOG[1:]
        self._sinks: list[Sink] = []
        self._deliveries: list[subprocess.Popen[bytes]] = []
        self._daemon = 0
        self.configure()

    def configure(self, more: str = "", sinks: Iterable[tuple[str, Sink]] = ()) -> None:
        """Write the configuration, with more settings; mail to a domain goes to its sink."""
        self._sinks += [sink for _, sink in sinks]
        (self.root / CONFIG[1:]).write_text(SETTINGS.format(port=self.port, more=more))
        routes = [f"{domain}: {sink.host}::{sink.port}\n" for domain, sink in sinks]
        (self.root / "etc/exim4/routes").write_text("".join(routes))

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run exim4 with these words to its end."""
        argv = [*self.prefix, "exim4", *words]
        # Files, not pipes: a delivery in the background keeps them open.
        with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
            given.write(stdin)
            given.seek(0)
            streams = {"stdin": given, "stdout": output, "stderr": errors}
            status = subprocess.call(argv, cwd="/", **streams)  # type: ignore[arg-type]
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(argv, status, output.read(), errors.read())

    def deliver(self, ident: str) -> None:
        """Start a delivery of a message, and do not wait for its end."""
        with TemporaryFile() as output:
            argv = [*self.prefix, "exim4", "-M", ident]
            self._deliveries.append(
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            )

    def submit(
        self,
        sender: str = "ann@shop.example.test",
        recipients: Sequence[str] = ("bob@unknown.example.test",),
        *,
        number: int = 1,
        text: str = "body",
        deliver: bool = False,
    ) -> list[str]:
        """Submit mails, with one process (batch SMTP); return their ids in order."""
        before = set(self.ids())
        batch = ["EHLO client.example.test"]
        for count in range(number):
            batch += [f"MAIL FROM:<{sender}>", *(f"RCPT TO:<{one}>" for one in recipients), "DATA"]
            batch += [f"Subject: mail {count}", "", text, "."]
        how = "-odb" if deliver else "-odq"
        run = self.run(how, "-bS", stdin="\r\n".join([*batch, "QUIT", ""]).encode())
        assert run.returncode == 0, run
        return [ident for ident in self.ids() if ident not in before]

    def ids(self, queue: str = "") -> list[str]:
        """The ids in the spool, or in one of its named queues, in order."""
        return sorted(path.name[:-2] for path in (self.spool / queue / "input").rglob("*-H"))

    def listing(self, *words: str) -> str:
        """What `exim -bpru` prints."""
        return self.run(*words, "-bpru").stdout.decode()

    def digests(self) -> dict[str, str]:
        """The digest of each spool file by its name, in any queue."""
        files = [path for path in self.spool.rglob("*") if re.search(r"-[DHJ]$", path.name)]
        return {
            p.name: hashlib.md5(p.read_bytes(), usedforsecurity=False).hexdigest() for p in files
        }

    def log_lines(self, ident: str = "") -> list[str]:
        """The lines of the main log that have an id."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if ident in line]

    def start(self, interval: str = "30m") -> int:
        """Start the daemon, with queue runners if an interval is given; return its PID."""
        path = self.spool / "exim.pid"
        path.unlink(missing_ok=True)  # of the daemon before
        started = self.run("-bd", *[f"-q{interval}"] * bool(interval))
        assert started.returncode == 0, started
        wait_until(lambda: path.exists() and path.read_text().strip() != "")
        self._daemon = int(path.read_text())
        return self._daemon

    def stop(self) -> None:
        """End the daemon by its PID, and all sinks."""
        if self._daemon:
            with suppress(ProcessLookupError):
                os.kill(self._daemon, 15)
            pid, self._daemon = self._daemon, 0
            wait_until(lambda: not Path(f"/proc/{pid}/exe").exists())
        for sink in self._sinks:
            sink.close()
        self._sinks.clear()
        for delivery in self._deliveries:
            delivery.wait(START_SECONDS)
        self._deliveries.clear()

    def clear(self) -> None:
        """Make the spool and the log empty again, with the first configuration."""
        self.stop()
        for folder in (self.spool, self.log.parent):
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.configure()


def wait_until(condition: object) -> None:
    """Ask a condition again and again until it is true."""
    assert callable(condition)
    deadline = time.monotonic() + START_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        pause.wait(0.02)


def fetch_packages() -> list[str]:
    """The paths of the packages, which are downloaded once."""
    needs_root("Exim in an overlay")
    for program in ("dpkg", "apt-get", "unshare", "nsenter", "chroot"):
        needs(program)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may download them now
        paths = [next(CACHE.glob(f"{name}_*.deb"), None) for name in PACKAGES]
        if None in paths:
            words = ["apt-get", "-q", "download", *PACKAGES]
            run = subprocess.run(words, cwd=CACHE, capture_output=True, check=False)
            if run.returncode != 0:
                pytest.skip(f"Exim's packages cannot be downloaded: {run.stderr.decode()[-200:]}")
            paths = [next(CACHE.glob(f"{name}_*.deb"), None) for name in PACKAGES]
    return [str(path) for path in paths]


@contextmanager
def running_overlay(folder: Path) -> Iterator[EximServer]:
    """Mount an overlay over `/` with Exim's programs, until the block ends."""
    folder.mkdir(exist_ok=True)
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh", str(folder)]
    argv = [*words, *fetch_packages()]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            assert holder.stderr is not None
            pytest.skip(f"no overlay can be mounted here: {holder.stderr.read().decode()[-200:]}")
        server = EximServer(holder.pid, folder / "merged")
        run = server.run("-bV")
        try:
            if b"cannot open shared object file" in run.stderr:
                lacks = run.stderr.decode().partition("libraries: ")[2].partition(":")[0]
                pytest.skip(f"a library of the package exim4-daemon-light is missing: {lacks}")
            yield server
        finally:
            server.stop()
            holder.stdin.close()
