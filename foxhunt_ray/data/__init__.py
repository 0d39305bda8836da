"""Parquet on disk to batches on the device.

``survey`` needs pyarrow only; what needs torch and ray is resolved on first use, so that a look at the data
loads neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foxhunt_ray.data.inspection import survey
from foxhunt_ray.data.survey import Survey

if TYPE_CHECKING:
    from foxhunt_ray.data.stream import Prepared, prepare

_LAZY = {"Prepared": "foxhunt_ray.data.stream", "prepare": "foxhunt_ray.data.stream"}
__all__ = ["Prepared", "Survey", "prepare", "survey"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
