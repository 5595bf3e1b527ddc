"""Files, users, mounts, processes and syslog: what is asked of the kernel."""
