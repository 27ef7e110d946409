"""One adapter per framework: how it calls its loss and its advantages in one optimiser step, and nothing else."""
