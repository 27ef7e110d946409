"""The rungs of the ladder: each a pure function from a gap to a result."""
