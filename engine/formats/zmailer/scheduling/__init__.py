"""Which thread of mail runs when, by which agent: values and decisions, no file format."""
