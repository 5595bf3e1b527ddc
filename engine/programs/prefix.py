"""The prefix of a place: the words that run a program on another host or in a container, such as
`ssh mx2`, `docker exec -i mta`, `kubectl exec -i pod --`, `sudo -n`, `chroot DIR` (setting `via`).

Words come only from a configuration file that root or the user owns."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple


class Prefix(NamedTuple):
    """The words before those of a program."""

    name: str = ""
    """Its name in the configuration; "" for this host."""
    words: tuple[str, ...] = ()
    quoting: int | None = None
    """How often the words of the program are quoted; None: once for each `ssh` among the words."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """The words that run a program there.

        docker, podman, kubectl, sudo, chroot, nsenter and lxc pass words unchanged. ssh joins all
        words with blanks and gives them to a shell (ssh(1)), so each ssh gets one quoted word."""
        times = self.quoting
        if times is None:
            times = sum(os.path.basename(word) == "ssh" for word in self.words)
        words = list(argv)
        for _ in range(times):
            words = [shlex.join(words)]
        return [*self.words, *words]


HERE = Prefix()
"""This host, without a prefix."""
