"""What real programs left behind when a mail was not sent, byte for byte.

curl 7.88.1 (with --silent --show-error --dump-header -), msmtp 1.8.23, Postfix 3.7.11 and bsd-mailx
8.1.2 (handing over to msmtp) on Debian 12, towards the server of these tests.
"""

from typing import NamedTuple


class Left(NamedTuple):
    """What a program left: its exit status and its output; and the word for it."""

    program: str
    what: str
    """What happened to it."""
    status: int
    output: bytes
    word: str


LEFT = (
    Left(
        "curl",
        "refused port",
        7,
        b"curl: (7) Failed to connect to 127.0.0.1 port 55573 after 0 ms: Couldn't conne"
        b"ct to server\n",
        "connect_refused",
    ),
    Left(
        "curl",
        "unresolvable host",
        6,
        b"curl: (6) Could not resolve host: nowhere.invalid\n",
        "dns_not_found",
    ),
    Left(
        "curl",
        "no greeting",
        28,
        b"curl: (28) Operation timed out after 1000 milliseconds with 0 bytes received\n",
        "timeout",
    ),
    Left(
        "curl",
        "packets get lost",
        28,
        b"curl: (28) Connection timed out after 1000 milliseconds\n",
        "connect_timeout",
    ),
    Left(
        "curl",
        "554 greeting",
        8,
        b"554 5.3.2 no service here\r\ncurl: (8) Got unexpected smtp-server response: 554\n",
        "unavailable_554",
    ),
    Left(
        "curl",
        "554 at EHLO",
        9,
        b"220 mx.example.org scripted\r\n"
        b"554 5.5.0 no\r\n"
        b"554 5.5.0 not even so\r\n"
        b"curl: (9) Remote access denied: 554\n",
        "unavailable_554",
    ),
    Left(
        "curl",
        "421 greeting",
        8,
        b"421 4.3.2 too busy\r\ncurl: (8) Got unexpected smtp-server response: 421\n",
        "unavailable_421",
    ),
    Left(
        "curl",
        "450 at RCPT",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"450 4.2.1 mailbox busy\r\n"
        b"221 Bye\r\n"
        b"curl: (55) RCPT failed: 450\n",
        "unavailable_450",
    ),
    Left(
        "curl",
        "450 at RCPT, two lines",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"450-4.2.1 mailbox busy\r\n"
        b"450 4.2.1 try later\r\n"
        b"221 Bye\r\n"
        b"curl: (55) RCPT failed: 450\n",
        "unavailable_450",
    ),
    Left(
        "curl",
        "550 at RCPT",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"550 5.1.1 <admin@example.com>: no such user\r\n"
        b"221 Bye\r\n"
        b"curl: (55) RCPT failed: 550\n",
        "rejected_550",
    ),
    Left(
        "curl",
        "550 about authentication at RCPT",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"550 5.7.23 Sender authentication (SPF) failed\r\n"
        b"221 Bye\r\n"
        b"curl: (55) RCPT failed: 550\n",
        "rejected_550",
    ),
    Left(
        "curl",
        "550 at MAIL",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"550 5.1.8 bad sender\r\n"
        b"221 Bye\r\n"
        b"curl: (55) MAIL failed: 550\n",
        "rejected_550",
    ),
    Left(
        "curl",
        "530 at MAIL",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250-AUTH LOGIN PLAIN\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-AUTH LOGIN PLAIN\r\n"
        b"250 HELP\r\n"
        b"530 5.7.0 Authentication required\r\n"
        b"221 Bye\r\n"
        b"curl: (55) MAIL failed: 530\n",
        "auth_530",
    ),
    Left(
        "curl",
        "452 at DATA",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"452 4.3.1 no space\r\n"
        b"221 Bye\r\n"
        b"curl: (55) DATA failed: 452\n",
        "unavailable_452",
    ),
    Left(
        "curl",
        "554 at DATA",
        55,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"554 5.5.1 no valid recipients\r\n"
        b"221 Bye\r\n"
        b"curl: (55) DATA failed: 554\n",
        "rejected_554",
    ),
    Left(
        "curl",
        "451 after the mail",
        8,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"354 End data with <CR><LF>.<CR><LF>\r\n"
        b"451 4.7.1 greylisted\r\n"
        b"curl: (8) Weird server reply\n",
        "unavailable_451",
    ),
    Left(
        "curl",
        "554 after the mail",
        8,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"354 End data with <CR><LF>.<CR><LF>\r\n"
        b"554 5.7.1 spam\r\n"
        b"curl: (8) Weird server reply\n",
        "rejected_554",
    ),
    Left(
        "curl",
        "dropped in DATA",
        56,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"354 go on\r\n"
        b"curl: (56) response reading failed (errno: 115)\n",
        "connect_lost",
    ),
    Left(
        "curl",
        "dropped after the mail",
        56,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"354 End data with <CR><LF>.<CR><LF>\r\n"
        b"curl: (56) response reading failed (errno: 115)\n",
        "connect_lost",
    ),
    Left(
        "curl",
        "dropped after the mail, TLS",
        56,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"354 End data with <CR><LF>.<CR><LF>\r\n"
        b"curl: (56) response reading failed (errno: 0)\n",
        "connect_lost",
    ),
    Left(
        "curl",
        "no answer after the mail: 999",
        8,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"250 OK\r\n"
        b"354 End data with <CR><LF>.<CR><LF>\r\n"
        b"999 what\r\n"
        b"curl: (8) Weird server reply\n",
        "connect_lost",
    ),
    Left(
        "curl",
        "stalls at RCPT",
        28,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"250 OK\r\n"
        b"curl: (28) Operation timed out after 1001 milliseconds with 0 bytes received\n",
        "timeout",
    ),
    Left(
        "curl",
        "certificate of nobody we know",
        60,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"curl: (60) SSL certificate problem: self-signed certificate\n"
        b"More details here: https://curl.se/docs/sslcerts.html\n"
        b"\n"
        b"curl failed to verify the legitimacy of the server and therefore could not\n"
        b"establish a secure connection to it. To learn more about this situation and\n"
        b"how to fix it, please visit the web page mentioned above.\n",
        "tls_certificate",
    ),
    Left(
        "curl",
        "certificate of another host",
        60,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"curl: (60) SSL: no alternative certificate subject name matches target host na"
        b"me '127.0.0.1'\n"
        b"More details here: https://curl.se/docs/sslcerts.html\n"
        b"\n"
        b"curl failed to verify the legitimacy of the server and therefore could not\n"
        b"establish a secure connection to it. To learn more about this situation and\n"
        b"how to fix it, please visit the web page mentioned above.\n",
        "tls_certificate",
    ),
    Left(
        "curl",
        "no STARTTLS",
        64,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250 HELP\r\n"
        b"curl: (64) STARTTLS not supported.\n",
        "tls_missing",
    ),
    Left(
        "curl",
        "STARTTLS refused",
        64,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250 HELP\r\n"
        b"454 4.7.0 TLS not available\r\n"
        b"curl: (64) STARTTLS denied, code 454\n",
        "tls_missing",
    ),
    Left(
        "curl",
        "wrong password",
        67,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250-AUTH LOGIN PLAIN\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-AUTH LOGIN PLAIN\r\n"
        b"250 HELP\r\n"
        b"334 \r\n"
        b"535 5.7.8 Authentication credentials invalid\r\n"
        b"curl: (67) Login denied\n",
        "auth_535",
    ),
    Left(
        "curl",
        "454 at login",
        67,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250-AUTH LOGIN PLAIN\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-AUTH LOGIN PLAIN\r\n"
        b"250 HELP\r\n"
        b"454 4.7.0 temporary\r\n"
        b"curl: (67) Login denied\n",
        "auth_454",
    ),
    Left(
        "curl",
        "TLS to a server without",
        35,
        b"curl: (35) OpenSSL/3.0.19: error:0A00010B:SSL routines::wrong version number\n",
        "tls_failed",
    ),
    Left(
        "curl",
        "no such file of certificates",
        77,
        b"220 mx.example.org scripted\r\n"
        b"250-mx.example.org\r\n"
        b"250-8BITMIME\r\n"
        b"250-STARTTLS\r\n"
        b"250 HELP\r\n"
        b"220 Ready to start TLS\r\n"
        b"curl: (77) error setting certificate file: /nonexistent\n",
        "tls_certificate",
    ),
    Left(
        "msmtp",
        "refused port",
        75,
        b"msmtp: cannot connect to 127.0.0.1, port 35741: Connection refused\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "connect_refused",
    ),
    Left(
        "msmtp",
        "unresolvable host",
        68,
        b"msmtp: cannot locate host nowhere.invalid: Name or service not known\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "dns_not_found",
    ),
    Left(
        "msmtp",
        "no greeting",
        74,
        b"msmtp: network read error: the operation timed out\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "timeout",
    ),
    Left(
        "msmtp",
        "packets get lost",
        75,
        b"msmtp: cannot connect to 127.0.0.1, port 55605: Connection timed out\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "connect_timeout",
    ),
    Left(
        "msmtp",
        "554 greeting",
        76,
        b"msmtp: cannot get initial OK message from server\n"
        b"msmtp: server message: 554 5.3.2 no service here\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "unavailable_554",
    ),
    Left(
        "msmtp",
        "421 greeting",
        76,
        b"msmtp: cannot get initial OK message from server\n"
        b"msmtp: server message: 421 4.3.2 too busy\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "unavailable_421",
    ),
    Left(
        "msmtp",
        "450 at RCPT",
        69,
        b"msmtp: recipient address admin@example.com not accepted by the server\n"
        b"msmtp: server message: 450 4.2.1 mailbox busy\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "unavailable_450",
    ),
    Left(
        "msmtp",
        "450 at RCPT, two lines",
        69,
        b"msmtp: recipient address admin@example.com not accepted by the server\n"
        b"msmtp: server message: 450-4.2.1 mailbox busy\n"
        b"msmtp: server message: 450 4.2.1 try later\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "unavailable_450",
    ),
    Left(
        "msmtp",
        "550 at RCPT",
        65,
        b"msmtp: recipient address admin@example.com not accepted by the server\n"
        b"msmtp: server message: 550 5.1.1 <admin@example.com>: no such user\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "rejected_550",
    ),
    Left(
        "msmtp",
        "550 about authentication at RCPT",
        65,
        b"msmtp: recipient address admin@example.com not accepted by the server\n"
        b"msmtp: server message: 550 5.7.23 Sender authentication (SPF) failed\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "rejected_550",
    ),
    Left(
        "msmtp",
        "550 at MAIL",
        65,
        b"msmtp: envelope from address us@example.org not accepted by the server\n"
        b"msmtp: server message: 550 5.1.8 bad sender\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "rejected_550",
    ),
    Left(
        "msmtp",
        "530 at MAIL",
        65,
        b"msmtp: envelope from address us@example.org not accepted by the server\n"
        b"msmtp: server message: 530 5.7.0 Authentication required\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "auth_530",
    ),
    Left(
        "msmtp",
        "452 at DATA",
        69,
        b"msmtp: the server does not accept mail data\n"
        b"msmtp: server message: 452 4.3.1 no space\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "unavailable_452",
    ),
    Left(
        "msmtp",
        "554 at DATA",
        65,
        b"msmtp: the server does not accept mail data\n"
        b"msmtp: server message: 554 5.5.1 no valid recipients\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "rejected_554",
    ),
    Left(
        "msmtp",
        "451 after the mail",
        69,
        b"msmtp: the server did not accept the mail\n"
        b"msmtp: server message: 451 4.7.1 greylisted\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "unavailable_451",
    ),
    Left(
        "msmtp",
        "554 after the mail",
        69,
        b"msmtp: the server did not accept the mail\n"
        b"msmtp: server message: 554 5.7.1 spam\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "rejected_554",
    ),
    Left(
        "msmtp",
        "dropped in DATA",
        76,
        b"msmtp: the server sent an empty reply\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "connect_lost",
    ),
    Left(
        "msmtp",
        "dropped after the mail",
        76,
        b"msmtp: the server sent an empty reply\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "connect_lost",
    ),
    Left(
        "msmtp",
        "dropped after the mail, TLS",
        74,
        b"msmtp: cannot read from TLS connection: The TLS connection was non-properly te"
        b"rminated.\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "connect_lost",
    ),
    Left(
        "msmtp",
        "no answer after the mail: some words",
        76,
        b"msmtp: the server sent an invalid reply\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "connect_lost",
    ),
    Left(
        "msmtp",
        "stalls at RCPT",
        74,
        b"msmtp: network read error: the operation timed out\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "timeout",
    ),
    Left(
        "msmtp",
        "certificate of nobody we know",
        69,
        b"msmtp: TLS certificate verification failed: The certificate is NOT trusted. Th"
        b"e certificate issuer is unknown. \n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "tls_certificate",
    ),
    Left(
        "msmtp",
        "certificate of another host",
        69,
        b"msmtp: TLS certificate verification failed: The certificate is NOT trusted. Th"
        b"e name in the certificate does not match the expected. \n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "tls_certificate",
    ),
    Left(
        "msmtp",
        "no STARTTLS",
        69,
        b"msmtp: the server does not support TLS via the STARTTLS command\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "tls_missing",
    ),
    Left(
        "msmtp",
        "STARTTLS refused",
        76,
        b"msmtp: command STARTTLS failed\n"
        b"msmtp: server message: 454 4.7.0 TLS not available\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "tls_missing",
    ),
    Left(
        "msmtp",
        "wrong password",
        77,
        b"msmtp: authentication failed (method PLAIN)\n"
        b"msmtp: server message: 535 5.7.8 Authentication credentials invalid\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "auth_535",
    ),
    Left(
        "msmtp",
        "454 at login",
        77,
        b"msmtp: authentication failed (method PLAIN)\n"
        b"msmtp: server message: 454 4.7.0 temporary\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "auth_454",
    ),
    Left(
        "msmtp",
        "TLS to a server without",
        76,
        b"msmtp: TLS handshake failed: An unexpected TLS packet was received.\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "tls_failed",
    ),
    Left(
        "msmtp",
        "no such file of certificates",
        66,
        b"msmtp: cannot set X509 trust file /nonexistent for TLS session: Error while re"
        b"ading file.\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "tls_failed",
    ),
    Left(
        "msmtp",
        "login not offered",
        69,
        b"msmtp: the server does not support authentication\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n",
        "auth_failed",
    ),
    Left(
        "msmtp",
        "bad configuration",
        78,
        b"msmtp: /home/us/.msmtprc: line 6: unknown command nonsense\n",
        "unavailable_configuration",
    ),
    Left(
        "postfix",
        "a message over its limit",
        75,
        b"postdrop: warning: uid=0: File too large\n"
        b"sendmail: warning: mail_stream_cleanup: close error\n"
        b"sendmail: fatal: us@example.org(0): message file too big\n",
        "rejected_too_large",
    ),
    Left(
        "postfix",
        "a user who may not send",
        75,
        b"sendmail: fatal: User root(0) is not allowed to submit mail\n",
        "unavailable_permission",
    ),
    Left(
        "postfix",
        "no configuration",
        75,
        b"sendmail: fatal: open /nonexistent/main.cf: No such file or directory\n",
        "unavailable_for_now",
    ),
    Left(
        "postfix",
        "an option it does not know",
        75,
        b"sendmail: invalid option -- '-'\n"
        b"sendmail: invalid option -- '-'\n"
        b"sendmail: fatal: usage: sendmail [options]\n",
        "unavailable_for_now",
    ),
    Left(
        "mailx",
        "550 at RCPT",
        1,
        b"msmtp: recipient address admin@example.com not accepted by the server\n"
        b"msmtp: server message: 550 5.1.1 no such user\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n"
        b"Can't send mail: sendmail process failed with error code 65\n",
        "rejected_550",
    ),
    Left(
        "mailx",
        "refused port",
        1,
        b"msmtp: cannot connect to 127.0.0.1, port 37745: Connection refused\n"
        b"msmtp: could not send mail (account default from /home/us/.msmtprc)\n"
        b"Can't send mail: sendmail process failed with error code 75\n",
        "connect_refused",
    ),
    Left(
        "mailx",
        "nothing to hand it to",
        1,
        b"mailx: /nonexistent: No such file or directory\n"
        b"Can't send mail: sendmail process failed with error code 1\n",
        "unavailable_status_1",
    ),
)
