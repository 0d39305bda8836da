"""Imports go one way: the table of who may import what, held against the syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "foxhunt_ray"
DATA = {"config", "durable", "errors", "data"}
# part: (parts of ours, heavy third-party packages). The longest name that fits a module decides.
TABLE: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "durable": (set(), set()),
    "config": ({"config", "errors"}, {"pydantic", "tomli_w"}),
    "events": ({"errors"}, set()),
    "batch": (set(), {"torch"}),
    "models": ({"models", "config", "errors"}, {"torch"}),
    "data": (DATA, {"numpy", "pyarrow"}),
    "data.stream": (DATA | {"batch"}, {"ray", "torch", "numpy", "pyarrow"}),
    "data.prefetch": ({"batch", "errors", "data"}, {"torch"}),
    "train": ({"train", "batch", "config", "durable", "errors"}, {"torch", "numpy", "safetensors"}),
    "trial": ({"data", "models", "train", "batch", "config", "errors"}, {"torch"}),
    "predict": (
        {"trial", "cluster", "data", "models", "train", "batch", "config", "errors"},
        {"numpy", "pyarrow"},
    ),
    "trainer": ({"trial", "cluster", "data", "models", "train", "batch", "config", "errors"}, set()),
    "cluster": ({"cluster", "config", "errors"}, {"ray"}),
    "search": (
        {"search", "trial", "cluster", "data", "events", "config", "durable", "errors"},
        {"ray", "optuna", "pyarrow", "torch"},
    ),
    "report": ({"report", "events", "config", "errors"}, {"rich", "pyarrow"}),
}
HEAVY = {"ray", "torch", "optuna", "numpy", "pyarrow", "pydantic", "rich", "pandas", "safetensors", "tomli_w"}
MODULES = sorted(p for p in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rule_of(module: str) -> tuple[set[str], set[str]] | None:
    fits = [part for part in TABLE if module == part or module.startswith(part + ".")]
    return TABLE[max(fits, key=len)] if fits else None


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_what_its_part_may(path):
    # The command line and the package itself may import every part.
    everything = (
        (set(TABLE) | {"cli"}, HEAVY) if name_of(path).split(".")[0] in ("", "cli", "__main__") else None
    )
    ours, heavy = rule_of(name_of(path)) or everything
    for target in imports(path):
        top, _, rest = target.partition(".")
        if top == "foxhunt_ray" and rest:
            assert rest.split(".")[0] in ours | {"__version__"}, target
        elif top in HEAVY:
            assert top in heavy, target


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_ray_is_met_in_three_places(path):
    for target in imports(path):
        if target.startswith("ray.tune"):
            assert name_of(path).startswith("search")
        if target.startswith("ray.data"):
            assert name_of(path) == "data.stream.store"
        assert not target.startswith(("ray.train", "ray.air")), target


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_is_unpickled_or_evaluated(path):
    forbidden = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
    assert not forbidden & {target.split(".")[0] for target in imports(path)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in ("eval", "exec", "torch.load", "Tuner.restore")


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh Python after ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('LOADED', *sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(x for x in done.stdout.splitlines() if x.startswith("LOADED"))
    return {name.split(".")[0] for name in line.split()[1:]}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tune", "--help"], ["nonsense"], []])
def test_help_and_usage_errors_load_the_standard_library_only(arguments):
    assert not loaded_by(f"from foxhunt_ray.cli import main; main({arguments!r})") & HEAVY


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import foxhunt_ray") & HEAVY


def test_config_loads_pydantic_alone():
    found = loaded_by("from foxhunt_ray.cli import main; main(['config'])") & HEAVY
    assert found == {"pydantic", "tomli_w"}


def test_check_loads_neither_ray_nor_torch():
    found = loaded_by("from foxhunt_ray.cli import main; main(['check'])") & HEAVY
    assert not found & {"ray", "torch", "optuna", "pandas"}


def test_modules_and_functions_stay_small():
    long_modules = [name_of(p) for p in MODULES if len(p.read_text().splitlines()) > 300]
    assert long_modules == []
