"""The commands of `spooldeck zmailer`: configuration, scheduler, agents, checks of a spool."""
