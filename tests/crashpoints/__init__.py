"""Every crash that a bookie can meet while it does its work, and what must hold afterwards.

    stories.py ──told with──> life.py ──> machine.py (a bookie's real classes on a disk in memory)
        │                        └─────> history.py (what was asked, answered; what must therefore hold)
    enumeration.py   each operation of the disk x what survives of the unsynced   ──┐
    failures.py      each system call x how it fails                                ├──> State: a machine after it
                                                                                    │
    examination.py   start (L-6), compare (oracle.py), serve, collect, power cut, start, compare; a second crash  <──┘
    sweep.py         all of it on all cores, or every n-th; `python -m tests.crashpoints` (make crashpoints)

The disk's rules are those of bookkeeper.filesystem; pictures of it in any state are tests.support.disk_image. Nothing
here depends on time or chance: an id names one state for as long as the stories and the code stay the same.
"""
