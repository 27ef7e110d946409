"""A correction in words, formulas and worked examples, and how far a token must move before a gate fires. Never imports torch."""
