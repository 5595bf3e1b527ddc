"""HTTP deliveries: requests to judged addresses only, and the handler that sends a task as one."""
