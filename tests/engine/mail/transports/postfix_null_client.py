"""A Postfix that only sends, in a folder of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.programs import a_script, needs, needs_root
from tests.smtp_server import HOST

MASTER_CF = """\
pickup    unix  n  -  n  60   1  pickup
cleanup   unix  n  -  n  -    0  cleanup
qmgr      unix  n  -  n  300  1  qmgr
rewrite   unix  -  -  n  -    -  trivial-rewrite
bounce    unix  -  -  n  -    0  bounce
defer     unix  -  -  n  -    0  bounce
trace     unix  -  -  n  -    0  bounce
smtp      unix  -  -  n  -    -  smtp
error     unix  -  -  n  -    -  error
retry     unix  -  -  n  -    -  error
scache    unix  -  -  n  -    1  scache
anvil     unix  -  -  n  -    1  anvil
postlog   unix-dgram n - n -  1  postlogd
"""
"""The services of a Postfix that only sends; none listens to the network."""

QUEUE = "active bounce corrupt defer deferred flush hold incoming private saved trace"
"""The folders that only its own user may enter."""
SHARED = (("maildrop", 0o1730, "postdrop"), ("public", 0o2710, "postdrop"))
"""Those of its group, with their modes."""


class NullClient:
    """A Postfix for one relay, started without `postfix start`, which checks for seconds."""

    def __init__(self, folder: Path) -> None:
        needs_root("Postfix starts as root")
        self._postconf, sendmail = needs("postconf"), needs("sendmail")
        self._config, self._log = folder / "etc", folder / "log"
        self._config.mkdir()
        (self._config / "master.cf").write_text(MASTER_CF)
        self._settings = {
            **{"compatibility_level": "3.6", "message_size_limit": 50_000},
            **{"queue_directory": folder / "queue", "data_directory": folder / "data"},
            **{"myhostname": "here.example.org", "mydestination": "", "inet_protocols": "ipv4"},
            **{"inet_interfaces": "loopback-only", "smtp_dns_support_level": "disabled"},
            **{"alias_maps": "", "alias_database": "", "local_transport": "error:no local mail"},
            **{"maillog_file": self._log, "maillog_file_prefixes": folder},
        }
        # The folders of a queue as Postfix makes them (postfix-files).
        queue = folder / "queue"
        for path in (queue, queue / "pid"):
            path.mkdir()
        private = [(name, 0o700, "postfix") for name in QUEUE.split()]
        for name, mode, group in (*private, *SHARED):
            (queue / name).mkdir()
            shutil.chown(queue / name, "postfix", group)
            (queue / name).chmod(mode)
        (folder / "data").mkdir()
        shutil.chown(folder / "data", "postfix", "postfix")
        self._process: subprocess.Popen[bytes] | None = None
        self.root = str(folder)
        """The root folder in which etc/postfix/main.cf names its queue."""
        (self._config / "postfix").mkdir()
        (self._config / "postfix/main.cf").write_text("queue_directory = /queue\n")
        self.sendmail = a_script(folder / "sendmail", f'exec {sendmail} -C {self._config} "$@"')
        """Its sendmail program."""

    def start(self, port: int) -> None:
        """Start it, in the foreground of a session of its own."""
        parameters = {**self._settings, "relayhost": f"[{HOST}]:{port}"}
        lines = [f"{name} = {value}\n" for name, value in parameters.items()]
        (self._config / "main.cf").write_text("".join(lines))
        # Of a file that is younger than two seconds Postfix waits to see whether it changes.
        os.utime(self._config / "main.cf", (0, 0))
        config = ["-c", str(self._config)]
        asked = [self._postconf, *config, "-h", "daemon_directory"]
        programs = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        self._process = subprocess.Popen(
            [f"{programs}/master", *config, "-d", "-e", "120"],  # ends after 120 s in any case
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL),  # type: ignore
            start_new_session=True,
        )

    def stop(self) -> None:
        """End all processes of its session."""
        if self._process is None:
            return
        # Stopped first, so that its master starts no further process.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._process.wait(20)
        for _ in range(2000):
            if not self.processes():
                return
            time.sleep(0.01)
        raise AssertionError(f"still there: {self.processes()}")

    def processes(self) -> list[int]:
        """Return the PIDs of its processes that are alive."""
        assert self._process
        pids = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state != "Z":
                    pids.append(int(stat.parent.name))
        return pids

    def said(self) -> str:
        """Return its log."""
        return self._log.read_text() if self._log.exists() else "nothing"
