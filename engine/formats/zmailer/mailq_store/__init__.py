"""The queue of a ZMailer scheduler, shown and changed by MAILQ; or a dump of it in a file."""
