"""What frameworks descend and how they estimate advantages, in our terms: one table of losses and estimators each."""
