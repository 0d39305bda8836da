"""Every knob, by section, with its meaning, unit, range and default: where a newcomer sees them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from foxhunt_ray.config.data import DataConfig, FeaturesConfig, SplitConfig, TargetConfig
from foxhunt_ray.config.section import Section
from foxhunt_ray.config.units import parse_bytes


class LoaderConfig(Section):
    """How batches reach the device."""

    mode: Literal["async", "sync"] = "async"
    """async = prepared ahead on a thread; sync = the same batches, prepared on demand."""
    prefetch_batches: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = 3
    """Batches prepared ahead [count]; auto = more after a stall, fewer when it has long been quiet."""
    pool: str = "32MB"
    """Rows that are shuffled together, in bytes; two pools are held in memory."""
    tier: Literal["auto", "resident", "arena", "host"] = "auto"
    """Where a GPU's windows are gathered: from the whole split on it, from a pool on it, or on the host."""
    memory_frac: float = Field(0.5, ge=0, le=1)
    """Share of Ray's object store that rows may take; more rows than that are mapped from files."""
    cache_dir: str = ""
    """Folder of those files on every node; empty = FOXHUNT_CACHE, else ~/.cache/foxhunt_ray."""
    cache_size: str = "50GB"
    """Most that the folder may hold; files of old runs are removed to make room."""

    @model_validator(mode="after")
    def _sizes_parse(self) -> Self:
        for name in ("pool", "cache_size"):
            if not parse_bytes(getattr(self, name)):
                raise ValueError(f"{name} = {getattr(self, name)!r}: expected more than nothing, like 32MB")
        return self


class ModelConfig(Section):
    """Mamba-2 sizes, in the letters of arXiv 2405.21060."""

    d_model: int = Field(32, ge=1, le=8192)
    """Width of the residual stream (D)."""
    n_layer: int = Field(2, ge=1, le=128)
    """Mamba-2 blocks."""
    d_state: int = Field(32, ge=1, le=1024)
    """State size of a head (N)."""
    d_conv: int = Field(4, ge=1, le=16)
    """Width of the causal depthwise convolution [bars]."""
    expand: int = Field(2, ge=1, le=8)
    """Inner width as a multiple of d_model (E)."""
    headdim: int = Field(16, ge=1, le=1024)
    """Channels of a head (P); must divide expand * d_model."""
    ngroups: int = Field(1, ge=1, le=256)
    """Groups of heads that share B and C (G)."""
    chunk_size: int = Field(64, ge=1, le=4096)
    """Longest chunk of the scan (Q) [bars]."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of dropping an element of a block's output in training."""
    offload: Literal["none", "layers"] = "none"
    """layers = for a model larger than the GPU: weights stay on the host, two blocks' at a time on the GPU;
    blocks are computed twice a step, and the optimiser runs on the host."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        inner = self.expand * self.d_model
        if inner % self.headdim:
            fits = [p for p in range(1, inner + 1) if inner % p == 0]
            near = sorted(sorted(fits, key=lambda p: abs(p - self.headdim))[:2])
            raise ValueError(
                f"headdim {self.headdim} does not divide expand * d_model = {inner}; "
                f"use {' or '.join(map(str, near))}"
            )
        if (inner // self.headdim) % self.ngroups:
            raise ValueError(f"{inner // self.headdim} heads do not divide into ngroups = {self.ngroups}")
        return self


class OptimizerConfig(Section):
    """AdamW with warm-up and decay."""

    lr: float = Field(2e-3, gt=0, le=1)
    """Peak learning rate."""
    weight_decay: float = Field(0.01, ge=0, le=10)
    """Decoupled decay, of weight matrices only."""
    warmup_frac: float = Field(0.05, ge=0, lt=1)
    """Share of train.max_steps in which the rate rises from 0."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest global gradient norm; 0 = no clipping."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Shape of the rate after the warm-up."""


class TrainConfig(Section):
    """The length of a trial and what it reports."""

    batch_size: int = Field(64, ge=1, le=65536)
    """Windows a step."""
    max_steps: int = Field(400, ge=1)
    """Length of a trial [optimiser steps]."""
    report_every: int = Field(20, ge=1)
    """Distance between reports [optimiser steps]."""
    patience: int = Field(8, ge=0)
    """Reports without a better validation loss before a trial ends; 0 = never."""
    eval_windows: int = Field(1024, ge=1)
    """Validation windows scored at each report, spread over time."""


class Range(Section):
    """A numeric range of the search space."""

    low: float
    high: float
    log: bool = False
    is_int: bool = Field(False, alias="int")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            wanted = "0 < low < high" if self.log else "low < high"
            raise ValueError(f"low = {self.low}, high = {self.high}: expected {wanted}")
        return self


class Choices(Section):
    """A list of values of the search space."""

    choices: tuple[str | int | float | bool, ...] = Field(min_length=1)


def _space_kind(value: Any) -> str:
    found = "choices" in value if isinstance(value, Mapping) else isinstance(value, Choices)
    return "choices" if found else "range"


Dimension = Annotated[
    Annotated[Range, Tag("range")] | Annotated[Choices, Tag("choices")], Discriminator(_space_kind)
]
_SPACE: dict[str, Any] = {
    "optimizer.lr": Range(low=5e-4, high=1e-2, log=True),
    "optimizer.weight_decay": Range(low=1e-3, high=0.3, log=True),
    "model.d_model": Choices(choices=(16, 32, 64)),
    "model.n_layer": Choices(choices=(1, 2, 3)),
    "model.dropout": Range(low=0.0, high=0.3),
}


class SearchConfig(Section):
    """How many trials, who suggests them, who stops them early."""

    trials: int = Field(20, ge=1, le=100_000)
    """Trials to run."""
    minutes: float = Field(0.0, ge=0)
    """Time after which no new trial starts and running ones stop [minutes]; 0 = no limit."""
    searcher: Literal["tpe", "random"] = "tpe"
    """Optuna sampler that suggests: multivariate TPE, or independent random draws."""
    scheduler: Literal["asha", "none"] = "asha"
    """asha = stop a trial that falls behind its peers at a rung; none = every trial runs its length."""
    metric: str = "val/skill"
    """Metric that drives the search."""
    mode: Literal["max", "min"] = "max"
    """Whether a larger or a smaller metric is better."""
    concurrent: int = Field(0, ge=0)
    """Trials at once; 0 = as many as the resources allow."""
    space: dict[str, Dimension] = Field(default_factory=lambda: dict(_SPACE))
    """Config paths and their ranges or choices; a given table replaces the default one."""


class ClusterConfig(Section):
    """Where trials run and what each may use."""

    address: str = ""
    """Address of a Ray cluster; empty = RAY_ADDRESS, else one started for this run."""
    cpus_per_trial: int = Field(1, ge=1)
    """CPU cores, and torch threads, of a trial."""
    gpus_per_trial: float | Literal["auto"] = "auto"
    """GPUs of a trial, fractions allowed; auto = 1 where the cluster has GPUs, else 0."""
    memory_per_trial: str = ""
    """Memory that a trial asks of Ray, such as 2GB; empty = none asked."""

    @model_validator(mode="after")
    def _sizes_parse(self) -> Self:
        gpus = self.gpus_per_trial
        if isinstance(gpus, float | int) and (gpus < 0 or (gpus > 1 and gpus % 1)):
            raise ValueError(
                f"gpus_per_trial = {gpus:g}: expected 0, a fraction of one GPU, or a whole number"
            )
        if self.memory_per_trial:
            parse_bytes(self.memory_per_trial)
        return self


class Config(Section):
    """The whole configuration; immutable, and equal after a round trip through TOML."""

    seed: int = Field(0, ge=0, lt=2**31)
    """The one seed from which every random stream is derived."""
    data: DataConfig = DataConfig()
    features: FeaturesConfig = FeaturesConfig()
    target: TargetConfig = TargetConfig()
    split: SplitConfig = SplitConfig()
    loader: LoaderConfig = LoaderConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()
    search: SearchConfig = Field(default_factory=SearchConfig)
    cluster: ClusterConfig = ClusterConfig()
