"""Which logged number says beforehand that a run will fall: over all kept cells, chosen on one half and measured on the other."""
