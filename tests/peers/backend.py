"""A Redis for task results, in a separate process."""

from __future__ import annotations

import contextlib
import shutil
import socket

from tests.support.servers import ServerProcess


class RedisServer(ServerProcess):
    """Debian's `redis-server`, with nothing kept on disk."""

    @property
    def url(self) -> str:
        """Where it is, as a result backend."""
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """Return the command that starts it.

        Raises:
            RuntimeError: There is none.
        """
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("there is no redis-server: install Debian's package of that name")
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]

    def answers(self) -> bool:
        """Return whether it answers, and not another Redis at its port."""
        at = ("127.0.0.1", self.port)
        with contextlib.suppress(OSError), socket.create_connection(at) as connection:
            connection.settimeout(1.0)
            connection.sendall(b"INFO server\r\n")
            return b"\r\nprocess_id:%d\r\n" % self.pid in connection.recv(1 << 16)
        return False
