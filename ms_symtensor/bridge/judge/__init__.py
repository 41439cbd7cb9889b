"""MindSpore's compiler as the judge: of a plan (verify), and of a user's own strategies (audit)."""
