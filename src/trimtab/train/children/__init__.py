"""Processes that a run starts, and that end with it: their parent's side, their own, and what the system says of them."""
