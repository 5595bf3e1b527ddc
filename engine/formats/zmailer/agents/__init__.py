"""Our transport agents: `smtp`, `hold` and `errormail`; locks and outcomes of what they deliver."""
