"""What inside a block is worth computing again, given its layouts."""
