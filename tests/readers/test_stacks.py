import re
from dataclasses import replace
from pathlib import Path

import pytest

from autoplan.errors import InputError
from autoplan.readers.stacks import load_stack, stack_presets
from autoplan.spec import AUTOPLAN
from autoplan.spec.codec import to_json

DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "stacks.md"


def test_every_preset_is_read_by_its_name():
    assert set(stack_presets()) == {
        "autoplan",
        "deepspeed",
        "fsdp",
        "megatron",
        "megatron-classic",
        "nemo",
        "scaling",
        "torchtitan",
        "torchtune",
    }
    for name in stack_presets():
        assert load_stack(name).name == name
    assert load_stack("autoplan") is AUTOPLAN


def test_mixed_precision_states_have_their_bytes():
    def states(name):
        stack = load_stack(name)
        return stack.weight_bytes + stack.master_bytes + stack.gradient_bytes + stack.moment_bytes

    assert {name: states(name) for name in stack_presets()} == {
        "autoplan": 16,
        "deepspeed": 16,
        "fsdp": 16,
        "megatron": 18,
        "megatron-classic": 18,
        "nemo": 16,
        "scaling": 16,
        "torchtitan": 16,
        "torchtune": 8,
    }


def test_a_stack_of_ones_own_is_a_file(tmp_path):
    path = tmp_path / "ours.json"
    path.write_text(to_json(load_stack("nemo")), encoding="utf-8")
    assert load_stack(path) == load_stack(str(path)) == load_stack("nemo")


def test_every_stack_is_documented_and_the_documented_file_is_one(tmp_path):
    text = DOCUMENTED.read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) == list(stack_presets())
    path = tmp_path / "ours.json"
    path.write_text(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1], encoding="utf-8")
    changed = {"name": "nemo-graphs", "redone": ("norms", "pointwise"), "cuda_graph": True}
    assert load_stack(path) == replace(load_stack("nemo"), **changed)


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(InputError, match=r"stack: unknown stack 'megatro'\. did you mean megatron"):
        load_stack("megatro")
    path = tmp_path / "ours.json"
    with pytest.raises(InputError, match=r"ours\.json: no such file"):
        load_stack(path)
    path.write_text('{"name": "ours", "pointwise": "quick"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"ours\.json: pointwise"):
        load_stack(path)
