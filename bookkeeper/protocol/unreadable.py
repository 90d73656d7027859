"""Why an entry that may exist cannot be read, in words, from what each bookie answered. Pure.

    answer                                       it means                              waiting helps
    a body that fails its digest                 the copy there is damaged             no: only a good copy does
    I/O error                                    the copy there is damaged, or the     no: a good copy does, or an
                                                 index that leads to it, or a disk     index that is made anew
                                                 fails: only the bookie knows which
    "no such entry", "no such ledger"            there is no copy                      no
    none (lost connection, time-out)             nothing                               until the bookie is back
    anything else (overloaded, refused)          nothing                               the answer says

What heals and what does not must not read alike: a bookie that answers needs nobody to bring it back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bookkeeper.errors import BookieIOError, BookieUnavailable
from bookkeeper.model import EXPLICIT_NEGATIVES

_DENIALS = frozenset({status.value for status in EXPLICIT_NEGATIVES})


def why_unreadable(
    answers: Mapping[str, object], *, ledger_id: int, damaged: Collection[str], then: str, remedy: str
) -> str:
    """`cannot be read now; try again when its bookies are back`, or who answered what instead.

    answers: of every bookie of the write set that was asked: its error, or text (`protocol.reads.as_answer`). damaged:
    the texts of a copy that failed its digest. then: what is done when those that are silent are back, `try again`.
    remedy: what helps where no copy is good.
    """
    unable = [bookie for bookie, said in answers.items() if isinstance(said, BookieIOError) or str(said) in damaged]
    denying = [bookie for bookie, said in answers.items() if str(said) in _DENIALS]
    silent = [bookie for bookie, said in answers.items() if isinstance(said, BookieUnavailable)]
    if not unable:
        return f"cannot be read now; {then} when its bookies are back"
    told = []
    spoilt = [bookie for bookie in unable if str(answers[bookie]) in damaged]
    failing = [bookie for bookie in unable if bookie not in spoilt]
    if spoilt:
        told.append(f"{_and(spoilt)} sent {_its(spoilt)}, damaged")
    if failing:
        what = "a copy or its index is damaged, or a disk fails"
        told.append(f"{_and(failing)} answered, and cannot read {_its(failing)} ({what}; its log says which)")
    if denying:
        told.append(f"{_and(denying)} {'denies' if len(denying) == 1 else 'deny'} having it")
    if len(unable) + len(denying) == len(answers):
        if failing:
            remedy = (
                f"where it is the index, `bookkeeper shell --conf FILE regenerate-interleaved-storage-index-file "
                f"-ledgerIds {ledger_id}` on the stopped bookie brings the copies back; else {remedy}"
            )
        return f"can be read from none of its bookies: {'; '.join(told)}; waiting does not help: {remedy}"
    if silent:
        told.append(f"{_and(silent)} gave no answer")
        return f"cannot be read now: {'; '.join(told)}; {then} when {_and(silent)} {_is(silent)} back"
    return f"cannot be read now: {'; '.join(told)}; the others' answers say what they want"


def _and(names: Collection[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _its(names: Collection[str]) -> str:
    return "its copy" if len(names) == 1 else "their copies"


def _is(names: Collection[str]) -> str:
    return "is" if len(names) == 1 else "are"
