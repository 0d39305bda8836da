"""Rows in Ray's object store once, windows out of them in plan order.

``prepared`` is what a run sees, ``store`` the chunks of rows, ``passes`` the windows gathered
from them. No Ray task runs while batches are read, so trials may hold every CPU.
"""

from foxhunt_ray.data.stream.prepared import Prepared, TargetStatistics, prepare, put_rows

__all__ = ["Prepared", "TargetStatistics", "prepare", "put_rows"]
