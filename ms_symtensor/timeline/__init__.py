"""One step over time: when every pass of every stage runs, and what lies in memory then."""
