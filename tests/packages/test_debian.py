"""The Debian package: built, checked, installed, used, upgraded and purged on a copy of this
machine."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.version import VERSION
from tests.programs import needs, needs_root

ROOT = Path(__file__).parents[2]

ON_A_COPY = """
set -e
mount -t tmpfs none "$1"
cd "$1"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount -t tmpfs none root/tmp
rm -rf root/var/lib/spooldeck  # of the overlay
cp "$2" root/package.deb
printf '%s' "$3" > root/script
exec chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root \\
    DEBIAN_FRONTEND=noninteractive bash -e /script
"""
"""Run a script on an overlay of this machine: it sees all files, and no change is kept."""

INSTALL_AND_USE = """
exec 3>&1 >&2
dpkg --install /package.deb
spooldeck --version >&3
spooldeck queue add report >/id
spooldeck status --json | grep -o '"pending": 1' >&3
man -w spooldeck spooldeck-queue spooldeck.yaml >&3
systemd-analyze verify --man=no /lib/systemd/system/spooldeck-*.service 2>&1 >&3
systemd-analyze security --offline=yes --threshold=30 spooldeck-queue.service
echo 'handlers: {report: {command: [/bin/true]}}' >>/etc/spooldeck/config.yaml
run() { setpriv --reuid spooldeck --regid spooldeck --clear-groups "$@"; }
run /usr/lib/spooldeck/bin/python3 -v -P -m spooldeck queue process-next 2>/loaded
echo "compiled $(grep -c "^# code object from [^']*site-packages.*py$" /loaded || true)" >&3
test "$(grep -c "pyc'$" /loaded)" -gt 20
spooldeck queue count >&3
spooldeck queue add report >/id
dpkg-deb --raw-extract /package.deb /next
sed -i 's/^Version: .*/Version: 99/' /next/DEBIAN/control
echo '# new text' >>/next/etc/spooldeck/config.yaml
dpkg-deb --build /next /next.deb
dpkg --install --force-confold /next.deb
echo "version $(dpkg-query -W -f '${Version} ${db:Status-Status}' spooldeck)" >&3
echo "config $(grep -c ^handlers /etc/spooldeck/config.yaml) count $(spooldeck queue count)" >&3
dpkg --remove spooldeck
echo "config" $(ls /etc/spooldeck) >&3
dpkg --purge spooldeck
echo "kept $(ls /var/lib/spooldeck/default/queue/pending | wc -l)" >&3
rm /var/lib/spooldeck/default/queue/pending/*
dpkg-deb --control /package.deb /control
/control/postrm purge
echo "left $(find /var/lib/spooldeck ! -type d)" >&3
find /etc /lib/ /usr /var/cache /var/log -path '*spooldeck*' -newer /package.deb >&3
"""


@pytest.mark.deep
def test_the_debian_package_is_installed_and_purged(wheel: Path, tmp_path: Path) -> None:
    """lintian finds no error. The command, its pages and units work, the service user starts from
    bytecode; an upgrade keeps the changed configuration and the waiting task, and a purge leaves
    nothing but the queue with that task, and without it nothing.
    """
    needs_root("dpkg installs a package")
    for program in ("dh", "lintian", "systemd-analyze", "man"):
        needs(program)
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no mount")
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    argv = [sys.executable, "-m", "tui.packaging.debian", str(tmp_path / "dist")]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (package,) = (tmp_path / "dist").glob("*.deb")
    copy = tmp_path / "copy"
    copy.mkdir()

    checked = subprocess.run(["lintian", str(package)], capture_output=True, text=True)
    argv = ["unshare", "--mount", "bash", "-c", ON_A_COPY, "bash"]
    argv += [str(copy), str(package), INSTALL_AND_USE]
    used = subprocess.run(argv, capture_output=True, text=True)

    assert [line for line in checked.stdout.splitlines() if line.startswith("E:")] == []
    assert used.returncode == 0, used.stderr
    assert used.stdout.splitlines() == [
        f"spooldeck {VERSION}",
        '"pending": 1',
        "/usr/share/man/man1/spooldeck.1.gz",
        "/usr/share/man/man1/spooldeck-queue.1.gz",
        "/usr/share/man/man5/spooldeck.yaml.5.gz",
        "compiled 0",
        "0",
        "version 99 installed",
        "config 1 count 1",
        "config config.yaml config.yaml.dpkg-dist",
        "kept 1",
        "left ",
    ]
