"""make fuzz: every decoder of the table gets many changed inputs; no input may crash, hang or exhaust it.

Each decoder runs in a process of its own, whose memory is limited. A failure is an error that is no refusal, a value
that is not of its declared type, an input of more than 2 s of processor time (a hang), or a process that ends by
itself. Its input is printed, and written to the directory that --failures names: to keep it, fix the decoder and move
the file to tests/fuzz/corpus/<decoder>/; every later run and `make test` use it.

options: --inputs N (1000000), --seed N (1), --seconds S for each decoder, --failures DIR, --list, decoders by name
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.campaign import Tally, corpus_of, feed_all, run
from tests.fuzz.decoder import Decoder
from tests.fuzz.table import TABLE

INPUTS = 1_000_000
MEMORY_MAX = 3 << 30
"""Bytes of address space of one decoder's process, including imported libraries."""

SHOWN_SIZE = 200
COLUMNS = f"{'decoder':26}{'inputs':>9}{'accepted':>9}{'failed':>7}{'hangs':>6}{'slowest':>9}{'grown':>7}  refused"


def _work(decoder: Decoder, seed: int, count: int, until_s: float, out: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    known = feed_all(decoder, [*decoder.seeds(), *(data for _, data in corpus_of(decoder))])
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tally = run(decoder, seed, count, until_s=until_s)
    tally.failed += known.failed
    tally.failures = {**known.failures, **tally.failures}
    out.send((tally, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib))


def fuzz(decoder: Decoder, seed: int, count: int, until_s: float) -> tuple[Tally, int] | int:
    """Return the tally and the growth of the process in KiB, or the exit code of a process without a result."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(decoder, seed, count, until_s, sending))
    process.start()
    sending.close()
    try:
        found: tuple[Tally, int] = receiving.recv()
    except EOFError:
        process.join()
        return process.exitcode or 0
    process.join()
    return found


def main(arguments: list[str]) -> int:
    """Return 1 if a decoder failed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("decoders", nargs="*", metavar="DECODER", help="names of decoders [all]")
    parser.add_argument("--inputs", type=int, default=INPUTS, metavar="N", help="inputs of each decoder [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the choices [%(default)s]")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="at most, for each decoder")
    parser.add_argument("--failures", type=Path, metavar="DIR", help="write inputs that failed there")
    parser.add_argument("--list", action="store_true", help="print the names of the decoders")
    options = parser.parse_args(arguments)
    by_name = {decoder.name: decoder for decoder in TABLE}
    unknown = [name for name in options.decoders if name not in by_name]
    if unknown:
        parser.error(f"unknown decoder {unknown[0]}; --list prints all")
    if options.list:
        print("\n".join(by_name))
        return 0
    chosen = [by_name[name] for name in options.decoders] or list(TABLE)
    begun, inputs, failed = time.monotonic(), 0, 0
    print(f"seed {options.seed}, {options.inputs} inputs each\n{COLUMNS}")
    for decoder in chosen:
        found = fuzz(decoder, options.seed, options.inputs, time.monotonic() + options.seconds)
        if isinstance(found, int):
            print(f"{decoder.name:26} its process ended with code {found}", flush=True)
            failed += 1
            continue
        tally, grown_kib = found
        inputs += tally.inputs
        failed += tally.failed
        refused = ", ".join(f"{name} {count}" for name, count in tally.refused.most_common())
        print(
            f"{decoder.name:26}{tally.inputs:9}{tally.accepted:9}{tally.failed:7}{tally.hangs:6}"
            f"{tally.slowest_s * 1000:6.0f} ms{grown_kib / 1024:4.0f} MB  {refused}",
            flush=True,
        )
        for number, failure in enumerate(tally.failures.values()):
            print(f"    {failure.kind}: {len(failure.data)} bytes, {failure.data[:SHOWN_SIZE]!r}\n{failure.text}")
            if options.failures is not None:
                directory = options.failures / decoder.name
                directory.mkdir(parents=True, exist_ok=True)
                (directory / f"seed-{options.seed}-{number}").write_bytes(failure.data)
    print(f"{len(chosen)} decoders, {inputs} inputs, {failed} failed; {time.monotonic() - begun:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
