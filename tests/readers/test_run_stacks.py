import pytest

from autoplan.readers.run_stacks import read_framework, read_stack
from tests.readers.published import row

HOPPER = {"gpu": "h100-80g-sxm", "attention": ""}
EAGER = {"attention": "", "tp": "1"}


def read(*, recent=False, **changes):
    assumptions = []
    cells = row(**changes)
    framework = read_framework(cells, recent=recent, assumptions=assumptions)
    return read_stack(cells, framework, recent=recent, assumptions=assumptions), assumptions


@pytest.mark.parametrize(
    ("name", "recent", "changes"),
    [
        ("megatron-classic", False, {"arch": "gpt"}),
        ("megatron-classic", False, {"arch": "gpt", "attention": "megatron-fused"}),
        ("megatron-classic", False, {"arch": "gpt", "attention": "", "precision": "fp16"}),
        ("megatron", False, {}),
        ("scaling", False, {"fused_rmsnorm": "false"}),
        ("megatron", True, HOPPER),
        ("megatron", False, {"attention": "", "n_experts": "8"}),
        ("nemo", True, {**HOPPER, "precision": "mxfp8", "fp8_recipe": "mx"}),
        ("nemo", True, {**HOPPER, "precision": "fp8"}),
        ("nemo", True, {**HOPPER, "cuda_graph": "false"}),
        ("torchtitan", True, {**HOPPER, "precision": "fp8", "fp8_recipe": "tensorwise"}),
        ("torchtitan", True, {**HOPPER, "zero_stage": "3"}),
        ("torchtitan", False, {"attention": "", "recompute": "selective", "recompute_detail": "op-sac"}),
        ("torchtitan", False, {**EAGER, "zero_stage": "3", "compile": "true"}),
        ("fsdp", False, {**EAGER, "zero_stage": "3"}),
        ("fsdp", False, {**EAGER, "mp_mode": "pure"}),
        ("fsdp", False, {**EAGER, "zero_stage": "0", "n_gpus": "1"}),
        ("deepspeed", True, {**EAGER, "zero_stage": "2"}),
        ("deepspeed", False, {**EAGER, "overlap_dp": "true"}),
    ],
)
def test_the_framework_follows_from_the_settings(name, recent, changes):
    assert read(recent=recent, **changes)[0].name == name


def test_a_guess_is_said_and_a_source_decides_only_what_is_open():
    assert read(recent=True, **HOPPER)[1] == ["stack megatron"]
    assert read(recent=True, **HOPPER, source="torchtitan-b200")[1] == ["stack torchtitan", "compile false"]
    stack, assumptions = read(source="torchtitan-a100", arch="gpt", attention="megatron-fused")
    assert (stack.name, assumptions) == ("megatron-classic", [])


def test_columns_overrule_the_framework():
    stack, _ = read(
        recent=True,
        **HOPPER,
        overlap_dp="false",
        overlap_tp="true",
        overlap_pp="false",
        overlap_ep="true",
        cuda_graph="true",
        fused_rmsnorm="false",
    )
    assert (stack.overlap_data, stack.overlap_tensor, stack.overlap_pipeline) == (False, True, False)
    assert (stack.overlap_expert, stack.cuda_graph, stack.fused_norms) == (True, True, False)


@pytest.mark.parametrize(
    ("word", "recent", "kernel"),
    [
        ("flash1", False, "flash1"),
        ("flash2", False, "flash2"),
        ("flash", False, "flash1"),
        ("flash", True, "flash2"),
        ("megatron-fused", False, "fused_softmax"),
        ("", True, None),
    ],
)
def test_attention(word, recent, kernel):
    assert read(recent=recent, attention=word)[0].attention == kernel


def test_megatron_without_flash_attention_has_its_fused_softmax():
    assert read(arch="gpt", attention="unfused")[0].attention == "fused_softmax"
    assert read(attention="unfused", fused_rmsnorm="true", source="sweep")[0].name == "scaling"
    assert read(attention="unfused", fused_rmsnorm="true")[0].attention == "unfused"


def test_an_unknown_attention_is_the_frameworks_own():
    stack, assumptions = read(attention="lightning")
    assert stack.attention is None
    assert "attention lightning: taken as the framework's own" in assumptions


@pytest.mark.parametrize(
    ("detail", "redone"),
    [
        ("", ("core_attention",)),
        ("core-attention", ("core_attention",)),
        ("mla_up_proj", ("up_projections",)),
        ("layernorm+moe_act", ("norms", "pointwise")),
        ("every-block", ("core_attention",)),
        ("op-sac", ("norms", "pointwise", "alternate_products")),
    ],
)
def test_what_selective_recompute_repeats(detail, redone):
    assert read(recompute="selective", recompute_detail=detail)[0].redone == redone


def test_compiled_kernels():
    compiled = {**EAGER, "zero_stage": "3", "compile": "true"}
    stack, _ = read(**compiled)
    assert (stack.pointwise, stack.fused_norms) == ("compiled", True)
    stack, assumptions = read(recent=True, **HOPPER, precision="fp8", fp8_recipe="tensorwise")
    assert (stack.pointwise, assumptions) == ("compiled", ["compile true"])


def test_selective_recompute_of_experts_is_of_what_is_cheap():
    assert read(recent=True, **HOPPER, n_experts="8")[0].redone == ("norms", "pointwise")
    latent = read(recent=True, **HOPPER, n_experts="8", kv_lora_rank="512")[0]
    assert latent.redone == ("norms", "pointwise", "up_projections")


def test_megatrons_gpt_has_dropout():
    assert read(arch="gpt")[0].dropout
    assert not read()[0].dropout
    assert not read(arch="gpt", mp_mode="pure")[0].dropout


def test_bytes_of_number_formats():
    assert read(**EAGER, mp_mode="pure")[0].reduce_bytes == 2
    assert read(**EAGER, mp_mode="default")[0].reduce_bytes == 4
    assert read(**EAGER, mp_mode="pure")[0].logit_copies == 0
    assert read(arch="gpt")[0].reduce_bytes == 4
    assert read(arch="gpt", precision="fp16")[0].reduce_bytes == 2
    stack, _ = read(recent=True, **HOPPER, precision="fp32")
    assert (stack.weight_bytes, stack.master_bytes, stack.reduce_bytes) == (4, 0, 4)


def test_zero_3_of_megatron_gathers_unit_by_unit():
    stack, _ = read(recent=True, **HOPPER, zero_stage="3", source="megatron-bridge")
    assert (stack.name, stack.data_parallel) == ("nemo", "fsdp")
