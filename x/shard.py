"""The plan of ms_symtensor for llama_3_2_3b on 16 devices of cloudmatrix384."""

# mindspore.set_auto_parallel_context(**SETTINGS)
SETTINGS = {
    "device_num": 16,
    "parallel_mode": "semi_auto_parallel",
    "dataset_strategy": "full_batch",
    "enable_alltoall": True,
    "gradient_fp32_sync": True,
    "enable_parallel_optimizer": True,
    "parallel_optimizer_config": {
        "optimizer_level": "level1",
        "optimizer_weight_shard_size": -1,
        "parallel_optimizer_threshold": 64,
    },
}


def shard(net):
    """Set the strategies of the primitives of `net` (RotaryDecoder), and what is recomputed."""
    net.word_embedding.gather.shard(((4, 1), (4, 1)))
    net.norm.norm.shard(((16, 1), (1,)))
    net.head.matmul.shard(((4, 1), (4, 1)))
    net.loss.max.shard(((4, 4),))
    net.loss.sub_max.shard(((4, 4), (4, 1)))
    net.loss.exp.shard(((4, 4),))
    net.loss.sum_exp.shard(((4, 4),))
    net.loss.log.shard(((4, 1),))
    net.loss.one_hot.shard(((4, 4), (), ()))
    net.loss.mul_one_hot.shard(((4, 4), (4, 4)))
    net.loss.sum_target.shard(((4, 4),))
    net.loss.sub_target.shard(((4, 1), (4, 1)))
    net.loss.mul_mask.shard(((4, 1), (4, 1)))
    net.loss.sum_loss.shard(((4, 1),))
    net.loss.sum_mask.shard(((4, 1),))
    net.loss.div.shard(((), ()))
    net.layers[0].attention_norm.norm.shard(((16, 1), (1,)))
    net.layers[0].attention.query.matmul.shard(((4, 1), (4, 1)))
    net.layers[0].attention.rotary_query.mul_cos.shard(((4, 1, 4, 1), (1, 1, 1)))
    net.layers[0].attention.rotary_query.swap_halves.shard(((4, 1, 4, 1), (1, 1)))
    net.layers[0].attention.rotary_query.mul_sin.shard(((4, 1, 4, 1), (1, 1, 1)))
    net.layers[0].attention.rotary_query.add.shard(((4, 1, 4, 1), (4, 1, 4, 1)))
    net.layers[0].attention.core.transpose_query.shard(((4, 1, 4, 1),))
    net.layers[0].attention.key.matmul.shard(((4, 1), (4, 1)))
    net.layers[0].attention.rotary_key.mul_cos.shard(((4, 1, 4, 1), (1, 1, 1)))
    net.layers[0].attention.rotary_key.swap_halves.shard(((4, 1, 4, 1), (1, 1)))
    net.layers[0].attention.rotary_key.mul_sin.shard(((4, 1, 4, 1), (1, 1, 1)))
    net.layers[0].attention.rotary_key.add.shard(((4, 1, 4, 1), (4, 1, 4, 1)))
    net.layers[0].attention.core.transpose_key.shard(((4, 1, 4, 1),))
    net.layers[0].attention.core.repeat_key.tile.shard(((4, 4, 1, 1),))
    net.layers[0].attention.core.score.shard(((4, 4, 1, 1), (4, 4, 1, 1)))
    net.layers[0].attention.core.mul_scale.shard(((4, 4, 1, 1), ()))
    net.layers[0].attention.core.add_mask.shard(((4, 4, 1, 1), (1, 1)))
    net.layers[0].attention.core.softmax.shard(((4, 4, 1, 1),))
    net.layers[0].attention.value.matmul.shard(((4, 1), (4, 1)))
    net.layers[0].attention.core.transpose_value.shard(((4, 1, 4, 1),))
    net.layers[0].attention.core.repeat_value.tile.shard(((4, 4, 1, 1),))
    net.layers[0].attention.core.weighted_sum.shard(((4, 4, 1, 1), (4, 4, 1, 1)))
    net.layers[0].attention.core.transpose_out.shard(((4, 4, 1, 1),))
    net.layers[0].attention.output.matmul.shard(((4, 4), (1, 4)), ((16, 1),))
    net.layers[0].add_attention.shard(((16, 1), (16, 1)))
    net.layers[0].feed_forward_norm.norm.shard(((16, 1), (1,)))
    net.layers[0].feed_forward.gate.matmul.shard(((4, 1), (4, 1)))
    net.layers[0].feed_forward.silu.shard(((4, 4),))
    net.layers[0].feed_forward.up.matmul.shard(((4, 1), (4, 1)))
    net.layers[0].feed_forward.mul.shard(((4, 4), (4, 4)))
    net.layers[0].feed_forward.down.matmul.shard(((4, 4), (1, 4)), ((16, 1),))
    net.layers[0].add_feed_forward.shard(((16, 1), (16, 1)))
    net.layers[0].recompute(mp_comm_recompute=True)
    for index in range(1, 5):
        block = net.layers[index]
        block.attention_norm.norm.shard(((16, 1), (1,)))
        block.attention.query.matmul.shard(((4, 1), (4, 1)))
        block.attention.rotary_query.mul_cos.shard(((4, 1, 4, 1), (1, 1, 1)))
        block.attention.rotary_query.swap_halves.shard(((4, 1, 4, 1), (1, 1)))
        block.attention.rotary_query.mul_sin.shard(((4, 1, 4, 1), (1, 1, 1)))
        block.attention.rotary_query.add.shard(((4, 1, 4, 1), (4, 1, 4, 1)))
        block.attention.core.transpose_query.shard(((4, 1, 4, 1),))
        block.attention.key.matmul.shard(((4, 1), (4, 1)))
        block.attention.rotary_key.mul_cos.shard(((4, 1, 4, 1), (1, 1, 1)))
        block.attention.rotary_key.swap_halves.shard(((4, 1, 4, 1), (1, 1)))
        block.attention.rotary_key.mul_sin.shard(((4, 1, 4, 1), (1, 1, 1)))
        block.attention.rotary_key.add.shard(((4, 1, 4, 1), (4, 1, 4, 1)))
        block.attention.core.transpose_key.shard(((4, 1, 4, 1),))
        block.attention.core.repeat_key.tile.shard(((4, 4, 1, 1),))
        block.attention.core.score.shard(((4, 4, 1, 1), (4, 4, 1, 1)))
        block.attention.core.mul_scale.shard(((4, 4, 1, 1), ()))
        block.attention.core.add_mask.shard(((4, 4, 1, 1), (1, 1)))
        block.attention.core.softmax.shard(((4, 4, 1, 1),))
        block.attention.value.matmul.shard(((4, 1), (4, 1)))
        block.attention.core.transpose_value.shard(((4, 1, 4, 1),))
        block.attention.core.repeat_value.tile.shard(((4, 4, 1, 1),))
        block.attention.core.weighted_sum.shard(((4, 4, 1, 1), (4, 4, 1, 1)))
        block.attention.core.transpose_out.shard(((4, 4, 1, 1),))
        block.attention.output.matmul.shard(((4, 4), (1, 4)), ((16, 1),))
        block.add_attention.shard(((16, 1), (16, 1)))
        block.feed_forward_norm.norm.shard(((16, 1), (1,)))
        block.feed_forward.gate.matmul.shard(((4, 1), (4, 1)))
        block.feed_forward.silu.shard(((4, 4),))
        block.feed_forward.up.matmul.shard(((4, 1), (4, 1)))
        block.feed_forward.mul.shard(((4, 4), (4, 4)))
        block.feed_forward.down.matmul.shard(((4, 4), (1, 4)), ((16, 1),))
        block.add_feed_forward.shard(((16, 1), (16, 1)))
