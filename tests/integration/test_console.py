"""The console in a real browser: every view beside a running router, and large or odd ones on made-up sources.

Skipped, with the reason, where no Chromium is found: `.ci/run` installs it where it may.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from hilcast import Publisher, Subscriber, load, wait
from infra.kafka.topic_keeper import TopicKeeper
from tests.browser import chromium, launched, opened, served
from tests.integration.harness import ROOT, RunningJob
from tests.producers.test_console import polled
from tests.simulation.large import hundred_brokers, many_subscriptions

pytestmark = pytest.mark.services

CONFIG = """
[deployment]
name = "seen"
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.quote]
reduction = "mics"
index = ["price", "volume"]
bits = 2
cubes = 4
[types.quote.attributes]
price = {{ kind = "float", min = 0, max = 100 }}
volume = {{ kind = "int", min = 0, max = 99 }}
[settings]
trigger_ms = 200
home_shards = 1
wide_shards = 1
"""


@pytest.fixture(scope="module")
def browser():
    if chromium() is None:
        pytest.skip("no Chromium is found (HILCAST_CHROMIUM, or on the path): the console is not tested in a browser")
    with launched() as made:
        yield made


class Scene:
    """A router with some subscriptions and events, and `hilcast ui` beside it."""

    def __init__(self, services, folder, prefix):
        self.path = folder / "hilcast.toml"
        self.path.write_text(CONFIG.format(prefix=prefix, kafka=services.kafka, redis=services.redis))
        self.config = load(self.path)
        TopicKeeper(self.config).ensure_needed()
        self.job = RunningJob(self.path).start()
        self.console = None

    def play(self):
        """One subscription that matches, and events: one is wanted, one crosses for nothing, one is refused."""
        with Subscriber(self.config, "alice") as alice:
            alice.subscribe("b3", "quote", "price BETWEEN 1 AND 5 AND volume < 10", id="cheap", timeout_s=200)
        wait(self.config, 200)
        self.publish("wanted", {"price": 3.0, "volume": 5})
        self.publish("near", {"price": 20.0, "volume": 20})
        with Publisher(self.config, source="test") as publisher:
            publisher.publish({"price": 1}, id="odd", broker="b1", type="weather")

    def publish(self, id, event, broker="b1"):
        with Publisher(self.config, broker=broker, type="quote", source="test") as publisher:
            publisher.publish(event, id=id)

    def serve(self, *more):
        """Start the command, as a user does; return the address that it prints."""
        command = [sys.executable, "-m", "producers.cli", "ui", "--config", str(self.path), "--port", "0", *more]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.console = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        return self.console.stdout.readline().split()[2]

    def end(self):
        if self.console is not None:
            self.console.terminate()
            self.console.wait(30)
        self.job.end()


@pytest.fixture(scope="module")
def scene(browser, services, tmp_path_factory):
    made = Scene(services, tmp_path_factory.mktemp("console"), f"console{os.getpid()}")
    try:
        made.play()
        made.address = made.serve("--write", "--client", "guest")
        yield made
    finally:
        made.end()


@pytest.fixture
def page(browser, scene):
    with opened(browser) as made:
        made.goto(scene.address)
        made.wait_for_selector("[data-broker=b1]")
        yield made
        assert made.faults == []


def until(page, script, *, seconds=90):
    """Wait until a condition holds in the page; asked from outside, since the page lets no text become a program."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(script):
        assert time.monotonic() < deadline, f"{script}\n{page.inner_text('body')[:2000]}"
        page.wait_for_timeout(200)


def text(page, selector):
    return page.inner_text(selector)


# ── beside a running router ─────────────────────────────────────────────────────────────────────────────────────


def test_the_overlay_shows_brokers_and_a_link_that_carries_for_nothing(page, scene):
    """Brokers work; a broker tells its subscriptions; the link that carried in vain shows how much."""
    until(page, "document.querySelector('#health').textContent === 'all brokers work'")
    assert page.locator(".broker").count() == 3
    page.click("[data-broker=b3]")
    page.wait_for_selector(".panel h2:text('b3')")
    until(page, "document.querySelector('.panel').innerText.includes('cheap')")
    assert "price BETWEEN 1 AND 5" in text(page, ".panel")
    until(page, "Number(document.querySelector('[data-link=\"b2 b3\"]').dataset.wasted) > 0")
    page.goto(f"{scene.address}#/overlay/link/b2/b3")
    page.wait_for_selector(".panel h2:text('b2 — b3')")
    until(page, "document.querySelector('.panel').innerText.includes('50.0 % for nothing')")
    assert "mics" in text(page, ".panel")
    page.keyboard.press("Escape")
    page.goto(f"{scene.address}#/overlay")
    page.wait_for_selector(".panel", state="hidden")


def test_the_content_space_shows_boxes_ranges_and_lit_events(page, scene):
    """The plane has the subscription's box, the ranges that travel, the curve's caption, and a lit publication."""
    page.goto(f"{scene.address}#/space")
    page.select_option("select[name=broker]", "b3")
    page.wait_for_selector(".sub")
    assert page.locator(".sub").count() == 1
    caption = text(page, ".caption")
    assert "1 subscription." in caption
    assert "Hilbert range" in caption
    assert "b2 holds from b3" in caption
    until(page, "document.querySelectorAll('.event.matched').length === 1")
    assert page.locator(".event").count() == 2
    page.locator(".event.matched").click()
    page.wait_for_selector(".pin")


def test_a_filter_with_a_mistake_is_mended(page, scene):
    """A mistake is marked at its place; mended, the filter has its cost and its matches; it can be subscribed to."""
    page.goto(f"{scene.address}#/try")
    page.fill("#filter", "price < 5 AND volum < 9")
    page.wait_for_selector("#fault")
    assert "filter-attribute" in text(page, "#fault")
    assert page.inner_text("pre.mark mark") == "volum"
    page.fill("#filter", "price < 5 AND volume < 9")
    page.wait_for_selector("#matching")
    assert text(page, "#matching").startswith("1 of 2")
    page.fill("input[name=id]", "mine")
    page.click("button:text('Subscribe')")
    page.wait_for_selector(".acting .good:text('accepted')")


def test_an_event_is_followed_and_explained(page, scene):
    """An event that was published goes hop by hop to its subscription; another one is told why it does not."""
    page.goto(f"{scene.address}#/try")
    page.wait_for_selector("option[value='test#wanted']", state="attached")
    page.select_option("select[name=recent]", "test#wanted")
    page.wait_for_selector("#met")
    assert "It comes to 3 brokers" in text(page, "#met")
    page.click("button.linkish:text('cheap')")
    page.wait_for_selector("#verdict")
    assert text(page, "#verdict").startswith("matches yes")
    page.select_option("select[name=recent]", "test#near")
    page.fill("#subscription", "b3/quote/cheap")
    page.click("#why")
    until(page, "document.querySelector('#verdict')?.innerText.startsWith('matches no')")
    assert "price BETWEEN 1 AND 5" in text(page, ".predicates")


def test_live_finds_a_dead_letter_and_verifies(page, scene):
    """The tail of deliveries comes; a dead letter is found by a word; the verdict is reached on request."""
    page.goto(f"{scene.address}#/live")
    page.wait_for_selector("table.deliveries")
    assert "test#wanted" in text(page, "table.deliveries")
    page.click("[data-kind=letters]")
    page.fill("input[type=search]", "weather odd")
    page.wait_for_selector("table.letters")
    assert "unknown-type" in text(page, "table.letters")
    page.fill("input[type=search]", "no such word")
    page.wait_for_selector(".tail:has-text('Nothing matches')")
    page.click("[data-kind=receipts]")
    page.fill("input[type=search]", "")
    page.wait_for_selector("table.receipts")
    page.click("#verify")
    until(page, "!document.querySelector('#verify').disabled", seconds=240)
    assert "nothing missing, nothing wrong" in text(page, ".card:has(#verify)")


def test_publishing_from_the_page_is_seen(page, scene):
    """An event that the page publishes comes back as a publication of the client, with its delivery."""
    page.goto(f"{scene.address}#/try")
    page.select_option("select[name=enters]", "b2")
    page.fill("#event", '{"price": 2, "volume": 2}')
    page.click("#publish")
    page.wait_for_selector("text=published guest#")
    page.goto(f"{scene.address}#/live/deliveries")
    page.wait_for_selector("table.deliveries:has-text('guest#')")


def test_a_broker_that_stops_is_seen(page, scene):
    """When the job stops, its brokers turn red and the page says how many."""
    scene.job.stop()
    until(page, "document.querySelector('#health').textContent === '3 brokers stopped'")
    assert page.locator(".broker.stopped").count() == 3


# ── large, narrow, by keyboard ──────────────────────────────────────────────────────────────────────────────────


def test_a_hundred_brokers(browser):
    """A hundred brokers are drawn within the picture, each with a name; figures move."""
    with served(hundred_brokers()) as address, opened(browser, size=(1440, 900)) as page:
        page.goto(address)
        page.wait_for_selector("[data-broker=b99]")
        assert page.locator(".broker").count() == 100
        inside = """() => { const box = document.querySelector('.picture').getBoundingClientRect();
            return [...document.querySelectorAll('.disc')].every((disc) => { const b = disc.getBoundingClientRect();
            return b.left >= box.left && b.right <= box.right && b.top >= box.top && b.bottom <= box.bottom; }); }"""
        assert page.evaluate(inside)
        until(page, "document.querySelector('.figures dd').textContent.startsWith('9')")
        page.select_option(".tools select", "b57")
        page.wait_for_selector(".panel h2:text('b57')")
        assert page.faults == []


def test_a_type_of_a_hundred_thousand_subscriptions(browser):
    """The plane draws a sample and says of how many; the overlay counts them all."""
    with served(many_subscriptions(100_000)) as address, opened(browser) as page:
        page.goto(address)
        until(page, "document.querySelector('.figures')?.innerText.includes('100,000')")
        page.goto(f"{address}#/space")
        page.wait_for_selector(".sub")
        assert "256 of 100,000 subscriptions sampled" in text(page, ".caption")
        page.goto(f"{address}#/overlay/broker/b1")
        page.wait_for_selector(".panel:has-text('200 of 33,333 shown')")
        assert page.faults == []


@pytest.fixture(scope="module")
def simulated(browser):
    source, _ = polled("mics")
    source._read.clear()
    with served(source) as address:
        yield address


def test_a_narrow_window(browser, simulated):
    """On a telephone nothing is wider than the window, in any view."""
    with opened(browser, size=(390, 800)) as page:
        for view in ("overlay", "overlay/broker/b1", "space", "try", "live"):
            page.goto(f"{simulated}#/{view}")
            page.wait_for_selector(f".view.{view.split('/')[0]}")
            page.wait_for_timeout(500)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        assert page.faults == []


def test_by_keyboard_alone(browser, simulated):
    """Views are reached by number, brokers by Tab and arrows, details by Enter and left by Escape, a field by slash."""
    with opened(browser) as page:
        page.goto(simulated)
        page.wait_for_selector("[data-broker=b1]")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement?.dataset?.broker"):
                break
        first = page.evaluate("document.activeElement.dataset.broker")
        page.keyboard.press("Enter")
        page.wait_for_selector(f".panel h2:text('{first}')")
        page.keyboard.press("Escape")
        page.wait_for_selector(".panel", state="hidden")
        page.focus("[data-broker=b2]")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.dataset.broker") not in (None, "b2")
        page.keyboard.press("3")
        page.wait_for_selector("#filter")
        page.keyboard.press("/")
        page.keyboard.type("x < 5")
        page.wait_for_selector("#matching")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("4")
        page.wait_for_selector(".tabs")
        page.keyboard.press("2")
        page.wait_for_selector(".plane")
        assert page.faults == []


def test_dark_and_light(browser, simulated):
    """The page follows the system's scheme, and the button overrides it and is remembered."""
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, scheme="dark") as page:
        page.goto(simulated)
        page.wait_for_selector("[data-broker=b1]")
        dark = page.evaluate(ground)
        page.click("#theme")
        light = page.evaluate(ground)
        assert dark != light
        page.reload()
        page.wait_for_selector("[data-broker=b1]")
        assert page.evaluate(ground) == light
    with opened(browser, scheme="light", motion="reduce") as page:
        page.goto(simulated)
        page.wait_for_selector("[data-broker=b1]")
        assert page.evaluate(ground) == light
        assert page.faults == []


def test_a_console_that_ends_is_missed(browser):
    """When the console itself goes away, the page says so instead of showing old figures as new."""
    source, _ = polled("mics", events=3)
    source._read.clear()
    with opened(browser) as page:
        with served(source) as address:
            page.goto(address)
            page.wait_for_selector("[data-broker=b1]")
        until(page, "document.querySelector('#health').textContent === 'the console is away'")
