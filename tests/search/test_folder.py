"""The run folder: refusals of names and places, one driver at a time, old or new file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foxhunt_ray.errors import CheckpointError, ConfigError
from foxhunt_ray.search.folder import RunLock, create_run, replaced, write_json

HOLD = "import sys; from pathlib import Path; from foxhunt_ray.search.folder import RunLock\n"
HOLD += "RunLock(Path(sys.argv[1])).__enter__(); print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/tmp/x", ".hidden", "-x", "a" * 65, "a" * 300, "a\0b", "a\n", "ﬁ"]
)
def test_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="--name"):
        create_run(str(tmp_path), name, resume=False)
    assert list(tmp_path.iterdir()) == []


def test_new_run_is_an_empty_folder_below_out(tmp_path: Path) -> None:
    folder = create_run(str(tmp_path / "deep" / "runs"), "fx-1.a_b", resume=False)
    assert folder == tmp_path / "deep" / "runs" / "fx-1.a_b"
    assert list(folder.iterdir()) == []


def test_existing_name_is_refused_and_told_how_to_go_on(tmp_path: Path) -> None:
    create_run(str(tmp_path), "fx", resume=False)
    with pytest.raises(ConfigError, match=r"run 'fx' exists in .*another --name, or --resume"):
        create_run(str(tmp_path), "fx", resume=False)


def test_resume_goes_on_with_a_run_that_has_events(tmp_path: Path) -> None:
    folder = create_run(str(tmp_path), "fx", resume=False)
    (folder / "events.jsonl").touch()
    assert create_run(str(tmp_path), "fx", resume=True) == folder


def test_resume_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave out --resume"):
        create_run(str(tmp_path), "fx", resume=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resume", [False, True])
def test_link_in_place_of_the_folder_is_refused(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "events.jsonl").touch()
    (tmp_path / "fx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link"):
        create_run(str(tmp_path), "fx", resume=resume)


def test_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(ConfigError, match=r"--out .*runs: is a file"):
        create_run(str(tmp_path / "runs"), "fx", resume=False)
    assert (tmp_path / "runs").read_text() == "mine"


@pytest.mark.parametrize("out", ["", "s3://bucket/runs", "a\0b"])
def test_out_that_is_no_local_folder_is_refused(out: str) -> None:
    with pytest.raises(ConfigError, match="--out"):
        create_run(out, "fx", resume=False)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can write")
def test_storage_that_cannot_be_written_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match="/proc/runs/fx: cannot be made"):
        create_run("/proc/runs", "fx", resume=False)


def test_second_driver_is_refused_with_the_owner_named(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(ConfigError, match=f"in use by process {os.getpid()} on"):
        RunLock(tmp_path).__enter__()


def test_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        assert f"process {os.getpid()}" in (tmp_path / ".lock").read_text()


def test_lock_goes_with_a_killed_driver(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match=f"process {driver.pid} "):
            RunLock(tmp_path).__enter__()
        driver.send_signal(signal.SIGKILL)
    with RunLock(tmp_path):
        assert f"process {os.getpid()}" in (tmp_path / ".lock").read_text()


def test_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="cannot be locked"):
        RunLock(tmp_path).__enter__()
    assert (tmp_path / "victim").read_text() == "mine"


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with pytest.raises(RuntimeError), replaced(path) as draft:
        draft.write_text('{"x":')
        raise RuntimeError
    write_json(tmp_path / "b.json", {})
    assert path.read_text() == '{\n "x": 1\n}\n'


def test_draft_of_a_killed_write_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".a.json.tmp").symlink_to(tmp_path / "victim")
    write_json(tmp_path / "a.json", [1])
    assert (tmp_path / "victim").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "victim"]


def test_storage_that_went_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone/a\.json: cannot be written"):
        write_json(tmp_path / "gone" / "a.json", {})


def test_number_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()
