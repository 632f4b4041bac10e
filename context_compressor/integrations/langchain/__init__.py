"""LangChain 1.x and LangGraph: middleware for `create_agent` that sends views.

agent = create_agent(model, tools, middleware=[Compression(max_total_tokens=16_000)])
"""

from context_compressor.errors import naming_extras

with naming_extras("langchain"):
    from context_compressor.integrations.langchain.middleware import Compression, CompressionState

__all__ = ["Compression", "CompressionState"]
