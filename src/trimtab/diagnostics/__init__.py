"""Is this batch healthy? What can be read off a batch beyond what a correction reports of itself."""
