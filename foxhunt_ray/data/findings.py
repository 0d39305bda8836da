"""What was found out about the data, one finding a line: noted, warned of, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from foxhunt_ray.errors import DataError

_SHOWN = 3  # refusals in one message


@dataclass(frozen=True)
class Finding:
    """One thing that was detected, assumed, or cannot be decided without the user.

    Attributes:
        level: note = said, nothing to do; warning = look at it; refusal = a run does not start.
        text: what was found, and what was expected or done about it; no final stop.
        file: the file that shows it; empty = no single one.
        column: the column, as it is called in the file.
        count: rows, values or files concerned; 0 = not counted.
        action: what to do, with the option that answers it; empty = nothing.
    """

    level: Literal["note", "warning", "refusal"]
    text: str
    file: str = ""
    column: str = ""
    count: int = 0
    action: str = ""

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.column) if part)
        return f"{where}: {self.sentence}" if where else self.sentence

    @property
    def sentence(self) -> str:
        """Text and action, without the place."""
        return f"{self.text}; {self.action}" if self.action else self.text


def note(text: str, **more: object) -> Finding:
    """A finding to which nothing needs to be done."""
    return Finding("note", text, **more)  # type: ignore[arg-type]


def warning(text: str, **more: object) -> Finding:
    """A finding that the user should look at."""
    return Finding("warning", text, **more)  # type: ignore[arg-type]


def refusal(text: str, **more: object) -> Finding:
    """A finding that keeps a run from starting."""
    return Finding("refusal", text, **more)  # type: ignore[arg-type]


def require_none_refused(findings: Iterable[Finding]) -> None:
    """Raise the refusals among the findings as one error of at most three lines.

    Raises:
        DataError: there is one at least.
    """
    refused: Sequence[str] = [str(f) for f in findings if f.level == "refusal"]
    more = len(refused) - _SHOWN
    if more > 0:
        refused = [*refused[: _SHOWN - 1], f"{refused[_SHOWN - 1]} (and {more} more: see `foxhunt check`)"]
    if refused:
        raise DataError("\n".join(refused))
