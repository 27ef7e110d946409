"""Asynchronous training, the only folder with time and processes.

task ──problems──► loop ──jobs──► backend ─► engine (sampler, weights of version v − age) ─► groups
                    ▲  admission: staleness rule                                              │
                    │                                                                         ▼
weights v + 1 ◄── learner ◄── batch of groups ◄── buffer (WAITING → RUNNING → READY → TRAINED) ◄── scores
    │               │
    ▼               ▼
 samplers        records, checkpoints
"""
