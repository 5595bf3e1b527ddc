"""What the protocol leaves open: by default with our corrections, with `sipher` as the program of
that name does it; and by error code, whether a relay or a probe is used."""

from __future__ import annotations

from collections.abc import Mapping

from engine.delivery import network_errors
from engine.delivery.status_table import FATAL, Outcomes, make_outcomes
from engine.values import NamedTuple


class Profile(NamedTuple):
    """The choices; each comment says what False means, the way of `sipher`."""

    outcomes: Outcomes = make_outcomes("default", {"501": FATAL})
    """What a status or an error code means. 501: the peer has no handler for the method."""
    honours_retry_after: bool = True
    """False: the schedule alone decides."""
    success_marks_healthy: bool = True
    """False: only a probe or a sweep does."""
    one_probe_chain: bool = True
    """False: each failure starts the probes again, beside those that are planned."""
    conflict_is_applied: bool = True
    """True: 409 on a repeated delivery means that an earlier one was applied."""
    accepts_bare_ack: bool = True
    """True: `{"status": ...}` without signature acknowledges; nothing is stored for it."""
    accepts_no_decision: bool = True
    """True: a follow may be acknowledged without `accepted`. False: it is refused."""
    checks_target: bool = True
    """True: the target must be of the same origin as the server, and an acknowledgement of the
    same follow as the delivery."""
    keeps_first_error: bool = True
    """False: without a relay, the code of the direct attempt is not in the error."""
    probes_survive: bool = True
    """False: a probe ends the chain if the registry cannot be reached."""


PROFILES: Mapping[str, Profile] = {
    "default": Profile(),
    "sipher": Profile(make_outcomes("sipher"), *[False] * (len(Profile._fields) - 1)),
}
"""By the name in the configuration."""


class Policy(NamedTuple):
    """What follows a direct attempt that failed."""

    relay: bool
    """It is sent through another server."""
    probe: bool
    """The server is asked later whether it is there again."""


POLICIES: Mapping[str, Policy] = {
    network_errors.DNS: Policy(relay=True, probe=False),
    network_errors.REFUSED: Policy(relay=False, probe=True),
    network_errors.RESET: Policy(relay=False, probe=True),
    network_errors.TIMEOUT: Policy(relay=False, probe=True),
    network_errors.TLS: Policy(relay=False, probe=True),
    network_errors.UNKNOWN: Policy(relay=True, probe=True),
    network_errors.BAD_ANSWER: Policy(relay=True, probe=True),
}
"""By error code. Other codes are about the request, not about the server: it stays healthy."""
