"""`report.html`: a plan as one page that needs nothing else, neither network nor other files."""
