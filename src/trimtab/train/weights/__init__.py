"""The weights' way from the learner to the samplers."""
