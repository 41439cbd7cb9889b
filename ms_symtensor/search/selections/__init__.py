"""What inside a block is worth recomputing, given its layouts."""
