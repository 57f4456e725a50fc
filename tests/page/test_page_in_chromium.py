"""The page in a real browser, with a server under the control of the test."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.browser_pages import BrowserPages
from tests.page.fake_page import TOKEN, FakePage
from tests.page.scene import HELLO, PARTITIONS, Scene

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.page


@pytest.fixture
def scene(fake: FakePage) -> Scene:
    scene = Scene(fake, int(time.time() * 1000))
    scene.begin()
    scene.tick(scene.at_ms)
    return scene


@pytest.fixture
def page(browser_pages: BrowserPages, fake: FakePage, scene: Scene) -> Page:
    page = browser_pages.open(f"{fake.url}/#token={TOKEN}")
    page.wait_for_selector("#connection[data-state=live]")
    page.wait_for_selector("[data-node=broker-3][data-state=running]")
    for _ in range(4):
        scene.tick(scene.at_ms + 500)
    page.locator("[data-number=acked] strong", has_text=f"{scene.load['acked']:,}").wait_for()
    return page


@pytest.fixture
def expect(playwright_api: Any) -> Any:
    playwright_api.expect.set_options(timeout=15_000)
    return playwright_api.expect


def card(page: Page, name: str) -> Any:
    return page.locator(f"[data-node={name}]")


# Display


def test_a_node_is_shown_by_word_shape_and_colour(page: Page, scene: Scene, expect: Any) -> None:
    expect(page.locator(".node")).to_have_count(6)
    leader, broker = card(page, "controller-101"), card(page, "broker-2")
    expect(leader.locator(".state")).to_have_text("leader")
    expect(leader.locator(".epoch")).to_have_text("epoch 5")
    expect(broker.locator(".offsets")).to_have_text(f"{scene.metadata_end:,}")

    def look(which: Any) -> tuple[str, str]:
        return (
            which.locator("svg path").first.get_attribute("d"),
            which.locator(".state").evaluate("each => getComputedStyle(each).color"),
        )

    before = look(broker)
    assert before[0] != look(leader)[0] and before[1] != look(leader)[1]
    scene.kill("broker-2")
    expect(broker.locator(".state")).to_have_text("dead")
    expect(broker.locator(".told")).to_have_text("its process has ended")
    assert look(broker)[0] != before[0] and look(broker)[1] != before[1]
    expect(page.locator("#announcer")).to_contain_text("broker-2 is dead")


def test_a_voter_that_is_behind_shows_by_how_much(page: Page, scene: Scene, fake: FakePage, expect: Any) -> None:
    cluster = scene.cluster()
    cluster["nodes"][1]["metadata_end"] -= 30
    fake.say("cluster", cluster)
    expect(card(page, "controller-102").locator(".offsets")).to_contain_text("30 behind")
    shares = [
        float(card(page, name).locator(".bar").evaluate("bar => parseFloat(bar.style.getPropertyValue('--end'))"))
        for name in ("controller-101", "controller-102")
    ]
    assert shares[0] == 100 and 20 < shares[1] < 60


def test_partitions_show_leader_isr_and_lag(page: Page, scene: Scene, expect: Any) -> None:
    first = page.locator("[data-partition='1']")
    expect(page.locator(".partition")).to_have_count(PARTITIONS)
    expect(first.locator("header")).to_contain_text("leader 2")
    expect(first.locator("header")).to_contain_text("3 of 3 in sync")
    scene.lag["broker-3"] = 60
    scene.kill("broker-2")
    expect(first.locator("header")).to_contain_text("leader 3")
    expect(first.locator("header")).to_contain_text("2 of 3 in sync")
    expect(first.locator("[data-broker='2'] .state")).to_have_text("gone")
    lagging = page.locator("[data-partition='0'] [data-broker='3']")
    expect(lagging.locator(".lag")).to_have_text("−64")
    share = "bar => parseFloat(bar.style.getPropertyValue('--end'))"
    assert lagging.locator(".bar").evaluate(share) < page.locator(
        "[data-partition='0'] [data-broker='1'] .bar"
    ).evaluate(share)


def test_another_topic_is_asked_for(page: Page, fake: FakePage, expect: Any) -> None:
    page.locator("#topic").select_option("flights")
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#topic")).to_have_value("flights")
    assert fake.topics_asked[-1] == "flights"
    fake.say("partitions", {"at_ms": 1, "topic": "flights", "partitions": []})
    expect(page.locator("#partitions")).to_have_attribute("data-empty", re.compile("flights"))


def test_a_kill_is_on_the_time_axis(page: Page, scene: Scene, expect: Any) -> None:
    expect(page.locator(".series.acked")).to_have_attribute("d", re.compile("^M.+L"))
    scene.kill("broker-2")
    expect(page.locator("#chart .mark[data-kind=fault]")).to_have_count(1)
    expect(page.locator("#chart .mark[data-kind=election] .how-many")).to_have_text("2")
    expect(page.locator("#chart .mark[data-kind=isr] .how-many")).to_have_text("6")
    expect(page.locator("#chart .bands rect")).to_have_count(1)
    expect(page.locator("#chart .band-words")).to_have_text("broker-2 dead")
    expect(page.locator("#chart .gap text")).to_have_text("longest gap 640 ms")
    expect(page.locator("[data-number=longest_gap_ms]")).to_contain_text("640 ms")
    band = page.locator("#chart .bands rect")
    grows = float(band.get_attribute("width") or 0)
    scene.tick(scene.at_ms + 5000)
    expect(band).not_to_have_attribute("width", str(grows))
    assert float(band.get_attribute("width") or 0) > grows
    scene.start("broker-2")
    ended = band.get_attribute("width")
    scene.tick(scene.at_ms + 5000)
    expect(card(page, "broker-2").locator(".state")).to_have_text("running")
    assert abs(float(band.get_attribute("width") or 0) - float(ended or 0)) < 8


def test_the_axis_freezes_and_scrolls_back(page: Page, scene: Scene, expect: Any) -> None:
    path = page.locator(".series.acked")
    page.get_by_role("button", name="Freeze").click()
    expect(page.locator("#time-window")).to_contain_text("frozen at")
    frozen = path.get_attribute("d")
    for _ in range(4):
        scene.tick(scene.at_ms + 500)
    expect(page.locator("[data-number=acked] strong")).to_have_text(f"{scene.load['acked']:,}")
    assert path.get_attribute("d") == frozen
    page.locator("#scroll").focus()
    page.keyboard.press("PageDown")
    page.locator("#scroll").fill("-300")
    expect(path).to_have_attribute("d", "")
    page.locator("#chart svg").focus()
    page.keyboard.press("PageDown")
    page.get_by_role("button", name="Go live").click()
    expect(page.locator("#time-window")).to_have_text("the last 2 minutes")
    expect(path).to_have_attribute("d", re.compile("^M.+L"))


def test_counts_that_must_be_zero_have_a_word(page: Page, scene: Scene, expect: Any) -> None:
    lost = page.locator("[data-number=lost]")
    expect(lost).to_contain_text("0")
    expect(lost).to_have_attribute("data-tone", "good")
    scene.load["lost"] = 3
    scene.tick(scene.at_ms + 500)
    expect(lost.locator("strong")).to_have_text("3")
    expect(lost).to_have_attribute("data-tone", "bad")


def test_the_tour_ends_with_a_table(page: Page, fake: FakePage, expect: Any) -> None:
    expect(page.locator("#tour")).to_be_hidden()
    for step, text in enumerate(("A topic and a load", "The leader is killed", "It comes back"), start=1):
        fake.say("tour", {"step": step, "of": 3, "text": text, "finished": False, "summary": None})
    expect(page.locator("#tour-steps li")).to_have_count(3)
    expect(page.locator("#tour-steps [aria-current]")).to_have_text("It comes back")
    expect(page.locator("#tour-start")).to_be_disabled()
    summary = {
        "records": 50_000, "acked": 50_000, "lost": 0, "duplicated": 0, "out_of_order": 0,
        "windows": [
            {"what": "kill leader", "gap_ms": 640, "apache_kafka_gap_ms": 10400},
            {"what": "pause leader", "gap_ms": 900, "apache_kafka_gap_ms": None},
        ],
    }  # fmt: skip
    fake.say("tour", {"step": 3, "of": 3, "text": "It comes back", "finished": True, "summary": summary})
    expect(page.locator("[data-total=lost]")).to_have_text("Lost0")
    rows = page.locator(".windows tbody tr")
    expect(rows.nth(0)).to_contain_text("640 ms")
    expect(rows.nth(0)).to_contain_text("10.4 s")
    expect(rows.nth(1).locator("[data-of=kafka]")).to_have_text("–")
    expect(page.locator("#tour-start")).to_be_enabled()


# Why


def test_an_event_opens_its_cause(page: Page, scene: Scene, fake: FakePage, expect: Any) -> None:
    scene.kill("broker-2")
    expect(page.locator(".event")).to_have_count(9)
    found = page.locator(".event[data-kind=election]").first
    answer = [
        {"number": 1, "at_ms": scene.at_ms - 9000, "node": "controller-101", "kind": "election", "told": "earlier"},
        {"number": 2, "at_ms": scene.at_ms, "node": "broker-3", "kind": "isr", "told": "later"},
    ]
    fake.stories["demo-4"] = answer
    found.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("h2")).to_have_text("leader of demo-4 moved 2 -> 3 in epoch 12")
    expect(dialog.locator(".cause")).to_contain_text("connection was refused after its process ended")
    expect(dialog.locator(".facts")).to_contain_text("leader epoch12")
    expect(dialog.locator(".facts")).to_contain_text("offset4,711")
    expect(dialog.locator(".facts")).to_contain_text("isr3, 1")
    expect(dialog.locator(".story li")).to_have_count(2)
    expect(dialog.locator(".story")).to_contain_text("later")
    dialog.get_by_role("button", name="broker 2", exact=True).click()
    expect(dialog.locator(".story")).to_contain_text("No node has a decision")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(found).to_be_focused()


def test_a_story_that_fails_to_load_is_reported(
    page: Page, scene: Scene, fake: FakePage, browser_pages: BrowserPages, expect: Any
) -> None:
    browser_pages.may_break = True
    fake.refuse_with = (503, "no node answers\n")
    scene.kill("broker-2")
    page.locator("#chart .mark[data-kind=election] .reach").click()
    expect(page.locator(".story")).to_contain_text("no node answers")


def test_events_are_filtered_by_kind_and_subject(page: Page, scene: Scene, expect: Any) -> None:
    scene.kill("broker-2")
    page.get_by_label("Kind").select_option("isr")
    expect(page.locator(".event")).to_have_count(6)
    page.get_by_label("Subject").fill("demo-3")
    expect(page.locator(".event")).to_have_count(1)
    page.get_by_label("Kind").select_option("")
    page.get_by_label("Subject").fill("broker-2")
    expect(page.locator(".event")).to_have_count(9)
    page.get_by_label("Subject").fill("nobody")
    expect(page.locator("#events")).to_have_attribute("data-empty", "No event fits the filter.")


# Actions


def test_buttons_ask_the_server(page: Page, fake: FakePage, scene: Scene, expect: Any) -> None:
    page.get_by_role("button", name="Kill broker-2").click()
    page.get_by_role("button", name="Pause controller-102").click()
    page.get_by_role("button", name="Cut between broker-1 and broker-2").click()
    page.get_by_role("button", name="Stop load").click()
    page.get_by_role("button", name="Start tour").click()
    expect(page.locator("[aria-busy]")).to_have_count(0)
    assert fake.posts == [
        ("/control/kill/broker-2", {}),
        ("/control/pause/controller-102", {}),
        ("/control/cut", {"between": ["broker-1", "broker-2"]}),
        ("/control/load/stop", {}),
        ("/control/tour/start", {}),
    ]
    scene.cut = [["broker-2", "broker-1"]]
    scene.states["broker-3"] = "paused"
    scene.kill("broker-2")
    page.get_by_role("button", name="Start broker-2").click()
    page.get_by_role("button", name="Resume broker-3").click()
    expect(page.locator("#links-told")).to_have_text("1 cut")
    page.get_by_role("button", name="Cut between broker-1 and broker-2").click()
    expect(page.locator("[aria-busy]")).to_have_count(0)
    assert [path for path, _body in fake.posts[5:]] == [
        "/control/start/broker-2", "/control/resume/broker-3", "/control/heal"
    ]  # fmt: skip
    assert page.get_by_role("button", name="Pause broker-2").is_disabled()


def test_a_refusal_is_shown_with_its_text(page: Page, fake: FakePage, browser_pages: BrowserPages, expect: Any) -> None:
    browser_pages.may_break = True
    fake.refuse_with = (409, "broker-2 does not run\nand more\n")
    page.get_by_role("button", name="Kill broker-2").click()
    expect(page.get_by_role("alert")).to_have_text("broker-2 does not run")
    expect(page.get_by_role("button", name="Kill broker-2")).to_be_enabled()


def test_the_token_leaves_the_address_and_stays_in_the_tab(page: Page, fake: FakePage, expect: Any) -> None:
    assert page.url == f"{fake.url}/"
    page.reload()
    page.get_by_role("button", name="Kill broker-1").click()
    expect(page.locator("[aria-busy]")).to_have_count(0)
    assert fake.posts == [("/control/kill/broker-1", {})]


def test_without_a_token_the_page_is_read_only(
    browser_pages: BrowserPages, fake: FakePage, scene: Scene, expect: Any
) -> None:
    page = browser_pages.open(fake.url)
    expect(page.locator("#notice")).to_contain_text("open the URL with #token=")
    expect(page.get_by_role("button", name="Kill broker-2")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop load")).to_have_count(0)
    expect(page.get_by_role("button", name="Cut between broker-1 and broker-2")).to_be_disabled()
    page.evaluate(f"location.hash = '#token={TOKEN}'")
    expect(page.get_by_role("button", name="Kill broker-2")).to_be_enabled()


def test_a_page_without_faults_is_read_only(page: Page, fake: FakePage, expect: Any) -> None:
    fake.say("hello", HELLO | {"allow_faults": False})
    expect(page.locator("#notice")).to_contain_text("without --allow-faults")
    expect(page.get_by_role("button", name="Kill broker-2")).to_have_count(0)


def test_a_read_only_page_shows_the_records_of_others(browser_pages: BrowserPages, fake: FakePage, expect: Any) -> None:
    onlooked = Scene(fake, int(time.time() * 1000))
    fake.say("hello", HELLO | {"allow_faults": False, "links": False, "tour": False})
    page = browser_pages.open(fake.url)
    page.wait_for_selector("#connection[data-state=live]")
    for _ in range(10):
        onlooked.at_ms += 500
        onlooked.end += 150
        onlooked.say_cluster()
        onlooked.say_partitions()
    expect(page.locator("[data-number=acked_per_second] span").first).to_have_text("Committed per second")
    expect(page.locator("[data-number=acked_per_second] strong")).to_have_text(re.compile(r"^[1-9][\d,]*$"))
    expect(page.locator("[data-number=acked] small")).to_have_text("committed records in demo")
    expect(page.locator("[data-number=lost]")).to_be_hidden()
    expect(page.locator("#legend .key-acked dt")).to_have_text("committed/s")
    expect(page.locator("#legend .key-p99")).to_be_hidden()
    expect(page.locator("#links-panel")).to_be_hidden()
    expect(page.locator("svg .series.acked")).to_have_attribute("d", re.compile("^M"))
    # A page with a load of its own shows that.
    fake.say("load", onlooked.load | {"at_ms": onlooked.at_ms})
    expect(page.locator("[data-number=lost]")).to_be_visible()
    expect(page.locator("[data-number=acked_per_second] span").first).to_have_text("Acked per second")
    expect(page.locator("#legend .key-p99")).to_be_visible()


# The connection


def test_a_server_that_goes_and_comes_back(
    page: Page, fake: FakePage, scene: Scene, browser_pages: BrowserPages, expect: Any
) -> None:
    browser_pages.may_break = True
    fake.feed_is_up = False
    fake.break_feeds()
    expect(page.locator("#connection")).to_have_text("reconnecting")
    expect(page.locator("#notice")).to_contain_text("Trying again")
    expect(page.locator(".node")).to_have_count(6)  # never a blank page
    scene.kill("broker-2")
    fake.feed_is_up = True
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#notice")).to_be_hidden()
    expect(card(page, "broker-2").locator(".state")).to_have_text("dead")
    marks = page.locator(".event").count()
    fake.break_feeds()
    expect(page.locator("#connection")).to_have_text("reconnecting")
    expect(page.locator("#connection")).to_have_text("live")
    scene.tick(scene.at_ms + 500)
    expect(page.locator("[data-number=acked] strong")).to_have_text(f"{scene.load['acked']:,}")
    assert page.locator(".event").count() == marks  # answer again, shown once


def test_a_server_that_does_not_answer(browser_pages: BrowserPages, fake: FakePage, scene: Scene, expect: Any) -> None:
    page = browser_pages.open(fake.url, own_clock=True)
    page.clock.run_for(500)
    expect(page.locator("#connection")).to_have_text("live")
    page.clock.run_for(6000)
    expect(page.locator("#connection")).to_have_text("no news")
    page.clock.run_for(8000)
    expect(page.locator("#connection")).to_have_text("live")
    assert len(fake.topics_asked) == 2


def test_a_cluster_that_is_away(page: Page, fake: FakePage, scene: Scene, expect: Any) -> None:
    cluster = scene.cluster() | {"away": True}
    for node in cluster["nodes"]:
        node |= {"state": "unreachable", "told": "nobody answers"}
    fake.say("cluster", cluster)
    expect(page.locator("#connection")).to_have_text("cluster away")
    expect(page.locator("#notice")).to_contain_text("No node of the cluster answers")
    expect(page.locator(".node[data-state=unreachable]")).to_have_count(6)
    expect(page.locator(".partition")).to_have_count(PARTITIONS)
    scene.tick(scene.at_ms + 500)
    expect(page.locator("#connection")).to_have_text("live")


# Whatever it is answer


MARKUP = '<img src=x onerror="window.hacked=1"><b>bold</b>&amp;'


def test_names_with_markup_are_shown_as_text(page: Page, fake: FakePage, scene: Scene, expect: Any) -> None:
    images = page.locator("img").count()
    cluster = scene.cluster()
    cluster["topics"] = [{"name": MARKUP, "partitions": 1}]
    cluster["nodes"][3]["told"] = MARKUP
    fake.say("hello", HELLO | {"topic": MARKUP})
    fake.say("cluster", cluster)
    fake.say("partitions", scene.partitions() | {"topic": MARKUP})
    fake.say("tour", {"step": 1, "of": 1, "text": MARKUP, "finished": True,
                      "summary": {"windows": [{"what": MARKUP, "gap_ms": 1}]}})  # fmt: skip
    fake.stories[f"group {MARKUP}"] = [{"told": MARKUP, "kind": MARKUP, "node": MARKUP, "at_ms": scene.at_ms}]
    scene.mark("rebalance", f"group {MARKUP}", MARKUP)
    expect(page.locator(".partition h3").first).to_have_text(f"{MARKUP}-0")
    expect(page.locator(".event b")).to_have_text(f"group {MARKUP}")
    page.locator(".event").click()
    expect(page.locator(".story p")).to_have_text(MARKUP)
    expect(page.locator(".windows tbody th")).to_have_text(MARKUP)
    assert page.locator("img").count() == images
    assert page.evaluate("window.hacked") is None


def test_malformed_events_cause_no_error(page: Page, fake: FakePage, scene: Scene, expect: Any) -> None:
    for kind in ("hello", "cluster", "partitions", "load", "mark", "tour"):
        for data in ({}, [], None, 7, "not JSON", '"text"'):
            fake.say(kind, data)
    empty = dict.fromkeys(("at_ms", "nodes", "quorum", "topics", "cut", "away"))
    fake.say("cluster", empty)
    node = dict.fromkeys(("id", "role", "state", "epoch", "metadata_end", "metadata_high_watermark", "told"))
    fake.say("cluster", empty | {"nodes": [node, None, 3, {"name": "broker-9"}, node | {"name": "broker-2"}]})
    expect(card(page, "broker-2").locator(".state")).to_have_text("unknown")
    replica = dict.fromkeys(("log_start_offset", "log_end_offset", "high_watermark", "state")) | {"broker": 1}
    partition = dict.fromkeys(("leader", "leader_epoch", "isr", "replicas"))
    partitions = [partition | {"index": 0}, None, {}, partition | {"index": 1, "replicas": [replica, None, {}]}]
    fake.say("partitions", {"at_ms": None, "topic": "demo", "partitions": partitions})
    expect(page.locator("[data-partition='1'] [data-broker='1'] .offset")).to_have_text("–")
    fake.say("load", dict.fromkeys(("running", "acked_per_second", "p99_ms", "acked", "lost", "longest_gap_ms")))
    expect(page.locator("[data-number=lost] strong")).to_have_text("–")
    fake.say("mark", {"at_ms": scene.at_ms, "kind": None, "subject": None, "text": None, "decision": {"facts": None}})
    fake.say("mark", {"at_ms": scene.at_ms, "kind": "constructor", "subject": 3, "decision": 5})
    fake.say("tour", {"step": None, "text": None, "finished": True, "summary": {"windows": [None, {}]}})
    expect(page.locator(".event")).to_have_count(2)
    page.locator(".event").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    scene.tick(scene.at_ms + 500)
    expect(page.locator(".node[data-state=running]")).to_have_count(3)


# Keyboard, colours, widths, costs


def test_all_controls_are_reached_by_the_keyboard(page: Page, scene: Scene, expect: Any) -> None:
    scene.kill("broker-2")
    expect(page.locator(".event")).to_have_count(9)
    wanted = page.evaluate(
        """() => { let number = 0;
        for (const each of document.querySelectorAll('button, select, input, a[href]')) {
            if (!each.disabled && each.tabIndex >= 0 && each.checkVisibility()) each.dataset.wanted = ++number;
        } return number; }"""
    )
    reached, unmarked = set(), []
    for _ in range(wanted + 12):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => { const each = document.activeElement, style = getComputedStyle(each);
            return [each.dataset.wanted ?? null, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
                    each.outerHTML.slice(0, 80)]; }"""
        )
        if found[0] is not None:
            reached.add(found[0])
        if not found[1] and not found[2].startswith("<body"):
            unmarked.append(found[2])
    assert len(reached) == wanted
    assert unmarked == []


def test_shortcuts(page: Page, scene: Scene, expect: Any) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Freeze the time axis")
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    expect(page.locator("#time-window")).to_contain_text("frozen at")
    page.keyboard.press("f")
    scene.kill("broker-2")
    expect(page.locator(".event")).to_have_count(9)
    page.keyboard.press("e")
    expect(page.locator(".event").first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".event").nth(1)).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Subject")).to_be_focused()
    page.keyboard.type("fd")  # letters where somebody types are letters
    expect(page.locator("#time-window")).to_have_text("the last 2 minutes")
    page.get_by_label("Subject").blur()
    page.keyboard.press("?")
    page.get_by_label("Single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    expect(page.locator("#time-window")).to_have_text("the last 2 minutes")


def test_every_control_has_a_name(page: Page) -> None:
    snapshot = page.locator("body").aria_snapshot()
    control = re.compile(r"- (button|combobox|searchbox|slider)\s*(\[|:|$)")
    nameless = [line for line in snapshot.splitlines() if control.search(line)]
    assert nameless == []


CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(
    browser_pages: BrowserPages, fake: FakePage, scene: Scene, scheme: str, expect: Any
) -> None:
    page = browser_pages.open(f"{fake.url}/#token={TOKEN}", color_scheme=scheme, reduced_motion="reduce")
    scene.states |= {"controller-102": "candidate", "controller-103": "paused", "broker-3": "fenced"}
    scene.kill("broker-2")
    expect(card(page, "broker-2").locator(".state")).to_have_text("dead")
    assert page.evaluate(CONTRASTS) == []
    page.locator(".event").first.click()
    expect(page.locator(".story")).to_contain_text("No node has a decision")
    assert page.evaluate(CONTRASTS) == []


def test_dark_as_the_machine_says_or_by_the_switch(
    browser_pages: BrowserPages, fake: FakePage, scene: Scene, expect: Any
) -> None:
    brightness = "parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    page = browser_pages.open(fake.url, color_scheme="dark")
    assert page.evaluate(brightness) < 60
    page.keyboard.press("d")
    assert page.evaluate(brightness) > 200
    page.reload()
    assert page.evaluate(brightness) > 200
    expect(page.get_by_role("button", name="Change to dark colours")).to_be_visible()


@pytest.mark.parametrize("width", [360, 700, 1100])
def test_narrow_screens_scroll_in_one_direction(
    browser_pages: BrowserPages, fake: FakePage, scene: Scene, width: int, expect: Any
) -> None:
    long = "a-topic-whose-name-is-as-long-as-a-name-may-be-" * 5
    cluster = scene.cluster()
    cluster["topics"].append({"name": long, "partitions": 3})
    fake.say("hello", HELLO | {"topic": long})
    fake.say("cluster", cluster)
    fake.say("partitions", scene.partitions() | {"topic": long})
    scene.mark("rebalance", f"group {long}", f"{long} is long")
    page = browser_pages.open(f"{fake.url}/#token={TOKEN}", width=width, height=740)
    expect(page.locator(".partition")).to_have_count(PARTITIONS)
    expect(page.locator(".event")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        f"""() => [...document.querySelectorAll('body *')].filter((each) => each.checkVisibility() &&
        !each.closest('.unseen, .skip, svg') && each.getBoundingClientRect().right > {width} + 0.5)
        .map((each) => each.outerHTML.slice(0, 100))"""
    )
    assert outside == []
    page.locator(".event").click()
    assert page.get_by_role("dialog").evaluate("each => each.scrollWidth <= each.clientWidth")


def test_less_motion(browser_pages: BrowserPages, fake: FakePage, scene: Scene, expect: Any) -> None:
    page = browser_pages.open(fake.url, reduced_motion="reduce")
    expect(card(page, "broker-2").locator(".state")).to_have_text("running")
    scene.kill("broker-2")
    expect(card(page, "broker-2")).to_have_class(re.compile("flash"))
    assert page.evaluate("document.getAnimations().length") == 0


def test_unchanged_elements_are_not_touched(page: Page, scene: Scene, fake: FakePage, expect: Any) -> None:
    page.evaluate(
        """() => { window.touched = [];
        const observer = new MutationObserver((all) => window.touched.push(...all.map((each) => each.target.nodeName)));
        for (const id of ['nodes', 'partitions', 'links'])
          observer.observe(document.getElementById(id),
                           {subtree: true, childList: true, attributes: true, characterData: true}); }"""
    )
    fake.say("cluster", scene.cluster())
    fake.say("partitions", scene.partitions())
    fake.say("tour", {"step": 1, "of": 1, "text": "the last", "finished": False})
    expect(page.locator("#tour-steps")).to_have_text("the last")
    assert page.evaluate("window.touched") == []
    scene.kill("broker-2")
    expect(card(page, "broker-2").locator(".state")).to_have_text("dead")
    assert page.evaluate("window.touched.length") > 0


def test_an_hour_fits_into_the_memory_of_a_quarter(page: Page, fake: FakePage, scene: Scene, expect: Any) -> None:
    page.get_by_role("button", name="Freeze").click()
    load = dict(scene.load)
    for second in range(2 * 3600):
        fake.say("load", load | {"at_ms": scene.at_ms + 500 * second})
    for number in range(2400):
        scene.mark("isr", f"demo-{number % 6}", f"event {number}", scene.at_ms + 1500 * number)
    scene.tick(scene.at_ms + 3_600_000)
    expect(page.locator("#events-count")).to_have_text("1,000")
    assert page.locator(".event").count() == 150
    assert page.locator("body *").count() < 3000
    page.get_by_role("button", name="Go live").click()
    expect(page.locator(".series.acked")).to_have_attribute("d", re.compile("^M.+L"))
