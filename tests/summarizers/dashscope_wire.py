"""A model server that speaks DashScope's native wire too, with the replies scripted for the other."""

from __future__ import annotations

import json
from typing import Any, Self

from aiohttp import web

from tests.support.model_server import ModelServer


class TwoWireServer(ModelServer):
    """Answer below `dashscope_url` as DashScope does; point its SDK there."""

    def __init__(self) -> None:
        super().__init__()
        self.dashscope_url = ""
        self._second: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/api/v1/{tail:.*}", self._answer_natively)
        self._second = web.AppRunner(app, shutdown_timeout=0)
        await self._second.setup()
        await web.TCPSite(self._second, "127.0.0.1", 0).start()
        host, port = self._second.addresses[0][:2]
        self.dashscope_url = f"http://{host}:{port}/api/v1"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.released.set()
        assert self._second is not None
        await self._second.cleanup()
        await super().__aexit__(*exc_info)

    async def _answer_natively(self, request: web.Request) -> web.StreamResponse:
        response = await self._answer(request)
        if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
            return response
        try:
            data = json.loads(response.body)
        except ValueError:
            return response
        headers = {name: value for name, value in response.headers.items() if "etry" in name}
        return web.json_response(_native(data), status=response.status, headers=headers)


def _native(data: Any) -> Any:
    if isinstance(data, dict) and isinstance(data.get("error"), dict):
        error = data["error"]
        return {"code": error.get("code"), "message": error.get("message"), "request_id": "r"}
    if not (isinstance(data, dict) and data.get("object") == "chat.completion"):
        return data
    choices = [
        {"finish_reason": choice["finish_reason"], "message": choice["message"]} for choice in data["choices"]
    ]
    body: dict[str, Any] = {"output": {"text": None, "choices": choices}, "request_id": "r"}
    if "usage" in data:
        usage = data["usage"]
        body["usage"] = {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
            "total_tokens": usage["total_tokens"],
        }
    return body
