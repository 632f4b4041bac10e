"""LangChain 1.x and LangGraph: middleware for `create_agent` that sends views.

agent = create_agent(model, tools, middleware=[Compression(max_total_tokens=16_000)])
"""

try:
    from context_compressor.integrations.langchain.middleware import Compression, CompressionState
except ImportError as error:
    if not (error.name or "").startswith(("langchain", "langgraph")):
        raise
    raise ImportError(
        "LangChain 1.2.10 or newer is needed: pip install 'agent-context-compressor[langchain]'"
    ) from error

__all__ = ["Compression", "CompressionState"]
