"""What each mark and word of the rule grammar means, through `rule` as tables and `register` use it."""

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy, place
from ms_symtensor.ops.registry import register, rules, signature
from ms_symtensor.ops.rule import Choice, Computed, LineRule, rule
from ms_symtensor.ops.signature import Combine
from tests.ops.views import make

MATRIX, CUBE = "float32[8, 4]", "float32[8, 4, 6]"


@pytest.mark.parametrize(
    ("line", "op", "inputs", "outputs"),
    [
        ("m? n, m n -> m n", f"float32[1, 4], {MATRIX} -> {MATRIX}", ((None, "n"), ("m", "n")), (("m", "n"),)),
        ("m? n, m n -> m n", f"float32[4], {MATRIX} -> {MATRIX}", (("n",), ("m", "n")), (("m", "n"),)),
        ("..., ... -> ...", f"float32[4], {MATRIX} -> {MATRIX}", (("d1",), ("d0", "d1")), (("d0", "d1"),)),
        ("m n. -> m 1", f"{MATRIX} -> float32[8, 2]", (("m", None),), (("m", None),)),
        ("t... 1, i... -> i... t...", f"{MATRIX}, float32[3] -> float32[3, 8]", (("t0", None), ("i0",)), (("i0", "t0"),)),
        ("n 1... -> n 1...", f"{CUBE} -> float32[8, 7]", (("n", None, None),), (("n", None),)),
        ("*... -> ...", f"{MATRIX}, {MATRIX}, {MATRIX} -> {MATRIX}", (("d0", "d1"),) * 3, (("d0", "d1"),)),
        ("m n, ?n, m -> m n", f"{MATRIX}, float32[8] -> {MATRIX}", (("m", "n"), ("m",)), (("m", "n"),)),
        ("[m n]t -> m n | t = flag 0", f"{MATRIX} -> float32[4, 8]", (("n", "m"),), (("m", "n"),)),
        ("... a ... -> ... ... | a = -1", f"{CUBE} -> {MATRIX}", (("d0", "d1", "d2"),), (("d0", "d1"),)),
        ("... a ... -> a ... ... | a = from 1", f"{CUBE} -> float32[4, 6, 8]", (("d0", "d1", "d2"),), (("d1", "d2", "d0"),)),
        ("... -> ... k ... | k = axis 9 -1", f"{MATRIX} -> float32[8, 4, 5]", (("d0", "d1"),), (("d0", "d1", "k"),)),
        ("... -> [...]p | p = 0 and 1", f"{MATRIX} -> float32[4, 8]", (("d0", "d1"),), (("d1", "d0"),)),
        ("... a! ... -> ... 1 ... | a = unlike", f"{MATRIX} -> float32[8, 3]", (("d0", "d1"),), (("d0", None),)),
    ],
)  # fmt: skip
def test_dims_are_named_as_a_line_says(line, op, inputs, outputs):
    sig = rule(line)(make("Mine", op, True))
    assert sig.inputs == inputs and sig.outputs == outputs


def test_cuts_of_heads_divide_those_of_the_keys():
    line = "s (n d), 1 (n% d) -> s (n d) | n = size heads 0"
    sig = rule(line)(make("Mine", "float32[16, 64], float32[16, 16] -> float32[16, 64]", 8))
    assert sig.sizes == {"s": 16, "n": 2}


def test_the_gradient_reads_what_is_marked():
    sig = rule("@..., ~..., ... -> @..., =...")(make("Mine", f"{MATRIX}, {MATRIX}, {MATRIX} -> {MATRIX}, {MATRIX}"))
    assert (sig.keeps_inputs, sig.keeps_outputs, sig.differentiable, sig.is_view) == ((0,), (0,), (0, 2), True)


@pytest.mark.parametrize(
    ("mark", "combine"), [("", Combine.SUM), ("+", Combine.SUM), ("mean", Combine.MEAN), ("max", Combine.MAX)]
)
def test_partial_results_are_combined_as_marked(mark, combine):
    op = make("Mine", f"{MATRIX} -> float32[8]")
    found = place(op, rule(f"m k -> {mark} m")(op), OpStrategy(((2, 4),)), 8).partial
    assert found is not None and found.combine is combine and found.group.size == 4


def test_an_operator_is_registered_with_words():
    register("GrammarSoftmax", "... a! ... -> @... a! ... | a = axis 0 -1")
    register("GrammarSoftmax", "... a! ... -> @... a! ... | a = axis 0 -1")  # a file that is run again
    assert signature(make("GrammarSoftmax", f"{CUBE} -> {CUBE}", 1)).cuttable == ("d0", "d2")
    with pytest.raises(InputError, match="has a signature already"):
        register("GrammarSoftmax", "... a! ... -> @... a! ... | a = axis 0 0")


def test_sizes_that_differ_are_refused_with_the_mark_that_allows_them():
    with pytest.raises(
        InputError, match=r"dim 'm' is 1 \(input 0\) and 8 \(input 1\) \(write m\? where it is broadcast\)"
    ):
        rule("m n, m n -> m n")(make("Mine", f"float32[1, 4], {MATRIX} -> {MATRIX}"))


def test_few_rules_are_functions():
    """Most operators are lines of data, and so is most of what MindSpore does otherwise."""
    functions = set()

    def visit(one):
        if isinstance(one, Choice):
            for other in (*one.rules.values(), one.otherwise):
                visit(other)
        elif isinstance(one, LineRule):
            functions.update(filter(None, (one.work, one.quirks.adjust)))
        else:
            functions.add(one.function if isinstance(one, Computed) else one)

    for one in rules().values():
        visit(one)
    assert len(functions) <= 20
