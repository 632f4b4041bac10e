"""An agent of Pydantic AI, on chat completions, responses or messages."""

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits
from work import API, BASE_URL, MOST_TURNS, REQUEST, read_file, run_command

if API == "messages":
    provider = AnthropicProvider(base_url=BASE_URL, api_key="sk-of-the-caller")
    model = AnthropicModel("claude-sonnet-4-5", provider=provider)
else:
    kind = OpenAIResponsesModel if API == "responses" else OpenAIChatModel
    model = kind("gpt-5", provider=OpenAIProvider(base_url=BASE_URL))
agent = Agent(model, instructions="You read logs.", tools=[read_file, run_command])
print(agent.run_sync(REQUEST, usage_limits=UsageLimits(request_limit=MOST_TURNS)).output)
