"""An SQS that confirms every batch call after a while, on the loopback interface.

python -m benchmarks.scale.server 0.01
"""

from __future__ import annotations

import asyncio
import json
import sys

_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Confirming(asyncio.Protocol):
    """A connection whose requests are confirmed after `latency` seconds."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answers."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self._received += data
        while (body := self._take_body()) is not None:
            confirmed = [{"Id": entry["Id"]} for entry in json.loads(body)["Entries"]]
            answer = json.dumps({"Successful": confirmed}).encode()
            head = (
                "HTTP/1.1 200 OK\r\n"
                "x-amzn-RequestId: 00000000-0000-0000-0000-000000000000\r\n"
                "Date: Thu, 26 Nov 2026 12:00:00 GMT\r\n"
                "Content-Type: application/x-amz-json-1.0\r\n"
                "connection: keep-alive\r\n"
                f"Content-Length: {len(answer)}\r\n\r\n"
            )
            asyncio.get_running_loop().call_later(
                self._latency, self._transport.write, head.encode() + answer
            )

    def _take_body(self) -> bytes | None:
        head, end, rest = self._received.partition(_END)
        if not end:
            return None
        after = head.lower().partition(_LENGTH)[2]
        length = int(after.partition(b"\r\n")[0])
        if len(rest) < length:
            return None
        self._received = rest[length:]
        return rest[:length]


async def serve(latency: float) -> None:
    """Print the port, and serve until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Confirming(latency), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
