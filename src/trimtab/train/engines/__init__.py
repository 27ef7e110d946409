"""What samples: one file per engine, behind one protocol."""
