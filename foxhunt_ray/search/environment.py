"""Where a run was made, in ``env.json``: versions, code, hardware, data and command, and nothing secret.

Variables come from a list of allowed names, never from the whole environment.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import foxhunt_ray
from foxhunt_ray.search.folder import write_json

_PACKAGES = ("ray", "torch", "pyarrow", "optuna", "numpy", "pydantic", "safetensors")
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "RAY_ADDRESS",
    "RAY_AUTH_MODE",
    "SLURM_JOB_ID",
)
_USER_INFO = re.compile(r"://(?:[^\s/]*@|[^\s/:@]*:\S*@)")
_SECRET = re.compile(
    r"(?<![^?&\s=])([\w.-]*(?:password|passwd|pwd|secret|token|key|credential|signature|\bsig)[\w.-]*=)"
    r"[^&\s\"']+",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """``text`` without the user part of URLs and without the values of password, token and key parameters."""
    return _SECRET.sub(r"\1***", _USER_INFO.sub("://***@", text))


def installed_versions() -> dict[str, str]:
    """Versions of Python, this package and what its results depend on, by name, from package metadata."""
    found = {"python": platform.python_version(), "foxhunt_ray": foxhunt_ray.__version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_env(
    folder: Path, *, argv: Sequence[str], gpus: Sequence[str] = (), data_fingerprint: str = ""
) -> None:
    """Write ``env.json`` into the run folder.

    Args:
        folder: the run folder.
        argv: the command as given; secrets in it are replaced.
        gpus: names of the devices that trials may use.
        data_fingerprint: what identifies the data that were read.

    Raises:
        CheckpointError: the storage is gone, full or read-only.
    """
    write_json(
        folder / "env.json",
        {
            "versions": installed_versions(),
            "git": _git_revision(),
            "hardware": {
                "platform": platform.platform(),
                "cpus": os.cpu_count(),
                "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                "gpus": list(gpus),
            },
            "data_fingerprint": data_fingerprint,
            "command": [redact(part) for part in argv],
            "variables": {name: redact(os.environ[name]) for name in _VARIABLES if name in os.environ},
        },
    )


def _git_revision() -> str | None:
    """Commit of the checkout that the code runs from, "-dirty" if it was changed; None without one."""
    root = Path(foxhunt_ray.__file__).parent.parent
    git = shutil.which("git")
    # An installed copy may lie inside some other repository, whose commit would say nothing of this code.
    if git is None or not (root / ".git").exists():
        return None
    done = subprocess.run(  # noqa: S603 (fixed arguments)
        [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None
