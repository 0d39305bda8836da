"""Tune a Mamba-2 forecaster on market data in parquet, on a laptop or a Ray cluster.

Importing the package loads neither torch nor ray; the public names are resolved on first use.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "AsyncDataLoader": "foxhunt_ray.data.prefetch",
    "Batch": "foxhunt_ray.batch",
    "Config": "foxhunt_ray.config",
    "Mamba2Trainer": "foxhunt_ray.trainer",
    "load_config": "foxhunt_ray.config",
}
__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
