"""Follow, merge and filter log files; the task events and delivery records in them."""
