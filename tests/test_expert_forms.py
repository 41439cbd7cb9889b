"""Networks whose experts may be written in more than one form: the command chooses by costs."""

import json

from ms_symtensor.cli import main


def planned(capsys, out, layers, devices, *more):
    request = ["qwen3_30b_a3b", f"--num-layers={layers}", f"--device-num={devices}", f"--global-batch-size={devices}"]
    assert main(["plan", *request, *more, "--json", f"--out={out}"]) == 0
    return json.loads(capsys.readouterr().out), json.loads((out / "plan.json").read_text(encoding="utf-8"))


def test_the_faster_form_is_taken(capsys, tmp_path):
    """On several nodes devices that share experts are far apart if the places of all samples are joined."""
    joined, of_joined = planned(capsys, tmp_path / "joined", 4, 32, "--experts=capacity")
    either, of_either = planned(capsys, tmp_path / "either", 4, 32)
    assert either["step_time_s"] < 0.99 * joined["step_time_s"]
    assert (of_joined["source"]["experts"], of_either["source"]["experts"]) == ("capacity", "by_sample")
    assert "experts: by_sample" in (tmp_path / "either" / "report.txt").read_text(encoding="utf-8")


def test_a_form_that_is_slower_is_left(capsys, tmp_path):
    """On few devices each has several samples, for all of which gradients of weights are made if samples are apart."""
    apart, _ = planned(capsys, tmp_path / "apart", 1, 8, "--experts=by_sample")
    either, of_either = planned(capsys, tmp_path / "either", 1, 8)
    assert either["step_time_s"] < apart["step_time_s"]
    assert "experts" not in of_either["source"]


def test_uniform_layouts_cut_products_by_sample_too(capsys, tmp_path):
    more = ("--experts=by_sample", "--layouts=uniform", "--fix=expert_parallel=4")
    _, plan = planned(capsys, tmp_path, 1, 8, *more)
    cuts = plan["stages"][0]["strategies"]
    products = [one["in"] for name, one in cuts.items() if "experts-ExpertFeedForward/BatchMatMul" in name]
    assert products and all(x[1] == weight[0] == 4 for x, weight in products)
