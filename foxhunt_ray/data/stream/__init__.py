"""Rows in Ray's object store (or mapped files) once, windows out of them in plan order.

``build`` makes a ``Prepared``, which is what trials see; ``rows`` says where the rows lie, ``store`` and
``cache`` how; ``passes`` fills ``arena``s with pools of them and gathers windows. No Ray task runs while
batches are read, so trials may hold every CPU.
"""

from foxhunt_ray.data.stream.build import prepare, put_rows
from foxhunt_ray.data.stream.prepared import Prepared, TargetStatistics

__all__ = ["Prepared", "TargetStatistics", "prepare", "put_rows"]
