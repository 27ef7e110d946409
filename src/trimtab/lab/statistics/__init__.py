"""What a handful of seeds can prove: pure functions of numbers, which know nothing of labs."""
