"""`examine`: what views of a user's own sessions tell, by questions that a model writes and grades."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from context_compressor.cli.options import DONE, NO, CommandError
from context_compressor.cli.output import (
    check_apart,
    check_folder,
    check_output,
    check_stdout,
    counted,
    is_stdout,
    make_console,
    make_progress,
    make_table,
    one_line,
    print_table,
    warn,
    write_output,
    write_stdout,
)
from context_compressor.errors import ContextCompressorError
from context_compressor.lab.commands.inputs import Input, check_baselines, check_words, read_inputs
from context_compressor.lab.commands.options import (
    AllJson,
    BaseUrl,
    InFormat,
    MaxUnpacked,
    Paths,
    Quiet,
    SummarizerKind,
    ask_model,
    make_config,
    read_unpacked,
)
from context_compressor.lab.commands.replay import DEFAULT_BUDGET, add_kinds
from context_compressor.lab.measure import (
    KINDS,
    MOST_CALLS,
    OURS,
    WITH_TOOLS,
    Estimate,
    ExaminationError,
    Examined,
    Examiner,
    Graded,
    Recording,
    Totals,
    choose_cut,
    estimate,
    percent,
    ratio,
    short_number,
    told_range,
    total,
)
from context_compressor.lab.measure import (
    examine as examine_one,
)
from context_compressor.lab.readers import grouped
from context_compressor.messages.chat import from_openai
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


def examine(
    paths: Paths,
    model: Annotated[str, typer.Option(metavar="NAME", help="Model that asks, reads and grades.")],
    base_url: BaseUrl = None,
    budget: Annotated[
        int,
        typer.Option(metavar="N", help="Tokens that a view may cost. Default: 16000.", show_default=False),
    ] = DEFAULT_BUDGET,
    baselines: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="NAME",
            help="Whose views to examine, too: raw, sliding or masking; may be repeated.",
        ),
    ] = None,
    with_tools: Annotated[
        bool,
        typer.Option(
            "--with-tools",
            help="Let a reader of our views call the memory's tools, too: each question by itself.",
        ),
    ] = False,
    calls: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Calls that a question may take with tools. Default: 5."),
    ] = None,
    window: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Tokens of a session that the question writer reads; what comes later is not examined. "
            "Default: 100000.",
            show_default=False,
        ),
    ] = 100_000,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Examine the N longest sessions only.")
    ] = None,
    cache: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of the model's answers: the same is never asked twice.")
    ] = "examination",
    probes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write sessions and probes there, for replay. Default: probes.jsonl in the cache.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")] = False,
    as_json: AllJson = False,
    quiet: Quiet = False,
    format: InFormat = None,
    max_unpacked: MaxUnpacked = None,
) -> int:
    """Find out what compressing saves and loses on your own sessions, with a model.

    The model writes questions about each session (what is wanted, decided, made, failed, what holds now);
    asked again, it answers them from what the memory would have sent, and nothing else; and a third time, it
    grades the answers. With --with-tools it answers them once more, from the same and what it finds with the
    memory's tools. The sessions are sent to that model. What it costs is told before it begins. The key
    is taken from OPENAI_API_KEY. Exit code 1 where no session could be examined.

    Example: context-compressor examine sessions/ --model gpt-5-mini --limit 5
    """
    # Options that cannot work are refused before anything is read.
    make_config(max_total_tokens=budget)
    check_baselines(baselines or ())
    if not os.environ.get(_KEY):
        raise CommandError(f"set {_KEY} (any text where the server at --base-url asks for no key)")
    ask_model(SummarizerKind.OPENAI, model, base_url)
    if calls is not None and not with_tools:
        raise CommandError("--calls needs --with-tools: without them a reader calls nothing")
    most_calls = MOST_CALLS if calls is None else calls
    check_folder(cache, "--cache")
    if probes is not None:
        check_output(probes, "--probes")
    if as_json or not quiet:
        check_stdout()
    systems = tuple(dict.fromkeys([OURS, *([WITH_TOOLS] if with_tools else ()), *(baselines or ())]))
    inputs = read_inputs(paths, format, lambda _: None, max_unpacked=read_unpacked(max_unpacked))
    check_words(one.session for one in inputs.sessions)
    file = str(Path(cache) / "probes.jsonl") if probes is None else probes
    check_apart(file, inputs.files, "--probes")
    warn("skipped", grouped((*inputs.problems, *inputs.unread)))
    chosen, unfit = _choose(inputs.sessions, budget, window)
    warn("not examined", unfit)
    chosen = chosen[:limit]
    if not chosen:
        raise CommandError("no session can be examined", NO)
    sizes = [one.tokens for one in chosen]
    if not (yes and quiet):
        _tell_costs(estimate(sizes, budget, systems, most_calls), len(chosen), model)
        if with_tools and most_calls > 1:
            usual = _together(estimate(sizes, budget, systems, 1))
            print(f"  {usual} where a question takes one call, as most do", file=sys.stderr)
    if not yes:
        _ask_to_go_on()
    examiner = Examiner(model, Path(cache), base_url)
    done, failed = asyncio.run(_examine_all(chosen, examiner, budget, systems, most_calls, quiet=quiet))
    warn("not examined", failed)
    if not done:
        return NO
    write_output(file, "".join(_recorded(one, found) for one, found in done), "--probes")
    found = [one for _, one in done]
    if as_json:
        write_stdout(json.dumps(_value(found, failed, systems, budget, examiner), indent=1) + "\n")
    elif not quiet:
        _print(found, systems, budget, examiner)
        if not is_stdout(file):
            print(f"Probes: {file}; context-compressor replay {file} uses them.")
    return DONE


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


def _tell_costs(costs: Sequence[Estimate], sessions: int, model: str) -> None:
    lines = [f"Examining {counted(sessions, 'session')} with {model} takes about, at most:"]
    lines += [
        f"  {one.role}: {counted(one.requests, 'request')}, {one.input_tokens:,} tokens in, "
        f"{one.output_tokens:,} out"
        for one in costs
    ]
    lines.append(f"  {_together(costs)}; less where answers are cached")
    print("\n".join(lines), file=sys.stderr)


def _together(costs: Sequence[Estimate]) -> str:
    requests = sum(one.requests for one in costs)
    read, written = sum(one.input_tokens for one in costs), sum(one.output_tokens for one in costs)
    return f"together {counted(requests, 'request')}, {read:,} tokens in, {written:,} out"


def _ask_to_go_on() -> None:
    """Refuse to go on where there is nobody to ask, or the answer is no."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError("nobody is there to agree to that; say --yes to go on")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise CommandError("nothing was asked", NO)


async def _examine_all(
    chosen: Sequence[_Chosen],
    examiner: Examiner,
    budget: int,
    systems: Sequence[str],
    most_calls: int,
    *,
    quiet: bool,
) -> tuple[list[tuple[_Chosen, Examined]], list[str]]:
    """Return what was found out, and what failed."""
    done: list[tuple[_Chosen, Examined]] = []
    failed: list[str] = []
    async with examiner:
        with make_progress(quiet=quiet) as progress:
            for one in progress.track(chosen, description="examining sessions"):
                try:
                    found = await examine_one(
                        one.recording,
                        one.cut,
                        examiner,
                        budget=budget,
                        systems=systems,
                        most_calls=most_calls,
                    )
                    done.append((one, found))
                except ExaminationError as error:
                    failed.append(f"{one.given.name}: {error}")
    return done, failed


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


def _per_question(graded: Sequence[Graded]) -> tuple[float, float]:
    """Return the calls of tools that a question took in the mean, and the tokens of what they answered."""
    given = [one.given for one in graded]
    count = max(1, len(given))
    return sum(one.calls for one in given) / count, sum(one.tokens for one in given) / count


def _by_kind(graded: Sequence[Graded]) -> dict[str, float]:
    means = {kind: _mean(graded, kind) for kind in KINDS}
    return {kind: mean for kind, mean in means.items() if mean is not None}


def _print(found: Sequence[Examined], systems: Sequence[str], budget: int, examiner: Examiner) -> None:
    console = make_console()
    gathered = {system: _gather(found, system) for system in systems}
    title = f"Budget {budget:,} tokens: {counted(len(found), 'session')}"
    columns = ("view", "saved", "cost", "told", "95 %", "graded")
    has_tools = WITH_TOOLS in systems
    table = make_table(title, "system", (*columns, "calls", "tokens") if has_tools else columns)
    shares: dict[str, Mapping[str, float]] = {}
    for system, (totals, graded) in gathered.items():
        told = totals.told
        views = [one.systems[system][0].asked[0].view_tokens for one in found]
        table.add_row(
            system,
            short_number(sum(views) / len(found)),
            percent(totals.saved, "-"),
            ratio(totals.cost.spent_ratio, "-"),
            percent(None if told is None else told.share, "-"),
            "-" if told is None else told_range(told),
            percent(_mean(graded), "-"),
            *(_called(system, graded) if has_tools else ()),
            style="bold" if system == OURS else "",
        )
        shares[f"{system} told"] = {kind: one.share for kind, one in totals.told_by_kind.items()}
        shares[f"{system} graded"] = _by_kind(graded)
    print_table(console, table)
    kinds = make_table("By kind", "kind", ["probes", *shares])
    add_kinds(kinds, gathered[OURS][0], shares)
    print_table(console, kinds)
    if has_tools:
        _print_questions(console, found)
    about_tools = " (ours+tools: who could call the memory's tools; calls, tokens: for a question, and of "
    about_tools += "what they answered)"
    console.print(
        "view: tokens of the views that were examined. saved, cost: of all requests up to there, to sending "
        "the history, prompt cache counted. told: a passage of the view holds the keys of the answer. "
        f"graded: how well a reader of the view alone answered{about_tools if has_tools else ''}. The model "
        f"read {examiner.input_tokens:,} tokens and wrote {examiner.output_tokens:,}, in "
        f"{counted(examiner.requests, 'request')}."
    )


_GRADES = {1.0: "right", 0.5: "half", 0.0: "no"}


def _called(system: str, graded: Sequence[Graded]) -> tuple[str, str]:
    if system != WITH_TOOLS:
        return "-", "-"
    calls, tokens = _per_question(graded)
    return ratio(calls), f"{tokens:,.0f}"


def _print_questions(console: Console, found: Sequence[Examined]) -> None:
    """Print what became of each question, with the view alone and with tools."""
    for one in found:
        table = make_table(one.name, "question", ("alone", "with tools", "calls", "tokens"), fold=True)
        (_, alone), (_, helped) = (one.systems[system] for system in (OURS, WITH_TOOLS))
        for first, second in zip(alone, helped, strict=True):
            grades = (_GRADES[graded.grade] for graded in (first, second))
            given = second.given
            table.add_row(
                Text(one_line(first.probe.question)), *grades, str(given.calls), f"{given.tokens:,}"
            )
        print_table(console, table)


def _value(
    found: Sequence[Examined], failed: Sequence[str], systems: Sequence[str], budget: int, examiner: Examiner
) -> Mapping[str, Any]:
    gathered = {system: _gather(found, system) for system in systems}
    return {
        "model": examiner.model,
        "budget": budget,
        "requests": examiner.requests,
        "input_tokens": examiner.input_tokens,
        "output_tokens": examiner.output_tokens,
        "totals": [
            {
                **asdict(totals),
                "system": system,
                "graded": _mean(graded),
                "graded_by_kind": _by_kind(graded),
                **dict(zip(("calls", "tool_tokens"), _per_question(graded), strict=True)),
            }
            for system, (totals, graded) in gathered.items()
        ],
        "sessions": [
            {
                "name": one.name,
                "answers": {
                    system: [graded.to_dict() for graded in several]
                    for system, (_, several) in one.systems.items()
                },
            }
            for one in found
        ],
        "not_examined": list(failed),
    }
