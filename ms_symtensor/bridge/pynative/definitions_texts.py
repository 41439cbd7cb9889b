"""What a proof substitutes, in words."""

SUBSTITUTED = (
    "RmsNorm, SwiGLU, FlashAttentionScore and GroupedMatmul by their definitions, in float32",
    "functions of mint without a CPU kernel (choosing, sorting, counting, splitting) by those of numpy or of ops",
    "AllGather, ReduceScatter and AlltoAll by AllReduce and lists of tensors",
    "hyper-parallel by its stand-in: gradients are summed over the ranks that its units share",
)
