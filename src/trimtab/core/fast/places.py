"""Where things stand in what the pass writes: numbers of each row, of each gate in it, sums and extremes of the batch.

A row: 0 tokens, 1 Σ log r, 2 Σ log base, 3 kept tokens, 4 its weight where it has one for all tokens, 5 and 6 the least and the greatest
log r, 7 the logarithm of that weight before its bounds, 8 Σ(r−1)², 9 Σk3 and 10 Σ(r−1), where they were worked out by rows. Of each
gate in it: 0 tokens, 1 and 2 the least and the greatest it measured, 3 whether that is inside, 4 tokens lost.
`figures.py` names the sums and extremes of the batch.
"""

ROW, ROW_GATE = 11, 5
TOKEN_SUMS, GATE_SUMS, TOKEN_TOPS = 25, 9, 10
FIRST_EXPONENTIAL = 6
"""From this code on a divergence is an exponential, which two programs round differently: a token at a bound could go either way."""
DONE, PLAIN, TOKENS = range(3)
"""What became of a row or a batch: decided, left to the plain form, or to be decided again with a look at tokens."""
