"""ZGB's mail queue: the table "mail_queue" of a SQLite database, sent at the rate of a token
bucket."""
