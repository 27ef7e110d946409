"""One file per framework: its keys, its rules, its findings. The larger ones have their rules beside them."""
