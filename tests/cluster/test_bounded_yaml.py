import pytest

from ms_symtensor.cluster.bounded_yaml import MOST_B, load_yaml
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError

MANY_TIMES = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MANY_TIMES, "says more than 10,000 values"),
        (MERGED, "says more than 10,000 values"),
        ("a: [" + "1," * 20_000 + "]", "says more than 10,000 values"),
        ("a: &a [*a]", "more than 20 deep, or without end"),
        ("a: &a {b: *a}", "more than 20 deep, or without end"),
        ("[" * 40 + "]" * 40, "more than 20 deep"),
        ("[" * 5_000, "nested too deep"),
        ("- " * 5_000, "nested too deep|more than 20 deep"),
        ("a: " + "x" * MOST_B, "has more than 64 KiB"),
        ("a: !!int ''", "cannot be read"),
        ("a: !!timestamp soon", "cannot be read"),
        ("a: !!bool perhaps", "cannot be read"),
        ("a: !!python/object/apply:os.system [id]", "not valid YAML"),
        ("a: *nobody", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
    ],
)
def test_what_goes_beyond_a_bound_is_one_line(tmp_path, text, message):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path / "c.yaml")
    assert str(tmp_path / "c.yaml") in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 450 + len(str(tmp_path))


@pytest.mark.parametrize("value", ["0x" + "f" * 20_000, "1:" * 5_000 + "1", "'\\ud800'", '"\\ud800"', "x" * 20_000])
def test_a_value_too_long_to_show_is_one_line(tmp_path, value):
    (tmp_path / "c.yaml").write_text(f"based_on: {value}\nname: {value}\n")
    with pytest.raises(InputError, match="based_on: expected one of") as caught:
        load(tmp_path / "c.yaml")
    assert len(str(caught.value)) < 450 + len(str(tmp_path))
    (tmp_path / "c.yaml").write_text(f"based_on: atlas_800t_a2\ndevice: {{l2_B: {{value: {value}, source: s}}}}\n")
    with pytest.raises(InputError, match="device.l2_B.value: expected a number"):
        load(tmp_path / "c.yaml")


def test_what_is_no_file_is_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "c.yaml")
    for path in (tmp_path / "c.yaml", tmp_path):
        with pytest.raises(InputError, match="cannot be read .it is no file."):
            load_yaml(path)


def test_aliases_stand_for_what_they_refer_to(tmp_path):
    (tmp_path / "c.yaml").write_text("a: &a [1, 2]\nb: {c: *a}\nd: {<<: {e: 1}}\n")
    assert load_yaml(tmp_path / "c.yaml") == {"a": [1, 2], "b": {"c": [1, 2]}, "d": {"e": 1}}
    (tmp_path / "c.yaml").write_text("# nothing\n")
    assert load_yaml(tmp_path / "c.yaml") is None
