"""Verifiers in a process of their own: they may hang, end the interpreter, or be turned against it by a response."""
