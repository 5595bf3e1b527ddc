"""Mail commands: send, test, setup and the mail spool."""
