"""Say what `compress` did: as tables for people, as JSON for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from context_compressor.cli.compress_sessions import SessionReport, StandIn
from context_compressor.cli.options import DEFAULT_STORE
from context_compressor.cli.output import TABLE_LOOK, print_table
from context_compressor.compression.config import CompressionConfig
from context_compressor.measure.data import index_ranges
from context_compressor.messages.text import one_line
from context_compressor.readers import Reading

_MAX_ROWS = 40
"""Sessions shown in the table; `--json` has all."""
_MAX_STAND_INS = 12
_MAX_NOTES = 8
"""Lines of a table, and notes below it; `--json` has all."""


def print_report(
    console: Console, source: Reading, reports: Sequence[SessionReport], budget: int, store: str
) -> None:
    """Print the table of tokens before and after, what left the view, and what to know besides."""
    print_table(console, _sessions_table(source, reports, budget))
    if len(reports) > _MAX_ROWS:
        console.print(f"{len(reports) - _MAX_ROWS} more are counted in the total; --json lists all")
    if len(reports) == 1 and reports[0].stand_ins:
        print_table(console, _stand_ins_table(reports[0]))
    stored = [report for report in reports if _refs(report)]
    if len(stored) == 1:
        _say(console, f"Full texts: {store}, namespace {stored[0].namespace}")
    elif stored:
        _say(console, f"Full texts: {store}, a namespace per session, {stored[0].namespace} and others")
    if stored:
        option = "" if store == DEFAULT_STORE else f" --store {shlex.quote(store)}"
        _say(console, f"Read one: context-compressor read {_refs(stored[0])[0]}{option}")
    notes = [
        f"{source.name if r.line is None else f'line {r.line}'}: {note}" for r in reports for note in r.notes
    ]
    for note in notes[:_MAX_NOTES]:
        _say(console, f"note: {note}", "yellow")
    if len(notes) > _MAX_NOTES:
        _say(console, f"note: {len(notes) - _MAX_NOTES} more; --json lists all", "yellow")


def _say(console: Console, text: str, style: str = "") -> None:
    # Names and errors come from outside: not markup, and not to be broken where someone will copy them.
    # What can be shown is shown as it is: in a command, two blanks are not one.
    console.print(Text(text if text.isprintable() else one_line(text), style), soft_wrap=True)


def _sessions_table(source: Reading, reports: Sequence[SessionReport], budget: int) -> Table:
    table = Table(title=f"Views within {budget:,} tokens", **TABLE_LOOK)
    table.add_column("session", overflow="fold")
    for name in ("messages", "tokens", "view", "saved", "offloaded", "summaries"):
        table.add_column(name, justify="right", no_wrap=True)
    for report in reports[:_MAX_ROWS]:
        name = source.sessions[report.number - 1].id or (
            source.name if report.line is None else f"line {report.line}"
        )
        table.add_row(Text(one_line(name)), *_row([report]))
    if len(reports) > 1:
        table.add_section()
        table.add_row(f"{len(reports)} sessions", *_row(reports), style="bold")
    return table


def _row(reports: Sequence[SessionReport]) -> tuple[str, ...]:
    counts = _counts(reports)
    return (
        f"{counts['messages']:,} > {counts['view_messages']:,}",
        f"{counts['tokens']:,}",
        f"{counts['view_tokens']:,}",
        f"{counts['saved_percent']:.0f} %",
        str(counts["offloaded"]),
        str(counts["segments"]),
    )


def _counts(reports: Sequence[SessionReport]) -> dict[str, Any]:
    """Return what sessions come to together."""
    before = sum(report.stats.history_tokens for report in reports)
    after = sum(report.stats.view_tokens for report in reports)
    return {
        "messages": sum(report.messages for report in reports),
        "view_messages": sum(len(report.view) for report in reports),
        "tokens": before,
        "view_tokens": after,
        "saved_tokens": before - after,
        "saved_percent": round(100 * (before - after) / before if before else 0.0, 1),
        "offloaded": sum(report.stats.offloaded for report in reports),
        "segments": sum(report.stats.segments for report in reports),
    }


def _stand_ins_table(report: SessionReport) -> Table:
    table = Table(title="What left the view", **TABLE_LOOK)
    for name in ("what", "messages", "full text"):
        table.add_column(name, no_wrap=True)
    rows = [_stand_in_row(stand_in) for stand_in in report.stand_ins]
    named = {ref for stand_in in report.stand_ins for ref in stand_in.refs}
    rows += [("offloaded", "inside a summary", ref) for ref in _refs(report) if ref not in named]
    for row in rows[:_MAX_STAND_INS]:
        table.add_row(*row)
    if len(rows) > _MAX_STAND_INS:
        table.add_row("...", f"{len(rows) - _MAX_STAND_INS} more", "")
    return table


def _stand_in_row(stand_in: StandIn) -> tuple[str, str, str]:
    what = {"segment": "summarised", "stub": "offloaded", "placeholder": "no result"}[stand_in.kind]
    more = f" and {len(stand_in.refs) - 1} more" if len(stand_in.refs) > 1 else ""
    return what, _covered(stand_in.covers), (stand_in.refs[0] if stand_in.refs else "") + more


def _covered(covers: Sequence[int]) -> str:
    if not covers:
        return ""
    first, last = min(covers), max(covers)
    return str(first) if first == last else f"{first} to {last} ({len(covers)} messages)"


def _refs(report: SessionReport) -> list[str]:
    """Return the refs stored for a session, in the order of storing."""
    return list(dict.fromkeys(ref for event in report.events for ref in event.refs))


# For programs


def report_json(
    source: Reading,
    reports: Sequence[SessionReport],
    config: CompressionConfig,
    *,
    output: str,
    store: str,
) -> str:
    """Return the report as one JSON object."""
    value = {
        "input": source.name,
        "output": output,
        "form": source.form.value,
        "store": store,
        "config": config.model_dump(
            mode="json",
            include={
                "mode",
                "max_total_tokens",
                "max_tool_message_tokens",
                "keep_recent_count",
                "group_token_threshold",
            },
        ),
        "total": {
            "sessions": len(reports),
            **_counts(reports),
            "summarizer_calls": sum(report.stats.summarizer_calls for report in reports),
            "summarizer_input_tokens": sum(report.stats.summarizer_input_tokens for report in reports),
            "summarizer_output_tokens": sum(report.stats.summarizer_output_tokens for report in reports),
        },
        "sessions": [_session_value(report) for report in reports],
        "formats": list(source.formats),
        "problems": [
            {"file": problem.file, "line": problem.line, "why": problem.why} for problem in source.problems
        ],
    }
    return json.dumps(value, indent=2)


def _session_value(report: SessionReport) -> dict[str, Any]:
    return {
        "session": report.number,
        "line": report.line,
        "namespace": report.namespace,
        **_counts([report]),
        "refs": _refs(report),
        "stand_ins": [
            {"kind": s.kind, "refs": list(s.refs), "message_ranges": index_ranges(sorted(s.covers))}
            for s in report.stand_ins
        ],
        "events": [
            {
                "kind": event.kind,
                "reason": event.reason,
                "tokens_before": event.tokens_before,
                "tokens_after": event.tokens_after,
                "refs": list(event.refs),
                "error": event.error,
            }
            for event in report.events
        ],
        "notes": list(report.notes),
    }
