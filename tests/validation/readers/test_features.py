from ms_symtensor.cluster.load import load
from ms_symtensor.validation.evaluate import pair_outcome, priceable

ROW = {
    "feature": "overlap-param-gather", "model": "Llama2-70B", "config": "", "baseline": "off", "with_feature": "on",
    "gain": "+3.4%", "source": "github:Ascend/MindSpeed@028de58c:docs/zh/features/async-ddp-param-gather.md",
}  # fmt: skip


def test_the_feature_is_on_the_better_side_if_it_gains(read_rows) -> None:
    gains, loses = read_rows(ROW, {}, {"gain": "-3.4%"}).pairs
    assert gains.better.overlap_weights and not gains.worse.overlap_weights
    assert (loses.better, loses.worse) == (gains.worse, gains.better)


def test_signs_of_what_is_modelled_are_right_and_the_rest_is_named(read_rows) -> None:
    general = {"model": "general (FSDP2 doc)", "baseline": "none"}
    dataset = read_rows(
        ROW,
        {},
        {"feature": "async DDP (overlap-grad-reduce)", "gain": "+2-3%"},
        {"feature": "full recompute", "gain": "memory -30..40% throughput -15..25%", **general},
        {"feature": "partial recompute", "gain": "throughput -5..10%", **general},
        {"feature": "smart_swap"},
    )
    assert dataset.reasons() == {"not modelled: smart_swap": 1}
    a2 = load("atlas_800t_a2")
    assert pair_outcome(priceable(dataset, a2), a2) == (True,) * 4
