"""The address of a place: what is shown of it, and the folder for our own files about a URL."""

import pytest

from engine.config import place_address
from engine.config.place_address import Address, BadAddress, is_url, parse_address, places_folder

SECRET = "hunter2"


@pytest.mark.parametrize(("written", "shown", "password"), [
    (f"redis://:{SECRET}@Host:6379/0", "redis://host:6379/0", SECRET),
    ("rediss://u:p%40w@[::1]:6379/1?x=1", "rediss://u@[::1]:6379/1?x=1", "p@w"),
    (f"redis+unix:///run/redis.sock?db=2&password={SECRET}", None, SECRET),
    (f"redis+sentinel://:{SECRET}@B,[::1]:7/m", "redis+sentinel://b,[::1]:7/m", SECRET),
    ("mailq://host:174", "mailq://host:174", ""),
    ("/srv/a queue/../mails", "/srv/mails", ""),
])  # fmt: skip
def test_the_password_is_set_apart(written: str, shown: str | None, password: str) -> None:
    """What is shown is the same place without it; the address as text of Python hides it too."""
    address = parse_address(written)
    assert address.text == (shown or "redis+unix:///run/redis.sock?db=2")
    assert (address.password, parse_address(address.text).text) == (password, address.text)
    assert SECRET not in repr(address)


def test_a_url_has_a_scheme() -> None:
    """A file with a colon in its name is a path; ./ before it makes it one in any case."""
    assert [is_url(text) for text in ("redis+unix:///x", "A.b-1://h")] == [True, True]
    assert not any(is_url(text) for text in ("a:b", "/x://y", "://h", "1a://h", "./a://b", "ä://"))


@pytest.mark.parametrize(("written", "message"), [
    (f"redis://:{SECRET}@h:99999/", "expected a port from 0 to 65535"),
    (f"redis://:{SECRET}@[::1/", "expected SCHEME://HOST"),
    (f"redis+sentinel://:{SECRET}@h,/m/0", "expected a host on each side of a comma"),
    (f"redis+sentinel://:{SECRET}@h,i:x/m/0", "expected a port from 0 to 65535"),
    (f"redis://:{SECRET}@h/0#1", "expected no # in a URL"),
    (f"redis://:{SECRET}#s@h:6379/0", "in a password or parameter write / as %2F"),
    (f"redis://:a/{SECRET}@h/0", "in a password or parameter write / as %2F"),
    (f"redis://u:7?{SECRET}@h/0", "in a password or parameter write / as %2F"),
    (f"redis://h/0?user={SECRET}@x", "@ only before the host"),
    (f"redis://:{SECRET}@h/\x1b", "write them as %XX"),
])  # fmt: skip
def test_a_bad_url_is_refused_without_its_text(written: str, message: str) -> None:
    """The error says what was expected, and not the password."""
    with pytest.raises(BadAddress) as error:
        parse_address(written)
    assert message in str(error.value)
    assert SECRET not in str(error.value)


def test_our_folder_for_a_url() -> None:
    """It is below XDG_STATE_HOME, root's below /var/lib; another URL has another folder."""
    one, other = Address("redis://h/0"), Address("redis://h.0")
    home = {"HOME": "/home/me"}
    below = "/home/me/.local/state/spooldeck/places/redis-h-0-"
    assert places_folder(one, home, 1000).startswith(below)
    assert places_folder(one, {"XDG_STATE_HOME": "/s", **home}, 1000).startswith("/s/spooldeck/")
    relative = {"XDG_STATE_HOME": "s", **home}
    assert places_folder(one, relative, 1000) == places_folder(one, home, 1000)
    unit = {"STATE_DIRECTORY": "/var/lib/x:/var/lib/y", **home}
    assert places_folder(one, unit, 1000).startswith("/var/lib/x/spooldeck/places/")
    assert places_folder(one, {"HOME": "~"}, 1000).startswith("/")
    assert places_folder(one, home, 0).startswith(f"{place_address.ROOT_STATE_FOLDER}/places/")
    assert places_folder(one, home, 1000) != places_folder(other, home, 1000)
