"""Operations that failed for TLS, credentials, a password or the protocol: the error names that first, and the remedy.

More bookies, or another try, do not help against a refusal. So it takes the place of the usual advice where every
bookie without a verdict refused, where every bookie that could come in refused, and where the bookies that did not
refuse are too few for a new ledger.
"""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.errors import (
    AuthenticationRefused,
    BookKeeperError,
    LedgerError,
    TlsFailed,
    UnauthorizedAccess,
    UnsupportedVersion,
)
from bookkeeper.model import BookieId

Refusal = TlsFailed | AuthenticationRefused | UnauthorizedAccess | UnsupportedVersion


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
    raised: Refusal = type(refusal)(message, bookie_id=refusal.bookie_id)
    with_ids = UnauthorizedAccess | UnsupportedVersion
    if isinstance(raised, with_ids) and isinstance(refusal, with_ids):
        raised.ledger_id, raised.entry_id = refusal.ledger_id, refusal.entry_id
    raised.__cause__ = cause
    return raised
