"""A file as people have it (launch script, Python, YAML with parents) as settings, with what it leaves open named; nothing is run."""
