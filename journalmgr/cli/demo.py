"""Demo part `failover`: two name nodes on one journal, the active one killed under load, again and again.

Four bookies, E=3 Qw=2 Qa=2. Callers create files without a break; in the end the journal is read, and every creation
that was acknowledged must be in it, once.
"""

from __future__ import annotations

from argparse import Namespace

from journalmgr.cli import perf

KILLS = 4
STOP_SHARE = 0.25
ELECTION_TIMEOUT_MS = 1000


def run() -> None:
    """Run the part and print its report. Raises CommandFailed when an acknowledged edit is missing, or there twice."""
    print(
        f"Two name nodes on one journal, a dead one is noticed after {ELECTION_TIMEOUT_MS} ms; "
        f"{KILLS} times the active one is killed (or stopped) while files are created"
    )
    found = perf.failover(
        Namespace(
            conf=None,
            defines=[f"ha.zookeeper.session-timeout.ms={ELECTION_TIMEOUT_MS}"],
            kills=KILLS,
            stop_share=STOP_SHARE,
            servers=2,
            load_callers=2,
            bookies=None,
        )
    )
    print(f"Killed:  {found['kills']} times with SIGKILL, {found['stops']} times with SIGSTOP (and SIGCONT afterwards)")
    print(
        f"Failed over: the first edit that another server acknowledged came {found['failover_s_median']} s after a "
        f"SIGKILL (median), {found['failover_s_most']} s at most"
    )
    print(
        f"Checked: {found['acknowledged']:,} acknowledged files: {found['missing']} missing, {found['doubled']} created"
        " twice; both servers ended in the same state"
    )
    print("Stopped: everything.")
