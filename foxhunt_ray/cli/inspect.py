"""``config``: what a run is set to; and the data contract that every verb prints. No Ray, no torch."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foxhunt_ray.cli.options import overrides
from foxhunt_ray.config import Config, known_paths, load_config, to_toml
from foxhunt_ray.errors import ConfigError

if TYPE_CHECKING:
    from foxhunt_ray.data.findings import Finding
    from foxhunt_ray.data.survey import Survey

_WARNINGS = 6


def config(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Print the resolved config, or what one setting means."""
    resolved = load_config(options.config, overrides(options))
    if options.explain:
        print(_explain(resolved, options.explain))
    elif options.json:
        print(json.dumps(resolved.model_dump(mode="json", by_alias=True), indent=2))
    else:
        sys.stdout.write(to_toml(resolved))
    return 0


def contract(found: Survey, data: Mapping[str, Any]) -> list[str]:
    """What a run reads: data, features, and target with windows, a line each.

    Args:
        found: the survey.
        data: its ``summary()``.
    """
    target = found.config.target
    states = Counter(f.status for f in found.market.files)
    files = [f"{count} files {state}" for state, count in sorted(states.items())]
    symbols = " ".join(data["symbols"][:6]) + (" ..." if len(data["symbols"]) > 6 else "")
    windows = ", ".join(f"{name} {count:,}" for name, count in data["windows"].items())
    what = f"{target.kind} of {target.column}" if target.kind == "column" else target.kind
    where = found.config.data.where if found.config.data.paths else "built-in synthetic market"
    return [
        f"data: {', '.join([where, *files])}, {data['rows']:,} rows: {symbols}",
        f"features: {' '.join(data['features'])}",
        f"target: {what}, {', '.join(map(str, target.horizons))} bars ahead; windows: {windows}",
    ]


def reading(findings: Sequence[Finding]) -> list[str]:
    """How the data were understood in one line, and a line for each warning, six at most."""
    warnings = [f"warning: {f}" for f in findings if f.level == "warning"]
    if len(warnings) > _WARNINGS:
        more = len(warnings) - _WARNINGS + 1
        warnings[_WARNINGS - 1 :] = [f"warning: {more} more, which `foxhunt check` shows"]
    return [f"read as: {'; '.join(str(f) for f in findings if f.level == 'note')}", *warnings]


def user_features(options: argparse.Namespace) -> Any:
    """The function that ``--features`` names, or None."""
    from foxhunt_ray.data.user_features import load_user_features

    return load_user_features(options.features) if options.features else None


def _explain(resolved: Config, path: str) -> str:
    meanings = dict(known_paths())
    if path not in meanings:
        raise ConfigError(f"--explain {path}: no such setting; `foxhunt config` lists all")
    section, _, field = path.rpartition(".")
    default = load_config()
    value, usual = (getattr(getattr(c, section) if section else c, field) for c in (resolved, default))
    return f"{path} = {value!r} (default {usual!r}): {meanings[path]}"
