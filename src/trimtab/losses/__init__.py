"""What the optimiser descends: one objective per file, each a function of log-ratios, advantages and a verdict, all in one table."""
