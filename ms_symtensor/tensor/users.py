"""The users of what operators leave, in the order in which MindSpore's graph manager lists them.

Every cell is a function graph. The nodes of one are acquired depth first from its result, last inputs first; a cell that it calls
is one of them. Calls are then inlined, breadth first from the network's result: what stands in the cell comes behind the users
that were there.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from functools import cached_property

from ms_symtensor.tensor.graph import Graph, Op, OpOutput, Source, TupleInput

Scope = tuple[str, ...]
"""The cells around an operator, outermost first."""

_LIST = "-CellList"
"""The end of the name of what holds cells and is none."""


def users_from_result(graph: Graph) -> dict[Source, tuple[tuple[Op, int], ...]]:
    """For every source that is used: the operators that use it, and as which tensor input; what MindSpore asks first is first."""
    order = _Order(graph)
    order.walk()
    return {source: tuple(users.values()) for source, users in order.users.items()}


class _Order:
    """One walk through `graph`, of which `users` is the outcome."""

    def __init__(self, graph: Graph) -> None:
        self.users: dict[Source, dict[tuple[str, int], tuple[Op, int]]] = {}
        self._graph = graph
        self._scopes = {op.name: _scope(op.name) for op in graph.ops}
        self._listed: set[str] = set()

    def walk(self) -> None:
        """Inline cells from the network's result, breadth first; tuples, and one of several outputs, are steps of their own."""
        graph = self._graph
        sinks = [OpOutput(op.name) for op in reversed(graph.ops) if not any(s in graph.users for s in op.results)]
        self._acquire((), [graph.output, *sinks])
        queue: deque[Source | Op] = deque([graph.output, *sinks])
        seen: set[Source | str] = set()
        while queue:
            node = queue.popleft()
            key = node.name if isinstance(node, Op) else node
            if key in seen:
                continue
            seen.add(key)
            if isinstance(node, Op):
                self._inline(node)
                queue.extend(self._step(source) for source in node.inputs)
            elif isinstance(node, TupleInput):
                queue.extend(self._step(source) for source in node.items)
            elif isinstance(node, OpOutput):
                queue.append(graph.op_by_name[node.op])

    def _step(self, source: Source) -> Source | Op:
        """The node that is met at `source`: its operator, if that has no other output."""
        if isinstance(source, OpOutput) and len(self._graph.op_by_name[source.op].outputs) == 1:
            return self._graph.op_by_name[source.op]
        return source

    def _inline(self, op: Op) -> None:
        """List what stands in the cells around `op`, outermost first, if their calls are met for the first time."""
        scope = self._scopes[op.name]
        if op.name not in self._listed:
            for depth in range(1, len(scope) + 1):
                self._acquire(scope[:depth], [OpOutput(op.name)])

    def _acquire(self, scope: Scope, results: Iterable[Source]) -> None:
        """List the users that stand in the cell `scope` itself, from its `results`."""
        stack, called = list(results), set()
        while stack:
            source = stack.pop()
            if isinstance(source, TupleInput):
                stack += source.items
                continue
            if not isinstance(source, OpOutput):
                continue
            op = self._graph.op_by_name[source.op]
            inner = self._scopes[op.name]
            call = inner[: len(scope) + 1]
            if inner == scope and op.name not in self._listed:
                self._listed.add(op.name)
                for position, read in enumerate(self._graph.tensor_inputs(op)):
                    self.users.setdefault(read, {})[op.name, position] = (op, position)
                stack += op.inputs
            elif inner[: len(scope)] == scope and call != scope and call not in called:
                called.add(call)
                stack += self._arguments[call]

    @cached_property
    def _arguments(self) -> dict[Scope, list[Source]]:
        """What every cell reads from outside, in the order in which its operators do (that of the call is not known)."""
        found: dict[Scope, dict[Source, None]] = {}
        for op in self._graph.ops:
            scope = self._scopes[op.name]
            for source in self._graph.tensor_inputs(op):
                maker = self._scopes[source.op] if isinstance(source, OpOutput) else ()
                for depth in range(1, len(scope) + 1):
                    if maker[:depth] != scope[:depth]:
                        found.setdefault(scope[:depth], {})[source] = None
        return defaultdict(list, {scope: list(sources) for scope, sources in found.items()})


def _scope(name: str) -> Scope:
    """The cells in an operator's full name, without "Default", the network itself."""
    parts, joined = [], ""
    for part in name.split("/")[1:-1]:
        joined += part
        if not part.endswith(_LIST):
            parts.append(joined)
            joined = ""
    return tuple(parts)
