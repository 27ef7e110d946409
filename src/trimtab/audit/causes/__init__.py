"""Causes of a gap, tested one by one: each a pure function from a `Gap` to a `CauseResult`."""
