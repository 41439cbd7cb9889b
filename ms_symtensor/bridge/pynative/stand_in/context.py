"""Context parallelism around a core attention: colossal, ulysses and hybrid, as hyper-parallel's `ContextParallel` has them."""

from typing import Any

from mindspore import mint
from mindspore.ops.operations.nn_ops import FlashAttentionScore

from ms_symtensor.bridge.pynative.collectives import Exchange, Gather
from ms_symtensor.bridge.pynative.stand_in.meshes import DeviceMesh

BY = "context_parallel"


class ContextParallel:
    """Q, K, V by all-to-all over `ulysses_degree` ranks, then K and V gathered over the others."""

    def __init__(
        self,
        seq_dim: int = 1,
        head_dim: int = 2,
        ulysses_degree: int | None = None,
        qkv_indices: tuple[int, ...] = (0, 1, 2),
        **_: Any,
    ):
        self.seq_dim, self.head_dim, self.ulysses_degree, self.indices = seq_dim, head_dim, ulysses_degree, qkv_indices

    def apply(self, module: Any, device_mesh: DeviceMesh, **_: Any) -> Any:
        ranks = device_mesh.rank_list
        degree = self.ulysses_degree or len(ranks)
        if len(ranks) % degree:
            raise ValueError(f"cp_size ({len(ranks)}) must be divisible by ulysses_degree ({degree}).")
        grid = DeviceMesh([ranks[i : i + degree] for i in range(0, len(ranks), degree)], ("co", "ds"))
        if degree > 1:
            _with_heads(module, degree)

        def before(_module: Any, args: Any, kwargs: Any) -> Any:
            new = list(args)
            for place, index in enumerate(self.indices):
                if degree > 1:
                    new[index] = self._to_heads(new[index], grid["ds"])
                if place > 0 and degree < len(ranks):
                    new[index] = _gather(new[index], self.seq_dim, grid["co"].get_group())
            return tuple(new), kwargs

        def after(_module: Any, _args: Any, output: Any) -> Any:
            return self._to_sequence(output, grid["ds"])

        module.register_forward_pre_hook(before, with_kwargs=True)
        if degree > 1:
            module.register_forward_hook(after)
        return module

    def _to_heads(self, tensor: Any, mesh: DeviceMesh) -> Any:
        if tensor.shape[self.head_dim] % mesh.size():
            raise ValueError(
                f"num_heads ({tensor.shape[self.head_dim]}) must be divisible by ulysses_degree ({mesh.size()})."
            )
        return _exchange(tensor, self.head_dim, self.seq_dim, mesh)

    def _to_sequence(self, tensor: Any, mesh: DeviceMesh) -> Any:
        return _exchange(tensor, self.seq_dim, self.head_dim, mesh)


class AsyncContextParallel(ContextParallel):
    """The same collectives, begun earlier."""


def _gather(tensor: Any, dim: int, group: str) -> Any:
    moved = Gather.apply(mint.transpose(tensor, 0, dim).contiguous(), group, BY)
    return mint.transpose(moved, 0, dim)


def _exchange(tensor: Any, cut: int, joined: int, mesh: DeviceMesh) -> Any:
    """`tensor` cut along `cut` among the ranks of `mesh`, which hold parts along `joined`."""
    ranks = mesh.size()
    parts = mint.chunk(tensor, ranks, cut)
    shape = parts[0].shape
    flat = mint.cat([part.contiguous().reshape(-1) for part in parts], dim=0)
    counts = [int(flat.shape[0]) // ranks] * ranks
    back = Exchange.apply(flat, counts, counts, mesh.get_group(), BY)
    return mint.cat([part.reshape(shape) for part in mint.chunk(back, ranks, 0)], dim=joined)


def _with_heads(module: Any, degree: int) -> None:
    """The attention kernel of `module` for the heads of one of `degree` ranks."""
    module.flash_attention = FlashAttentionScore(
        head_num=module.head_num // degree,
        scale_value=module.scalar_value,
        pre_tokens=module.pre_tokens,
        next_tokens=module.next_tokens,
        inner_precise=module.inner_precise,
        input_layout=module.input_layout,
        sparse_mode=module.sparse_mode,
    )
