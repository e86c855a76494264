"""Files to named, memory-mapped tensors under gear paths."""
