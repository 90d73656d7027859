"""Third-party WebHDFS clients in Python, installed with pip on first use and run in separate processes.

They are not committed, but kept in `.cache/webhdfs-<digest>`, apart from this project's packages.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.java_programs import CACHE, FETCH_TIMEOUT_S

PACKAGES = ("hdfs==2.7.3", "pywebhdfs==0.4.1", "fsspec==2026.9.0", "requests==2.34.2")
CLIENTS = ("hdfs", "pywebhdfs", "fsspec")
PROGRAM = Path(__file__).parent.parent / "interop" / "python" / "webhdfs_story.py"
STORY_TIMEOUT_S = 100


@functools.cache
def find_webhdfs_clients() -> Path:
    """Return the directory with the clients; skip the test, with the reason, if pip cannot fetch them."""
    found = CACHE / f"webhdfs-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:16]}"
    if not found.is_dir():
        made = found.with_suffix(".new")
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-input", "--upgrade", "--target", made, *PACKAGES]
        fetched = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_TIMEOUT_S, check=False
        )
        if fetched.returncode != 0:
            last = fetched.stdout.decode(errors="replace").strip().splitlines()[-1:]
            pytest.skip(f"pip cannot fetch WebHDFS clients: {''.join(last)}")
        made.rename(found)
    return found


def run_story(client: str, host: str, port: str) -> Any:
    """Run PROGRAM with a client, and return the JSON that it prints."""
    ran = subprocess.run(
        [sys.executable, "-P", PROGRAM, client, host, port],
        env={"PYTHONPATH": str(find_webhdfs_clients()), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=STORY_TIMEOUT_S,
        check=False,
    )
    printed = ran.stdout.decode(errors="replace")
    assert ran.returncode == 0, printed
    return json.loads(printed.splitlines()[-1])
