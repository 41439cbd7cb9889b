"""The order in which MindSpore asks the users of a tensor; `tests/bridge/judge/test_reshape_users.py` asks MindSpore."""

from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, TensorType, TupleInput
from ms_symtensor.tensor.users import users_from_result

X = TensorType((8, 16), "float16")
NETWORK_INPUT = InputRef("x")


def op(name: str, *sources: object) -> Op:
    inputs = tuple(OpOutput(f"Default/{s}") if isinstance(s, str) else s for s in sources)
    return Op(f"Default/{name}", "Op", inputs, (X,))  # type: ignore[arg-type]


def users(*ops: Op) -> list[str]:
    graph = Graph("net", (("x", X),), (), ops, OpOutput(ops[-1].name))
    return [user.name.removeprefix("Default/") for user, _ in users_from_result(graph)[NETWORK_INPUT]]


def test_in_one_cell_what_leads_to_the_last_input_comes_first():
    near, far, further = op("near", NETWORK_INPUT), op("far", NETWORK_INPUT), op("further", "far")
    assert users(near, far, further, op("add", "near", "further")) == ["far", "near"]
    assert users(near, far, further, op("add", "further", "near")) == ["near", "far"]


def test_what_stands_in_a_cell_comes_after_the_users_around_it():
    for scope in ("inner-Cell/", "list-CellList/0-Cell/"):
        far, further, near = op(f"{scope}far", NETWORK_INPUT), op("further", f"{scope}far"), op("near", NETWORK_INPUT)
        assert users(far, further, near, op("add", "near", "further")) == ["near", f"{scope}far"]
        assert users(far, further, near, op("add", "further", "near")) == ["near", f"{scope}far"]


def test_cells_are_inlined_from_the_result_on_first_inputs_first():
    one, two, late = op("one-Cell/a", NETWORK_INPUT), op("two-Cell/a", NETWORK_INPUT), op("late-Cell/a", NETWORK_INPUT)
    after = op("after", "late-Cell/a")
    found = users(
        late,
        after,
        one,
        two,
        Op("Default/sum", "Sum", (OpOutput(after.name), OpOutput(one.name), OpOutput(two.name)), (X,)),
    )
    assert found == ["one-Cell/a", "two-Cell/a", "late-Cell/a"]


SCOPES = ("", "a-Cell/", "a-Cell/b-Cell/", "list-CellList/0-Cell/", "list-CellList/1-Cell/c-Cell/")


@given(st.data())
def test_all_users_are_there(data: st.DataObject):
    """Whatever cells the operators stand in, of tuples and of several outputs too."""
    ops: list[Op] = []
    for number in range(data.draw(st.integers(1, 7))):
        source = st.sampled_from([NETWORK_INPUT, *(result for other in ops for result in other.results)])
        one = source | st.tuples(source, source).map(TupleInput)
        inputs = tuple(data.draw(st.lists(one, min_size=1, max_size=3)))
        name = f"Default/{data.draw(st.sampled_from(SCOPES))}{number}"
        ops.append(Op(name, "Op", inputs, (X,) * data.draw(st.integers(1, 2))))
    graph = Graph("net", (("x", X),), (), tuple(ops), OpOutput(ops[-1].name))
    found = users_from_result(graph)
    assert {source: set(users) for source, users in found.items()} == {
        s: set(users) for s, users in graph.users.items()
    }
