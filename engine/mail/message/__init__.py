"""Compose messages: text, templates, mail merge and bounces."""
