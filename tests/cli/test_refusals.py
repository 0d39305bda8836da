"""A user's mistake: one to three lines that name it, exit code 2, no traceback, nothing written."""

from __future__ import annotations

import re
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.cli import main
from foxhunt_ray.config import load_config
from foxhunt_ray.data.inspection import survey
from foxhunt_ray.events import EventLog

HOUR = 3600 * 10**9


def write(path, n=400, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {"ts": pa.array(range(0, n * HOUR, HOUR), pa.timestamp("ns", tz="UTC"))}
    rows |= {"close": [100.0 + (i * 7 % 13) for i in range(n)]}
    rows |= columns
    pq.write_table(pa.table({k: v for k, v in rows.items() if v is not None}), path)
    return path


def missing_path(tmp):
    return ["--data", tmp / "nowhere"], "nowhere"


def empty_folder(tmp):
    (tmp / "empty").mkdir()
    return ["--data", tmp / "empty"], "empty"


def no_parquet(tmp):
    (tmp / "csv").mkdir()
    (tmp / "csv" / "a.csv").write_text("a,b\n1,2\n")
    return ["--data", tmp / "csv"], "no parquet"


def text_named_parquet(tmp):
    (tmp / "a.parquet").write_text("ts,close\n1,2\n")
    return ["--data", tmp / "a.parquet"], "a.parquet"


def no_time_column(tmp):
    return ["--data", write(tmp / "a.parquet", ts=None)], "a.parquet"


def fewer_rows_than_a_window(tmp):
    return ["--data", write(tmp / "a.parquet", n=60)], "context_length 64 .* the longest segment has 60"


def all_nan_column(tmp):
    write(tmp / "a.parquet", gone=[float("nan")] * 400)
    return ["--data", tmp / "a.parquet", "--set", 'features.columns=["gone"]'], "'gone'"


def all_nan_price(tmp):
    return ["--data", write(tmp / "a.parquet", close=[float("nan")] * 400)], "a.parquet"


def no_target_column(tmp):
    write(tmp / "a.parquet")
    return ["--data", tmp / "a.parquet", "--set", "target.kind=column", "--set", "target.column=zz"], "'zz'"


def unknown_key(tmp):
    return ["--set", "model.d_modle=3"], "did you mean model.d_model"


def out_of_range(tmp):
    return ["--set", "train.batch_size=0"], "train.batch_size = 0"


def unknown_preset(tmp):
    return ["--config", "nope"], "no preset of that name"


def bad_set(tmp):
    return ["--set", "lr"], "expected section.field=value"


def bad_space(tmp):
    return ["--set", "search.space={seed={choices=[1,2]}}"], "seed"


def unwritable_out(tmp):
    return ["--out", "/proc/nope"], "/proc/nope"


def out_is_a_file(tmp):
    (tmp / "file").write_text("")
    return ["--out", tmp / "file"], "is a file"


def name_leaves_the_folder(tmp):
    return ["--name", "../x"], "--name '../x'"


def existing_name(tmp):
    (tmp / "here").mkdir()
    return ["--name", "here"], "exists"


def resume_of_nothing(tmp):
    return ["--name", "never", "--resume"], "nothing to go on with"


def resume_of_a_run_that_never_began(tmp):
    (tmp / "early").mkdir()
    (tmp / "early" / "events.jsonl").write_text("")
    return ["--name", "early", "--resume"], "early: was ended before its run began"


def resumed(tmp, **data):
    """A run that began with such data."""
    file = write(tmp / "a.parquet")
    tree = load_config(None, {"data.path": str(file)}).model_dump(mode="json", by_alias=True)
    (tmp / "began").mkdir()
    with closing(EventLog(tmp / "began" / "events.jsonl")) as log:
        log.append("run_started", config=tree, data=survey(load_config(tree)).summary() | data)
    return ["--name", "began", "--resume"]


def resume_with_other_inputs(tmp):
    given = resumed(tmp, features=["close", "mine"])
    return given, r"--resume with other inputs \(close, .*--features that the run"


def resume_with_another_symbol(tmp):
    return resumed(tmp, symbols=["A", "a"]), r"--resume with other symbols \(A\): give the --data"


def resume_with_more_rows(tmp):
    return resumed(tmp, rows=12345), r"--resume with other data \(12,345 rows when the run began, .* now\)"


def resume_without_a_name(tmp):
    return ["--resume"], "--resume needs --name"


def no_validation(tmp):
    return ["--set", "split.train=1", "--set", "split.val=0", "--set", "split.test=0"], "no validation window"


CASES = [
    missing_path,
    empty_folder,
    no_parquet,
    text_named_parquet,
    no_time_column,
    fewer_rows_than_a_window,
    all_nan_column,
    all_nan_price,
    no_target_column,
    unknown_key,
    out_of_range,
    unknown_preset,
    bad_set,
    bad_space,
    unwritable_out,
    out_is_a_file,
    name_leaves_the_folder,
    existing_name,
    resume_of_nothing,
    resume_of_a_run_that_never_began,
    resume_with_other_inputs,
    resume_with_another_symbol,
    resume_with_more_rows,
    resume_without_a_name,
    no_validation,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_tune_says_what_is_wrong_and_exits_with_two(case, tmp_path, capsys):
    arguments, expected = case(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    out = [] if "--out" in arguments else ["--out", tmp_path]
    assert main(["tune", *map(str, [*out, *arguments])]) == 2
    error = capsys.readouterr().err
    assert 1 <= len(error.splitlines()) <= 3 and "Traceback" not in error
    assert re.search(expected, error, re.DOTALL), error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "nowhere"],
        ["predict", "nowhere", "--config", "laptop"],
        ["config", "--explain", "model.x"],
        ["check", "--data", "nowhere"],
        ["tune", "--trials", "many"],
        ["fly"],
        [],
    ],
    ids=" ".join,
)
def test_other_verbs_refuse_likewise(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error and "Traceback" not in error


def test_a_relative_path_inside_a_job_is_refused_with_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "bars" / "a.parquet")
    assert main(["tune", "--data", "bars"]) == 2
    assert "is relative, but the working directory of a Ray job is a copy" in capsys.readouterr().err
    assert main(["tune", "--data", str(tmp_path / "bars"), "--out", "runs"]) == 2
    assert "--out runs: is relative" in capsys.readouterr().err
