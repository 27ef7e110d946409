"""trimtab inside other trainers: one file per framework, each the adapter from its hook to our functions and nothing else."""
