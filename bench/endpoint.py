"""A loopback endpoint that answers every chat completion at once, or after a given latency.

``python -m bench.endpoint PORT [LATENCY_MS]``
"""

import asyncio
import sys

from aiohttp import web

ANSWER = "word " * 20


def application(latency: float) -> web.Application:
    """The endpoint; ``latency`` is in seconds."""
    count = 0

    async def chat(request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        body = await request.json()
        if latency:
            await asyncio.sleep(latency)
        return web.json_response(
            {
                "id": f"x{count}",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": f"turn {count}: {ANSWER}"},
                    }
                ],
                "usage": {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30},
            }
        )

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", chat)
    return app


if __name__ == "__main__":
    milliseconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    web.run_app(application(milliseconds / 1000), host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
