"""Model presets."""

from functools import cache

from fastapi import APIRouter

from api.wire import ModelItem, ModelList
from autoplan.readers import model_presets, parse_model
from autoplan.spec.tensors import num_parameters

router = APIRouter(tags=["presets"])


@router.get("/models")
def list_models() -> ModelList:
    """List the models that can be planned by name."""
    return ModelList(models=[_item(name) for name in model_presets()])


@cache
def _item(name: str) -> ModelItem:
    model = parse_model(name, where="preset")
    return ModelItem(
        name=name,
        family=model.family,
        num_parameters=num_parameters(model),
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        max_positions=model.max_positions,
    )
