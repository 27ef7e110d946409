"""Asynchronous training, the only folder with time and processes.

task ──problems──► loop ──jobs──► backend ─► engine (sampler, weights of version v − age) ─► groups
                    ▲  admission: staleness rule                                              │
                    │                                                                         ▼
weights v + 1 ◄── learner ◄── batch of answers ◄── buffer (WAITING → RUNNING → READY → TRAINED) ◄── scores
    │               │
    ▼               ▼
 samplers        records, checkpoints

Every thing has one owner: the learner its model and optimiser, a back-end its samplers, the buffer its groups, `weights` the way
between learner and samplers. What crosses a border stands in `messages`. `build` makes all of them from settings; `loop` is the story.
"""
