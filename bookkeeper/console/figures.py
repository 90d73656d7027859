"""Figures as PNG. Needs matplotlib, the extra `plot`; nothing but drawings does, and nobody else imports it."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bookkeeper.console.output import EXIT_USAGE, CommandFailed

NO_LIBRARY = "drawing needs matplotlib: pip install 'pybookkeeper[plot]'"

_DPI = 100


def can_draw() -> bool:
    """Whether the library is there."""
    return find_spec("matplotlib") is not None


def check_can_draw(path: Path | None = None) -> None:
    """Raise CommandFailed without the library, and for a file in a directory that is not there."""
    if not can_draw():
        raise CommandFailed(NO_LIBRARY)
    if path is not None and not path.absolute().parent.is_dir():
        raise CommandFailed(f"--plot {path}: there is no directory {path.parent}", EXIT_USAGE)


def new_figure(width_in: float, height_in: float) -> Any:
    """An empty figure of matplotlib, of so many inches. Raises CommandFailed without the library."""
    check_can_draw()
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), dpi=_DPI, layout="constrained")


def png_of(figure: Any) -> bytes:
    """The figure as PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
