"""The data of a run inspected: all that was found, and whether a run may start on it. No torch, no Ray."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foxhunt_ray.config import Config
from foxhunt_ray.data.findings import Finding, refusal, require_none_refused
from foxhunt_ray.data.schema import Market, Progress, scan_market
from foxhunt_ray.data.survey import Survey, survey_market
from foxhunt_ray.data.synthetic import synthetic_market
from foxhunt_ray.data.user_features import UserFeatures
from foxhunt_ray.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found of the data, whether or not a run may start on them.

    Attributes:
        market: what was read.
        survey: what a run would see; None if that cannot be told.
        findings: of the reading and of the survey, refusals last.
    """

    market: Market
    survey: Survey | None
    findings: tuple[Finding, ...]

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """What keeps a run from starting, files first."""
        return (*self.market.refused_files, *(f for f in self.findings if f.level == "refusal"))


def inspect(
    config: Config, *, user: UserFeatures | None = None, on_progress: Progress | None = None
) -> Inspection:
    """Read the data of ``config`` as far as that goes, and say what was found.

    Args:
        config: the run's config.
        user: inputs of the user's own.
        on_progress: called with the rows done and in all.

    Raises:
        DataError: the path holds no file to read, or lacks a symbol that the config names.
        ConfigError: ``data.timezone`` is not a zone.
    """
    if not config.data.paths:
        market = synthetic_market(config.seed)
    else:
        market = scan_market(config, on_progress=on_progress)
    if not market.bars:
        return Inspection(market, None, market.findings)
    try:
        more: tuple[str, ...] = ()
        if user:
            user.require_causal(market.bars)
            bars, more = user.apply(market.bars)
            market = replace(market, bars=bars)
        found = survey_market(config, market, more=more)
    except (DataError, ConfigError) as err:
        # While a question is open, what follows from its provisional answer says nothing.
        told = () if market.refusals else (refusal(str(err), file=config.data.where),)
        return Inspection(market, None, (*market.findings, *told))
    where = config.data.where
    named = (f if f.file or not f.column else replace(f, file=where) for f in found.findings)
    findings = [*named, *_too_few(found)]
    return Inspection(market, found, tuple(sorted(findings, key=lambda f: f.level == "refusal")))


def survey(
    config: Config, *, user: UserFeatures | None = None, on_progress: Progress | None = None
) -> Survey:
    """Read the data of ``config`` and say what a run would see.

    Args:
        config: the run's config.
        user: inputs of the user's own.
        on_progress: called with the rows done and in all.

    Raises:
        DataError: files, columns or values that cannot be used, a question that only the user can answer, or
            no training window; names the path.
        ConfigError: ``data.timezone`` is not a zone.
    """
    seen = inspect(config, user=user, on_progress=on_progress)
    require_none_refused(seen.refusals)
    assert seen.survey is not None, "nothing was refused"
    return seen.survey


def _too_few(found: Survey) -> list[Finding]:
    """A refusal if there is nothing to learn from, or nothing to judge it by though that was asked for."""
    config, windows = found.config, found.window_counts
    lacking = next((name for name in ("train", "val") if name in found.spans and not windows[name]), "")
    if not lacking:
        return []
    longest = max(int(np.diff(np.append(i.segment_first, len(i.ts_event))).max()) for i in found.index)
    need = found.context_length + config.target.longest
    split = {"train": "training", "val": "validation"}[lacking]
    text = (
        f"no {split} window: context_length {found.context_length} + horizon {config.target.longest} need "
        f"{need} bars in a row without a gap or a missing value, the last {config.target.longest + 1} in the "
        f"{split} span; the longest segment has {longest}"
    )
    action = (
        "lower data.context_length or target.horizon, set data.gap = bridge or a longer data.max_gap, move "
        "split.val, or bring more bars"
    )
    return [refusal(text, file=config.data.where, action=action)]
