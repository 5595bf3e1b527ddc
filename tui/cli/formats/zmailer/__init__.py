"""The commands of `spooldeck zmailer`: scheduler, agents, MAILQ, checks."""
