"""Our errors out of Spark's, which wraps what a task or a planner raised in pages of traces. Pure."""

from __future__ import annotations

OURS = ("bookkeeper.errors.", "bookkeeper.spark.")


def told(text: str) -> str:
    """The lines that name an error of ours, each once; else all of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith((*OURS, "option "))]
    return "; ".join(dict.fromkeys(line.removeprefix(OURS[0]) for line in lines)) or text
