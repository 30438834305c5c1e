"""The console's server: who is let in, what is answered, how many look; and its command."""

from __future__ import annotations

import http.client
import json
import threading
import time
from urllib.parse import urlsplit

import pytest

from producers import cli
from producers.console.doorkeeper import COOKIE, Doorkeeper
from producers.console.poller import Poller
from state.errors import HilcastError
from tests.browser import served
from tests.producers.test_console import polled


@pytest.fixture(scope="module")
def source():
    found, poller = polled("mics")
    poller.poll()
    # what this poller has read is read again by that of the server
    found._read.clear()
    return found


def asked(address, path, method="GET", body=None, **headers):
    """Status, headers and body of one request, exactly as given."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=None if body is None else json.dumps(body), headers=named)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


class Stream:
    """An open stream: events as they come."""

    def __init__(self, address, **headers):
        self.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        self.connection.request("GET", "/api/stream", headers=headers)
        self.answer = self.connection.getresponse()

    def next(self):
        """The name and the value of the next event."""
        lines = []
        while (line := self.answer.readline().decode().strip()) or not lines:
            lines.append(line)
        lines = [line for line in lines if line]
        return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))

    def close(self):
        self.connection.sock.close()
        self.connection.close()


def test_a_page_gets_its_stream_and_its_files(source):
    """The page, its modules and its style come from the package; the stream greets, then tells; nothing is cached."""
    with served(source) as address:
        status, headers, page = asked(address, "/")
        assert status == 200
        assert "default-src 'self'" in headers["content-security-policy"]
        for name in ("main.js", "console.css", "icon.svg"):
            assert name.encode() in page
            assert asked(address, f"/static/{name}")[0] == 200
        stream = Stream(address)
        name, hello = stream.next()
        assert (name, hello["write"], set(hello["brokers"])) == ("hello", False, {"b1", "b2", "b3", "b4"})
        name, live = stream.next()
        assert (name, live["registered"], live["faults"]) == ("live", 20, {})
        stream.close()
        assert asked(address, "/api/broker/b1")[0] == 200
        assert asked(address, "/api/link/b1/b2")[0] == 200
        assert asked(address, "/api/space?type=t&x=x&y=y&broker=b2&neighbour=b1")[0] == 200
        status, _, said = asked(address, "/api/broker/b9")
        assert (status, json.loads(said)["code"]) == (400, "unknown-broker")


def test_one_poller_whoever_looks(source):
    """Twenty viewers cost as many reads as one; when the last has gone, nothing is read any more."""
    before = source.asked["tail"]
    with served(source) as address:
        streams = [Stream(address) for _ in range(20)]
        for stream in streams:
            stream.next()
            stream.next()
        began, first = time.monotonic(), source.asked["tail"]
        time.sleep(3)
        polls = source.asked["tail"] - first
        assert polls <= (time.monotonic() - began) + 2
        for stream in streams:
            stream.close()
        deadline = time.monotonic() + 20
        while True:
            now = source.asked["tail"]
            time.sleep(2.5)
            if source.asked["tail"] == now:
                break
            assert time.monotonic() < deadline, "it goes on reading though nobody looks"
    assert source.asked["tail"] > before


def test_foreign_names_and_pages_are_refused(source):
    """A name that is not of loopback, another page's origin and a POST without the page's secret get nothing."""
    with served(source) as address:
        assert asked(address, "/", Host="evil.example")[0] == 421
        assert asked(address, "/", Origin="http://evil.example")[0] == 403
        assert asked(address, "/", Origin=address)[0] == 200
        assert asked(address, "/", Host=f"localhost:{urlsplit(address).port}")[0] == 200
        body = {"type": "t", "filter": "x < 5", "x": "x", "y": "y"}
        assert asked(address, "/api/filter", "POST", body)[0] == 403
        stream = Stream(address)
        page = stream.next()[1]["page"]
        status, _, said = asked(address, "/api/filter", "POST", body, x_hilcast_page=page)
        assert (status, json.loads(said)["ok"]) == (200, True)
        status, _, said = asked(address, "/api/act/subscribe", "POST", {}, x_hilcast_page=page)
        assert (status, json.loads(said)["code"]) == (403, "read-only")
        stream.close()


def test_another_address_needs_the_token(source):
    """With a token nothing is served without it; in the query it becomes a cookie that scripts cannot read."""
    with served(source, door=Doorkeeper("0.0.0.0", "secret")) as address:
        assert asked(address, "/")[0] == 401
        assert asked(address, "/api/stream")[0] == 401
        assert asked(address, "/?token=wrong")[0] == 401
        status, headers, _ = asked(address, "/?token=secret")
        assert (status, headers["location"]) == (303, "/")
        assert headers["set-cookie"].startswith(f"{COOKIE}=secret")
        assert "HttpOnly" in headers["set-cookie"]
        assert asked(address, "/", Cookie=f"{COOKIE}=secret")[0] == 200
        assert asked(address, "/", Cookie=f"{COOKIE}=secret", Host="evil.example")[0] == 421


def test_the_command_says_what_it_needs(tmp_path, capsys):
    """Writing needs a client's name; a Kafka that does not answer is said in one line."""
    text = '[overlay]\nbrokers = ["b1"]\n[types.t.attributes]\nx = { kind = "int" }\n'
    path = tmp_path / "hilcast.toml"
    path.write_text('[deployment]\nkafka = "127.0.0.1:1"\nredis = "redis://127.0.0.1:1/0"\n' + text)
    assert cli.main(["ui", "--config", str(path), "--write"]) == 1
    assert "--write needs --client NAME" in capsys.readouterr().err
    assert cli.main(["ui", "--config", str(path), "--port", "0"]) == 1
    assert capsys.readouterr().err.startswith("hilcast: redis-away: ")


def test_a_poller_outlives_a_source_that_fails(source):
    """While a source raises, polls go on, and what it said is kept until it answers again."""
    poller = Poller(source, source.config)
    tail = source.tail

    def away():
        raise HilcastError("kafka-away", "Kafka does not answer")

    source.tail = away
    with poller.watched():
        deadline = time.monotonic() + 20
        while "kafka" not in poller.known.faults:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        source.tail = tail
        while "kafka" in poller.known.faults:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert threading.active_count() < 50
    poller.close()
