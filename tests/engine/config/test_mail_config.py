"""Mail settings: YAML, environment and mail.conf, their order, and errors in one line."""

from pathlib import Path

import pytest

from engine.config import mail_config, nftban_variables, queue_config
from engine.config.mail_config import MailSettings
from engine.config.nftban_variables import variable_rows
from engine.config.validators import ConfigError, ConfigLocation, checks_of
from engine.policy import Rate

AT = ConfigLocation("some.yaml", "mail", "/base", "/home/u")
ROOT = "/srv/q"
NOTHING = "/nowhere/at/all"


def settings(environ: dict[str, str] | None = None, /, **arguments: object) -> MailSettings:
    """As they are for one data folder, where no installation is on this machine."""
    section = mail_config.parse_mail_section(arguments, AT)
    environ = {"NFTBAN_CONFIG_DIR": NOTHING, **(environ or {})}
    return mail_config.mail_settings_for(section, ROOT, f"{ROOT}/log", environ)


def test_no_setting_is_the_contract() -> None:
    """Three attempts, HTML, one strict address, files of the place itself; so is an empty path."""
    got = settings()
    assert (got.attempts, got.backoff, got.html, got.strict) == (3, (5, 15, 45), True, True)
    assert (got.port, got.connect_timeout, got.max_time) == (587, None, 30)
    assert got.allowed_paths == (ROOT, f"{ROOT}/log")
    assert got.delivery_log == f"{ROOT}/mail/delivery.jsonl"
    assert (got.method, got.recipient, got.plain_hosts) == ("", "", ())

    at = ConfigLocation("f", "mail", base="/")
    section = mail_config.parse_mail_section({"delivery_log": "", "allowed_paths": []}, at)
    for read in (mail_config.mail_settings_for, mail_config.lenient_mail_settings):
        got = read(section, ROOT, f"{ROOT}/log", {})
        assert got.delivery_log == f"{ROOT}/mail/delivery.jsonl"
        assert got.allowed_paths == (ROOT, f"{ROOT}/log")


def test_yaml_says_all_of_it() -> None:
    """Each key lands in its field; what is said of the relay lies flat beside the rest."""
    relay = {"host": "relay.example.com", "port": 465, "user": "u", "password_file": "pw"}
    mail = {"method": "curl", "recipient": "ops@example.com", "backoff": [1, 2.5], "relay": relay}
    mail |= {"plain_hosts": ["127.0.0.1", "::1"], "max_file_size": "2M"}
    mail |= {"allowed_paths": ["~/mail"]}
    mail |= {"rates": {"curl": {"per_hour": 60}}, "programs": {"sendmail": "/opt/sendmail"}}
    got = settings(None, **mail, domains={"Example.COM": {"per_hour": 40, "burst": 5}})
    assert (got.host, got.port, got.user) == ("relay.example.com", 465, "u")
    assert (got.password_file, got.plain_hosts) == ("/base/pw", ("127.0.0.1", "::1"))
    assert (got.backoff, got.max_file_size) == ((1, 2.5), 2_000_000)
    assert got.rates == {"curl": Rate.with_default_burst(60, None)}
    assert got.domains == {"example.com": Rate.with_default_burst(40, 5)}
    assert (got.programs, got.allowed_paths) == ({"sendmail": "/opt/sendmail"}, ("/home/u/mail",))


def test_the_other_program_is_understood_in_its_own_words() -> None:
    """Only YES is yes, lists have colons or commas, sizes are KiB; no text shows the password."""
    mail = {"USE_HTML": "yes", "VALIDATE_RECIPIENTS": "YES", "ALLOWED_PATHS": "/a:/b/../c"}
    mail |= {"RETRY_BACKOFF": "1,2, 3", "MAX_FILE_SIZE": "10", "METHOD": "msmtp"}
    rest = {"SMTP_HOST": "mx.example.org", "SMTP_PASS": "s3cret", "SENDMAIL_BIN": "/opt/s"}
    rest |= {"SHARE_DIR": "/opt/share"} | {f"MAIL_{name}": text for name, text in mail.items()}
    got = settings({f"NFTBAN_{name}": text for name, text in rest.items()})
    assert (got.html, got.strict, got.allowed_paths) == (False, True, ("/a", "/c"))
    assert (got.backoff, got.max_file_size) == ((1, 2, 3), 10240)
    assert (got.host, got.method) == ("mx.example.org", "msmtp")
    assert (got.programs, got.templates) == ({"sendmail": "/opt/s"}, "/opt/share/templates/mail")
    assert got.password == "s3cret"
    assert "s3cret" not in repr(got) + str(got) + f"{got}"


def test_files_of_an_installation_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mail.conf.local goes before mail.conf, that before nftban.conf; another place takes none."""
    (tmp_path / "conf.d").mkdir()
    first = f"NFTBAN_DATA_DIR={ROOT}\nNFTBAN_MAIL_RECIPIENT=a@x.org\nNFTBAN_SENDER=s@x.org"
    lines = {
        "nftban.conf": first,
        "conf.d/mail.conf": 'NFTBAN_MAIL_RECIPIENT="b@x.org"\nNFTBAN_FROM_NAME=${NFTBAN_SENDER}',
        "conf.d/mail.conf.local": "NFTBAN_MAIL_RECIPIENT='c@x.org'",
    }
    for name, text in lines.items():
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(nftban_variables, "CONFIG_DIR", str(tmp_path))
    mail_settings = mail_config.mail_settings_for({}, ROOT, f"{ROOT}/log", {})
    elsewhere = mail_config.mail_settings_for({}, "/srv/other", "/srv/other/log", {})
    assert mail_settings.recipient == "c@x.org"
    assert mail_settings.sender == mail_settings.from_name == "s@x.org"
    assert (elsewhere.recipient, elsewhere.sender) == ("", "")


NOT_MEANT: tuple[tuple[dict[str, object], str], ...] = (
    ({"methode": "curl"}, "mail.methode: unknown key, expected one of method"),
    ({"method": "smtp"}, "mail.method: expected one of"),
    ({"method": "pigeon"}, "expected one of postfix, sendmail"),
    ({"relay": {"host": "-x"}}, "mail.relay.host: expected a host name or address"),
    ({"relay": {"host": "a b"}}, "mail.relay.host"),
    ({"relay": {"port": 65536}}, "mail.relay.port: expected a port from 1 to 65535"),
    ({"relay": {"password": "x"}}, "mail.relay.password: unknown key"),
    ({"attempts": 0}, "mail.attempts: expected a whole number of attempts, at least 1"),
    ({"backoff": "5,15"}, "mail.backoff: expected a list of seconds"),
    ({"backoff": [5, -1]}, "or a number of seconds, at least 0, not -1"),
    ({"rates": {"smtp": {"per_hour": 1}}}, "mail.rates.smtp: unknown key"),
    ({"rates": {"curl": 4}}, "mail.rates.curl: expected a mapping like"),
    ({"domains": {"a b": {"per_hour": 1}}}, "mail.domains.a b: expected a host name"),
    ({"from_name": "a\nBcc: x"}, "mail.from_name: expected text on one line"),
    ({"programs": {"perl": "/usr/bin/perl"}}, "mail.programs.perl: unknown key"),
    ({"html": "YES"}, "mail.html: expected true or false"),
)


def test_an_invalid_setting_is_one_line(tmp_path: Path) -> None:
    """It says where, and what was expected, also for a variable, or a key one level too high."""
    for section, words in NOT_MEANT:
        with pytest.raises(ConfigError) as caught:
            settings(None, **section)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"mail\.connect_timeout: .*under mail\.relay$"):
        settings(None, connect_timeout=3)
    assert settings(None, method="").method == ""
    (tmp_path / "c.yaml").write_text("mail: {attempts: none}")
    with pytest.raises(ConfigError, match=r"mail\.attempts"):
        queue_config.load_config(str(tmp_path / "c.yaml"), {})

    wrong = {"MAIL_METHOD": "pigeon", "SMTP_PORT": "smtp", "MAIL_RETRY_BACKOFF": "5;15"}
    wrong |= {"MAIL_ALLOWED_PATHS": "relative:/a", "MAIL_MAX_FILE_SIZE": "10M"}
    for name, text in (wrong | {"SENDMAIL_BIN": "sendmail"}).items():
        with pytest.raises(ConfigError, match=f"environment: NFTBAN_{name}: expected"):
            settings({f"NFTBAN_{name}": text})


def test_planned_settings_count_as_the_last_of_the_files() -> None:
    """Behind the environment and YAML, as if they had been written already."""
    planned = {"NFTBAN_MAIL_RECIPIENT": "new@example.com"}
    by_variable = {"NFTBAN_MAIL_RECIPIENT": "env@example.com"}
    for environ, section, recipient in (
        ({}, {}, "new@example.com"),
        (by_variable, {}, "env@example.com"),
        ({}, {"recipient": "yaml@example.com"}, "yaml@example.com"),
    ):
        environ = {"NFTBAN_CONFIG_DIR": NOTHING, **environ}
        got = mail_config.mail_settings_for(section, ROOT, f"{ROOT}/log", environ, planned)
        assert got.recipient == recipient


def kept(**environ: str) -> MailSettings:
    """The known mail settings, despite those that are invalid."""
    environ = {"NFTBAN_CONFIG_DIR": NOTHING, **environ}
    return mail_config.lenient_mail_settings({"company": "ACME"}, ROOT, f"{ROOT}/log", environ)


def test_valid_settings_count_beside_invalid_ones(tmp_path: Path) -> None:
    """Other settings stay known; of the folders to mail from only the data folder is left."""
    known = {"NFTBAN_MAIL_RECIPIENT": "ops@example.com", "NFTBAN_MAIL_MAX_FILE_SIZE": "1"}
    got = kept(**known, NFTBAN_SMTP_PORT="abc", NFTBAN_MAIL_RETRY_ATTEMPTS="0")
    assert (got.recipient, got.max_file_size, got.company) == ("ops@example.com", 1024, "ACME")
    assert (got.port, got.attempts, got) == (587, 3, kept(**known))
    assert kept(NFTBAN_MAIL_ALLOWED_PATHS="reports").allowed_paths == (ROOT,)
    assert kept().allowed_paths == (ROOT, f"{ROOT}/log")
    (tmp_path / "conf.d" / "mail.conf").mkdir(parents=True)  # a folder, which is not read
    got = kept(NFTBAN_CONFIG_DIR=str(tmp_path), NFTBAN_MAIL_RECIPIENT="ops@example.com")
    assert (got.recipient, got.allowed_paths) == ("ops@example.com", (ROOT,))


def test_every_field_can_be_shown_somewhere() -> None:
    """Each setting has a source, but for one of the place; the secret is among the variables."""
    variables = [row.field for row in variable_rows(MailSettings)]
    assert {*MailSettings._fields} == {*checks_of(MailSettings), *variables, "product"}
    assert nftban_variables.PASSWORD_VARIABLE in mail_config.VARIABLES


def test_only_mails_of_nftban_have_its_name(tmp_path: Path) -> None:
    """The queue of NFTBan, or that of its caller, has other defaults than one's own queue."""
    own, theirs = str(tmp_path), "/var/lib/nftban"
    named = {"NFTBAN_DATA_DIR": own}
    for configured, root, environ, names in (
        ({}, own, {}, ("spooldeck", "spooldeck", "[spooldeck]")),
        ({}, theirs, {}, ("NFTBan", "NFTBan Security System", "[NFTBan]")),
        ({}, own, named, ("NFTBan", "NFTBan Security System", "[NFTBan]")),
        ({"subject_prefix": "[x]"}, theirs, {}, ("NFTBan", "NFTBan Security System", "[x]")),
        ({}, own, {"NFTBAN_FROM_NAME": "me"}, ("spooldeck", "me", "[spooldeck]")),
    ):
        for read in (mail_config.mail_settings_for, mail_config.lenient_mail_settings):
            its = read(configured, root, root, environ)
            assert (its.product, its.from_name, its.subject_prefix) == names
