"""The policy: its tokenizer and prompts, the tiny one made here, and its warm start."""
