"""Programs in network, host name and mount namespaces of their own, on machines that allow it."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

_ENTER = ("unshare", "--map-root-user", "--net", "--uts", "--mount", "--fork", "--kill-child")


@functools.cache
def allowed() -> bool:
    """Return whether this machine allows such namespaces, and addresses in them."""
    try:
        done = subprocess.run([*_ENTER, "ip", "link", "set", "lo", "up"], capture_output=True, timeout=30, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def run_on_host(program: Path, *arguments: str, name: str, hosts: str, commands: list[str]) -> str:
    """Run a Python program on a host of its own and return its output. The test fails if the program fails.

    name: host name. hosts: text of its /etc/hosts, its only name service. commands: arguments of `ip`.
    """
    files = program.parent
    (files / "hosts").write_text(hosts)
    (files / "nsswitch.conf").write_text("hosts: files\n")
    lines = [
        "set -e",
        f"hostname {name}",
        "ip link set lo up",
        *(f"ip {each}" for each in commands),
        *(f"mount --bind {files / each} /etc/{each}" for each in ("hosts", "nsswitch.conf")),
        'exec "$@"',
    ]
    command = [*_ENTER, "sh", "-c", "\n".join(lines), "sh", sys.executable, str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
