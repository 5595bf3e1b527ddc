"""`make deb`: a Debian package of the wheel in a folder, built by debhelper.

The package has the command, man pages, completion scripts, and units for one queue. The wheel and
the Python packages of the lock file `included.txt` are in a private environment in
/usr/lib/spooldeck, as `python3 -m venv` makes it: Debian 12 has textual 0.1, humanize 4.4,
prometheus-client 0.16 and rich 13, and neither watchfiles nor google-re2. Its PyYAML fits and is
linked there. The environment loads no other package of the machine, so none that an operator
installed with pip.

`python -m tui.packaging.debian DIST` reads the wheel in DIST and writes the package there. It needs
debhelper, and network access or the cache of pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from email.utils import formatdate
from pathlib import Path

from engine.version import VERSION
from tui.cli.setup.templates import HOUSEKEEPING_SECONDS, TEXTS, fill_template
from tui.packaging.locks import FOLDER

PYTHON = "/usr/bin/python3"
"""Debian's interpreter: the package is for its version."""

HOME, ROOT, LOGS = "/usr/lib/spooldeck", "/var/lib/spooldeck/default", "/var/log/spooldeck"

LONGEST_SECONDS = 3600
"""The longest handler timeout that the units of the package allow."""

NO_MAILBOX = "spooldeck@packages.invalid"
"""The maintainer's address of a package that an operator builds, unless DEBEMAIL names another."""

Values = Mapping[str, str]


def main(dist: Path) -> None:
    """Build the package of the only wheel in a folder, and move it there."""
    if not shutil.which("dh"):
        sys.exit("the Debian package needs dh: apt install debhelper")
    (wheel,) = dist.glob(f"spooldeck-{VERSION}-*.whl")
    work = dist.parent / "build" / "deb"
    shutil.rmtree(work, ignore_errors=True)
    source = work / f"spooldeck-{VERSION}"
    _install(wheel.absolute(), source / "root")
    values = _values(source / "root" / HOME[1:])
    _write_root(source / "root", values)
    _write_debian(source / "debian", values)
    environ = os.environ | {"DEB_BUILD_OPTIONS": "noautodbgsym"}
    # Nothing is compiled: build-essential, which every package must have, is not needed.
    words = ("--build=binary", "--no-sign", "--no-check-builddeps")
    _run("dpkg-buildpackage", *words, cwd=source, env=environ)
    (package,) = work.glob("*.deb")
    shutil.copy(package, dist)


def _install(wheel: Path, root: Path) -> None:
    """Install the wheel with all that it needs as in `HOME`, and move what belongs elsewhere."""
    home = root / HOME[1:]
    _run(PYTHON, "-m", "venv", "--without-pip", home)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python3", "--quiet")
    install = (*pip, "install", "--no-compile")
    _run(*install, "--require-hashes", "-r", FOLDER / "included.txt")
    _run(*install, "--no-deps", wheel)
    for folder in ("bin", "include", "lib64"):
        path = home / folder
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(PYTHON)
    # Without the command that made it, which names a folder of this machine.
    lines = ("home = /usr/bin", "include-system-site-packages = false", f"version = {_version()}")
    (home / "pyvenv.cfg").write_text("\n".join((*lines, "")))
    (home / "share").rename(root / "usr" / "share")
    (site,) = home.glob("lib/python3*/site-packages")
    for record in site.glob("*.dist-info/direct_url.json"):
        record.unlink()  # it also names a folder of this machine
    for path in (*site.glob("pyyaml-*"), site / "yaml", site / "_yaml"):
        shutil.rmtree(path)
    (site / "yaml").symlink_to("/usr/lib/python3/dist-packages/yaml")


def _version(script: str = "import platform; print(platform.python_version())") -> str:
    return subprocess.check_output([PYTHON, "-c", script], text=True).strip()


def _values(home: Path) -> dict[str, str]:
    major, minor = map(int, _version().split(".")[:2])
    stop = LONGEST_SECONDS + 30
    (site,) = home.glob("lib/python3*/site-packages")
    packages = [_read_metadata(path) for path in sorted(site.glob("*.dist-info"))]
    (license,) = site.glob("spooldeck-*.dist-info/licenses/LICENSE")
    name = os.environ.get("DEBFULLNAME", "the spooldeck authors")
    service = {
        "user": "User=spooldeck\nGroup=spooldeck\nCapabilityBoundingSet=",
        "writable": f"{ROOT} {LOGS}",
        "new_privileges": "yes",
        "protect_home": "yes",
        "private_tmp": "yes",
    }
    owned = [ROOT, *(f"{ROOT}/{name}" for name in _FOLDERS), LOGS]
    return {
        "version": VERSION,
        "maintainer": f"{name} <{os.environ.get('DEBEMAIL', NO_MAILBOX)}>",
        "date": formatdate(int(os.environ.get("SOURCE_DATE_EPOCH", 0)) or None, localtime=False),
        "python": f"{major}.{minor}",
        "next_python": f"{major}.{minor + 1}",
        "python_folder": f"python{major}.{minor}",
        "license": license.read_text(encoding="utf-8").strip(),
        "packages": "\n".join(map(_describe, packages)),
        "root": ROOT,
        "log_folder": LOGS,
        "logs": f'"{LOGS}/queue.log" "{LOGS}/mail.log"',
        "su": "spooldeck spooldeck",
        "root_said": ROOT,
        "origin": "From the package; for other queues: spooldeck install-units.",
        "mounts": ROOT,
        "command": f"/usr/bin/spooldeck --root {ROOT} --config /etc/spooldeck/config.yaml",
        "environment": "",
        "longest": str(LONGEST_SECONDS),
        "start_seconds": str(stop + HOUSEKEEPING_SECONDS),
        "stop_seconds": str(stop),
        "service": fill_template(f"{TEXTS}/service.conf", service).rstrip("\n"),
        "folders": "\n".join(
            (
                "d /var/lib/spooldeck 0755 root root - -",
                *(f"d {path} 0750 spooldeck spooldeck - -" for path in owned),
            )
        ),
    }


_FOLDERS = (
    "queue",
    "queue/pending",
    "queue/work",
    "queue/dlq",
    "run",
    "metrics",
    "metrics/counters",
    "mailspool",
)
"""What `spooldeck init` makes, but its log folder."""


def _read_metadata(folder: Path) -> Message:
    return Parser().parsestr((folder / "METADATA").read_text(encoding="utf-8"), headersonly=True)


def _describe(package: Message) -> str:
    """The name, version and licence of a package, for the file `copyright`."""
    named = [text for text in package.get_all("Classifier") or [] if text.startswith("License ::")]
    license = package["License-Expression"] or ", ".join(text.split(" :: ")[-1] for text in named)
    license = license or (package["License"] or "see its folder").splitlines()[0]
    return f"  {package['Name']} {package['Version']}: {license}"


def _write_root(root: Path, values: Values) -> None:
    for name, path, mode in (
        ("command", "usr/bin/spooldeck", 0o755),
        ("config.yaml", "etc/spooldeck/config.yaml", 0o644),
    ):
        target = root / path
        target.parent.mkdir(parents=True)
        target.write_text(fill_template(f"{TEXTS}/debian/{name}", values))
        target.chmod(mode)


_UNITS = {
    "spooldeck-queue.service": "spooldeck.spooldeck-queue.service",
    "spooldeck-queue.timer": "spooldeck.spooldeck-queue.timer",
    "spooldeck-worker.service": "spooldeck.spooldeck-worker.service",
    "spooldeck.tmpfiles.conf": "spooldeck.tmpfiles",
    "spooldeck.logrotate": "spooldeck.logrotate",
}
"""Texts that `install-units` writes too, and their names for debhelper."""


def _write_debian(folder: Path, values: Values) -> None:
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "format").write_text("3.0 (native)\n")
    for path in sorted(Path(TEXTS, "debian").iterdir()):
        if path.name not in ("command", "config.yaml"):
            (folder / path.name).write_text(fill_template(f"{TEXTS}/debian/{path.name}", values))
    for name, ours in _UNITS.items():
        (folder / ours).write_text(fill_template(f"{TEXTS}/{name}", values))
    (folder / "rules").chmod(0o755)


def _run(*argv: str | Path, cwd: Path | None = None, env: Values | None = None) -> None:
    subprocess.run(
        [str(word) for word in argv], check=True, cwd=cwd, env=env, stdin=subprocess.DEVNULL
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
