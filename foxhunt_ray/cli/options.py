"""The options of every verb, in the standard library's argparse, so that ``--help`` is instant."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module

import foxhunt_ray

_EPILOG = (
    "Without --data the built-in synthetic market is used. `foxhunt config` prints every setting; "
    "`foxhunt VERB --help` the options of a verb."
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``foxhunt``; its result carries ``run``, the function of the chosen verb."""
    parser = argparse.ArgumentParser(
        prog="foxhunt", description="Tune a Mamba-2 forecaster on market data in parquet.", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=f"foxhunt_ray {foxhunt_ray.__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    shared = _shared()

    def verb(name: str, where: str, text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text, parents=[shared])
        added.set_defaults(run=_later(f"foxhunt_ray.cli.{where}", name))
        return added

    verb("check", "inspect", "say what a run would read from --data; exit 2 if it would refuse")
    tune = verb("tune", "run", "search hyperparameters with Ray Tune and Optuna")
    _run_options(tune)
    tune.add_argument("--trials", type=int, metavar="N", help="trials to run (search.trials)")
    tune.add_argument("--minutes", type=float, metavar="M", help="time limit (search.minutes)")
    _run_options(verb("train", "run", "train one model with the config as it is"))
    predict = verb("predict", "forecast", "forecasts of a finished run's best model as parquet")
    predict.add_argument("folder", metavar="RUN", help="folder of a run, such as runs/NAME")
    config = verb("config", "inspect", "print the resolved config as TOML")
    config.add_argument("--explain", metavar="PATH", help="say what one setting means, such as model.d_model")
    return parser


def overrides(options: argparse.Namespace) -> list[str]:
    """The ``section.field=value`` strings that the options amount to; ``--set`` has the last word."""
    named = {
        "data.path": options.data,
        "search.trials": getattr(options, "trials", None),
        "search.minutes": getattr(options, "minutes", None),
        "seed": getattr(options, "seed", None),
        "cluster.address": getattr(options, "address", None),
    }
    quoted = {"data.path", "cluster.address"}  # else a path such as 2024 would be read as a number
    given = {path: value for path, value in named.items() if value is not None}
    return [f"{p}={_quote(v) if p in quoted else v}" for p, v in given.items()] + (options.set or [])


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--config", metavar="PRESET_OR_FILE", help="preset name, or TOML file")
    shared.add_argument(
        "--set", action="append", metavar="SECTION.FIELD=VALUE", help="override one setting; repeatable"
    )
    shared.add_argument("--data", metavar="PATH", help="file, folder or glob of parquet (data.path)")
    shared.add_argument("--out", metavar="DIR", help="where runs are kept (default: runs); predict: the file")
    shared.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    return shared


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", help="name of the run (default: name of the data and the UTC time)")
    parser.add_argument("--seed", type=int, metavar="S", help="the one seed (seed)")
    parser.add_argument("--resume", action="store_true", help="go on with the run of this --name")
    parser.add_argument("--address", help="address of a Ray cluster (cluster.address)")


def _later(module: str, function: str) -> Callable[[argparse.Namespace, Sequence[str]], int]:
    """A verb's function, whose module is imported only when it is called."""
    return lambda options, argv: int(getattr(import_module(module), function)(options, argv))


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
