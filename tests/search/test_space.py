"""Which keys may be searched, which ends are refused, and what a drawn point becomes."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.config import Config, Range, known_paths, load_config, with_values
from foxhunt_ray.errors import ConfigError
from foxhunt_ray.search.space import check_space, distributions, values_from, values_inside


def config_with(space: dict[str, object], **values: object) -> Config:
    return load_config(None, {**values, "search.space": space})


def test_the_default_space_is_accepted() -> None:
    config = load_config()
    check_space(config)
    assert config.search.space


@pytest.mark.parametrize("key", sorted(p for p, _ in known_paths() if p.startswith(("model.", "optimizer."))))
def test_every_model_and_optimizer_key_may_be_searched(key: str) -> None:
    section, name = key.split(".")
    value = getattr(getattr(Config(), section), name)
    config = config_with({key: {"choices": [value]}})
    check_space(config)
    assert values_inside(config.search.space, {key: value})


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("seed", "lifts validation and does nothing for test"),
        ("features.clip", "read and prepared once"),
        ("target.horizon", "read and prepared once"),
        ("split.train", "read and prepared once"),
        ("data.path", "read and prepared once"),
        ("loader.prefetch_batches", "how trials are run"),
        ("search.trials", "how trials are run"),
        ("cluster.cpus_per_trial", "how trials are run"),
        ("train.eval_windows", "different windows"),
        ("train.report_every", "different windows or steps"),
    ],
)
def test_a_key_that_may_not_be_searched_is_refused_with_its_reason(key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f'"{key}".*{reason}'):
        check_space(config_with({key: {"choices": [1, 2]}}))


def test_a_misspelt_key_names_the_near_ones() -> None:
    with pytest.raises(
        ConfigError, match=r'"model.d_modle": no such config path; did you mean model.d_model'
    ):
        check_space(config_with({"model.d_modle": {"choices": [16]}}))


def test_an_empty_space_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"search\.space is empty.*foxhunt train"):
        check_space(config_with({}))


def test_a_section_is_not_a_key() -> None:
    with pytest.raises(ConfigError, match="no such config path"):
        check_space(config_with({"model": {"choices": [16]}}))


@pytest.mark.parametrize(
    ("key", "dimension"),
    [
        ("optimizer.lr", {"low": 0.01, "high": 5.0}),
        ("model.d_model", {"choices": [32, 0]}),
        ("model.d_model", {"choices": [32, "big"]}),
        ("optimizer.schedule", {"choices": ["cosine", "linear"]}),
        ("model.n_layer", {"low": 0.5, "high": 3}),
        ("optimizer.schedule", {"low": 1, "high": 3}),
    ],
)
def test_an_end_that_the_config_refuses_is_refused_before_launch(
    key: str, dimension: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match=f'search.space "{key}"'):
        check_space(config_with({key: dimension}))


def test_a_choice_that_fits_no_other_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="headdim 7 does not divide"):
        check_space(
            config_with({"model.headdim": {"choices": [16, 7]}, "model.d_model": {"choices": [16, 32]}})
        )


def test_a_choice_that_fits_only_some_other_choice_is_accepted() -> None:
    config = config_with({"model.headdim": {"choices": [16, 48]}, "model.d_model": {"choices": [32, 48]}})
    check_space(config)
    with pytest.raises(ConfigError):
        with_values(config, {"model.headdim": 48, "model.d_model": 32})


@given(seed=st.integers(0, 2**31), low=st.integers(1, 300), width=st.integers(1, 300), log=st.booleans())
def test_whole_number_ranges_give_whole_numbers_inside(seed: int, low: int, width: int, log: bool) -> None:
    space = {"data.context_length": Range(low=low, high=low + width, log=log)}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    params = study.ask(distributions(space)).params
    value = values_from(space, params)["data.context_length"]
    assert type(value) is int
    assert low <= value <= low + width


def test_a_log_range_is_drawn_evenly_in_the_logarithm() -> None:
    space = {"optimizer.lr": Range(low=1e-4, high=1e-2, log=True)}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [values_from(space, study.ask(distributions(space)).params)["optimizer.lr"] for _ in range(400)]
    below_middle = sum(lr < 1e-3 for lr in drawn)
    assert abs(below_middle - 200) < 4 * 10  # 4 standard deviations of a fair coin


@pytest.mark.parametrize(
    ("values", "inside"),
    [
        ({"optimizer.lr": 1e-3, "model.d_model": 16}, True),
        ({"optimizer.lr": 1.0, "model.d_model": 16}, False),
        ({"optimizer.lr": 1e-3, "model.d_model": 17}, False),
        ({"optimizer.lr": 1e-3}, False),
        ({"optimizer.lr": "x", "model.d_model": 16}, False),
    ],
)
def test_values_are_inside_only_with_the_same_keys_and_in_range(
    values: dict[str, object], inside: bool
) -> None:
    space = config_with({"optimizer.lr": {"low": 1e-4, "high": 1e-2}, "model.d_model": {"choices": [16, 32]}})
    assert values_inside(space.search.space, values) is inside
