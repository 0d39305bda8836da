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
    settings, data = _settings(), _data()

    def verb(name: str, where: str, text: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text, parents=[settings, *parents])
        added.set_defaults(run=_later(f"foxhunt_ray.cli.{where}", name))
        return added

    check = verb("check", "check", "account for every file, and say what a run would read of it", data)
    check.add_argument(
        "paths", nargs="*", metavar="PATH", help="files, folders or globs of parquet, as --data"
    )
    prepare = verb("prepare", "prepare", "write data once as sorted, typed parquet, one file a symbol")
    prepare.add_argument("paths", nargs="+", metavar="PATH", help="files, folders or globs of parquet")
    prepare.add_argument("out", metavar="OUT", help="folder to write into: new, or one to go on with")
    prepare.add_argument(
        "--bars", metavar="STEP", help="aggregate trades, quotes or bars to bars, such as 1m"
    )
    _skip_bad(prepare)
    tune = verb("tune", "run", "search hyperparameters with Ray Tune and Optuna", data)
    _run_options(tune)
    tune.add_argument("--trials", type=int, metavar="N", help="trials to run (search.trials)")
    tune.add_argument("--minutes", type=float, metavar="M", help="time limit (search.minutes)")
    _run_options(verb("train", "run", "train one model with the config as it is", data))
    predict = verb("predict", "forecast", "forecasts of a finished run's best model as parquet", data)
    predict.add_argument("folder", metavar="RUN", help="folder of a run, such as runs/NAME")
    config = verb("config", "inspect", "print the resolved config as TOML", data)
    config.add_argument("--explain", metavar="PATH", help="say what one setting means, such as model.d_model")
    return parser


def overrides(options: argparse.Namespace) -> list[str]:
    """The ``section.field=value`` strings that the options amount to; ``--set`` has the last word."""
    paths = getattr(options, "paths", None) or [p for p in [getattr(options, "data", None)] if p is not None]
    named = {
        "search.trials": getattr(options, "trials", None),
        "search.minutes": getattr(options, "minutes", None),
        "seed": getattr(options, "seed", None),
        "data.skip_bad": "true" if getattr(options, "skip_bad", False) else None,
    }
    given = [f"{path}={value}" for path, value in named.items() if value is not None]
    # Quoted: else a path such as 2024 would be read as a number.
    if paths:
        texts = [_quote(p) for p in paths]
        given.append(f"data.path={texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}")
    if getattr(options, "address", None) is not None:
        given.append(f"cluster.address={_quote(options.address)}")
    return given + (options.set or [])


def _settings() -> argparse.ArgumentParser:
    settings = argparse.ArgumentParser(add_help=False)
    settings.add_argument("--config", metavar="PRESET_OR_FILE", help="preset name, or TOML file")
    settings.add_argument(
        "--set", action="append", metavar="SECTION.FIELD=VALUE", help="override one setting; repeatable"
    )
    settings.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    return settings


def _data() -> argparse.ArgumentParser:
    data = argparse.ArgumentParser(add_help=False)
    data.add_argument("--data", metavar="PATH", help="file, folder or glob of parquet (data.path)")
    data.add_argument("--out", metavar="DIR", help="where runs are kept (default: runs); predict: the file")
    data.add_argument(
        "--features",
        metavar="FILE.py:fn",
        help="inputs of your own: a function of bars, checked for look-ahead",
    )
    _skip_bad(data)
    return data


def _skip_bad(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--skip-bad", action="store_true", help="go on without damaged files (data.skip_bad)")


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
