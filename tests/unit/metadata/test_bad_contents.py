"""Every kind of record with every kind of bad content: other records are read, and the error names the path."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import LayoutMismatch, MetadataCorrupt, MetadataError
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.metadata.underreplication.format import CheckKind, leaf_name, mark_path
from bookkeeper.model import BookieId, BookieMode, EntryId, LedgerId
from tests.support.metadata_contract.world import ledger, service_info
from tests.support.simulated_clock import SimulatedClock

GOOD, BAD = LedgerId(1), LedgerId(2)
A, B = BookieId("a:1"), BookieId("b:1")
U = "/ledgers/underreplication"

CONTENTS = {
    "random": random.Random(28).randbytes(40),
    "empty": b"",
    "truncated": None,  # half of the good content
    "future": b"BookieMetadataFormatVersion\t99\n",
    "text": b"not a record\n",
}

PATHS = {
    "ledger": f"/ledgers{hierarchical_path(BAD)}",
    "registration": f"/ledgers/available/{B}",
    "cookie": f"/ledgers/cookies/{B}",
    "mark": f"{U}/ledgers{mark_path(BAD)}",
    "lock": f"{U}/locks/{leaf_name(BAD)}",
    "bad copies": f"{U}/badcopies/{leaf_name(BAD)}",
    "recovery delay": f"{U}/lostBookieRecoveryDelay",
    "check time": f"{U}/checkallledgersctime",
    "vote": f"{U}/auditorelection/V_0000000000",
    "worker": f"{U}/workers/stray",
    "disable": f"{U}/disable",
}


class Scene:
    """A cluster with two records of each kind, one of them bad, and a store that has read nothing yet."""

    def __init__(self, kind: str, content: str) -> None:
        self.clock = SimulatedClock()
        self.shared = MemoryMetadata(clock=self.clock)
        self.maker = MemoryMetadataStore(self.shared, self.clock, random.Random(1))
        maker, tree = self.maker, self.maker.underreplication
        for ledger_id in (GOOD, BAD):
            self.now(maker.ledgers.create(ledger(), ledger_id))
            self.now(tree.mark(ledger_id, [A], now_ms=1))
            self.now(tree.report_bad_copies(ledger_id, [BadRange(A, EntryId(0), EntryId(1))]))
        for bookie_id in (A, B):
            self.now(maker.registration.register(bookie_id, service_info("h"), BookieMode.WRITABLE))
            self.now(maker.cookies.write(bookie_id, Cookie(bookie_id, ("/j",), ("/l",), "instance").format(), None))
        self.now(tree.initialise_recovery_delay(5))
        self.path = PATHS[kind]
        before = self.shared.stored(self.path)
        data = CONTENTS[content]
        if data is None:
            data = (before or b"")[: max(1, len(before or b"") // 2)]
        if before is None:
            self.shared.plant(self.path, data)
        else:
            self.shared.damage(self.path, data)
        self.store = MemoryMetadataStore(self.shared, self.clock, random.Random(2))

    def now(self, awaited: Awaitable[Any]) -> Any:
        """Return the answer, or a metadata error as a value; wait at most 60 simulated seconds."""

        async def wait() -> Any:
            return await awaited

        found: list[Any] = []
        Deferred.fromCoroutine(wait()).addBoth(found.append)
        self.clock.run_until(lambda: bool(found), seconds=60.0)
        (answer,) = found
        if isinstance(answer, Failure):
            assert isinstance(answer.value, MetadataError), answer
            return answer.value
        return answer

    def listed(self, walk: Callable[[BadRecords], Any]) -> list[int]:
        async def collect() -> list[int]:
            return [ledger_id async for batch in walk(BadRecords()) for ledger_id in batch]

        found: list[int] = self.now(collect())
        return found


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("kind", PATHS)
def test_bad_content_is_an_error_of_its_own_record_alone(kind: str, content: str) -> None:
    scene = Scene(kind, content)
    store, tree = scene.store, scene.store.underreplication

    def own(of: str, answer: Any) -> None:
        """Check that an error, if any, is of the bad kind and names the path."""
        if isinstance(answer, MetadataError):
            assert of == kind, f"{of}: {answer}"
            assert isinstance(answer, MetadataCorrupt)
            assert str(answer).startswith(f"{scene.path}: ")

    # all lists are complete
    assert scene.listed(store.ledgers.ids) == [GOOD, BAD]
    assert scene.listed(tree.ids) == [GOOD, BAD]
    assert scene.listed(lambda strays: tree.candidates(random.Random(1), strays)) in ([GOOD, BAD], [BAD, GOOD])
    assert scene.listed(tree.bad_copy_ids) == [GOOD, BAD]
    bookies = scene.now(store.bookies.current())
    assert set(bookies.writable) == {A, B}
    assert set(bookies.unusable) <= ({B} if kind == "registration" else set())
    assert set(scene.now(store.cookies.all())) == {A, B}
    # the good records are read
    assert scene.now(store.ledgers.read(GOOD)).value == scene.now(scene.maker.ledgers.read(GOOD)).value
    assert scene.now(tree.read(GOOD)).missing == (A,)
    assert scene.now(tree.bad_copies(GOOD)).ledger_id == GOOD
    assert parse_cookie(scene.now(store.cookies.read(A)).value, "cookie").bookie_id == A
    lock = scene.now(tree.lock(GOOD, "host", lambda: None))
    assert lock is not None
    # reading the bad record fails
    own("ledger", scene.now(store.ledgers.read(BAD)))
    own("mark", scene.now(tree.read(BAD)))
    own("mark", scene.now(tree.mark(BAD, [B], now_ms=2)))
    own("lock", scene.now(tree.lock_holder(BAD)))
    assert scene.now(tree.lock(BAD, "host", lambda: None)) is not None
    own("bad copies", scene.now(tree.bad_copies(BAD)))
    own("recovery delay", scene.now(tree.recovery_delay_s()))
    own("check time", scene.now(tree.check_time_ms(CheckKind.ALL_LEDGERS)))
    own("vote", scene.now(tree.current_auditor()))
    assert scene.now(tree.processes()) == ()
    # new records are created, and commands replace bad values
    assert isinstance(scene.now(store.ledgers.create(ledger())), tuple)
    assert scene.now(tree.set_recovery_delay(7)) is None
    assert scene.now(tree.recovery_delay_s()) == 7
    assert scene.now(tree.is_enabled()) == (kind != "disable")


@pytest.mark.parametrize("content", [each for each in CONTENTS if each != "truncated"])
@pytest.mark.parametrize("path", ["/ledgers/LAYOUT", f"{U}/LAYOUT"])
def test_a_layout_that_cannot_be_read_stops_with_its_path(path: str, content: str) -> None:
    """Nothing else can be found without LAYOUT, so this record alone may stop its whole tree."""
    scene = Scene("ledger", "text")
    data = CONTENTS[content]
    assert data is not None
    if scene.shared.stored(path) is None:
        scene.shared.plant(path, data)
    else:
        scene.shared.damage(path, data)
    store = MemoryMetadataStore(scene.shared, scene.clock, random.Random(3))
    answer = scene.now(store.ledgers.prepare() if path == "/ledgers/LAYOUT" else store.underreplication.prepare())
    assert isinstance(answer, MetadataCorrupt | LayoutMismatch)
    assert str(answer).startswith(f"{path}: ")
