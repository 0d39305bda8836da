"""Defaults, file and overrides make one config, or one sentence that says what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.config import Choices, Range, known_paths, load_config, preset_names, to_toml, with_values
from foxhunt_ray.errors import ConfigError


def test_overrides_win_over_the_file_and_the_file_over_defaults(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("seed = 3\n[train]\nbatch_size = 16\nmax_steps = 50\n")
    config = load_config(file, ["train.batch_size=8", "data.path=a b"])
    assert (config.seed, config.train.batch_size, config.train.max_steps) == (3, 8, 50)
    assert config.data.path == "a b" and config.train.report_every == 20


@given(
    lr=st.floats(1e-6, 1, exclude_min=True),
    seed=st.integers(0, 2**31 - 1),
    symbols=st.lists(st.text(max_size=8), max_size=3),
    low=st.floats(-5, 5),
)
def test_toml_reads_back_to_an_equal_config(tmp_path_factory, lr, seed, symbols, low):
    space = {"model.dropout": {"low": low, "high": low + 1}, "train.batch_size": {"choices": [8, 16]}}
    config = load_config(
        None, {"optimizer.lr": lr, "seed": seed, "data.symbols": symbols, "search.space": space}
    )
    file = tmp_path_factory.getbasetemp() / "round.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert load_config(file) == config


def test_a_config_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        load_config().train.batch_size = 3


@pytest.mark.parametrize("name", preset_names())
def test_each_preset_loads_and_differs_from_the_defaults(name):
    assert load_config(name) != load_config()


def test_cross_checks_see_the_merged_whole():
    # headdim alone would not fit the default width: built once, the pair does
    assert load_config(None, ["model.headdim=48", "model.d_model=96"]).model.headdim == 48


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_modle=3", r"unknown key model.d_modle; did you mean model.d_model"),
        ("nonsense=1", r"unknown key nonsense; `foxhunt config` lists"),
        ("model.d_model=x", r"model.d_model = 'x': should be a valid integer"),
        ("model.d_model=true", r"model.d_model = True: should be a valid integer"),
        ("train.batch_size=0", r"train.batch_size = 0: should be greater than or equal to 1"),
        ("optimizer.lr=nan", r"optimizer.lr = nan: should be a finite number"),
        ("model.headdim=48", r"headdim 48 does not divide expand \* d_model = 64; use 32 or 64"),
        ("model.ngroups=3", r"4 heads do not divide into ngroups = 3"),
        ("split.test=0.5", r"must be at least 0 and sum to 1"),
        ("split.val=2016-01-01", r"both as start dates"),
        ("split.val=soon", r"'soon' is not an ISO date"),
        ("data.max_gap=3q", r"duration '3q': expected a number and a unit"),
        ("cluster.memory_per_trial=2 lots", r"size '2 lots': expected a number and a unit"),
        ("cluster.gpus_per_trial=1.5", r"gpus_per_trial = 1.5: expected 0, a fraction of one GPU"),
        ("target.kind=column", r"needs target.column"),
        ("search.space={'optimizer.lr'={low=2,high=1}}", r"optimizer.lr: low = 2.0, high = 1.0"),
        ("foo", r"--set foo: expected section.field=value"),
        ("train=3", r"train = 3"),
        ("train.batch_size.x=3", r"train.batch_size"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_expected(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, [override])


def test_several_mistakes_are_told_at_once():
    with pytest.raises(
        ConfigError, match=r"train.batch_size.*; model.d_model|model.d_model.*; train.batch_size"
    ):
        load_config(None, ["model.d_model=0", "train.batch_size=0"])


def test_files_and_presets_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--config nope: no preset of that name; presets: "):
        load_config("nope")
    with pytest.raises(ConfigError, match=r"nope.toml: cannot be read"):
        load_config(tmp_path / "nope.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("[train\n")
    with pytest.raises(ConfigError, match=r"bad.toml: not valid TOML"):
        load_config(bad)
    bad.write_text("#" * 1_000_001)
    with pytest.raises(ConfigError, match=r"bad.toml: larger than 1 MB"):
        load_config(bad)


def test_space_entries_are_ranges_or_choices_and_replace_the_default_table():
    config = load_config(
        None, ["search.space={'optimizer.lr'={low=1e-4,high=1e-2,log=true},'seed'={choices=[1,2]}}"]
    )
    assert config.search.space == {
        "optimizer.lr": Range(low=1e-4, high=1e-2, log=True),
        "seed": Choices(choices=(1, 2)),
    }
    added = load_config(None, ['search.space."data.stride"={low=1,high=8,int=true}'])
    assert list(added.search.space) == ["data.stride"]


def test_values_are_set_by_dotted_path():
    config = with_values(load_config(), {"optimizer.lr": 0.5, "model.n_layer": 1})
    assert (config.optimizer.lr, config.model.n_layer) == (0.5, 1)
    with pytest.raises(ConfigError, match=r"unknown key optimizer\.rate"):
        with_values(load_config(), {"optimizer.rate": 1})


def test_every_setting_has_a_meaning():
    missing = [path for path, text in known_paths() if not text]
    assert missing == []


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            "loader.prefetch_batches=0",
            "loader.prefetch_batches = 0: should be greater than .* 1, or should be 'auto'",
        ),
        ("cluster.gpus_per_trial=fast", "cluster.gpus_per_trial = 'fast': should be a valid number, or"),
        ("loader.pool=abc", "loader: size 'abc': expected a number and a unit"),
        ("loader.cache_size=0B", "loader: cache_size = '0B': expected more than nothing"),
    ],
)
def test_a_value_that_may_be_of_several_types_is_refused_once_by_its_own_name(setting, told):
    with pytest.raises(ConfigError, match=f"^{told}") as caught:
        load_config(None, [setting])
    assert ";" not in str(caught.value)
