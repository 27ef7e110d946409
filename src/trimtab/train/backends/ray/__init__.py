"""Samplers as actors of a Ray cluster: on this machine, or on many."""
