"""ZMailer's scheduler: agents, reports, logs, and mail that is given to the router."""
