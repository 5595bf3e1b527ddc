"""Send, retry and spool mail, and record every delivery attempt."""
