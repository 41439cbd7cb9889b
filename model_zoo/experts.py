"""Mixtures of experts in capacity form, from operators that MindSpore can cut.

Every sample, or each of its `token_groups`, is routed for itself: [batch, seq, hidden] is dispatched to
[batch, experts, places, hidden], and the experts are one more dim of one batched product, over the places of all samples or of
each (`by_sample`). Where samples are cut before it and experts in it, tokens travel by AlltoAll: that is the redistribution
between the two layouts. An expert has as many places as `Experts.places` says; what finds none is dropped, and its share of the
result is zero. No balance loss is added.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops.auto_generate import SiLU, TopKRouter

from model_zoo.config import TransformerConfig
from model_zoo.layers import Activated, FeedForward, GatedFeedForward, Linear, dtype_of, matrix, weight

DROP_BY_POSITION = 0  # TopKRouter: where places are short, earlier tokens come first


def empty_places(config: TransformerConfig) -> tuple[Tensor, Tensor] | None:
    """What stands before the tokens of a sample, [batch, 1, hidden], and before the places of an expert, [batch, experts, 1]:
    place 0 of every expert holds the token 0, which is zero. What is dropped is looked up there.
    """
    if config.experts is None:
        return None
    groups = config.routed_groups
    token = np.zeros((groups, 1, config.hidden_size), np.float16)
    place = np.zeros((groups, config.experts.number, 1), np.int32)
    return Tensor(token, dtype_of(config.compute_dtype)), Tensor(place)


class Scores(nn.Cell):
    """x [tokens, hidden] -> float32 scores of all experts [tokens, experts]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        assert config.experts is not None
        self.weight = weight((config.experts.number, config.hidden_size), config, trains=config.trains_base)
        self.cast_in, self.cast_weight = ops.Cast(), ops.Cast()
        self.matmul = ops.MatMul(transpose_b=True)
        self.has_bias = config.experts.bias
        if self.has_bias:
            self.bias = weight((config.experts.number,), config, "zeros", trains=config.trains_base)
            self.cast_bias, self.add_bias = ops.Cast(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        scores = self.matmul(self.cast_in(x, ms.float32), self.cast_weight(self.weight, ms.float32))
        return self.add_bias(scores, self.cast_bias(self.bias, ms.float32)) if self.has_bias else scores


class _Weighing(nn.Cell):
    """What routers have in common."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        experts = config.experts
        assert experts is not None
        self.number, self.per_token = experts.number, experts.per_token
        self.scores = Scores(config)
        self.is_normalised, self.is_scaled = experts.normalised, experts.scale != 1.0
        if self.is_normalised:
            self.sum_weights, self.div = ops.ReduceSum(keep_dims=True), ops.RealDiv()
        if self.is_scaled:
            self.scale, self.mul_scale = Tensor(experts.scale, ms.float32), ops.Mul()

    def weigh(self, weights: Tensor) -> Tensor:
        """Scores of a token's experts [tokens, per_token] -> their weights, which sum to `scale` or are the scores times it."""
        if self.is_normalised:
            weights = self.div(weights, self.sum_weights(weights, -1))
        return self.mul_scale(weights, self.scale) if self.is_scaled else weights


class Router(_Weighing):
    """x [tokens, hidden] -> weights float32 and experts int32, both [tokens, per_token]: those with the highest softmax (or
    sigmoid) of the scores, which are then made to sum to one where `Experts.normalised`.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        assert config.experts is not None
        self.is_softmax, self.top_k = config.experts.scoring == "softmax", ops.TopK()
        if self.is_softmax:
            self.softmax = ops.Softmax(axis=-1)
        else:
            self.sigmoid = ops.Sigmoid()

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.scores(x)
        scores = self.softmax(scores) if self.is_softmax else self.sigmoid(scores)
        weights, experts = self.top_k(scores, self.per_token)
        return self.weigh(weights), experts


class GroupRouter(_Weighing):
    """DeepSeek's router, as `Router`: scores choose first the groups, then the experts of these. V2: softmax, groups by their
    best expert. V3: sigmoids plus a correction that balances the load and is no parameter of the loss, groups by their two best
    experts; the weights are without it.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        experts = config.experts
        assert experts is not None
        self.groups, self.groups_per_token = experts.groups, experts.groups_per_token
        self.is_softmax, self.is_corrected = experts.scoring == "softmax", experts.is_corrected
        if self.is_corrected:
            self.correction = Parameter(initializer("zeros", (self.number,), ms.float32), requires_grad=False)
            self.stop_gradient, self.add_correction = ops.StopGradient(), ops.Add()
        if self.is_softmax:
            self.softmax = ops.Softmax(axis=-1)
        else:
            self.sigmoid = ops.Sigmoid()
        if self.groups > 1:
            self.split_groups, self.top_groups, self.one_hot = ops.Reshape(), ops.TopK(), ops.OneHot()
            if self.is_softmax:
                self.max_expert = ops.ReduceMax()
            else:
                self.top_two, self.sum_two = ops.TopK(), ops.ReduceSum()
            self.one, self.zero = Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)
            self.sum_groups, self.widen_groups = ops.ReduceSum(), ops.Reshape()
            self.mul_groups, self.merge_groups = ops.Mul(), ops.Reshape()
        self.top_k, self.pick = ops.TopK(), ops.GatherD()

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.shape[0]
        scores = self.scores(x)
        scores = self.softmax(scores) if self.is_softmax else self.sigmoid(scores)
        choice = scores
        if self.is_corrected:
            choice = self.add_correction(self.stop_gradient(scores), self.correction)
        if self.groups > 1:
            choice = self.split_groups(choice, (tokens, self.groups, self.number // self.groups))
            best = self.max_expert(choice, -1) if self.is_softmax else self.sum_two(self.top_two(choice, 2)[0], -1)
            _, groups = self.top_groups(best, self.groups_per_token)
            chosen = self.sum_groups(self.one_hot(groups, self.groups, self.one, self.zero), 1)
            choice = self.mul_groups(choice, self.widen_groups(chosen, (tokens, self.groups, 1)))
            choice = self.merge_groups(choice, (tokens, self.number))
        _, experts = self.top_k(choice, self.per_token)
        return self.weigh(self.pick(scores, 1, experts)), experts


class ExpertFeedForward(Activated):
    """down(silu(gate(x)) * up(x)) of every expert, on [..., experts, places, hidden]; without a gate as in `FeedForward`.
    Clamped: gate and up, cut off at the limit (gate above alone), as gate * sigmoid(slope * gate) * (up + 1) between.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        assert config.experts is not None
        number, width = config.experts.number, config.experts.intermediate_size
        trains = config.trains_base
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.is_gated = config.is_gated
        if self.is_gated:
            self.gate = matrix((number, config.hidden_size, width), config)
            self.cast_gate, self.matmul_gate, self.mul = ops.Cast(), ops.BatchMatMul(), ops.Mul()
        self.up = matrix((number, config.hidden_size, width), config)
        self.down = matrix((number, width, config.hidden_size), config)
        self.cast_up, self.cast_down = ops.Cast(), ops.Cast()
        self.matmul_up, self.matmul_down = ops.BatchMatMul(), ops.BatchMatMul()
        self.has_scales = config.has_scales
        if self.has_scales:
            self.gate_scale = weight((number, 1, width), config)
            self.up_scale = weight((number, 1, width), config)
            self.down_scale = weight((number, 1, config.hidden_size), config)
            self.scale_gate, self.scale_up, self.scale_down = ops.Mul(), ops.Mul(), ops.Mul()
        self.has_bias = config.experts.bias
        if self.has_bias:
            self.gate_bias = weight((number, 1, width), config, "zeros", trains=trains)
            self.up_bias = weight((number, 1, width), config, "zeros", trains=trains)
            self.down_bias = weight((number, 1, config.hidden_size), config, "zeros", trains=trains)
            self.cast_gate_bias, self.cast_up_bias, self.cast_down_bias = ops.Cast(), ops.Cast(), ops.Cast()
            self.add_gate, self.add_up, self.add_down = ops.Add(), ops.Add(), ops.Add()
        self.is_clamped = config.experts.clamp > 0
        if self.is_clamped:
            limit, slope = config.experts.clamp, config.experts.clamp_slope
            self.highest, self.lowest, self.slope, self.one = (
                Tensor(number, self.compute_dtype) for number in (limit, -limit, slope, 1.0)
            )
            self.clamp_gate, self.clamp_up, self.raise_up = ops.Minimum(), ops.Minimum(), ops.Maximum()
            self.mul_slope, self.sigmoid, self.mul_gate, self.add_one = ops.Mul(), ops.Sigmoid(), ops.Mul(), ops.Add()
        elif self.is_gated:
            self.silu = SiLU()

    def construct(self, x: Tensor) -> Tensor:
        if not self.is_gated:
            up = self.activated(self.matmul_up(x, self.cast_up(self.up, self.compute_dtype)))
            return self.matmul_down(up, self.cast_down(self.down, self.compute_dtype))
        gate = self.matmul_gate(x, self.cast_gate(self.gate, self.compute_dtype))
        up = self.matmul_up(x, self.cast_up(self.up, self.compute_dtype))
        if self.has_scales:
            gate, up = self.scale_gate(gate, self.gate_scale), self.scale_up(up, self.up_scale)
        if self.has_bias:
            gate = self.add_gate(gate, self.cast_gate_bias(self.gate_bias, self.compute_dtype))
            up = self.add_up(up, self.cast_up_bias(self.up_bias, self.compute_dtype))
        if self.is_clamped:
            gate = self.clamp_gate(gate, self.highest)
            up = self.add_one(self.raise_up(self.clamp_up(up, self.highest), self.lowest), self.one)
            gate = self.mul_gate(gate, self.sigmoid(self.mul_slope(gate, self.slope)))
        else:
            gate = self.silu(gate)
        y = self.matmul_down(self.mul(gate, up), self.cast_down(self.down, self.compute_dtype))
        if self.has_scales:
            y = self.scale_down(y, self.down_scale)
        return self.add_down(y, self.cast_down_bias(self.down_bias, self.compute_dtype)) if self.has_bias else y


class MixtureOfExperts(nn.Cell):
    """[tokens, hidden] -> [tokens, hidden]: of every token its experts' results, weighted, and the shared expert's."""

    def __init__(self, config: TransformerConfig, empty: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        assert config.experts is not None
        self.number, self.per_token = config.experts.number, config.experts.per_token
        self.places = config.experts.places(config.routed_length)
        self.length, self.hidden_size = config.routed_length, config.hidden_size
        self.compute_dtype = dtype_of(config.compute_dtype)
        self.no_token, self.no_place = empty
        self.router = GroupRouter(config) if config.experts.chooses_apart else Router(config)
        self.experts = ExpertFeedForward(config)
        self.split_samples, self.split_choices, self.split_weights = ops.Reshape(), ops.Reshape(), ops.Reshape()
        self.route = TopKRouter()
        self.add_token, self.add_place = ops.Concat(axis=1), ops.Concat(axis=2)
        self.dispatch, self.combine = ops.Gather(batch_dims=1), ops.Gather(batch_dims=1)
        self.by_sample, self.join_experts = config.experts.by_sample, ops.Reshape()
        if not self.by_sample:
            self.to_experts, self.to_samples = ops.Transpose(), ops.Transpose()
            self.join_places, self.split_places = ops.Reshape(), ops.Reshape()
        self.scales_input = config.experts.scales_input
        self.cast_weights, self.mul_weights = ops.Cast(), ops.Mul()
        self.has_bias = config.experts.bias
        if self.has_bias:  # place 0 is not zero then
            self.place, self.most = Tensor(self.places, ms.int32), Tensor(1, ms.int32)
            self.place_in_expert, self.is_there = ops.FloorMod(), ops.Minimum()
            self.cast_there, self.stop_there, self.mul_there = ops.Cast(), ops.StopGradient(), ops.Mul()
            self.split_there = ops.Reshape()
        self.sum_experts = ops.ReduceSum()
        self.merge_samples = ops.Reshape()
        self.has_shared = config.experts.shared_size > 0
        if self.has_shared:
            dense = GatedFeedForward if config.is_gated else FeedForward
            self.shared, self.add_shared = dense(config, config.experts.shared_size), ops.Add()
        self.has_gate = config.experts.shared_gate
        if self.has_gate:
            self.shared_gate = Linear(config, config.hidden_size, 1, False)
            self.sigmoid_gate, self.mul_gate = ops.Sigmoid(), ops.Mul()

    def construct(self, x: Tensor) -> Tensor:
        tokens = x.shape[0]
        batch = tokens // self.length
        weights, experts = self.router(x)
        experts = self.split_choices(experts, (batch, self.length, self.per_token))
        tokens_of, place_of = self.route(experts, self.places - 1, self.number, DROP_BY_POSITION)
        read = self.mul_weights(x, self.cast_weights(weights, self.compute_dtype)) if self.scales_input else x
        samples = self.add_token((self.no_token, self.split_samples(read, (batch, self.length, self.hidden_size))))
        y = self.dispatch(samples, self.add_place((self.no_place, tokens_of)), 1)
        if self.by_sample:
            y = self.experts(y)
        else:
            y = self.to_experts(y, (1, 0, 2, 3))
            y = self.experts(self.join_places(y, (self.number, batch * self.places, self.hidden_size)))
            y = self.to_samples(self.split_places(y, (self.number, batch, self.places, self.hidden_size)), (1, 0, 2, 3))
        y = self.join_experts(y, (batch, self.number * self.places, self.hidden_size))
        y = self.combine(y, place_of, 1)
        if not self.scales_input:
            if self.has_bias:
                there = self.is_there(self.place_in_expert(place_of, self.place), self.most)
                weights = self.split_there(weights, (batch, self.length, self.per_token))
                weights = self.mul_there(weights, self.stop_there(self.cast_there(there, ms.float32)))
            weights = self.split_weights(weights, (batch, self.length, self.per_token, 1))
            y = self.mul_weights(y, self.cast_weights(weights, self.compute_dtype))
        y = self.sum_experts(y, 2)
        y = self.merge_samples(y, (tokens, self.hidden_size))
        if not self.has_shared:
            return y
        shared = self.shared(x)
        if self.has_gate:
            shared = self.mul_gate(shared, self.sigmoid_gate(self.shared_gate(x)))
        return self.add_shared(y, shared)
