"""What a trace on the `meta` device assumes, in words."""

ASSUMED = (
    "tokens are split evenly over the experts (MindFormers reads the counts on the host)",
    "assignment by an index tensor is traced as index_put_",
    "which stages hold a copy of the embedding is not exchanged: its sum over them is one all-reduce a step, not traced",
)
