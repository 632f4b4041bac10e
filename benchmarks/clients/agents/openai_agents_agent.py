"""An agent of OpenAI Agents, on chat completions or responses; streamed."""

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from work import API, BASE_URL, MOST_TURNS, REQUEST, read_file, run_command


async def main() -> None:
    set_tracing_disabled(True)
    kind = OpenAIResponsesModel if API == "responses" else OpenAIChatCompletionsModel
    model = kind("gpt-5", AsyncOpenAI(base_url=BASE_URL))
    tools = [function_tool(read_file), function_tool(run_command)]
    agent = Agent("reader", instructions="You read logs.", tools=tools, model=model)
    result = Runner.run_streamed(agent, REQUEST, max_turns=MOST_TURNS)
    async for _ in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(main())
