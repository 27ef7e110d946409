"""Prompts and verifiers behind one small protocol."""
