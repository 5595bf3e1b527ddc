"""The HTML template around the content of a mail, and its placeholders.

Header and footer are built in; files of the installation replace them. Placeholders in the content
are replaced too, as in the NFTBan program. Values are escaped, and inserted text is never searched
again.
"""

import errno
import re
from collections.abc import Mapping
from html import escape
from urllib.parse import urlsplit

from engine.config.mail_config import MailSettings
from engine.mail.message.content import read_plain_file
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.version import VERSION

HEADER_FILE, FOOTER_FILE = "header_default.html", "footer_default.html"

PLACEHOLDER_NAMES = (
    "NFTBAN_VERSION",
    "HOSTNAME",
    "SERVER_IP",
    "DATE",
    "TIME",
    "COMPANY_NAME",
    "LOGO_HTML",
    "VERSION_HTML",
    "SENDER",
    "MAIL_RECIPIENT",
    "MAIL_SYSTEM",
    "SUBJECT",
)
"""The placeholders of the real program, and SUBJECT, which its template contains too."""

CONTENT_PLACEHOLDERS = frozenset(PLACEHOLDER_NAMES) - {"SUBJECT"}
"""The placeholders that are replaced in content: the real program does not know SUBJECT."""

MAX_PART_BYTES = 256 * 1024
"""Maximum bytes of a header, a footer or a picture; each mail contains them."""

LOGO_ID = "logo@spooldeck.invalid"
"""The Content-ID of an attached picture."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDER_NAMES) + r")\}")

_COMPANY = "<strong>{COMPANY_NAME}</strong>\n"

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

_PICTURE_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
"""Picture types that every mail reader can show, by the first bytes of the file."""


class Picture(NamedTuple):
    """A picture attached to a mail."""

    data: bytes
    kind: str
    """The MIME subtype: png, jpeg or gif."""


class Template(NamedTuple):
    """Header, footer and logo, as found."""

    header: str = _HEADER
    footer: str = _FOOTER
    logo: str = ""
    """The address of the picture: a URL, or `cid:` for the attached one."""
    picture: Picture | None = None
    unused_files: tuple[str, ...] = ()
    """Why an existing or configured file is not used; the mail is sent without it."""

    def wrap_body(self, body: str, values: Mapping[str, str]) -> str:
        """Return a page: `body`, which is markup, between header and footer, placeholders replaced.
        `values` are plain text by placeholder, and are escaped here."""
        ready = self._escaped(values)
        header, footer = self.header, self.footer
        if not values.get("COMPANY_NAME"):
            header = header.replace(_COMPANY, "")
        if not values.get("SERVER_IP"):
            footer = footer.replace("{HOSTNAME} {SERVER_IP}", "{HOSTNAME}")
        header, footer = (_replace_placeholders(part, ready) for part in (header, footer))
        return f"{header}{body}{footer}"

    def fill_placeholders(self, content: str, values: Mapping[str, str], *, html: bool) -> str:
        """Return content with its placeholders replaced; `html` if it is markup. In text, the
        placeholder of the picture becomes the company's name."""
        ready = (
            self._escaped(values) if html else {name: safe_line(values[name]) for name in values}
        )
        if not html:
            ready["LOGO_HTML"] = ready["COMPANY_NAME"]
        return _replace_placeholders(content, {name: ready[name] for name in CONTENT_PLACEHOLDERS})

    def _escaped(self, values: Mapping[str, str]) -> dict[str, str]:
        ready = {name: escape(safe_line(values.get(name, ""))) for name in PLACEHOLDER_NAMES}
        ready["LOGO_HTML"] = self._logo_html(ready["COMPANY_NAME"])
        version = ready["VERSION_HTML"]
        ready["VERSION_HTML"] = f"<span>{version}</span>" if version else ""
        return ready

    def _logo_html(self, alt: str) -> str:
        return f'<img src="{escape(self.logo)}" alt="{alt}" height="48">' if self.logo else ""


def _replace_placeholders(text: str, ready: Mapping[str, str]) -> str:
    """Replace each placeholder that has a value in `ready`; all others stay."""
    return _PLACEHOLDER.sub(lambda match: ready.get(match[1], match[0]), text)


def load_page_template(settings: MailSettings) -> Template:
    """Load the template of an installation; the built-in one for files that cannot be read."""
    header, no_header = _load_part(f"{settings.templates}/{HEADER_FILE}", _HEADER)
    footer, no_footer = _load_part(f"{settings.templates}/{FOOTER_FILE}", _FOOTER)
    logo, picture, no_logo = _load_logo(settings.logo)
    troubles = tuple(filter(None, (no_header, no_footer, no_logo)))
    return Template(header, footer, logo, picture, troubles)


def version_text() -> str:
    """Return our name and version, as this mail does not come from the firewall."""
    return f"spooldeck {VERSION}"


def _load_part(path: str, default: str) -> tuple[str, str]:
    """Read one half of the template; on failure return the built-in one and why."""
    try:
        return read_plain_file(path, MAX_PART_BYTES).decode("utf-8"), ""
    except FileNotFoundError:
        return default, ""
    except (OSError, files.Refused, UnicodeDecodeError) as error:
        return default, f"mail template {path}: {_describe_error(error)}; the built-in one is used"


def _load_logo(logo: str) -> tuple[str, Picture | None, str]:
    """Return the picture's address, the picture if it is attached, and why there is none."""
    label = f"mail logo {safe_line(logo)}"
    if not logo.startswith("/"):
        if not logo or _is_address(logo):
            return logo, None, ""
        return "", None, f"{label}: expected an absolute path, or a URL of http or https"
    try:
        data = read_plain_file(logo, MAX_PART_BYTES)
    except (OSError, files.Refused) as error:
        return "", None, f"{label}: {_describe_error(error)}; mail is sent without it"
    for start, kind in _PICTURE_SIGNATURES.items():
        if data.startswith(start):
            return f"cid:{LOGO_ID}", Picture(data, kind), ""
    return "", None, f"{label}: not a PNG, JPEG or GIF picture; mail is sent without it"


def _is_address(logo: str) -> bool:
    try:
        parts = urlsplit(logo)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and logo.isprintable()


def _describe_error(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, OSError):
        return "a symbolic link" if error.errno == errno.ELOOP else error_text(error)
    return str(error)
