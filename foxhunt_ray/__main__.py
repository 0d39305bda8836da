"""``python -m foxhunt_ray`` is ``foxhunt``."""

from foxhunt_ray.cli import entry

entry()
