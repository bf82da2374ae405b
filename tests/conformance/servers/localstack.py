"""LocalStack's SQS, in its own virtual environment, because its pins conflict with ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.servers import ProcessServer

VERSION = "4.13.1"
#: Versions that work together: later versions of the others break it.
REQUIREMENTS = (
    f"localstack-core[base-runtime]=={VERSION}",
    "cbor2<6",
    "pyopenssl<26",
    "cryptography<47",
    "service_identity<24.2",
)
VENV = Path(__file__).parents[3] / ".venv-localstack"


def python() -> Path:
    """Return the interpreter of LocalStack's environment, which is made if necessary.

    Raises:
        RuntimeError: It can't be made. Contains pip's error.
    """
    stamp = VENV / "installed.txt"
    interpreter = VENV / "bin" / "python"
    wanted = "\n".join(REQUIREMENTS)
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        [str(interpreter), "-m", "pip", "install", "--quiet", *REQUIREMENTS],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    stamp.write_text(wanted)
    return interpreter


class LocalStackServer(ProcessServer):
    """LocalStack. Its start fails where it can't be installed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "localstack.log")

    def command(self) -> list[str]:
        """Return what to run."""
        return [str(python()), "-m", "localstack.runtime.main"]

    def settings(self) -> dict[str, str]:
        """Return its environment variables."""
        return {
            "SERVICES": "sqs",
            "STRICT_SERVICE_LOADING": "1",
            "EAGER_SERVICE_LOADING": "1",
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DNS_ADDRESS": "0",
            "OVERRIDE_IN_DOCKER": "0",
            "FILESYSTEM_ROOT": str(self._log_path.parent / "root"),
            "GATEWAY_SERVER": "hypercorn",
            "GATEWAY_LISTEN": f"127.0.0.1:{self.port}",
            "SQS_ENDPOINT_STRATEGY": "path",
        }
