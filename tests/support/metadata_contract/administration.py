"""The cluster itself: its nodes, layout, formatting, nuking; and the cookies of its bookies."""

from __future__ import annotations

from twisted.internet.defer import gatherResults

from bookkeeper.errors import (
    ClusterExists,
    ClusterInUse,
    LayoutMismatch,
    MetadataCorrupt,
    NotInitialised,
    VersionConflict,
)
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.model import (
    BookieMode,
    LedgerId,
    Versioned,
)
from tests.support.metadata_contract.world import (
    BOOKIE,
    World,
    all_ids,
    cluster,
    fact,
    ledger,
    raises,
    service_info,
)


@fact
async def cookies_are_raw_and_versioned(world: World) -> None:
    """I-70, I-15."""
    store = await cluster(world)
    assert await store.cookies.read(BOOKIE) is None
    assert await store.cookies.all() == {}
    assert await store.cookies.write(BOOKIE, b"5\none", None) == Versioned(b"5\none", 0)
    await raises(VersionConflict, store.cookies.write(BOOKIE, b"5\nother", None))
    assert await store.cookies.write(BOOKIE, b"5\ntwo", 0) == Versioned(b"5\ntwo", 1)
    await raises(VersionConflict, store.cookies.write(BOOKIE, b"5\nthree", 0))
    await raises(VersionConflict, store.cookies.delete(BOOKIE, 0))
    assert await store.cookies.all() == {BOOKIE: Versioned(b"5\ntwo", 1)}
    assert await world.get(f"/cookies/{BOOKIE}") == b"5\ntwo"
    await store.cookies.delete(BOOKIE, 1)
    await store.cookies.delete(BOOKIE, 1)
    assert await store.cookies.read(BOOKIE) is None
    await raises(VersionConflict, store.cookies.write(BOOKIE, b"5\nfour", 1))


@fact
async def a_new_cluster_has_apaches_nodes(world: World) -> None:
    store = await world.connect()
    assert not await store.admin.exists()
    instance_id = await store.admin.initialise()
    assert await store.admin.exists()
    assert await store.admin.instance_id() == instance_id
    assert len(instance_id) == 36
    assert await world.get("/INSTANCEID") == instance_id.encode()
    assert await world.get("/LAYOUT") == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert await world.get("/available") == await world.get("/available/readonly") == b""
    error = await raises(ClusterExists, store.admin.initialise())
    assert "'bookkeeper shell metaformat' would empty it, and with it every ledger" in str(error)


@fact
async def without_a_cluster_everything_says_so(world: World) -> None:
    store = await world.connect()
    for refused in (
        store.ledgers.prepare(),
        store.ledgers.create(ledger()),
        store.ledgers.read(LedgerId(1)),
        store.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.WRITABLE),
        store.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY),
        store.cookies.write(BOOKIE, b"5\n", None),
        store.admin.instance_id(),
    ):
        error = await raises(NotInitialised, refused)
        assert world.root in str(error)
    assert await store.admin.layout() is None


@fact
async def the_stored_layout_must_be_the_one_asked_for(world: World) -> None:
    await cluster(world, LayoutKind.FLAT)
    indifferent = await world.connect()
    assert (await indifferent.ledgers.prepare()).kind is LayoutKind.FLAT
    particular = await world.connect(LayoutKind.HIERARCHICAL)
    error = await raises(LayoutMismatch, particular.ledgers.prepare())
    assert "says flat, the configuration asks for hierarchical;" in str(error)
    await world.put("/LAYOUT", b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1")
    await raises(LayoutMismatch, (await world.connect()).ledgers.prepare())
    await world.put("/LAYOUT", b"")
    await raises(MetadataCorrupt, (await world.connect()).ledgers.prepare())


@fact
async def formatting_removes_ledgers_and_cookies_and_renews_the_instance_id(world: World) -> None:
    store = await world.connect()
    old = await store.admin.format()
    await gatherResults([store.ledgers.create(ledger()) for _ in range(5)])
    await store.ledgers.create(ledger(), LedgerId(2**40))
    await store.cookies.write(BOOKIE, b"5\n", None)
    await world.put("/underreplication/ledgers/0000/0000/0000/0001/urL0000000001", b"")
    new = await store.admin.format()
    assert new != old
    assert await store.admin.instance_id() == new
    assert await all_ids(store) == []
    assert await store.cookies.all() == {}
    assert await world.get("/underreplication/ledgers") is None
    assert await world.get("/idgen") is None
    await store.ledgers.create(ledger())


@fact
async def a_cluster_in_use_is_not_nuked(world: World) -> None:
    store = await cluster(world)
    instance_id = await store.admin.instance_id()
    error = await raises(ClusterInUse, store.admin.nuke("another"))
    assert instance_id in str(error)
    await store.registration.register(BOOKIE, service_info("bookie-a"), BookieMode.READ_ONLY)
    error = await raises(ClusterInUse, store.admin.nuke(instance_id))
    assert BOOKIE in str(error)
    await store.registration.unregister(BOOKIE)
    await world.put("/stranger", b"")
    await store.sync()
    error = await raises(ClusterInUse, store.admin.nuke(instance_id))
    assert "stranger" in str(error)
    assert await store.admin.instance_id() == instance_id


@fact
async def a_nuked_cluster_is_gone_root_and_all(world: World) -> None:
    store = await cluster(world)
    await store.ledgers.create(ledger())
    await store.cookies.write(BOOKIE, b"5\n", None)
    await store.admin.nuke(await store.admin.instance_id())
    assert not await store.admin.exists()
    await store.admin.initialise()
    assert await all_ids(store) == []
