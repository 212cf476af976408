import pytest

from autoplan.readers import model_presets

pytestmark = pytest.mark.anyio


async def test_every_preset_is_listed_with_its_size(client):
    models = {model["name"]: model for model in (await client.get("/models")).json()["models"]}
    assert tuple(models) == model_presets()
    assert models["gpt2"]["num_parameters"] == 124_439_808
    assert models["llama-3-8b"]["num_layers"] == 32
