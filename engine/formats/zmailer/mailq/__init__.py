"""The MAILQ protocol of a ZMailer scheduler, versions 1 and 2: values, text, client, server."""
