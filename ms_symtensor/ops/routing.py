"""Which token goes to which expert."""

from ms_symtensor.ops.rule import rule
from ms_symtensor.tensor.graph import Graph

# From the experts of every token to the tokens of every expert, and back. Outputs: for each place of each expert the number of
# its token, from 1 (0: empty), and for each choice of each token its place among all experts' places. Groups b are routed apart.
RULES = {"TopKRouter": rule("~b 1 1 -> b 1 1, b 1 1")}


def routes_tokens(graph: Graph) -> bool:
    """Whether `graph` sends tokens to experts."""
    return any(op.type in RULES for op in graph.ops)
