"""``tune`` and ``train``: what the user asked for becomes a config, a survey and a folder, and then a run."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foxhunt_ray.cli.inspect import contract, reading, user_features
from foxhunt_ray.cli.options import overrides
from foxhunt_ray.cli.progress import reading_progress
from foxhunt_ray.cluster import in_ray_job, prepare_environment
from foxhunt_ray.config import Config, load_config, with_values
from foxhunt_ray.errors import ConfigError, DataError
from foxhunt_ray.events import fold
from foxhunt_ray.search.folder import RunLock, create_run

if TYPE_CHECKING:
    from foxhunt_ray.search.tuner import Outcome

_JOB_OUT = "~/foxhunt_runs"
_RESUMABLE = ("search", "cluster", "loader")


def tune(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Search hyperparameters; leaves a run folder."""
    return _run(options, argv, verb="tune")


def train(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Train the config as it is, as one trial; leaves the same kind of run folder."""
    return _run(options, argv, verb="train")


def _run(options: argparse.Namespace, argv: Sequence[str], *, verb: str) -> int:
    from foxhunt_ray.data.inspection import survey

    out = _out(options)
    config = _config(options, out, verb)
    name = options.name or _default_name(config)
    with reading_progress() as progress:
        found = survey(config, user=user_features(options), on_progress=progress)
    data = found.summary()
    if options.resume:
        _require_same_data(out, name, data)
    if not found.window_counts["val"]:
        raise DataError(
            f"{config.data.where}: no validation window, but training is steered by "
            "validation; give split.val more of the data, or lower data.context_length or target.horizon"
        )
    stream = sys.stderr if options.json else sys.stdout
    for line in (*contract(found, data), *reading(found.findings)):
        print(line, file=stream, flush=True)
    folder = create_run(out, name, resume=options.resume)
    prepare_environment(config)  # before the first import of Ray, in the next line
    try:
        with RunLock(folder):
            from foxhunt_ray.cli.session import run_in, train_one, tune_trials

            drive = tune_trials if verb == "tune" else train_one
            outcome, results = run_in(folder.resolve(), config, found, drive=drive, argv=argv, stream=stream)
    finally:
        _discard_unstarted(folder)
    return _report(outcome, results, folder=folder, verb=verb, as_json=options.json)


def _require_same_data(out: str, name: str, now: Mapping[str, Any]) -> None:
    """Refuse other inputs, symbols or rows before anything is written: scores would not compare."""
    began = fold(create_run(out, name, resume=True) / "events.jsonl").info["data"]
    for key, what in (("features", "inputs"), ("symbols", "symbols")):
        if began[key] != now[key]:
            odd = sorted({*began[key]} ^ {*now[key]}) or ["their order"]
            raise ConfigError(
                f"--resume with other {what} ({', '.join(odd[:3])}): give the --data and --features that the "
                "run began with, or start a new one under another --name"
            )
    if began["rows"] != now["rows"]:
        raise ConfigError(
            f"--resume with other data ({began['rows']:,} rows when the run began, {now['rows']:,} now): "
            "give the --data that it began with, or start a new one under another --name"
        )


def _discard_unstarted(folder: Path) -> None:
    """Remove the folder of a run that was refused before it began, so that its name stays free."""
    log = folder / "events.jsonl"
    if not log.exists() or not fold(log).info:
        shutil.rmtree(folder, ignore_errors=True)


def _config(options: argparse.Namespace, out: str, verb: str) -> Config:
    if options.resume and not options.name:
        raise ConfigError("--resume needs --name, the run to go on with")
    if options.resume:
        config = _saved_config(options, create_run(out, options.name, resume=True))
    else:
        config = load_config(options.config, overrides(options))
    relative = [path for path in config.data.paths if not _is_absolute(path)]
    if in_ray_job() and relative:
        raise ConfigError(
            f"--data {relative[0]}: is relative, but the working directory of a Ray job is a copy that "
            "is thrown away; give an absolute path that every node sees"
        )
    if verb == "train":  # what is searched does not matter, and one trial is all there is
        return with_values(config, {"search.space": {}, "search.trials": 1})
    from foxhunt_ray.search.space import check_space

    check_space(config)
    return config


def _saved_config(options: argparse.Namespace, folder: Path) -> Config:
    """The config that the run began with, and what may be changed at a resume on top of it."""
    if options.config:
        raise ConfigError(
            "--config with --resume: a run goes on with its own config; use --set, or a new --name"
        )
    info = fold(folder / "events.jsonl").info
    if not info:
        raise ConfigError(f"{folder}: was ended before its run began; remove it, and start without --resume")
    began = load_config(info["config"])
    config = load_config(began.model_dump(mode="json", by_alias=True), overrides(options))
    now, then = (c.model_dump(exclude={*_RESUMABLE, "data"}) for c in (config, began))
    changed = [section for section in now if now[section] != then[section]]
    if changed or config.data.model_copy(update={"path": began.data.path}) != began.data:
        raise ConfigError(
            f"--resume with another {(changed or ['data'])[0]}: only {', '.join(_RESUMABLE)} and the place "
            "of the data may change; start a new run under another --name"
        )
    return config


def _out(options: argparse.Namespace) -> str:
    if not in_ray_job():
        return options.out or "runs"
    out = str(Path(options.out or _JOB_OUT).expanduser())
    if not _is_absolute(out):
        raise ConfigError(
            f"--out {out}: is relative, but the working directory of a Ray job is a copy that is thrown "
            f"away; give an absolute path that every node sees (default: {_JOB_OUT})"
        )
    return out


def _is_absolute(path: str) -> bool:
    return Path(path).expanduser().is_absolute() or "://" in path


def _default_name(config: Config) -> str:
    """Name of the data and the UTC time, such as fx_hourly-20260102-030405."""
    data = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", Path((*config.data.paths, "synthetic")[0]).stem).strip("-._")
        or "run"
    )
    return f"{data[:40]}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}"


def _report(outcome: Outcome, results: dict[str, Any], *, folder: Path, verb: str, as_json: bool) -> int:
    from foxhunt_ray.report.summary import print_summary

    if as_json:
        print(json.dumps(results))
    elif results:
        print_summary(results, folder=str(folder), stream=sys.stdout)
    if not results:
        print("foxhunt: interrupted before the first trial; nothing is kept", file=sys.stderr)
        return 128 + (outcome.signal or 0)
    if outcome.signal is not None:
        again = f"foxhunt {verb} --out {folder.parent} --name {folder.name} --resume"
        print(f"foxhunt: interrupted, state saved; go on with: {again}", file=sys.stderr)
        return 128 + outcome.signal
    if outcome.status != "finished":
        print(f"foxhunt: no trial succeeded: {outcome.reason or 'see the reasons above'}", file=sys.stderr)
        return 1
    return 0
