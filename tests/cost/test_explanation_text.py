"""Explanations as plain text and as LaTeX."""

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.explain import explain_step
from ms_symtensor.cost.explanation_text import to_latex, to_text
from tests.strategy.plans import hand_written

A2 = load("atlas_800t_a2")

GAMMA_NORM = """\
RmsNorm  Default/layers-CellList/0-TransformerBlock/attention_norm-Norm/RmsNorm-op0 and 4 alike
  d0 d1, d1 -> d0 d1, d0 1
  d0 = 1024 in 2 slices, d1 = 256
  computation
    forward [s] = t_op + memory(8·N_d0·N_d1/(c_d0·c_d1) + 4·N_d0/c_d0 + 4·N_d1/c_d1)/(B_hbm·eta_hbm)
"""


def norm():
    graph, plan = hand_written("llama2_7b", 2, 4)
    return next(one for one in explain_step(graph, plan.stage, A2).operators if one.type == "RmsNorm")


def test_text_of_an_operator():
    text = to_text(norm())
    assert text.startswith(GAMMA_NORM)
    legend = text.partition("\nwhere\n")[2]
    assert "  eta_hbm  " in legend
    assert "  memory(Q) = Q·{1/g_L2 if L2 ≥ Q; 1 otherwise}\n" in legend and "  g_L2  " in legend
    assert "where" not in to_text(norm(), legend=False)


def test_latex_of_an_operator():
    text = to_latex(norm())
    assert text.startswith(
        "% RmsNorm  Default/layers-CellList/0-TransformerBlock/attention_norm-Norm/RmsNorm-op0 and 4 alike\n"
    )
    assert r"\[ T_\mathrm{compute} = t_\mathrm{op} + \frac{\operatorname{memory}{\left(" in text
    assert r"M_\mathrm{optimizer~states} = 8 \frac" in text or r"M_\mathrm{optimizer~states} = \frac{8 N_{d1}}" in text


def test_text_of_a_step_begins_with_its_price():
    graph, plan = hand_written("llama2_7b", 2, 4)
    step = explain_step(graph, plan.stage, A2)
    lines = to_text(step).splitlines()
    assert lines[0] == f"step time {step.cost.step_time_s:.3e} s, the sum over all operators of"
    assert lines[5] == f"peak memory {step.cost.peak_memory_B} B, of which"
    assert " and 1 alike" in to_text(step)  # the other layer
    assert to_latex(step).startswith(r"\[ T = T_\mathrm{compute} + T_\mathrm{communication}")
