"""What the cells of a lab say about a claim: pairs of runs, checks of the comparison, a verdict where the seeds decide.

claims.yaml ─► claim ─► cells of both arms ─► pairs (same seed, start and prompts) ─► decision, survival ─► table, page
                             ▲                          └─► checks of the harness ──────────┘
                             └── more seeds while it is open (`decide`)
"""
