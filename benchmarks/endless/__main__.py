"""Serves on a loopback port until it is terminated, or the process that started it has ended.

python -m benchmarks.endless --port 5000
"""

from __future__ import annotations

import asyncio
import os

import click

from benchmarks.endless.listener import Connection
from benchmarks.endless.operations import Account

#: How often it looks for the process that started it, in seconds.
_LOOK_SECONDS = 1.0


@click.command()
@click.option("--port", type=int, required=True)
def main(port: int) -> None:
    """Serve on a loopback port."""
    asyncio.run(_serve(port))


async def _serve(port: int) -> None:
    account = Account(f"http://127.0.0.1:{port}")
    loop = asyncio.get_running_loop()
    parent = os.getppid()
    server = await loop.create_server(lambda: Connection(account), "127.0.0.1", port, backlog=128)
    async with server:
        while os.getppid() == parent:
            await asyncio.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main()
