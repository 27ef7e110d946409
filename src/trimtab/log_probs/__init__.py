"""Log-probs of chosen tokens, from hidden states or logits, and what a gradient of them needs; a head of further ids beside them."""
