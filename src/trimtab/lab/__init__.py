"""The same training for many corrections: scenarios × corrections × seeds, one verdict per cell.

scenario, correction, seed ─► cells ─► warm starts, then worker processes (`train`, backend lockstep) ─► run directories
                                                                                                              │
                              lab.json ◄── verdicts against the control of the same seed ◄── curves ◄─────────┘
                                 └─► tables, lab.html, README table, docs page with its claims
"""
