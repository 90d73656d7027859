"""Operations that failed for TLS, credentials or a password: the error says so first, and what to do about it.

More bookies, or another try, do not help against these, so that they are told instead of the usual advice where
nothing else kept an operation from its end. Where other bookies failed for other reasons too, these may be enough.
"""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.errors import AuthenticationRefused, BookKeeperError, LedgerError, TlsFailed, UnauthorizedAccess
from bookkeeper.model import BookieId

Refusal = TlsFailed | AuthenticationRefused | UnauthorizedAccess


def explained(error: BookKeeperError) -> BookKeeperError:
    """The bookies' refusals in place of `error`, when all bookies that gave no verdict refused; else `error`.

    Among the answers of a LedgerError exceptions stand for no verdict, texts for verdicts.
    """
    if not isinstance(error, LedgerError) or not error.retriable:
        return error
    failures = {bookie_id: answer for bookie_id, answer in error.answers.items() if isinstance(answer, Exception)}
    refusals = {bookie_id: answer for bookie_id, answer in failures.items() if isinstance(answer, Refusal)}
    if not refusals or len(refusals) < len(failures):
        return error
    where = f"ledger {error.ledger_id}" + ("" if error.entry_id is None else f", entry {error.entry_id}")
    return refusal_of(where, refusals, error.answers, error)


def refusal_of(
    where: str,
    refusals: Mapping[BookieId, Refusal] | Mapping[str, Refusal],
    answers: Mapping[str, object],
    cause: Exception | None = None,
) -> Refusal:
    """One error out of several bookies' refusals: the first, with what the other bookies answered behind it."""
    first, refusal = next(iter(refusals.items()))
    others = ", ".join(f"{bookie_id}: {answer}" for bookie_id, answer in answers.items() if bookie_id != first)
    message = f"{where}: {refusal}" + (f" [{others}]" if others else "")
    told: Refusal = type(refusal)(message, bookie_id=refusal.bookie_id)
    if isinstance(told, UnauthorizedAccess) and isinstance(refusal, UnauthorizedAccess):
        told.ledger_id, told.entry_id = refusal.ledger_id, refusal.entry_id
    told.__cause__ = cause
    return told
