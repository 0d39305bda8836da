"""Bounded look-ahead on threads: ``ahead`` does it for anything, ``loader`` for batches on a device, and
``depth`` decides how far where nobody said so.
"""

from foxhunt_ray.data.prefetch.loader import AsyncDataLoader, LoaderProgress

__all__ = ["AsyncDataLoader", "LoaderProgress"]
