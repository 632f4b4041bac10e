"""An agent of LangChain, on chat completions, responses or messages; streamed."""

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from work import API, BASE_URL, REQUEST, read_file, run_command

if API == "messages":
    model = ChatAnthropic(model="claude-sonnet-4-5", base_url=BASE_URL, streaming=True)
else:
    model = ChatOpenAI(model="gpt-5", base_url=BASE_URL, use_responses_api=API == "responses", streaming=True)
agent = create_agent(model, [read_file, run_command], system_prompt="You read logs.")
said = agent.invoke({"messages": [("user", REQUEST)]}, {"recursion_limit": 200})
print(said["messages"][-1].text)
