"""Thirty days of a service whose texts share one directory: sessions come, go on, crash and are tidied away.

    python benchmarks/retention.py [--sessions N] [--days N] [--max-bytes N] [--max-age-days N]
                                   [--open N] [--results DIR]

Sessions are memories over small histories, each with a namespace of its own in one directory. Every day some
begin, some go on from their saved state, some delete messages, some end and some crash, that is, end without
a word: now and then in a process of their own, which is killed. The stores have quotas by bytes and by age,
and at the end of each day the directory is tidied as `context-compressor gc` does it. A day passes by setting
back what the directory says about times.

After every day, all that the ledgers of open sessions name has to read back from the store itself, what the
view of a resumed session shows has to be what it showed, and the directory has to be within its quota. The
program ends with 1 if anything of that fails. Of each day:

- open: sessions open at its end; resumed: those that went on from a saved state, and in brackets those of
  them whose texts had been removed, so that their history serves them;
- removed: namespaces removed, by writes that needed room and at the end of the day;
- MB: what lies there in the evening, sizes of files; peak: the most that was there during the day, in per
  cent of the quota; on disk: the same in blocks of the file system;
- refs: what ledgers of open sessions name, each read back from the store; waiting: those of them that are to
  be stored at the next event, each read back from the history.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from reporting import make_parser, markdown_table, notes_of, write_results
from retention_service import Day, Service, used_bytes

from context_compressor.offload.directory import collect_garbage
from context_compressor.offload.folders import find_namespaces

DAY_SECONDS = 86_400
COLUMNS = (
    "day", "begun", "open", "resumed", "crashed", "removed", "MB", "peak, %", "on disk, MB", "refs", "waiting"
)  # fmt: skip


def turn_back(path: Path, seconds: float) -> None:
    """Let everything in a directory have happened so much earlier."""
    for namespace in find_namespaces(path):
        when = (namespace.used_ns / 1e9) - seconds
        os.utime(path / namespace.name, (when, when))


async def run(sessions: int, days: int, max_bytes: int, max_age_days: float, target_open: int) -> list[Day]:
    """Let all days pass; print a line for each."""
    told: list[Day] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        service = Service(path, max_bytes, max_age_days * DAY_SECONDS, seed=1)
        print(" · ".join(COLUMNS), flush=True)
        for number in range(1, days + 1):
            day = Day(number)
            count = sessions * number // days - sessions * (number - 1) // days
            before = {each.name for each in find_namespaces(path)}
            began = service.begun
            await service.pass_day(day, count, target_open)
            day.peak_bytes = max(day.peak_bytes, used_bytes(path)[0])
            collect_garbage(path, max_bytes=max_bytes, max_age_seconds=max_age_days * DAY_SECONDS)
            there = {each.name for each in find_namespaces(path)}
            came = {f"session-{n}" for n in range(began, service.begun)}
            day.removed = len((before | came) - there)
            await service.check(day)
            day.used_bytes, day.disk_bytes = used_bytes(path)
            if max(day.used_bytes, day.peak_bytes) > max_bytes:
                day.faults.append(f"{max(day.used_bytes, day.peak_bytes):,} bytes, of {max_bytes:,}")
            for fault in day.faults:
                print(fault, file=sys.stderr)
            told.append(day)
            print(" · ".join(row_of(day, max_bytes)), flush=True)
            turn_back(path, DAY_SECONDS)
    return told


def row_of(day: Day, max_bytes: int) -> list[str]:
    return [
        str(day.day),
        f"{day.begun:,}",
        f"{day.open:,}",
        f"{day.resumed:,} ({day.resumed_without_texts:,})",
        f"{day.crashed:,}",
        f"{day.removed:,}",
        f"{day.used_bytes / 1e6:.1f}",
        f"{100 * day.peak_bytes / max_bytes:.0f}",
        f"{day.disk_bytes / 1e6:.1f}",
        f"{day.refs:,}",
        f"{day.waiting:,}",
    ]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--sessions", type=int, default=10_000, help="altogether (default 10,000)")
    parser.add_argument("--days", type=int, default=30, help="(default 30)")
    parser.add_argument("--max-bytes", type=int, default=30_000_000, help="quota (default 30,000,000)")
    parser.add_argument("--max-age-days", type=float, default=7, help="(default 7)")
    parser.add_argument(
        "--open", type=int, default=150, help="sessions open at a time, at most (default 150)"
    )
    parser.add_argument("--results", type=Path, help="folder to write retention.json and retention.md to")
    options = parser.parse_args()
    began = time.perf_counter()
    days = asyncio.run(
        run(options.sessions, options.days, options.max_bytes, options.max_age_days, options.open)
    )
    faults = sum(len(day.faults) for day in days)
    refs = sum(day.refs for day in days)
    print(
        f"{sum(day.begun for day in days):,} sessions, {sum(day.removed for day in days):,} namespaces "
        f"removed, {refs:,} refs read back, {faults} faults; {time.perf_counter() - began:.0f} s"
    )
    if options.results:
        table = markdown_table(COLUMNS, [row_of(day, options.max_bytes) for day in days])
        notes = notes_of(__doc__, "open")
        data = {
            "max_bytes": options.max_bytes,
            "max_age_days": options.max_age_days,
            "days": [vars(day) for day in days],
        }
        limits = f"Quota: {options.max_bytes / 1e6:,.0f} MB, {options.max_age_days:g} days. Faults: {faults}."
        write_results(options.results, "retention", data, "Retention", f"{limits}\n\n{table}\n\n{notes}")
    return 1 if faults or refs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
