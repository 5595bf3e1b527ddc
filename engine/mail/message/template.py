"""The page that a mail's content is put into, and the words that stand for what is only known then.

Header and footer are ours, unless a file of the installation goes before one of them. Placeholders
in the content are replaced too, as the NFTBan program does. Values are escaped, and what was put in
is never searched again.
"""

import errno
import os
import re
from collections.abc import Mapping
from html import escape
from typing import NamedTuple
from urllib.parse import urlsplit

from engine.config.mail_config import MailSettings
from engine.system import files
from engine.text.safe import shown

HEADER_FILE, FOOTER_FILE = "header_default.html", "footer_default.html"

NAMES = (
    *("NFTBAN_VERSION", "HOSTNAME", "SERVER_IP", "DATE", "TIME", "COMPANY_NAME", "LOGO_HTML"),
    *("VERSION_HTML", "SENDER", "MAIL_RECIPIENT", "MAIL_SYSTEM", "SUBJECT"),
)
"""The placeholders: those of the real program, and SUBJECT, which its template names as well."""

IN_CONTENT = frozenset(NAMES) - {"SUBJECT"}
"""The placeholders that are replaced in the content: the real program knows no SUBJECT."""

LIMIT = 256 * 1024
"""Bytes of a header, a footer or a picture; each mail carries them."""

LOGO_ID = "logo@spooldeck.invalid"
"""The Content-ID of a picture that goes with the mail."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(NAMES) + r")\}")

_HEADER = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{SUBJECT}</title>
</head>
<body style="margin: 0; padding: 16px; font-family: sans-serif; line-height: 1.4">
<div style="max-width: 720px; margin: 0 auto">
<div style="padding-bottom: 8px; border-bottom: 1px solid #888888">
{LOGO_HTML}
<strong>{COMPANY_NAME}</strong>
<div>{SUBJECT}</div>
</div>
<div style="padding: 16px 0">
"""

_FOOTER = """\
</div>
<div style="padding-top: 8px; border-top: 1px solid #888888; font-size: 85%">
Sent by {HOSTNAME} {SERVER_IP} on {DATE} at {TIME} to {MAIL_RECIPIENT}. {VERSION_HTML}
</div>
</div>
</body>
</html>
"""

_PICTURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
"""By how its file begins, the kind of a picture that every mail program shows."""


class Picture(NamedTuple):
    """A picture that goes with a mail."""

    data: bytes
    kind: str
    """The second half of its type: png, jpeg or gif."""


class Template(NamedTuple):
    """What goes around content, as it was found."""

    header: str = _HEADER
    footer: str = _FOOTER
    logo: str = ""
    """Where the picture is to be had: a URL, or the `cid:` of the one that goes with the mail."""
    picture: Picture | None = None
    troubles: tuple[str, ...] = ()
    """Why a file that is there, or was named, is not used; a mail goes out all the same."""

    def around(self, body: str, values: Mapping[str, str]) -> str:
        """Return a page: `body`, which is markup, between header and footer, placeholders replaced.

        `values` are plain text by placeholder, and are escaped here.
        """
        ready = self._escaped(values)
        header, footer = (_replaced(part, ready) for part in (self.header, self.footer))
        return f"{header}{body}{footer}"

    def filled(self, content: str, values: Mapping[str, str], *, html: bool) -> str:
        """Return content with its placeholders replaced; `html` if it is markup, else it is text.

        The placeholder of the picture in a text becomes the name of the company.
        """
        ready = self._escaped(values) if html else {name: shown(values[name]) for name in values}
        if not html:
            ready["LOGO_HTML"] = ready["COMPANY_NAME"]
        return _replaced(content, {name: ready[name] for name in IN_CONTENT})

    def _escaped(self, values: Mapping[str, str]) -> dict[str, str]:
        ready = {name: escape(shown(values.get(name, ""))) for name in NAMES}
        ready["LOGO_HTML"] = self._logo_html(ready["COMPANY_NAME"])
        version = ready["VERSION_HTML"]
        ready["VERSION_HTML"] = f"<span>{version}</span>" if version else ""
        return ready

    def _logo_html(self, alt: str) -> str:
        return f'<img src="{escape(self.logo)}" alt="{alt}" height="48">' if self.logo else ""


def _replaced(text: str, ready: Mapping[str, str]) -> str:
    """Replace each placeholder that has a value in `ready`; all others stay."""
    return _PLACEHOLDER.sub(lambda found: ready.get(found[1], found[0]), text)


def found(settings: MailSettings) -> Template:
    """The template of an installation: its own files where they can be read, or else ours."""
    header, no_header = _part(f"{settings.templates}/{HEADER_FILE}", _HEADER)
    footer, no_footer = _part(f"{settings.templates}/{FOOTER_FILE}", _FOOTER)
    logo, picture, no_logo = _logo(settings.logo)
    troubles = tuple(filter(None, (no_header, no_footer, no_logo)))
    return Template(header, footer, logo, picture, troubles)


def version() -> str:
    """Our own name and version: it is not the firewall that sends."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"spooldeck {version('spooldeck')}"
    except PackageNotFoundError:
        return "spooldeck"  # run from a folder, without having been installed


def _part(path: str, ours: str) -> tuple[str, str]:
    """Half of the template, and why it is not the file that lies there."""
    try:
        return _read(path).decode("utf-8"), ""
    except FileNotFoundError:
        return ours, ""
    except (OSError, files.Refused, UnicodeDecodeError) as error:
        return ours, f"mail template {path}: {_why(error)}; ours is used instead"


def _logo(logo: str) -> tuple[str, Picture | None, str]:
    """Where the picture is, the picture itself if it goes with the mail, and why there is none."""
    told = f"mail logo {shown(logo)}"
    if not logo.startswith("/"):
        if not logo or _is_address(logo):
            return logo, None, ""
        return "", None, f"{told}: expected an absolute path, or a URL of http or https"
    try:
        data = _read(logo)
    except (OSError, files.Refused) as error:
        return "", None, f"{told}: {_why(error)}; mail goes without it"
    for start, kind in _PICTURES.items():
        if data.startswith(start):
            return f"cid:{LOGO_ID}", Picture(data, kind), ""
    return "", None, f"{told}: no PNG, JPEG or GIF picture; mail goes without it"


def _is_address(logo: str) -> bool:
    try:
        parts = urlsplit(logo)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and logo.isprintable()


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, OSError):
        return "a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
    return str(error)


def _read(path: str) -> bytes:
    dir_fd = files.reach(os.path.dirname(path))
    try:
        fd = files.open_plain(os.path.basename(path), dir_fd)
    finally:
        os.close(dir_fd)
    try:
        return files.read_guarded(fd, LIMIT)[0]
    finally:
        os.close(fd)
