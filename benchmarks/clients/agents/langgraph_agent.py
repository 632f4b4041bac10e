"""A graph of LangGraph: a model, and a node for its tools."""

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from work import BASE_URL, REQUEST, read_file, run_command

tools = [read_file, run_command]
model = ChatOpenAI(model="gpt-5", base_url=BASE_URL).bind_tools(tools)
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode(tools))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
said = graph.compile().invoke({"messages": [("user", REQUEST)]}, {"recursion_limit": 200})
print(said["messages"][-1].text)
