"""The `hedwig` command of a release that has no publish-subscribe hub yet."""

import sys


def main() -> int:
    """Say that this part is not in the release; exit code 1, so that a script cannot take it for success."""
    print("hedwig: the publish-subscribe hub is not part of this release of pybookkeeper", file=sys.stderr)
    return 1
