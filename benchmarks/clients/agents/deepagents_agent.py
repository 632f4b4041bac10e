"""A deep agent, with its own tools over the folder."""

from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from langchain_openai import ChatOpenAI
from work import BASE_URL, REQUEST, run_command

model = ChatOpenAI(model="gpt-5", base_url=BASE_URL, use_responses_api=False)
backend = FilesystemBackend(root_dir=".", virtual_mode=False)
agent = create_deep_agent(model, [run_command], backend=backend)
said = agent.invoke({"messages": [("user", REQUEST)]}, {"recursion_limit": 800})
print(said["messages"][-1].text)
