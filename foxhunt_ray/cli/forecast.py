"""``predict``: forecasts of a finished run's best model, as parquet."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from foxhunt_ray.cli.inspect import user_features
from foxhunt_ray.cli.options import overrides
from foxhunt_ray.cluster import prepare_environment
from foxhunt_ray.config import load_config
from foxhunt_ray.errors import ConfigError


def predict(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Write the forecasts to ``--out`` (default: predictions.parquet in the working directory)."""
    if options.config:
        raise ConfigError("--config is the run's own for predict; use --set for data.symbols and the like")
    out = Path(options.out or "predictions.parquet")
    if out.is_dir():
        raise ConfigError(
            f"--out {out}: is a folder; predict writes one file, such as {out}/predictions.parquet"
        )
    import pyarrow.parquet as pq

    # Before the first import of Ray, in the next line.
    prepare_environment(load_config(None, overrides(options)))
    from foxhunt_ray.predict import predict as forecast

    table = forecast(Path(options.folder), overrides(options), user=user_features(options))
    try:
        pq.write_table(table, out)
    except OSError as err:
        raise ConfigError(
            f"--out {out}: cannot be written ({err}); give a file in a writable folder"
        ) from err
    known = table.num_rows - table["target"].null_count
    if options.json:
        print(json.dumps({"path": str(out), "rows": table.num_rows, "targets_known": known}))
    else:
        print(f"{out}: {table.num_rows:,} forecasts, the target known for {known:,}")
    return 0
