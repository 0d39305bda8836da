"""What env.json says of the place a run was made in, and what it must not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foxhunt_ray
from foxhunt_ray.search.environment import installed_versions, redact, write_env

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    "text",
    [
        f"s3://user:{CANARY}@host/bucket",
        f"https://{CANARY}@host/x",
        f"postgres://u:p/{CANARY}@host",
        f"postgres://u:p@{CANARY}@host",
        f"https://host/x?a=1&password={CANARY}",
        f"https://host/x?token={CANARY}&b=2",
        f"https://host/x?X-Amz-Signature={CANARY}",
        f"https://host/x?ACCESS_KEY={CANARY}#top",
        f"--set=tracker.token={CANARY}",
        f"api_key={CANARY}",
    ],
)
def test_secret_is_replaced(text: str) -> None:
    assert CANARY not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "runs/fx",
        "s3://bucket/bars/symbol=EURUSD/x.parquet",
        "/data/key=7/day=2020-01-01/a.parquet",
        "ray://host:10001",
        "optimizer.lr=1e-3",
        "me@home",
    ],
)
def test_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_redacted_url_keeps_its_host_and_other_parameters() -> None:
    assert redact("https://u:p@host/x?a=1&token=t&b=2") == "https://***@host/x?a=1&token=***&b=2"


def test_env_holds_command_hardware_and_data_but_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("RAY_ADDRESS", f"ray://u:{CANARY}@head:10001")
    argv = ["foxhunt", "tune", "--data", f"s3://u:{CANARY}@host/bars"]
    write_env(tmp_path, argv=argv, gpus=["H200"], data_fingerprint="ab12")
    text = (tmp_path / "env.json").read_text()
    env = json.loads(text)
    assert CANARY not in text
    assert env["command"] == ["foxhunt", "tune", "--data", "s3://***@host/bars"]
    assert env["variables"]["RAY_ADDRESS"] == "ray://***@head:10001"
    assert env["hardware"]["gpus"] == ["H200"] and env["hardware"]["memory_bytes"] > 0
    assert env["data_fingerprint"] == "ab12"


def test_versions_name_what_the_result_depends_on() -> None:
    found = installed_versions()
    assert found["foxhunt_ray"] == foxhunt_ray.__version__
    assert {"python", "ray", "torch", "pyarrow", "optuna"} <= found.keys()


def test_commit_is_that_of_the_checkout(tmp_path: Path) -> None:
    root = Path(foxhunt_ray.__file__).parent.parent
    write_env(tmp_path, argv=[])
    git = json.loads((tmp_path / "env.json").read_text())["git"]
    assert (git is not None) == (root / ".git").exists()
    assert git is None or len(git.removesuffix("-dirty")) == 40
