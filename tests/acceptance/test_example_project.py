"""The example project: its sites take orders by HTTP, and its workers carry them out.

Server, sites and workers are started by the commands of its README.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.acceptance.scene import StartWorker
from tests.support.browser import chromium, complaints, require_chromium
from tests.support.clients import sqs_client
from tests.support.example import FOLDER, allowed, probe, readme_command
from tests.support.faults import deny
from tests.support.process import ProcessContainer
from tests.support.proxy import FaultProxy
from tests.support.releases import wait_for_release
from tests.support.waiting import PATIENCE, wait_until
from tests.support.web import direct_session
from tests.support.workers import SAFE_ENV, ProcessWorker, tail

CSV = b"region,amount\nnorth,1.50\nsouth,2.00\nnorth,3.25\n"
FILE_NAME = "orders <b>.csv"
NOT_CSV = b"region,amount\nnorth,a lot\n"
#: For how long a message is hidden after each failure at most, in seconds, until it is a dead
#: letter: the default. After the last receive the message moves at once.
DELAYS = (0, 2, 4, 8, 0)


@dataclass(frozen=True, slots=True)
class Commands:
    """How the README's commands for one of the sites begin."""

    site: str
    worker: str


SITES = {
    "django": Commands("python manage.py runserver", "celery -A django_site worker"),
    "flask": Commands("flask --app flask_site run", "celery -A flask_site.worker worker"),
}


class Queue:
    """The README's queue, at a simulated SQS."""

    def __init__(self, url: str) -> None:
        self.server_url = url
        self._client = sqs_client(url)

    def count(self, name: str = "studio") -> int:
        """Return how many messages are in a queue, visible or not."""
        url = self._client.get_queue_url(QueueName=name)["QueueUrl"]
        told = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return sum(
            int(told[f"ApproximateNumberOfMessages{which}"])
            for which in ("", "NotVisible", "Delayed")
        )


class Site:
    """A browser on one of the sites."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session = direct_session()

    def post(self, kind: str, size: object, upload: bytes | None = None) -> requests.Response:
        """Send the form as a browser does: fields that are None are hidden, and so not sent."""
        token = re.findall(r'name="(csrfmiddlewaretoken)" value="(\w+)"', self.page())
        return self._session.post(
            f"{self.url}/jobs",
            data={**dict(token), "kind": kind, "size": size},
            files={"upload": (FILE_NAME, upload)} if upload else None,
            timeout=PATIENCE,
        )

    def order(self, kind: str, size: int | None, upload: bytes | None = None) -> str:
        """Order something; return the job's id."""
        answer = self.post(kind, size, upload)
        assert answer.status_code == 200, answer.text
        return answer.url.rpartition("#")[2]

    def page(self) -> str:
        """Return the list of jobs."""
        answer = self._session.get(self.url, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.text

    def wait_until(self, job: str, state: str) -> str:
        """Return the job's row of the page once it shows that state."""
        row = re.compile(rf'<tr id="{job}" data-state="{state}">.*?</tr>', re.DOTALL)
        wait_until(lambda: row.search(self.page()), tell=self.page)
        (text,) = row.findall(self.page())
        return str(text)

    def files(self, job: str) -> dict[str, bytes]:
        """Return what a job made, once it is done, by following the page's links."""
        links = re.findall(r'href="(/jobs/[^"]+)"', self.wait_until(job, "done"))
        return {link.rpartition("/")[2]: self.get(link).content for link in links}

    def get(self, path: str) -> requests.Response:
        """Return the answer for a path."""
        return self._session.get(self.url + path, timeout=PATIENCE)

    def close(self) -> None:
        """Close its connections."""
        self._session.close()


StartSite = Callable[..., Site]
StartWork = Callable[..., ProcessWorker]


@pytest.fixture
def queue() -> Iterator[Queue]:
    """Served by the README's command, at a free port."""
    words = readme_command("python -m celery_sqs_heartbeat.testing.server")
    words[words.index("--port") + 1] = "0"
    with subprocess.Popen(
        [sys.executable, *words[1:]], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield Queue(server.stdout.readline().strip())
        server.terminate()


@pytest.fixture
def start_site(tmp_path: Path, queue: Queue) -> Iterator[StartSite]:
    """Start the Django or the Flask site."""
    started: list[ProcessContainer] = []
    browsers: list[Site] = []

    def start(kind: str, **env: str) -> Site:
        words = readme_command(SITES[kind].site)
        *command, _ = words if words[0] == "python" else ["python", "-m", *words]
        site = ProcessContainer(
            kind,
            [sys.executable, *command[1:], "0"],  # a free port
            env={**environment(tmp_path, queue), **env},
            cwd=FOLDER,
            log_dir=tmp_path,
        )
        started.append(site)

        def url() -> list[str]:
            return re.findall(r"http://127\.0\.0\.1:\d+", site.logs().decode())

        wait_until(url, tell=lambda: tail(site.logs().decode()))
        browser = Site(url()[0])
        browsers.append(browser)
        return browser

    yield start
    for browser in browsers:
        browser.close()
    for site in started:
        site.end()


@pytest.fixture
def start_work(start_worker: StartWorker, tmp_path: Path, queue: Queue) -> StartWork:
    """Start a worker of the Django or the Flask site, and wait until it is ready."""

    def start(kind: str, **env: str) -> ProcessWorker:
        _, _, app, _, *options = readme_command(SITES[kind].worker)
        path = {"PYTHONPATH": str(FOLDER)}
        worker = start_worker(app, options, env={**environment(tmp_path, queue), **path, **env})
        worker.wait_for_log("ready.")
        return worker

    return start


def environment(folder: Path, queue: Queue) -> dict[str, str]:
    """Return the variables that the README sets, for another port and folder."""
    exported = dict(
        word.split("=", 1) for word in readme_command("export CELERY_BROKER_URL=sqs://any")[1:]
    )
    exported["CELERY_BROKER_URL"] = exported["CELERY_BROKER_URL"].replace(
        "127.0.0.1:9324", queue.server_url.removeprefix("http://")
    )
    return {**os.environ, **SAFE_ENV, **exported, "STUDIO_FOLDER": str(folder / "outputs")}


@pytest.mark.parametrize("kind", SITES)
def test_an_order_on_a_site_is_made_by_its_worker(
    kind: str, start_site: StartSite, start_work: StartWork, queue: Queue
) -> None:
    with FaultProxy(queue.server_url) as of_site, FaultProxy(queue.server_url) as of_worker:
        site = start_site(kind, **through(of_site))
        refuses_what_it_does_not_make(site)
        assert queue.count() == 0
        totals = site.order("csv_totals", None, CSV)
        assert "csv_totals, orders &lt;b&gt;.csv" in site.wait_until(totals, "waiting")
        shows_no_other_files(site, totals)

        worker = start_work(kind, STUDIO_STATUS="127.0.0.1:0", **through(of_worker))
        pictures = site.order("thumbnails", 2)
        report = site.order("pdf_report", 4)
        are_pictures(site.files(pictures))
        lists_all_that_it_made(site, pictures)
        has_pages(site.files(report), 4)
        are_totals(site.files(totals))
        for job in (pictures, report, totals):
            assert tries(site.wait_until(job, "done")) == ["receive 1"]
        wait_until(lambda: queue.count() == 0)
        assert queue.count("studio-dead") == 0

        assert used(of_site) == allowed("SitePolicy")
        assert used(of_worker) <= allowed("WorkerPolicy")
        lives_as_long_as_its_probe_is_answered(worker)


def refuses_what_it_does_not_make(site: Site) -> None:
    for order, told in [
        (("sculptures", 1), "kind must be one of thumbnails, pdf_report, csv_totals"),
        (("thumbnails", 501), "size must be 1 to 500"),
        (("thumbnails", "many"), "size must be 1 to 500"),
        (("csv_totals", None), "csv_totals needs a CSV file with the columns region and amount"),
        (
            ("csv_totals", None, b""),
            "csv_totals needs a CSV file with the columns region and amount",
        ),
        (("csv_totals", None, b"x" * 10_000_001), "upload must have at most 10000000 bytes"),
    ]:
        answer = site.post(*order)
        assert answer.status_code == 400
        assert f'role="alert">{told}<' in answer.text


def shows_no_other_files(site: Site, job: str) -> None:
    for path in (job, "0" * 36, "../settings.py"):
        for name in ("upload", "order.json", "..%2forder.json"):
            assert site.get(f"/jobs/{path}/{name}").status_code == 404


def lists_all_that_it_made(site: Site, job: str) -> None:
    answer = site.get(f"/jobs/{job}")
    assert answer.status_code == 200
    assert answer.text.count(f'href="/jobs/{job}/') == 4
    assert site.get("/jobs/00000000-0000-0000-0000-000000000000").status_code == 404


def are_pictures(made: dict[str, bytes]) -> None:
    from PIL import Image  # The environment of the oldest versions has no Pillow.

    sizes = {name: Image.open(io.BytesIO(content)).size for name, content in made.items()}
    assert sizes == {
        **{f"picture-00{number}.jpg": (1600, 1200) for number in (1, 2)},
        **{f"thumbnail-00{number}.jpg": (320, 240) for number in (1, 2)},
    }
    assert len(set(made.values())) == 4


def has_pages(made: dict[str, bytes], count: int) -> None:
    from PIL import PdfParser

    pdf = made["report.pdf"]
    assert pdf.startswith(b"%PDF-")
    assert len(PdfParser.PdfParser(buf=pdf).pages) == count


def are_totals(made: dict[str, bytes]) -> None:
    rows = csv.reader(made["totals.csv"].decode().splitlines())
    assert list(rows) == [
        ["region", "orders", "amount"],
        ["north", "2", "4.75"],
        ["south", "1", "2.00"],
    ]


def lives_as_long_as_its_probe_is_answered(worker: ProcessWorker) -> None:
    (port,) = map(int, re.findall(r"status page at http://127\.0\.0\.1:(\d+)/", worker.logs()))
    command = probe(port, "livenessProbe")
    wait_until(lambda: subprocess.run(command, capture_output=True).returncode == 0)
    worker.kill()
    # Its keeper, which serves the page, ends on its own.
    wait_until(lambda: subprocess.run(command, capture_output=True).returncode != 0)


def test_a_job_that_always_fails_becomes_a_dead_letter_and_shows_nothing(
    start_site: StartSite, start_work: StartWork, queue: Queue
) -> None:
    with FaultProxy(queue.server_url) as of_worker:
        start_work("django", **through(of_worker))
        site = start_site("django")
        job = site.order("csv_totals", None, NOT_CSV)
        for failures, delay in enumerate(DELAYS, start=1):
            wait_for_release(of_worker, receive_count=failures, delay=delay)
        wait_until(lambda: queue.count("studio-dead") == 1)
    assert queue.count() == 0
    row = site.wait_until(job, "failed")
    assert tries(row) == [f"receive {count}" for count in range(1, 6)]
    assert row.count("line 2 is not an order: its amount &#x27;a lot&#x27; is not a number") == 5
    assert "href" not in row


@pytest.mark.parametrize("kind", SITES)
def test_the_page_refreshes_its_table_and_leaves_the_form_alone(
    kind: str, start_site: StartSite, tmp_path: Path
) -> None:
    require_chromium()
    site = start_site(kind)
    with chromium(tmp_path / "profile") as browser:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
        browser.get(site.url)
        size = browser.find_element("name", "size")
        size.clear()
        size.send_keys("77")
        job = site.order("thumbnails", 2)
        wait_until(lambda: browser.find_elements("id", job))
        assert size.get_attribute("value") == "77"
        ordered = browser.find_element("css selector", "time")
        shown, sent = ordered.text, ordered.get_attribute("title")
        in_zone = "return new Date(arguments[0]).toLocaleString([], {timeZone: 'Asia/Tokyo'})"
        assert shown == browser.execute_script(in_zone, sent)
        assert complaints(browser) == []


@pytest.mark.parametrize("kind", SITES)
def test_an_order_that_the_queue_does_not_take_is_refused_and_kept_nowhere(
    kind: str, start_site: StartSite, queue: Queue, tmp_path: Path
) -> None:
    with FaultProxy(queue.server_url) as way:
        site = start_site(kind, **through(way))
        way.rule("SendMessage", deny())
        refuses_for_now(site, tmp_path)
        way.clear()
        site.order("thumbnails", 2)
        assert queue.count() == 1
    # Now nothing listens there.
    for folder in (tmp_path / "outputs").iterdir():
        shutil.rmtree(folder)
    refuses_for_now(site, tmp_path)
    assert queue.count() == 1
    assert "Traceback" not in (tmp_path / f"{kind}-1.log").read_text()


def refuses_for_now(site: Site, folder: Path) -> None:
    answer = site.post("pdf_report", 7)
    assert answer.status_code == 503
    assert 'role="alert">the queue cannot be reached, so nothing was ordered: ' in answer.text
    # The form is unchanged, for another try.
    assert re.search(r"<option selected>pdf_report<.*value=\"7\"", answer.text, re.DOTALL)
    assert "Nothing is ordered yet" in site.page()
    assert list((folder / "outputs").iterdir()) == []


def test_a_field_that_is_hidden_neither_stops_an_order_nor_is_sent(
    start_site: StartSite, tmp_path: Path
) -> None:
    require_chromium()
    site = start_site("flask")
    upload = tmp_path / "north.csv"
    upload.write_bytes(CSV)
    with chromium(tmp_path / "profile") as browser:
        browser.get(site.url)

        def choose(kind: str) -> None:
            browser.find_element("xpath", f"//option[.='{kind}']").click()

        def fields() -> list[str]:
            script = "return [...new FormData(document.forms[0]).keys()]"
            return list(browser.execute_script(script))

        def order() -> None:
            browser.find_element("css selector", "form button").click()

        def size() -> Any:
            return browser.find_element("name", "size")

        size().clear()
        size().send_keys("900")
        choose("csv_totals")
        browser.find_element("name", "upload").send_keys(str(upload))
        assert fields() == ["kind", "upload"]
        order()
        wait_until(lambda: "csv_totals, north.csv" in browser.page_source)
        # Back at the form, as it was, each kind has its own field.
        browser.back()
        wait_until(lambda: fields() == ["kind", "upload"])
        choose("thumbnails")
        assert fields() == ["kind", "size"]
        size().clear()
        order()
        assert size().get_property("validationMessage")
        size().send_keys("2")
        order()
        wait_until(lambda: "thumbnails, 2" in browser.page_source)
        assert complaints(browser) == []


def through(proxy: FaultProxy) -> dict[str, str]:
    """Return the variables that send a site's or worker's calls through a proxy."""
    return {"CELERY_BROKER_URL": proxy.broker_url, "STUDIO_QUEUE_URL": f"{proxy.url}/studio"}


def tries(row: str) -> list[str]:
    """Return what a row of the page shows about each try."""
    return re.findall(r"receive \d+|no lease", row)


def used(proxy: FaultProxy) -> set[str]:
    """Return the permissions that the calls through a proxy needed."""
    return {f"sqs:{call.operation.removesuffix('Batch')}" for call in proxy.calls()}
