"""Sampling by transformers' own models, on any machine."""
