"""A saved batch to causes and what-if: whether its gap is numerics, a bug or staleness, and what each correction would do."""
