"""What an adapter costs for each call of the model, beside the framework's own middleware.

    python benchmarks/adapters.py [--results DIR] [--profile]

An agent of LangChain's answers again and again, its state holding 401 messages: without middleware, with
`SummarizationMiddleware`, which does not trigger, and with `Compression`, which has no event. What either
adds to a model call is told in milliseconds of the processor, and as a ratio, which is what holds on any
machine. The rounds of the three take turns, and the least of each counts: what else the machine does only
adds to it.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from reporting import make_parser, markdown_table, write_results

from context_compressor.integrations.langchain import Compression

LIMIT = 2.0
"""How many times the time of the framework's own middleware ours may take."""
HISTORY, CALLS, ROUNDS = 401, 100, 12
_OUT_OF_REACH = 10**9


class Caller(BaseChatModel):
    """A model that calls its tool so many times, and then answers; it costs nothing."""

    calls: int = CALLS
    made: int = 0

    @property
    def _llm_type(self) -> str:
        return "caller"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:  # noqa: ARG002
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:  # noqa: ARG002
        self.made += 1
        calls = [] if self.made % self.calls == 0 else [{"name": "look", "args": {}, "id": f"c{self.made}"}]
        reply = AIMessage(f"Step {self.made}.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def look() -> str:
    """Look around."""
    return "Nothing new."


def history(count: int) -> list[BaseMessage]:
    """Return messages of a session in which an agent read logs."""
    said: list[BaseMessage] = [HumanMessage("Go through all logs.")]
    for step in range(count // 2):
        call = {"name": "look", "args": {"step": step}, "id": f"h{step}"}
        said.append(AIMessage(f"Step {step} is next; what came before looked fine.", tool_calls=[call]))
        lines = "\n".join(f"{line:02}:00 host-{step} unit {line * step % 97} ok" for line in range(12))
        said.append(ToolMessage(lines, tool_call_id=f"h{step}", name="look"))
    return said[:count]


def own() -> AgentMiddleware[Any, Any, Any]:
    return SummarizationMiddleware(model=Caller(), trigger=("tokens", _OUT_OF_REACH))


def ours() -> AgentMiddleware[Any, Any, Any]:
    return Compression(max_total_tokens=_OUT_OF_REACH, summarizer="rules")


def seconds_of(make: Callable[[], AgentMiddleware[Any, Any, Any]] | None, asynchronous: bool) -> float:
    """Return what a run takes; one call has looked at the whole history before."""
    model, said = Caller(calls=1), history(HISTORY)
    middleware = [] if make is None else [make()]
    agent = create_agent(model, [StructuredTool.from_function(look)], middleware=middleware)
    config: Any = {"recursion_limit": 10 * CALLS}

    def run() -> None:
        if asynchronous:
            asyncio.run(agent.ainvoke({"messages": said}, config))
        else:
            agent.invoke({"messages": said}, config)

    run()
    model.calls, model.made = CALLS, 0
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(asynchronous: bool) -> dict[str, float]:
    """Return the milliseconds that each middleware adds to a model call, and the ratio of the two."""
    kinds = {"none": None, "own": own, "ours": ours}
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, make in kinds.items():
            found[name].append(seconds_of(make, asynchronous) / CALLS * 1_000)
    each = {name: min(times) for name, times in found.items()}
    added = {name: each[name] - each["none"] for name in ("own", "ours")}
    return {
        **each,
        "own_added": added["own"],
        "ours_added": added["ours"],
        "ratio": added["ours"] / added["own"],
    }


def profile() -> None:
    """Show where the time of a run goes."""
    profiler = cProfile.Profile()
    profiler.enable()
    seconds_of(ours, asynchronous=True)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument("--results", type=Path, help="folder to write adapters.json and adapters.md to")
    options = parser.parse_args()
    if options.profile:
        profile()
        return 0
    results = {name: measure(name == "ainvoke") for name in ("invoke", "ainvoke")}
    rows = [
        [
            name,
            f"{one['none']:.2f}",
            f"{one['own_added']:.2f}",
            f"{one['ours_added']:.2f}",
            f"{one['ratio']:.2f}",
        ]
        for name, one in results.items()
    ]
    head = ["LangChain", "model call, ms", "its own adds, ms", "ours adds, ms", f"ratio (at most {LIMIT:g})"]
    table = markdown_table(head, rows)
    print(table)
    if options.results:
        write_results(options.results, "adapters", {"langchain": results}, "What adapters cost", table)
    return max(one["ratio"] for one in results.values()) > LIMIT


if __name__ == "__main__":
    sys.exit(main())
