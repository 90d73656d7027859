"""Who may import whom: reads every import statement of the packages and holds the picture of the tables below.

Method: parse each module with `ast`; an import inside a function counts as well (it hides a direction, it does not
change it), one under `if TYPE_CHECKING` counts too, except for the rules about what is loaded at run time. Areas are
the packages and top modules; a new package is one line in DIRECTIONS.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bookkeeper", "journalmgr", "hedwig")

# What everything may import: values, errors, ports, texts from other processes, hosts, and escapes for output.
_BASE = frozenset(
    {"bookkeeper.model", "bookkeeper.errors", "bookkeeper.ports", "bookkeeper.printable", "bookkeeper.texts"}
    | {"bookkeeper.system.hosts"}
)
# What every driver may import besides.
_DRIVER = (
    _BASE
    | {"bookkeeper.config", "bookkeeper.metrics", "bookkeeper.logs", "bookkeeper.clock"}
    | {"bookkeeper.system.secret_files"}
)
# What a service built on ledgers may import.
_SERVICE = _DRIVER | {"bookkeeper.client", "bookkeeper.metadata", "bookkeeper.runtime", "bookkeeper"}

ANY = frozenset({"*"})

# Area -> areas it may import. An area is the longest name of this table that a module's name begins with.
DIRECTIONS: dict[str, frozenset[str]] = {
    # Its public names.
    "bookkeeper": frozenset({"bookkeeper.client", "bookkeeper.config", "bookkeeper.model", "bookkeeper.errors"}),
    "bookkeeper.model": frozenset({"bookkeeper.errors"}),
    "bookkeeper.errors": frozenset({"bookkeeper.model"}),
    "bookkeeper.ports": _BASE,
    "bookkeeper.texts": frozenset(),
    "bookkeeper.system": _BASE,
    "bookkeeper.system.hosts": frozenset(),
    "bookkeeper.clock": frozenset({"bookkeeper.ports"}),
    "bookkeeper.system.secret_files": _BASE | {"bookkeeper.config"},
    "bookkeeper.config": _BASE | {"bookkeeper.system.addresses"},
    "bookkeeper.metrics": _BASE,
    "bookkeeper.logs": _BASE,
    "bookkeeper.filesystem": _BASE,
    "bookkeeper.system.addresses": _BASE,
    "bookkeeper.system.sd_notify": _BASE,
    "bookkeeper.system.fatal": _BASE | {"bookkeeper.filesystem"},
    "bookkeeper.rate_limit": frozenset(),
    "bookkeeper.printable": frozenset(),
    "bookkeeper.runtime": _DRIVER,
    "bookkeeper.serving": _DRIVER,
    "bookkeeper.tls": _DRIVER,
    "bookkeeper.auth": _DRIVER,
    "bookkeeper.blocking": frozenset({"bookkeeper.client"}),
    "bookkeeper.embedded": _BASE | {"bookkeeper.system.addresses"},
    "bookkeeper.wire": _BASE | {"bookkeeper.wire.proto", "bookkeeper.wire.pieces"},
    "bookkeeper.protocol": _BASE | {"bookkeeper.wire"},
    "bookkeeper.metadata": _DRIVER | {"bookkeeper.wire.proto", "bookkeeper.runtime"},
    "bookkeeper.client": _DRIVER
    | {"bookkeeper.protocol", "bookkeeper.wire", "bookkeeper.metadata", "bookkeeper.runtime"}
    | {"bookkeeper.tls", "bookkeeper.auth"},
    "bookkeeper.bookie": _DRIVER
    | {
        "bookkeeper.tls",
        "bookkeeper.auth",
        "bookkeeper.wire",
        "bookkeeper.metadata",
        "bookkeeper.filesystem",
        "bookkeeper.runtime",
        "bookkeeper.serving",
        "bookkeeper.protocol.connection",
        "bookkeeper.admin",
        "bookkeeper.system.addresses",
        "bookkeeper.system.sd_notify",
        "bookkeeper.system.fatal",
    },
    "bookkeeper.replication": _DRIVER
    | {"bookkeeper.client", "bookkeeper.protocol", "bookkeeper.metadata", "bookkeeper.wire", "bookkeeper.runtime"}
    | {"bookkeeper.rate_limit", "bookkeeper.system.fatal"},
    "bookkeeper.admin": _DRIVER
    | {"bookkeeper.metadata", "bookkeeper.client", "bookkeeper.admin.access"}
    | {"bookkeeper.serving"},
    # Access rules of HTTP servers, also of servers that have no other part of `bookkeeper.admin`.
    "bookkeeper.admin.access": _DRIVER | {"bookkeeper.system.addresses"},
    # Requests to HTTP servers.
    "bookkeeper.admin.questions": _BASE | {"bookkeeper.admin.access"},
    # Spark readers run in worker processes: the blocking client, and the pure formats of a bookie's files.
    "bookkeeper.spark": _DRIVER
    | {"bookkeeper.client", "bookkeeper.metadata", "bookkeeper.bookie", "bookkeeper.admin", "bookkeeper.embedded"}
    | {"bookkeeper.spark.audit"},
    # Copies are asked for one by one, and judged by the rules that say where they belong.
    "bookkeeper.spark.audit": _DRIVER
    | {"bookkeeper.client", "bookkeeper.metadata", "bookkeeper.protocol", "bookkeeper.wire", "bookkeeper.rate_limit"}
    | {"bookkeeper.spark", "bookkeeper.filesystem"},
    # Where copies lie and would go is told by the client's own rules.
    "bookkeeper.spark.whatif": _DRIVER | {"bookkeeper.client", "bookkeeper.protocol", "bookkeeper.spark"},
    # A stopped bookie's files read in place: no client, and no Spark.
    "bookkeeper.spark.stored_copies": _BASE
    | {"bookkeeper.bookie", "bookkeeper.metadata", "bookkeeper.wire", "bookkeeper.filesystem", "bookkeeper.rate_limit"},
    "bookkeeper.cli": ANY,
    # What console programs share.
    "bookkeeper.console": _SERVICE
    | {"bookkeeper.replication", "bookkeeper.bookie", "bookkeeper.embedded", "bookkeeper.admin"}
    | {"bookkeeper.filesystem", "bookkeeper.tls", "bookkeeper.auth", "bookkeeper.serving"},
    "bookkeeper.wire.proto": frozenset(),
    "bookkeeper.wire.pieces": frozenset(),
    "bookkeeper.protocol.connection": _BASE | {"bookkeeper.wire"},
    "journalmgr": _SERVICE
    | {"bookkeeper.filesystem", "bookkeeper.tls", "bookkeeper.system.addresses", "bookkeeper.admin.access"}
    | {"bookkeeper.admin.questions"}
    | {"bookkeeper.serving"},
    "journalmgr.cli": _SERVICE
    | {
        "journalmgr",
        "bookkeeper.cli",
        "bookkeeper.console",
        "bookkeeper.embedded",
        "bookkeeper.spark",
        "bookkeeper.admin.access",
    }
    | {"bookkeeper.system.fatal"},
    "journalmgr.spark": _SERVICE | {"journalmgr", "bookkeeper.spark"},
    "hedwig": _SERVICE
    | {
        "bookkeeper.tls",
        "bookkeeper.admin",
        "bookkeeper.system.addresses",
        "bookkeeper.system.sd_notify",
        "bookkeeper.serving",
    }
    | {"bookkeeper.system.fatal", "bookkeeper.wire.pieces"},
    "hedwig.cli": _SERVICE
    | {
        "hedwig",
        "bookkeeper.cli",
        "bookkeeper.console",
        "bookkeeper.embedded",
        "bookkeeper.spark",
        "bookkeeper.spark.audit",
    }
    | {"bookkeeper.admin.access"},
    # The measurements of `hedwig perf`: part of the command line that others measure with, too.
    "hedwig.perf": _SERVICE | {"hedwig", "bookkeeper.cli", "bookkeeper.console", "bookkeeper.embedded"},
    "hedwig.embedded": _BASE | {"hedwig", "bookkeeper.embedded"},
    "hedwig.spark": _SERVICE | {"hedwig", "bookkeeper.spark"},
}

# Outside package -> the modules that may import it (a name covers what is below it).
RESERVED: dict[str, tuple[str, ...]] = {
    "kazoo": ("bookkeeper.metadata.session",),
    "pyspark": ("bookkeeper.spark", "journalmgr.spark", "hedwig.spark"),
    "pyarrow": ("bookkeeper.spark", "journalmgr.spark", "hedwig.spark"),
    "google.protobuf": (
        *(
            "bookkeeper.wire",
            "bookkeeper.metadata",
            "journalmgr.edits.fields",
            "journalmgr.segment",
            "journalmgr.proto",
        ),
        *("hedwig.wire", "hedwig.hub.metadata", "hedwig.proto"),
    ),
    "matplotlib": ("bookkeeper.console.figures",),
    "grpc_tools": (),
}

# The module that may make or import each reactor: it passes it through `make_monotonic` (tests/unit/test_clock.py).
REACTOR_SOURCES = {
    "twisted.internet.reactor": "bookkeeper.console.reactor",
    "twisted.internet.epollreactor": "bookkeeper.client.faces.reactor_thread",
    "twisted.internet.selectreactor": "bookkeeper.client.faces.reactor_thread",
    "twisted.internet.asyncioreactor": "bookkeeper.client.faces.loop_reactor",
}

# The only source of dates. Durations come from `time.monotonic` or a clock that is passed in.
DATE_SOURCE = "bookkeeper.clock"

# Generated protobuf modules -> only beside a codec.
GENERATED_USERS = (
    *("bookkeeper.wire", "bookkeeper.metadata", "hedwig.wire", "hedwig.hub.metadata", "hedwig.proto"),
    *("journalmgr.edits.fields", "journalmgr.segment", "journalmgr.proto"),
)

# Pure modules: no I/O, clock, thread, logging or randomness. A name covers what is below it.
PURE = (
    "bookkeeper.model",
    "bookkeeper.errors",
    "bookkeeper.ports",
    "bookkeeper.rate_limit",
    "bookkeeper.printable",
    "bookkeeper.wire",
    "bookkeeper.protocol",
    "bookkeeper.metadata.ledgers.codec",
    "bookkeeper.metadata.cluster.layout",
    "bookkeeper.metadata.ledgers.paths",
    "bookkeeper.metadata.uri",
    "bookkeeper.metadata.underreplication.format",
    "bookkeeper.metadata.underreplication.damaged_copies_format",
    "bookkeeper.metadata.underreplication.recovery_process_format",
    "bookkeeper.bookie.identity.cookie_rules",
    "bookkeeper.bookie.process.log_throttle",
    "bookkeeper.bookie.journal.format",
    "bookkeeper.bookie.journal.group_commit",
    "bookkeeper.bookie.storage.entry_log.format",
    "bookkeeper.bookie.integrity.checksums.index",
    "bookkeeper.bookie.storage.index.format",
    "bookkeeper.bookie.integrity.checksums.entry_log",
    "bookkeeper.bookie.storage.memtable",
    "bookkeeper.bookie.gc.candidates",
    "bookkeeper.bookie.integrity.damage.wanted_bytes",
    "bookkeeper.admin.access.rules",
    "bookkeeper.auth.provider",
    "bookkeeper.spark.stored_copies.kernel",
    "bookkeeper.spark.stored_copies.model",
    "bookkeeper.spark.cluster.id_runs",
    "bookkeeper.spark.cluster.table",
    "bookkeeper.cli.perf.repair_sight",
    "bookkeeper.spark.audit.division",
    "bookkeeper.spark.audit.evidence",
    "bookkeeper.spark.audit.judgement",
    "bookkeeper.spark.audit.options",
    "bookkeeper.spark.audit.stored_evidence",
    "bookkeeper.spark.options.bounds",
    "bookkeeper.spark.exports.digests",
    "bookkeeper.spark.exports.lines",
    "bookkeeper.spark.exports.manifest",
    "bookkeeper.spark.exports.options",
    "bookkeeper.spark.exports.packing",
    "bookkeeper.spark.options.id_ranges",
    "bookkeeper.spark.ledgers.offsets",
    "bookkeeper.spark.ledgers.options",
    "bookkeeper.spark.options.tables",
    "bookkeeper.spark.space.grouping",
    "bookkeeper.spark.whatif.effects",
    "bookkeeper.spark.whatif.fragment",
    "bookkeeper.spark.whatif.question",
    "bookkeeper.spark.whatif.situation",
    "bookkeeper.spark.ledgers.plan",
    "bookkeeper.spark.sink.commit_format",
    "bookkeeper.spark.sink.options",
    "bookkeeper.spark.sink.purpose",
    "bookkeeper.spark.ledgers.stream_offsets",
    "bookkeeper.client.bookies.nearness",
    "bookkeeper.client.bookies.placement",
    "bookkeeper.client.bookies.weights",
    "bookkeeper.replication.audit.conclusions",
    "bookkeeper.replication.copies.fragments",
    "bookkeeper.replication.copies.gather",
    "bookkeeper.replication.repair.repair_log",
    "bookkeeper.replication.repair.failed_repairs",
    "bookkeeper.replication.copies.verdicts",
    "journalmgr.model",
    "journalmgr.errors",
    "journalmgr.contract",
    "journalmgr.edits",
    "journalmgr.segment",
    "journalmgr.uri",
    "journalmgr.salvage",
    "journalmgr.hadoop_xml",
    "journalmgr.files.names",
    "journalmgr.files.version",
    "journalmgr.spark.edit_columns",
    "journalmgr.spark.edit_entries",
    "journalmgr.spark.edit_search",
    "journalmgr.spark.edit_spans",
    "journalmgr.spark.namespaces.fold",
    "journalmgr.spark.namespaces.growth",
    "journalmgr.spark.namespaces.inode_rows",
    "journalmgr.spark.namespaces.txids",
    "journalmgr.namenode.namespace.acl",
    "journalmgr.namenode.namespace.apply",
    "journalmgr.namenode.namespace.apply_records",
    "journalmgr.namenode.namespace.checks",
    "journalmgr.namenode.errors",
    "journalmgr.namenode.images.format",
    "journalmgr.namenode.namespace.tree",
    "journalmgr.namenode.namespace.operations",
    "journalmgr.namenode.namespace.status",
    "journalmgr.namenode.namespace.xattrs",
    "hedwig.model",
    "hedwig.errors",
    "hedwig.names",
    "hedwig.wire",
    "hedwig.protocol",
    "hedwig.hub.topics.recent",
    "hedwig.perf.drill_check",
    "hedwig.perf.drill_records",
    "hedwig.spark.exports.contents",
    "hedwig.spark.exports.manifest",
    "hedwig.spark.exports.options",
    "hedwig.spark.region_options",
    "hedwig.spark.topic_numbers",
    "hedwig.spark.topic_offsets",
    "hedwig.spark.topic_options",
    "hedwig.spark.topic_parts",
    "hedwig.spark.topics.question",
)
IMPURE_IMPORTS = frozenset(
    {
        *("asyncio", "concurrent", "multiprocessing", "queue", "select", "selectors", "signal", "subprocess"),
        *("sched", "threading", "twisted", "kazoo", "datetime", "time", "zoneinfo", "random", "secrets", "uuid"),
        *("fcntl", "io", "mmap", "os", "pathlib", "shutil", "sqlite3", "sys", "tempfile"),
        *("http", "requests", "socket", "ssl", "urllib", "logging", "prometheus_client"),
    }
)
# Values and types without effects, which a pure module may take from an impure package.
HARMLESS_IN_PURE = frozenset({"random.Random", "sys.byteorder", "sys.maxsize"})


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name.

    `from a.b import c` has package "a.b" and target "a.b.c"; `import a.b` has "a.b" twice; `import a` has a target for
    each attribute the module takes from it ("a.x", "a.y"), or "a" if it takes none.
    """

    module: str
    line: int
    package: str
    target: str
    type_checking_only: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def imports_of(module: str, source: str) -> Iterator[Import]:
    """All imports of a module's source text."""

    tree = ast.parse(source, filename=module)
    taken: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            taken.setdefault(node.value.id, set()).add(node.attr)

    def walk(node: ast.AST, *, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    attributes = taken.get(alias.asname or alias.name, ()) if "." not in alias.name else ()
                    for target in [f"{alias.name}.{name}" for name in sorted(attributes)] or [alias.name]:
                        yield Import(module, child.lineno, alias.name, target, typing_only)
            elif isinstance(child, ast.ImportFrom):
                package = child.module or ""
                for alias in child.names:
                    yield Import(module, child.lineno, package, f"{package}.{alias.name}", typing_only)
            elif isinstance(child, ast.If) and _is_type_checking(child):
                for statement in child.body:
                    yield from walk(ast.Module([statement], []), typing_only=True)
                for statement in child.orelse:
                    yield from walk(ast.Module([statement], []), typing_only=typing_only)
            else:
                yield from walk(child, typing_only=typing_only)

    yield from walk(tree, typing_only=False)


@cache
def _modules() -> dict[str, tuple[Import, ...]]:
    found: dict[str, tuple[Import, ...]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = _module_name(path)
            found[name] = tuple(imports_of(name, path.read_text()))
    return found


def _below(name: str, tops: tuple[str, ...] | frozenset[str]) -> bool:
    return any(name == top or name.startswith(f"{top}.") for top in tops)


def _area(name: str) -> str | None:
    """The longest name of DIRECTIONS that covers a module; a package's own name covers only its __init__."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        area = ".".join(parts[:size])
        if area in DIRECTIONS and (area != "bookkeeper" or name == "bookkeeper"):
            return area
    return None


def _target_area(imported: Import) -> str | None:
    # `from bookkeeper import errors` names a module; `from bookkeeper.errors import X` does not.
    return _area(imported.target) if imported.package in PACKAGES else _area(imported.target) or _area(imported.package)


def wrong_directions(module: str, imports: tuple[Import, ...]) -> list[str]:
    """Imports of our own packages that the table does not allow."""
    area = _area(module)
    if area is None:
        return [f"{module} belongs to no area: add its package to DIRECTIONS"]
    allowed = DIRECTIONS[area]
    if allowed == ANY:
        return []
    wrong = []
    for imported in imports:
        if imported.target.split(".")[0] not in PACKAGES:
            continue
        target = _target_area(imported) or imported.package
        # The name "bookkeeper" allows the package's public names, not all that is below it.
        if target != area and target not in allowed and not _below(target, allowed - {"bookkeeper"}):
            wrong.append(f"{imported} (area {area} may not import {target})")
    return wrong


def wrongly_reserved(module: str, imports: tuple[Import, ...]) -> list[str]:
    """Imports of outside packages that are reserved for other modules."""
    return [
        f"{imported} (only {', '.join(users) or 'nobody'} may)"
        for imported in imports
        for package, users in RESERVED.items()
        if _below(imported.target, (package,)) and not _below(module, users) and "_pb2" not in module
    ]


def impurities(imports: tuple[Import, ...]) -> list[str]:
    """Imports that a pure module must not have."""
    return [
        str(imported)
        for imported in imports
        if imported.target.split(".")[0] in IMPURE_IMPORTS
        and imported.target not in HARMLESS_IN_PURE
        and not imported.type_checking_only
    ]


def test_packages_import_only_in_the_allowed_directions() -> None:
    wrong = [line for module, imports in _modules().items() for line in wrong_directions(module, imports)]
    assert not wrong, "\n".join(wrong)


def test_reserved_packages_are_imported_only_where_they_belong() -> None:
    wrong = [line for module, imports in _modules().items() for line in wrongly_reserved(module, imports)]
    assert not wrong, "\n".join(wrong)


def test_generated_protobuf_is_used_only_beside_a_codec() -> None:
    wrong = [
        str(imported)
        for module, imports in _modules().items()
        for imported in imports
        if "_pb2" in imported.target and not _below(module, GENERATED_USERS)
    ]
    assert not wrong, "\n".join(wrong)


def test_pure_modules_import_nothing_impure() -> None:
    wrong = [
        line
        for module, imports in _modules().items()
        if _below(module, PURE) and not module.endswith("_pb2")
        for line in impurities(imports)
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_imports_the_command_line() -> None:
    wrong = [
        str(imported)
        for module, imports in _modules().items()
        for imported in imports
        if _below(imported.target, ("bookkeeper.cli",))
        and not _below(module, ("bookkeeper.cli", "journalmgr.cli", "hedwig.cli", "hedwig.perf"))
    ]
    assert not wrong, "\n".join(wrong)


def stray_reactors(module: str, source: str) -> list[str]:
    """Return the places where a module gets a reactor that may follow the wall clock."""
    found = [
        str(imported)
        for imported in imports_of(module, source)
        if imported.target.startswith("twisted.internet.")
        and (whole := ".".join(imported.target.split(".")[:3]))
        and (whole.endswith("reactor") or whole in {"twisted.internet.default", "twisted.internet.main"})
        and REACTOR_SOURCES.get(whole) != module
    ]
    # Without a reactor, `react` imports the global one.
    found += [
        f"{module}:{node.lineno} runs react() without a reactor"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and _called(node) in {"react", "task.react"} and len(node.args) < 3
    ]
    return found


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func)


def stray_dates(module: str, source: str) -> list[str]:
    """Return the places where a module reads the wall clock."""
    if module == DATE_SOURCE:
        return []
    found = [str(each) for each in imports_of(module, source) if each.target in {"time.time", "time.time_ns"}]
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name, count = _called(node).rpartition(".")[2], len(node.args)
        owner = _called(node).rpartition(".")[0].rpartition(".")[2]
        if (
            (owner in {"datetime", "date"} and name in {"now", "utcnow", "today"})
            or (owner in {"time", ""} and name in {"localtime", "gmtime", "ctime"} and not count)
            or (owner == "time" and name in {"asctime", "clock_gettime", "clock_gettime_ns"})
            or (owner in {"time", ""} and name == "strftime" and count < 2)
        ):
            found.append(f"{module}:{node.lineno} calls {_called(node)}")
    return found


def _sources_with(word: str) -> Iterator[tuple[str, str]]:
    """Yield modules with a match of `word` in their text: others need not be parsed."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if re.search(word, source := path.read_text()):
                yield _module_name(path), source


def test_every_reactor_comes_from_the_module_that_makes_it_monotonic() -> None:
    wrong = [
        line
        for module, source in _sources_with(r"reactor import|import \w*reactor|react\(")
        for line in stray_reactors(module, source)
    ]
    assert not wrong, "\n".join(wrong)


def test_dates_have_one_source() -> None:
    wrong = [
        line
        for module, source in _sources_with(r"import (date)?time|from (date)?time")
        for line in stray_dates(module, source)
    ]
    assert not wrong, "\n".join(wrong)


DATES = frozenset({"wall_s", "wall_ms", "now_ms"})

DATES_COMPARED = {
    # The date at which the store says that the last copy was made, for a measurement.
    "bookkeeper.cli.perf.healing": "now_ms() - sight.healed_ms",
    # Files of a day ago; a unit is taken within seconds, so a step of hours removes nothing.
    "bookkeeper.spark.audit.unit_queue": "wall_s() - FILES_AGE_S",
}


def _is_date(node: ast.expr, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and not node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        return called.lstrip("_") in DATES
    return isinstance(node, ast.Name) and node.id in names


def dates_as_durations(module: str, source: str) -> list[str]:
    """Return the places where a module compares the date now with another value, or takes the difference.

    A duration is a difference of two values of a monotonic clock.
    """
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = list(ast.walk(function))
        names = frozenset(
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and _is_date(node.value, frozenset())
            for target in node.targets
            if isinstance(target, ast.Name)
        )
        for node in nodes:
            operands: list[ast.expr] = []
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                operands = [node.left, node.right]
            elif isinstance(node, ast.Compare):
                operands = [node.left, *node.comparators]
            if any(_is_date(each, names) for each in operands) and DATES_COMPARED.get(module) != ast.unparse(node):
                found.append(f"{module}:{node.lineno} takes a date for a duration: {ast.unparse(node)}")
    return found


def test_no_duration_is_taken_from_dates() -> None:
    wrong = [line for module, source in _sources_with("wall_m?s|now_ms") for line in dates_as_durations(module, source)]
    assert not wrong, "\n".join(wrong)


def test_a_duration_that_is_taken_from_dates_is_found() -> None:
    source = (
        "def look(self):\n    now = self._wall_s()\n    if now - self._at_s < 60 or self._now_ms() > 7:\n        pass"
    )
    assert len(dates_as_durations("m", source)) == 2
    assert dates_as_durations("m", "def note(self):\n    self._status.last_s = self._wall_s()") == []


def sleeps(module: str, source: str) -> list[str]:
    """Where a module takes `time.sleep`: a wait by the wall clock is too short on one machine, too long on another."""
    return [str(imported) for imported in imports_of(module, source) if imported.target == "time.sleep"]


def test_no_test_sleeps() -> None:
    wrong = [
        line
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "benchmarks" not in path.parts  # a load is paced by the clock
        for line in sleeps(_module_name(path), path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def defaulted_nexts(module: str, source: str) -> list[str]:
    """Return the places where a module calls `anext` with a default.

    There CPython spreads a tuple that is sent in over the arguments of `send`, so the first Deferred that fires with a
    tuple raises TypeError. Catch StopAsyncIteration instead.
    """
    return [
        f"{module}:{node.lineno} calls anext with a default"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "anext"
        and len(node.args) + len(node.keywords) > 1
    ]


def test_anext_never_has_a_default() -> None:
    wrong = [
        line
        for package in (*PACKAGES, "tests")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in defaulted_nexts(_module_name(path), path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_a_default_of_anext_is_found() -> None:
    assert defaulted_nexts("hedwig.thing", "async def f(source): return await anext(source, None)")
    assert not defaulted_nexts("hedwig.thing", "async def f(source): return await anext(source)")


def test_package_initialisers_hold_names_and_no_code() -> None:
    wrong = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("__init__.py")):
            for node in ast.parse(path.read_text()).body:
                is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                is_plain = isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
                # A module-level __getattr__ (PEP 562) is how names are offered without importing what they need.
                is_lazy = isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}
                if not (is_docstring or is_plain or is_lazy or _is_type_checking(node)):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_no_reactor(package: str) -> None:
    program = f"import sys, {package}; sys.exit('twisted.internet.reactor' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr or f"import {package} loads twisted.internet.reactor"


# --- the rules themselves bite -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bookkeeper.bookie.connections.endpoint", "from bookkeeper.client.write.write_handle import WriteHandle"),
        ("bookkeeper.client.write.write_handle", "from bookkeeper.bookie import bookie"),
        ("bookkeeper.wire.v2", "import bookkeeper.protocol.adds"),
        ("bookkeeper.bookie.bookie", "from bookkeeper.protocol.adds import AddWindow"),
        ("bookkeeper.metadata.zookeeper", "def f():\n    from bookkeeper.bookie.identity.identity import Cookie"),
        ("bookkeeper.client.client", "from bookkeeper import cli"),
        ("journalmgr.journal", "import bookkeeper.bookie.journal.format"),
        ("hedwig.hub.topics", "from journalmgr import segment"),
        ("bookkeeper.newcomer.thing", "import struct"),
    ],
)
def test_a_wrong_direction_is_found(module: str, source: str) -> None:
    assert wrong_directions(module, tuple(imports_of(module, source)))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bookkeeper.metadata.zookeeper", "import kazoo.client"),
        ("bookkeeper.cli_like.main", "from pyspark.sql import SparkSession"),
        ("bookkeeper.bookie.requests.fence", "from google.protobuf import message"),
    ],
)
def test_a_reserved_package_is_found(module: str, source: str) -> None:
    assert wrongly_reserved(module, tuple(imports_of(module, source)))


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "import random\nrandom.random()",
        "from random import randint",
        "from twisted.logger import Logger",
    ],
)
def test_an_impurity_is_found(source: str) -> None:
    assert impurities(tuple(imports_of("bookkeeper.wire.v2", source)))


@pytest.mark.parametrize(
    "source",
    [
        "import time\ndef test(): time.sleep(1)",
        "import time as clock\nclock.sleep(0)",
        "def test():\n    from time import sleep",
    ],
)
def test_a_sleep_is_found(source: str) -> None:
    assert sleeps("tests.unit.test_thing", source)


@pytest.mark.parametrize(
    "source",
    [
        "from twisted.internet import reactor",
        "def serve():\n    from twisted.internet import epollreactor\n    return epollreactor.EPollReactor()",
        "from twisted.internet.asyncioreactor import AsyncioSelectorReactor",
        "from twisted.internet.main import installReactor",
        "from twisted.internet import task\ntask.react(main)",
        "from twisted.internet.task import react\nreact(main, ())",
    ],
)
def test_a_reactor_on_wall_clock_time_is_found(source: str) -> None:
    assert stray_reactors("bookkeeper.bookie.server", source)


@pytest.mark.parametrize(
    "source",
    [
        "import time\ndef now(): return time.time()",
        "import time\nCLOCK = time.time_ns",
        "from time import time",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
        "from datetime import datetime\ndatetime.now()",
        "import time\ntime.strftime('%Y')",
        "from time import gmtime\ngmtime()",
    ],
)
def test_a_read_of_the_wall_clock_is_found(source: str) -> None:
    assert stray_dates("bookkeeper.bookie.server", source)


def test_durations_and_given_dates_are_not_taken_for_the_wall_clock() -> None:
    source = "import time\ntime.monotonic()\ntime.perf_counter()\ntime.gmtime(at_s)\ntime.strftime('%Y', at)"
    assert not stray_dates("bookkeeper.bookie.server", source)


def test_a_look_at_the_clock_is_no_sleep() -> None:
    assert not sleeps("tests.unit.test_thing", "import time, asyncio\ntime.monotonic()\nasyncio.sleep(0)")


def test_a_generator_that_was_passed_in_is_no_impurity() -> None:
    assert not impurities(tuple(imports_of("bookkeeper.wire.v2", "import random\ndef f(rng: random.Random): ...\n")))


def test_a_type_that_only_the_checker_sees_is_no_impurity() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from twisted.internet.defer import Deferred\n"
    assert not impurities(tuple(imports_of("bookkeeper.ports", source)))
