"""The tutorial, its commands run by a shell as its reader would run them, in its order.

The server has a free port and long timeouts, and a task ends only when the test lets it, so a slow
machine changes nothing.
"""

from __future__ import annotations

import re
import signal

from tests.support.markdown import blocks, commands
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE, wait_until

TUTORIAL = "docs/tutorial.md"
#: Longer than any patience: a message that is visible sooner was released.
TIMEOUT = 600


def test_the_tutorial_is_true(shell: Shell) -> None:
    steps = iter(commands(TUTORIAL))
    assert [next(steps) for _ in range(3)][2] == "pip install /path/to/celery-sqs-heartbeat"
    told, received_again = blocks(TUTORIAL, "text")

    server = next(steps)
    assert "--port 9324 --queue celery:10:3" in server
    server = server.replace("--port 9324", "--port 0").replace(":10:", f":{TIMEOUT}:")
    shell.start(server)
    url = re.findall(r"http://\S+", shell.wait_for("http://"))[0]
    (source,) = blocks(TUTORIAL, "python")
    assert "127.0.0.1:9324" in source
    assert "time.sleep(25)" in source
    source = source.replace("127.0.0.1:9324", url.removeprefix("http://"))
    source = source.replace("time.sleep(25)", "_wait(cake)")
    (shell.folder / "proj.py").write_text(source + WAIT)

    # With a timeout of 10 s it has the warning that the page names.
    doctor = next(steps)
    assert doctor == "celery -A proj sqs-heartbeat doctor"
    assert "0 errors" in shell.run(doctor)

    start = next(steps)
    worker = shell.start(start)
    log = shell.wait_for(" ready.")
    # The same line as for a timeout of 10 s, except for its numbers.
    numbers = re.compile(r"[\d.]+ s")
    assert numbers.sub("", told.strip()) in numbers.sub("", log)
    shell.run(next(steps))
    shell.wait_for("apple cake: into the oven, receive 1")
    (shell.folder / "apple cake").touch()
    shell.wait_for("apple cake: done")

    shell.run(next(steps))
    shell.wait_for("plum cake: into the oven, receive 1")
    shell.run(next(steps))
    assert worker.wait(PATIENCE) == -signal.SIGKILL
    assert next(steps) == start
    (shell.folder / "plum cake").touch()
    worker = shell.start(start)
    shell.wait_for("plum cake: done")
    runs = re.findall(r"plum cake: into the oven, receive \d", shell.log.read_text())
    assert runs[-1] in (received_again.strip(), "plum cake: into the oven, receive 2")
    assert len(runs) == 2

    shell.run(next(steps))
    shell.wait_for("cheese cake: into the oven, receive 1")
    shell.run(next(steps))
    shell.wait_for("Warm shutdown")
    (shell.folder / "cheese cake").touch()
    assert worker.wait(PATIENCE) == 0
    shell.wait_for("cheese cake: done")

    assert next(steps) == start
    shell.start(start)
    shell.wait_for(" ready.", 3)
    shell.run(next(steps))
    shell.wait_for("pancake: burnt, receive 3")
    count = next(steps)
    printed = blocks(TUTORIAL, "console")[-1].removeprefix(f"$ {count}\n")
    wait_until(lambda: shell.run(count) == printed)
    assert shell.log.read_text().count("pancake: burnt") == 3
    assert list(steps) == []


WAIT = """

def _wait(cake):
    while not __import__("os").path.exists(cake):
        time.sleep(0.02)
"""
