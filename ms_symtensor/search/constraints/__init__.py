"""What users ask for, and the terms in which they do: requests, limits, pins, and the degrees that people name."""
