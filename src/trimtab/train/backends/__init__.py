"""Where samplers run: in this process, or beside it."""
