"""A run directory to one HTML file that needs no network."""
