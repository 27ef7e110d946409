"""Which charts a report shows: a table of line panels, bars of token classes and of time, gates under other bounds."""
