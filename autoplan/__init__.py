"""autoplan: describe a model and a cluster, get the fastest training plan that fits, and run it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoplan.planner import estimate, load_cluster, load_model, plan

__all__ = ["__version__", "estimate", "load_cluster", "load_model", "plan"]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in __all__:
        from autoplan import planner

        return getattr(planner, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
