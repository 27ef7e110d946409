"""From rewards to advantages: shaping, votes, group baselines, returns, normalisation."""
