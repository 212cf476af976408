import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from autoplan.errors import ModelError
from autoplan.readers import ReaderWarning, load_model, model_presets, parse_model
from autoplan.spec import ModelSpec
from autoplan.spec.codec import to_json, to_jsonable
from autoplan.spec.tensors import embedding_tensors, mtp_tensors, num_active_parameters, num_parameters
from tests.tiny_models import llama_like

CONFIGS = Path(__file__).parent / "configs"


def published():
    with (CONFIGS / "published.csv").open(encoding="utf-8", newline="") as file:
        return {row["slug"]: row for row in csv.DictReader(file)}


PUBLISHED = published()
SPARSE = [slug for slug, row in PUBLISHED.items() if row["active_params"]]


def main_model(model):
    return replace(model, mtp=())


def llama():
    return json.loads((CONFIGS / "llama-3-8b.json").read_text(encoding="utf-8"))


def test_there_is_a_row_for_every_file():
    assert sorted(PUBLISHED) == sorted(path.stem for path in CONFIGS.glob("*.json"))


@pytest.mark.parametrize("slug", PUBLISHED)
def test_a_published_file_has_the_published_number_of_parameters(slug):
    model = load_model(CONFIGS / f"{slug}.json")
    assert num_parameters(main_model(model)) == int(PUBLISHED[slug]["total_params"])
    assert model.tied_embeddings is (PUBLISHED[slug]["tied"] == "true")
    assert model.name == slug


@pytest.mark.parametrize("slug", SPARSE)
def test_a_token_visits_the_published_number_of_parameters(slug):
    """Makers round the figure or cut it off, to billions or to tenths of them."""
    model = main_model(load_model(slug))
    figure = int(PUBLISHED[slug]["active_params"])
    unit = 10**8 if figure % 10**9 else 10**9
    active = num_active_parameters(model)
    if PUBLISHED[slug]["active_without"] == "embedding":
        active -= sum(tensor.numel for tensor in embedding_tensors(model))
    assert -unit / 2 <= active - figure < unit


def test_a_multi_token_prediction_module_counts_apart_from_the_main_model():
    model = load_model("deepseek-v3")
    module = sum(tensor.numel for tensor in mtp_tensors(model, 0))
    assert len(model.mtp) == 1
    assert num_parameters(model) - num_parameters(main_model(model)) == module
    assert round(module / 1e9, 2) == 11.61


@pytest.mark.parametrize("slug", PUBLISHED)
def test_a_preset_is_the_published_model(slug):
    assert load_model(slug) == load_model(CONFIGS / f"{slug}.json")


@pytest.mark.parametrize("name", model_presets())
def test_every_preset_can_be_read(name):
    model = load_model(name)
    assert model.name == name
    assert parse_model(name, where="body") == model


def test_the_demo_model_is_small_and_divides():
    model = load_model("llama-15m")
    mixer = model.block(0).mixer
    assert num_parameters(model) == 14_424_576
    assert model.vocab_size == 256
    assert model.num_layers >= 4
    assert [mixer.num_heads % 4, mixer.num_kv_heads % 4, model.block(0).feed_forward.width % 4] == [0, 0, 0]


def test_gpt_3_rounds_to_175_billion():
    assert round(num_parameters(load_model("gpt-3-175b")) / 1e9) == 175


def test_gpt_oss_20b_has_its_published_number_of_parameters():
    model = load_model("gpt-oss-20b")
    lookup = sum(tensor.numel for tensor in embedding_tensors(model))
    assert num_parameters(model) == 20_914_757_184
    assert round((num_active_parameters(model) - lookup) / 1e9, 1) == 3.6


def test_a_folder_stands_for_its_config(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(llama()), encoding="utf-8")
    (folder / "modeling_custom.py").write_text("raise SystemExit('run')", encoding="utf-8")
    model = load_model(folder)
    assert model.name == "my-model"
    assert model == load_model(str(folder / "config.json"))


def test_a_folder_without_a_config_is_an_error(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json: no such file"):
        load_model(tmp_path)


def test_an_autoplan_model_comes_back(tmp_path):
    model = llama_like()
    path = tmp_path / "model.json"
    path.write_text(to_json(model), encoding="utf-8")
    assert load_model(path) == model
    assert parse_model(to_jsonable(model), where="body") == model


def test_a_preset_name_wins_over_a_file_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gpt2").write_text(json.dumps(llama()), encoding="utf-8")
    assert load_model("gpt2").family == "gpt2"
    assert load_model("./gpt2").family == "llama"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n "hidden_size": 4096,\n "model_type" "llama"\n}', "line 3, column 15"),
        ("", "line 1, column 1"),
        ('{"a": NaN}', "NaN"),
        ('{"hidden_size": 1, "hidden_size": 2}', "'hidden_size' is given twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_json_names_file_line_and_column(tmp_path, text, place):
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"broken\.json: malformed JSON") as failure:
        load_model(path)
    assert place in str(failure.value)


def test_text_that_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "latin.json"
    path.write_bytes(b'{"name": "\xe9"}')
    with pytest.raises(ModelError, match=r"latin\.json: not UTF-8 text: .* at byte 10"):
        load_model(path)


def test_a_byte_order_mark_is_no_error(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(llama()), encoding="utf-8-sig")
    assert load_model(path).family == "llama"


@pytest.mark.parametrize("argument", ["nowhere.json", "no/such/model.json", Path("nowhere.json")])
def test_a_missing_file_is_named(argument):
    with pytest.raises(ModelError, match="no such file"):
        load_model(argument)


def test_an_unknown_name_lists_presets_and_near_ones():
    with pytest.raises(ModelError, match=r"^llama-3-8: no such file, folder or preset\. did you mean llama-3-8b\? "):
        load_model("llama-3-8")
    with pytest.raises(ModelError, match=r"^body: unknown preset 'x'\. Known: dbrx, deepseek-v2-lite, "):
        parse_model("x", where="body")


def test_a_string_never_opens_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.json").write_text(json.dumps(llama()), encoding="utf-8")
    with pytest.raises(ModelError, match="unknown preset"):
        parse_model("model.json", where="body")


@pytest.mark.parametrize("data", [None, 3, 1.5, True, [], [{}]])
def test_a_model_is_an_object(data):
    with pytest.raises(ModelError, match=r"^body: must be an object or the name of a preset"):
        parse_model(data, where="body")


def test_another_document_is_refused():
    with pytest.raises(ModelError, match=r"^body: schema is 'autoplan.plan/1', expected 'autoplan.model/1'"):
        parse_model({"schema": "autoplan.plan/1"}, where="body")


def test_an_unknown_family_lists_the_known_ones():
    known = "dbrx, deepseek_v2, deepseek_v3, falcon, gemma, gemma2, gemma3, gemma3_text, gpt2, gpt_neox, "
    with pytest.raises(ModelError, match=rf"^body: model_type: unknown family 'rwkv'\. Known: {known}"):
        parse_model({**llama(), "model_type": "rwkv"}, where="body")


def test_a_file_without_a_family_is_an_error():
    nameless = {key: value for key, value in llama().items() if key != "model_type"}
    with pytest.raises(ModelError, match=r"^body: model_type: is missing"):
        parse_model(nameless, where="body")


def test_unknown_keys_are_ignored_and_structural_ones_named():
    plain = parse_model(llama(), where="body")
    harmless = {"torch_dtype": "bfloat16", "bos_token_id": 1, "use_cache": True, "quantization_config": {"bits": 4}}
    assert parse_model({**llama(), **harmless}, where="body") == plain
    with pytest.warns(ReaderWarning, match=r"^body: .*llama model.*: kv_lora_rank, num_experts$"):
        assert parse_model({**llama(), "num_experts": 8, "kv_lora_rank": 512}, where="body") == plain


def test_a_model_is_called_by_what_the_file_says():
    assert parse_model(llama(), where="body").name == "llama"
    assert parse_model({**llama(), "_name_or_path": "meta-llama/Meta-Llama-3-8B"}, where="body").name == (
        "Meta-Llama-3-8B"
    )
    assert parse_model({**llama(), "_name_or_path": ""}, where="body").name == "llama"
    assert isinstance(parse_model(llama(), where="body", name="mine"), ModelSpec)
