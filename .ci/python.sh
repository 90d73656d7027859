#!/bin/sh
# Run a Python script with the interpreter to build on:  python.sh "<PYTHON or empty>" script args...
# A named interpreter is used as it is (and refused if it is too old). Otherwise: python3 if it is 3.11 or newer, else
# the newest of python3.13, 3.12, 3.11 that runs. The script is told by PYTHON_CHOSEN whether the choice was the user's.
set -eu

new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
wanted=$1
shift

if [ -n "$wanted" ]; then
    if ! "$wanted" -c "$new_enough" 2>/dev/null; then
        echo "PYTHON=$wanted is not a Python 3.11 or newer: $("$wanted" --version 2>&1 || true)" >&2
        exit 2
    fi
    PYTHON_CHOSEN=1 exec "$wanted" "$@"
fi
for candidate in python3 python3.13 python3.12 python3.11; do
    # An unset pyenv shim exists and fails, so run it rather than look for it.
    if "$candidate" -c "$new_enough" 2>/dev/null; then
        PYTHON_CHOSEN=0 exec "$candidate" "$@"
    fi
done
echo "No Python 3.11 or newer found (tried python3, python3.13, python3.12, python3.11)." >&2
echo "Install one (Debian: the package python3), or name it: make PYTHON=/path/to/python3 ..." >&2
exit 2
