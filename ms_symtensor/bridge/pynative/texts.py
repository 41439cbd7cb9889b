"""What a trace on the `meta` device assumes, and what a proof substitutes, in words."""

ASSUMED = (
    "tokens are split evenly over the experts (MindFormers reads the counts on the host)",
    "rows chosen or assigned by an index tensor are traced as functions with gradients",
    "which stages hold a copy of the embedding is not exchanged: its sum over them is one all-reduce a step, not traced",
)
SUBSTITUTED = (
    "RmsNorm, SwiGLU, FlashAttentionScore and GroupedMatmul by their definitions, in float32",
    "functions of mint without a CPU kernel (choosing, sorting, counting, splitting) by those of numpy or of ops",
    "AllGather, ReduceScatter and AlltoAll by AllReduce and lists of tensors",
    "hyper-parallel by its stand-in: gradients are summed over the ranks that its units share",
)
