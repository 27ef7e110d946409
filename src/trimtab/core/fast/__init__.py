"""The same numbers as the plain form in one pass over the tokens, where `pass_fits` says that a call can have them."""
