"""Batches whose fault is known, because it was made: a small language model really samples with it."""
