"""Collectives that MindSpore's CPU lacks, defined by sums over ranks."""

from ms_symtensor.bridge.compiler.described_ranks import WORLD_GROUP
from ms_symtensor.bridge.proof.definition import Definition, Function, Group, GroupOf, Substitute
from ms_symtensor.bridge.proof.splice import SUM, Call


def _group(call: Call, group_of: GroupOf) -> Group:
    return group_of(str(call.attributes["group"]))


def _all_reduce(call: Call, group_of: GroupOf) -> Definition | None:
    if call.attributes["op"] == "sum":
        return None if _is_float(call) else _over_group(call, group_of, SUM)
    return _over_group(call, group_of, "Stack", SUM, Function("Reduce", (call.attributes["op"],)))


def _reduce_scatter(call: Call, group_of: GroupOf) -> Definition:
    return _over_group(call, group_of, SUM, "Slice")


def _all_gather(call: Call, group_of: GroupOf) -> Definition | None:
    runs = call.attributes["group"] == WORLD_GROUP and _is_float(call)
    return None if runs else _over_group(call, group_of, "Place", SUM)


def _all_to_all(call: Call, group_of: GroupOf) -> Definition:
    dims = call.attributes["split_dim"], call.attributes["concat_dim"]
    size = _group(call, group_of).size
    return _over_group(call, group_of, "Place", SUM, Function("AllToAllSlices", (size, *dims), takes_position=True))


def _over_group(call: Call, group_of: GroupOf, *steps: Function | str) -> Definition:
    """`steps`, where a name other than SUM is that of a cell of the group's size that takes the position.

    What is not float32 becomes it in between.
    """
    group = _group(call, group_of)
    functions = tuple(
        step if isinstance(step, Function) or step == SUM else Function(step, (group.size,), takes_position=True)
        for step in steps
    )
    if not _is_float(call):
        functions = (Function("ToFloat"), *functions, Function("FromFloat", (call.tensor(0).dtype,)))
    return Definition((0,), functions, group.position)


def _is_float(call: Call) -> bool:
    return call.tensor(0).dtype == "float32"


def _send(call: Call, group_of: GroupOf) -> Definition:
    pair = _pair(call, group_of, "dest_rank")
    if _is_float(call):
        return Definition((0,), (SUM,), pair=pair)
    return Definition((0,), (Function("ToFloat"), SUM, Function("FromFloat", (call.tensor(0).dtype,))), pair=pair)


def _receive(call: Call, group_of: GroupOf) -> Definition:
    (received,) = call.outputs
    steps = Function("Zeros", (received.shape, "float32")), SUM
    made = steps if received.dtype == "float32" else (*steps, Function("FromFloat", (received.dtype,)))
    return Definition((0,), made, pair=_pair(call, group_of, "src_rank"))


def _pair(call: Call, group_of: GroupOf, peer: str) -> tuple[int, int]:
    """The global ranks of both ends; an end is named by its place in the group."""
    group, place = _group(call, group_of), call.attributes[peer]
    assert isinstance(place, int)
    low, high = sorted((group.ranks[group.position], group.ranks[place]))
    return low, high


COLLECTIVES = {
    "AllReduce": Substitute(
        "other than a sum of floats: sum of the ranks' values among zeros, then reduced", _all_reduce
    ),
    "ReduceScatter": Substitute("AllReduce and slice", _reduce_scatter),
    "AllGather": Substitute("AllReduce of the slices among zeros", _all_gather),
    "AlltoAll": Substitute("AllGather (as above) and slices", _all_to_all),
    "Send": Substitute("AllReduce with the receiver: the tensor and zeros", _send),
    "Receive": Substitute("AllReduce with the sender: its tensor and zeros", _receive),
}
"""By operator type."""
