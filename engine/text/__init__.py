"""Make foreign text safe to show, decode it, and match it. Standard library and RE2 only."""
