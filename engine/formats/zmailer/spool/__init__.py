"""ZMailer's spool: message control files, in which a state change is one tag byte."""
