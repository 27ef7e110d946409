"""What the numbers of a run say: its verdict, early signs, faults, and what to try; sentences from series."""
