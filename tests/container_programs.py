"""Programs that behave as docker(1), kubectl(1) and sudo(8) do, with this host as the container:
what they pass on as standard input, their own errors and their exit statuses.
"""

from __future__ import annotations

from pathlib import Path

from tests.programs import a_script

DOCKER = r"""
[ "$1" = exec ] || exit 125
shift
input=no terminal=no
while :; do case "$1" in
    -i) input=yes;; -t) terminal=yes;; -it|-ti) input=yes terminal=yes;;
    *) break;;
esac; shift; done
if [ $terminal$input = yesyes ]; then echo "the input device is not a TTY" >&2; exit 1; fi
if [ "$1" != mta ]; then
    echo "Error response from daemon: No such container: $1" >&2; exit 1
fi
shift
if ! command -v -- "$1" >/dev/null; then
    printf 'OCI runtime exec failed: exec failed: unable to start container process: ' >&2
    printf 'exec: "%s": executable file not found in $PATH: unknown\n' "$1" >&2; exit 127
fi
[ $input = yes ] || exec </dev/null
if [ $terminal = yes ]; then "$@" | sed 's/$/\r/'; else "$@"; fi
"""

KUBECTL = r"""
[ "$1" = exec ] || exit 1
shift
input=no
while :; do case "$1" in
    -i) input=yes;; -n) shift;; --) break;;
    -*) echo "error: unknown shorthand flag: '${1#-}' in $1" >&2; exit 1;;
    *) pod=$1;;
esac; shift; done
shift
if [ "$pod" != deploy/mta ]; then
    echo "Error from server (NotFound): deployments.apps \"${pod#*/}\" not found" >&2; exit 1
fi
if ! command -v -- "$1" >/dev/null; then
    printf 'error: Internal error occurred: error executing command in container: failed to ' >&2
    printf 'exec in container: exec: "%s": executable file not found in $PATH\n' "$1" >&2; exit 1
fi
[ $input = yes ] || exec </dev/null
"$@"
status=$?
[ $status = 0 ] || echo "command terminated with exit code $status" >&2
exit $status
"""


SUDO = r"""
listing=no
while :; do case "$1" in
    -l) listing=yes;; -u) shift;; -n) ;; *) break;;
esac; shift; done
case " {allowed} " in
    *" $1 "*) if [ $listing = yes ]; then echo "$1"; exit; fi; exec "$@";;
esac
echo "sudo: a password is required" >&2
exit 1
"""


def a_sudo(folder: Path, *allowed: str) -> str:
    """The path of a program like `sudo -n` with a rule for these programs. A real one that refuses
    sends a mail to root.
    """
    return a_script(folder / "sudo", SUDO.format(allowed=" ".join(allowed)))


def a_docker(folder: Path) -> str:
    """The path of a program like docker, with a container `mta`."""
    return a_script(folder / "docker", DOCKER)


def a_kubectl(folder: Path) -> str:
    """The path of a program like kubectl, with a pod of `deploy/mta`."""
    return a_script(folder / "kubectl", KUBECTL)
