"""Mail: what is sent, by which transport, and what is kept until it was."""
