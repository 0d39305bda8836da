"""Tensors in, tensors out; plain torch."""

from foxhunt_ray.models.forecaster import Forecaster, build_model

__all__ = ["Forecaster", "build_model"]
