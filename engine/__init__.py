"""Core types: tasks and states (model), pure verbs, policies and the store protocol."""
