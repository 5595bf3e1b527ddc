"""The queue of a ZMailer scheduler, shown and changed by MAILQ; or a dump of it in a file."""

from engine.stores.mailq.place import parse_place as parse_place
from engine.stores.mailq.store import MailqStore as MailqStore
