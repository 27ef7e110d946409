"""The one that trains: it owns the model, the optimiser and what is saved of both."""
