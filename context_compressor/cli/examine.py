"""`examine`: what views of a user's own sessions tell, by questions that a model writes and grades."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from context_compressor.cli.options import DONE, NO, CommandError, make_config
from context_compressor.cli.output import (
    check_folder,
    check_output,
    check_stdout,
    is_stdout,
    make_console,
    make_progress,
    make_table,
    print_table,
    warn,
    write_output,
    write_stdout,
)
from context_compressor.cli.replay import Input, check_baselines, read_inputs
from context_compressor.errors import ContextCompressorError, InvalidArgumentError
from context_compressor.measure import (
    KINDS,
    Estimate,
    ExaminationError,
    Examined,
    Examiner,
    Graded,
    Recording,
    Totals,
    choose_cut,
    estimate,
    examine,
    total,
)
from context_compressor.measure.data import OURS, percent, short_number, told_range
from context_compressor.messages.chat import from_openai
from context_compressor.messages.text import counted
from context_compressor.readers import Format
from context_compressor.tokens.tiktoken import TiktokenCounter

_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A session to be examined, and where it is cut."""

    given: Input
    recording: Recording
    cut: int

    @property
    def tokens(self) -> int:
        """Tokens of what stands before the cut."""
        return sum(self.recording.tokens[: self.cut])


def run_examine(
    paths: Sequence[str],
    *,
    model: str,
    base_url: str | None,
    budget: int,
    baselines: Sequence[str] | None,
    window: int,
    limit: int | None,
    cache: str,
    probes: str | None,
    yes: bool,
    as_json: bool,
    quiet: bool,
    format: Format | None,
) -> int:
    """Examine sessions, write their probes, report; return the exit code. Options are as given."""
    systems = _check(
        model, base_url, budget, baselines or (), cache, probes, is_printing=as_json or not quiet
    )
    inputs = read_inputs(paths, format, lambda _: None)
    warn("skipped", list(map(str, (*inputs.problems, *inputs.unread))))
    chosen, unfit = _choose(inputs.sessions, budget, window)
    warn("not examined", unfit)
    chosen = chosen[:limit]
    if not chosen:
        raise CommandError("no session can be examined", NO)
    _agree(
        estimate([one.tokens for one in chosen], budget, systems), len(chosen), model, yes=yes, quiet=quiet
    )
    done, failed, examiner = asyncio.run(
        _examine_all(chosen, Examiner(model, Path(cache), base_url), budget, systems, quiet=quiet)
    )
    warn("not examined", failed)
    if not done:
        return NO
    file = str(Path(cache) / "probes.jsonl") if probes is None else probes
    write_output(file, "".join(_recorded(one, found) for one, found in done), "--probes")
    found = [one for _, one in done]
    if as_json:
        write_stdout(json.dumps(_value(found, failed, systems, budget, examiner), indent=1) + "\n")
    elif not quiet:
        _print(found, systems, budget, examiner)
        if not is_stdout(file):
            print(f"Probes: {file}; context-compressor replay {file} uses them.")
    return DONE


def _check(
    model: str,
    base_url: str | None,
    budget: int,
    baselines: Sequence[str],
    cache: str,
    probes: str | None,
    *,
    is_printing: bool,
) -> tuple[str, ...]:
    """Refuse options that cannot work, before anything is read; return the systems to examine."""
    make_config(max_total_tokens=budget)
    check_baselines(baselines)
    if not os.environ.get(_KEY):
        raise CommandError(f"set {_KEY} (any text where the server at --base-url asks for no key)")
    from context_compressor.summarizers.openai import OpenAISummarizer

    try:
        OpenAISummarizer(model, base_url=base_url)  # refuses what names no model or server
    except InvalidArgumentError as error:
        raise CommandError(f"--{str(error).replace('base_url', 'base-url')}") from None
    check_folder(cache, "--cache")
    if probes is not None:
        check_output(probes, "--probes")
    if is_printing:
        check_stdout()
    return tuple(dict.fromkeys([OURS, *baselines]))


def _choose(sessions: Sequence[Input], budget: int, window: int) -> tuple[list[_Chosen], list[str]]:
    """Return the sessions that can be examined, the longest first, and why others cannot."""
    chosen: list[_Chosen] = []
    unfit: list[str] = []
    counter = TiktokenCounter()
    for one in sessions:
        try:
            from_openai(one.session.messages)
        except ContextCompressorError as error:
            unfit.append(f"{one.name}: {error}")
            continue
        recording = Recording(one.session.messages, counter, one.name)
        cut = choose_cut(recording, window)
        if cut is None:
            unfit.append(f"{one.name}: has no turn within --window {window:,} tokens")
            continue
        found = _Chosen(one, recording, cut)
        if found.tokens <= budget:
            unfit.append(
                f"{one.name}: {found.tokens:,} tokens fit --budget {budget:,}: nothing leaves a view"
            )
        else:
            chosen.append(found)
    return sorted(chosen, key=lambda one: (-one.tokens, one.given.name)), unfit


def _agree(costs: Sequence[Estimate], sessions: int, model: str, *, yes: bool, quiet: bool) -> None:
    """Tell what it costs, and ask whether to go on.

    Raises:
        CommandError: there is nobody to ask, or the answer is no.
    """
    if not (yes and quiet):
        print(f"Examining {counted(sessions, 'session')} with {model} takes about, at most:", file=sys.stderr)
        for one in costs:
            print(
                f"  {one.role}: {counted(one.requests, 'request')}, {one.input_tokens:,} tokens in, "
                f"{one.output_tokens:,} out",
                file=sys.stderr,
            )
        read, written = sum(one.input_tokens for one in costs), sum(one.output_tokens for one in costs)
        print(f"  together {read:,} in, {written:,} out; less where answers are cached", file=sys.stderr)
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError("nobody is there to agree to that; say --yes to go on")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise CommandError("nothing was asked", NO)


async def _examine_all(
    chosen: Sequence[_Chosen], examiner: Examiner, budget: int, systems: Sequence[str], *, quiet: bool
) -> tuple[list[tuple[_Chosen, Examined]], list[str], Examiner]:
    done: list[tuple[_Chosen, Examined]] = []
    failed: list[str] = []
    console = make_console(stderr=True)
    async with examiner:
        with make_progress(console, is_shown=not quiet and console.file.isatty()) as progress:
            bar = progress.add_task("examining", total=len(chosen), unit="sessions")
            for one in chosen:
                try:
                    found = await examine(one.recording, one.cut, examiner, budget=budget, systems=systems)
                    done.append((one, found))
                except ExaminationError as error:
                    failed.append(f"{one.given.name}: {error}")
                progress.advance(bar)
    return done, failed, examiner


def _recorded(one: _Chosen, found: Examined) -> str:
    """Return a session with its probes, as a line that `replay` reads."""
    probes = [probe.model_dump() for probe in (*one.given.probes, *found.probes)]
    value = {"id": found.name, "messages": one.given.session.messages, "probes": probes}
    return json.dumps(value) + "\n"


def _gather(found: Sequence[Examined], system: str) -> tuple[Totals, list[Graded]]:
    runs = [one.systems[system] for one in found]
    return total([replay for replay, _ in runs]), [graded for _, several in runs for graded in several]


def _mean(graded: Sequence[Graded], kind: str | None = None) -> float | None:
    grades = [one.grade for one in graded if kind in (None, one.probe.kind)]
    return sum(grades) / len(grades) if grades else None


def _print(found: Sequence[Examined], systems: Sequence[str], budget: int, examiner: Examiner) -> None:
    console = make_console()
    gathered = {system: _gather(found, system) for system in systems}
    title = f"Budget {budget:,} tokens: {counted(len(found), 'session')}"
    table = make_table(title, "system", ("view", "saved", "cost", "told", "95 %", "graded"))
    for system, (totals, graded) in gathered.items():
        told, ratio = totals.told, totals.cost.spent_ratio
        table.add_row(
            system,
            short_number(sum(one.systems[system][0].asked[0].view_tokens for one in found) / len(found)),
            percent(totals.saved, "-"),
            "-" if ratio is None else f"{ratio:.2f}",
            percent(None if told is None else told.share, "-"),
            "-" if told is None else told_range(told),
            percent(_mean(graded), "-"),
            style="bold" if system == OURS else "",
        )
    print_table(console, table)
    columns = [f"{system} {what}" for system in systems for what in ("told", "graded")]
    kinds = make_table("By kind", "kind", ["probes", *columns])
    for kind in gathered[OURS][0].told_by_kind:
        told_by_kind = [totals.told_by_kind[kind] for totals, _ in gathered.values()]
        means = [_mean(graded, kind) for _, graded in gathered.values()]
        cells = [
            percent(share, "-")
            for told, mean in zip(told_by_kind, means, strict=True)
            for share in (told.share, mean)
        ]
        kinds.add_row(kind, f"{told_by_kind[0].probes:,}", *cells)
    print_table(console, kinds)
    console.print(
        "view: tokens of the views that were examined. saved, cost: of all requests up to there, to sending "
        "the history, prompt cache counted. told: a passage of the view holds the keys of the answer. "
        "graded: how well a reader of the view alone answered. The model read "
        f"{examiner.input_tokens:,} tokens and wrote {examiner.output_tokens:,}, in "
        f"{counted(examiner.requests, 'request')}."
    )


def _by_kind(graded: Sequence[Graded]) -> dict[str, float]:
    means = {kind: _mean(graded, kind) for kind in KINDS}
    return {kind: mean for kind, mean in means.items() if mean is not None}


def _value(
    found: Sequence[Examined], failed: Sequence[str], systems: Sequence[str], budget: int, examiner: Examiner
) -> Mapping[str, Any]:
    """Return everything as JSON-like data."""
    gathered = {system: _gather(found, system) for system in systems}
    return {
        "model": examiner.model,
        "budget": budget,
        "requests": examiner.requests,
        "input_tokens": examiner.input_tokens,
        "output_tokens": examiner.output_tokens,
        "totals": [
            {**asdict(totals), "system": system, "graded": _mean(graded), "graded_by_kind": _by_kind(graded)}
            for system, (totals, graded) in gathered.items()
        ],
        "sessions": [
            {
                "name": one.name,
                "answers": {
                    system: [
                        {
                            **graded.probe.model_dump(),
                            "told": graded.is_told,
                            "given": graded.answer,
                            "grade": graded.grade,
                        }
                        for graded in several
                    ]
                    for system, (_, several) in one.systems.items()
                },
            }
            for one in found
        ],
        "not_examined": list(failed),
    }
