"""What a trace on the `meta` device assumes, in words."""

ASSUMED = (
    "tokens are split evenly over the experts (MindFormers reads the counts on the host)",
    "rows chosen or assigned by an index tensor are traced as functions with gradients",
    "which stages hold a copy of the embedding is not exchanged: its sum over them is one all-reduce a step, not traced",
)
