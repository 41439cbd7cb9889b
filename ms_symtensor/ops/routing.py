"""Which token goes to which expert."""

from ms_symtensor.ops.signature import OpView, Signature, Unit, named
from ms_symtensor.tensor.graph import Graph


def top_k_router(op: OpView) -> Signature:
    """`b n! k! -> b e! c!, b n! k!`: from the experts of every token to the tokens of every expert, and back.

    Outputs: for each place of each expert the number of its token, from 1 (0: empty), and for each choice of each token its
    place among all experts' places. Groups of tokens b are routed apart.
    """
    return named(
        op, [("b", None, None)], [("b", None, None), ("b", None, None)],
        mesh=("b",), unit=Unit.VECTOR, differentiable=(),
    )  # fmt: skip


def routes_tokens(graph: Graph) -> bool:
    """Whether `graph` sends tokens to experts."""
    return any(op.type in RULES for op in graph.ops)


RULES = {"TopKRouter": top_k_router}
