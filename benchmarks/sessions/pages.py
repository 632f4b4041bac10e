"""HTML pages: a maker's site, with the markup that sites have, read by an agent that compares devices."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from typing import NamedTuple

from context_compressor.lab.commands.demo_agent import Call, ToolFailed

from .recorder import Recorded, Recorder, Toolbox, listed

SITE = "https://www.halden-networks.example"
SYSTEM = (
    "You research on the web. Read pages before you say anything about a device, quote part numbers and "
    "addresses, and keep notes. Tools: fetch (the page as it is), read_text, list_links, find_in_page, "
    "save_note, read_notes."
)
FAMILIES = ("switches", "routers", "access-points", "firewalls", "serial-servers")
WORDS = (
    "The housing is made of aluminium and mounts on a rail or a wall.",
    "A relay reports loss of power on either input.",
    "Settings can be kept on a card that is read when the device starts.",
    "The management interface speaks SNMP, NETCONF and a web page.",
    "Every port is isolated and withstands surges as EN 61000-4-5 asks.",
    "The device starts in less than ten seconds and forwards before its web page answers.",
    "Cooling needs no fan below the stated temperature.",
    "Firmware is signed, and older releases are refused once a newer one has run.",
)


class Device(NamedTuple):
    """What the site says about one device."""

    model: str
    family: str
    ports: int
    watts: float
    celsius: int
    supply: str
    """Part number of its power supply."""
    firmware: str
    flaw: str
    """What the release before the latest gets wrong, by number."""
    fixed_in: str
    price: int

    @property
    def path(self) -> str:
        return f"/products/{self.model.lower()}.html"


def make_devices(rng: random.Random, each: int) -> list[Device]:
    devices = []
    for family in FAMILIES:
        for number in range(each):
            model = f"{''.join(rng.sample('ABEHKNRSTX', 2))}-{rng.randint(10, 99)}{number:02}"
            major = rng.randint(3, 9)
            devices.append(
                Device(
                    model,
                    family,
                    rng.choice((4, 5, 8, 10, 16, 24)),
                    rng.randint(30, 480) / 10,
                    rng.choice((50, 60, 70, 75)),
                    f"PSU-{rng.randint(10000, 99999)}-{rng.choice('ABCD')}",
                    f"{major}.{rng.randint(1, 12)}.{rng.randint(0, 30)}",
                    f"HN-{rng.randint(1000, 9999)}",
                    f"{major}.0.{rng.randint(0, 30)}",
                    rng.randint(180, 4200),
                )
            )
    return devices


def make_pages(rng: random.Random, devices: list[Device]) -> dict[str, str]:
    """Return the site's pages by path."""
    pages = {}
    links = [(f"/{family}.html", family) for family in FAMILIES]
    pages["/index.html"] = _page(rng, "Products", _list(links), devices)
    for family in FAMILIES:
        rows = [
            (device.path, f"{device.model}, {device.ports} ports")
            for device in devices
            if device.family == family
        ]
        pages[f"/{family}.html"] = _page(rng, family, _list(rows), devices)
    for device in devices:
        facts = {
            "Ports": f"{device.ports} x 10/100/1000BASE-T",
            "Power": f"{device.watts} W",
            "Temperature": f"-40 to {device.celsius} C",
            "Power supply": device.supply,
            "Firmware": device.firmware,
            "List price": f"EUR {device.price}",
            "Order code": f"{device.model}-{rng.randint(100, 999)}-EU",
        }
        table = "".join(
            f'<tr class="r{i % 2}"><th>{k}</th><td>{v}</td></tr>' for i, (k, v) in enumerate(facts.items())
        )
        text = "".join(f"<p>{word}</p>" for word in rng.sample(WORDS, 4))
        notes = f"/notes/{device.model.lower()}.html"
        more = _list([(notes, "Release notes"), (f"/manuals/{device.model.lower()}.pdf", "Manual")])
        pages[device.path] = _page(
            rng, device.model, f'{text}<table class="facts">{table}</table>{more}', devices
        )
        releases = [f"<h2>{device.firmware}</h2><p>{rng.choice(WORDS)}</p>"]
        for minor in range(rng.randint(4, 9), 0, -1):
            flaw = f"HN-{rng.randint(1000, 9999)}"
            releases.append(
                f"<h2>{device.firmware.split('.')[0]}.0.{31 + minor}</h2><p>Mends {flaw}: "
                f"{rng.choice(WORDS)}</p>"
            )
        releases.append(f"<h2>{device.fixed_in}</h2><p>Mends {device.flaw}: ports hang after a surge.</p>")
        pages[notes] = _page(rng, f"{device.model} release notes", "".join(releases), devices)
    return pages


def _list(links: list[tuple[str, str]]) -> str:
    return "<ul>" + "".join(f'<li><a href="{path}">{text}</a></li>' for path, text in links) + "</ul>"


def _page(rng: random.Random, title: str, body: str, devices: list[Device]) -> str:
    menu = "\n".join(
        f'      <li class="nav-item"><a class="nav-link" data-track="menu-{rng.getrandbits(32):08x}" '
        f'href="{device.path}">{device.model}</a></li>'
        for device in devices[:12]
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8"><title>{title} | Halden Networks</title>
  <link rel="stylesheet" href="/assets/site.{rng.getrandbits(40):010x}.css">
  <style>
    .facts th {{ text-align: left; padding: 4px 12px; }}
    .r1 {{ background: #f4f6f8; }} .nav-item {{ float: left; }}
  </style>
  <script>
    window.site = {{"build": "{rng.getrandbits(48):012x}", "page": "{title}", "consent": false}};
  </script>
</head>
<body class="page">
  <nav id="menu">
    <ul>
{menu}
    </ul>
  </nav>
  <main><h1>{title}</h1>
{body}
  </main>
  <footer><p>Halden Networks, page {rng.getrandbits(24):06x}. <a href="/imprint.html">Imprint</a></p></footer>
</body>
</html>"""


class _Reader(HTMLParser):
    """Take text and links from a page's main part."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.links: list[str] = []
        self._in_main = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_main = self._in_main or tag == "main"
        if tag == "a" and self._in_main:
            self.links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self._in_main = self._in_main and tag != "main"

    def handle_data(self, data: str) -> None:
        if self._in_main and data.strip():
            self.lines.append(data.strip())


class Browser(Toolbox):
    """Read a site."""

    names = ("fetch", "read_text", "list_links", "find_in_page", "save_note", "read_notes")

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages = pages
        self.notes: dict[str, str] = {}

    def fetch(self, url: str) -> str:
        """Return a page's markup."""
        path = url.removeprefix(SITE)
        if path not in self.pages:
            raise ToolFailed(f"404 Not Found: {url}")
        return self.pages[path]

    def read_text(self, url: str) -> str:
        """Return a page's text, a line for each element."""
        return "\n".join(self._read(url).lines)

    def list_links(self, url: str) -> str:
        """Return the addresses that a page's main part leads to."""
        return "\n".join(f"{SITE}{path}" for path in self._read(url).links)

    def find_in_page(self, url: str, pattern: str) -> str:
        """Return the lines of a page's text that match."""
        found = [line for line in self._read(url).lines if re.search(pattern, line)]
        return "\n".join(found) or "(nothing found)"

    def save_note(self, title: str, text: str) -> str:
        """Keep a note, or change it."""
        was = "changed" if title in self.notes else "saved"
        self.notes[title] = text
        return f"{title}: {was}; {len(self.notes)} notes"

    def read_notes(self) -> str:
        """Return all notes."""
        return "\n\n".join(f"# {title}\n{text}" for title, text in self.notes.items()) or "(no notes)"

    def _read(self, url: str) -> _Reader:
        reader = _Reader()
        reader.feed(self.fetch(url))
        return reader


class PageSession:
    """A comparison of devices for a buyer."""

    def __init__(self, max_tokens: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.each = 3 if max_tokens < 20_000 else 8
        self.devices = make_devices(self.rng, self.each)
        self.browser = Browser(make_pages(self.rng, self.devices))
        self.agent = Recorder(self.browser, SYSTEM, max_tokens)
        self.chosen: list[str] = []

    def record(self) -> Recorded:
        agent = self.agent
        agent.user(
            f"We need devices for a plant, from {SITE}: of every family the one with at least 8 ports that "
            "takes the least power, with its price, the part number of its power supply and the firmware it "
            "must have. Surges are a worry: look whether ports may hang after one. Prices without "
            "tax, and nothing refurbished. A device may cost EUR 1,900."
        )
        agent.plant(
            "goal", "Which device of every family is wanted?",
            "The one with at least 8 ports that takes the least power", "8 ports", "least power",
        )  # fmt: skip
        agent.plant(
            "constraint",
            "What must not be offered?",
            "Refurbished devices",
            "refurbished",
            ("nothing", "no "),
        )
        agent.plant("constraint", "How are prices given?", "Without tax", "prices", "without tax")
        self._limit("1,900")
        links = agent.one(
            "Plan: the index, then family by family: list, data of each device, release notes of the "
            "best. Begin.",
            "list_links",
            url=f"{SITE}/index.html",
        ).split("\n")
        for number in range(100):
            if agent.is_full and number:
                break
            if number < len(links):
                self._family(links[number], number)
            else:
                self._again(number)
            if number % 2 == 1:
                self._asked_back()
            if number == 1:
                agent.user("The limit is raised: a device may cost EUR 2,650 now. Go on.")
                self._limit("2,650")
        agent.user("Good. The list, please, with addresses.")
        agent.one("My notes first.", "read_notes")
        agent.say(f"For the order:\n{listed(agent.findings)}")
        return agent.recorded()

    def _limit(self, euros: str) -> None:
        self.agent.plant(
            "value", "What may a device cost?", f"EUR {euros}", "cost", f"EUR {euros}", about="limit"
        )

    def _family(self, url: str, number: int) -> None:
        agent, family = self.agent, url.rsplit("/", 1)[1].removesuffix(".html")
        links = agent.one(f"Family {family}.", "list_links", url=url).split("\n")
        if number % 3 == 0:
            guess = links[0].replace("/products/", f"/{family}/")
            error = agent.one("The first of them.", "fetch", url=guess)
            agent.one(f"{error.split(': ')[1]}; it has to be /products/.", "fetch", url=links[0])
            agent.plant(
                "failure", f"What came of the first address tried for {family}?", error,
                guess.removeprefix(SITE), ("404", "not found"),
            )  # fmt: skip
        calls: list[Call] = [
            ("fetch" if i % 2 else "read_text", {"url": link}) for i, link in enumerate(links)
        ]
        agent.act("All of this family at once.", *calls)
        of_family = [device for device in self.devices if device.family == family]
        best = min(of_family, key=lambda device: (device.ports < 8, device.watts))
        notes = f"{SITE}/notes/{best.model.lower()}.html"
        told = agent.one(
            f"{best.model}: {best.ports} ports, {best.watts} W. Do its ports hang?", "fetch", url=notes
        )
        flaw, release = re.findall(r"<h2>([\d.]+)</h2><p>Mends (HN-\d+): ports hang", told)[0][::-1]
        finding = (
            f"{family}: {best.model} ({SITE}{best.path}), {best.watts} W, EUR {best.price}, supply "
            f"{best.supply}; {flaw} (ports hang after a surge) is mended in {release}, it ships with "
            f"{best.firmware}"
        )
        agent.one(f"{flaw} it is, mended in {release}.", "save_note", title=family, text=finding)
        agent.findings.append(finding)
        self.chosen.append(best.model)
        watts = f"{best.watts} W"
        agent.plant(
            "decision", f"Which device of {family} was chosen, and what does it take?",
            f"{best.model}, {watts}",
            family, best.model, watts,
        )  # fmt: skip
        agent.plant(
            "value", f"What does {best.model} cost?", f"EUR {best.price}", best.model, f"EUR {best.price}"
        )
        agent.plant(
            "artifact", f"Which power supply does {best.model} need?", best.supply, best.model, best.supply
        )
        agent.plant(
            "status", f"In which release of {best.model} is the hanging of ports mended?",
            f"{release} ({flaw})",
            best.model, flaw, release,
        )  # fmt: skip

    def _again(self, number: int) -> None:
        """Look at a device of a family for the second choice."""
        agent, device = self.agent, self.devices[number * 7 % len(self.devices)]
        url = f"{SITE}{device.path}"
        agent.user(f"And {device.model}, would it do as a spare for {self.rng.choice(self.chosen)}?")
        agent.act(
            f"{device.model} again, and its release notes.",
            ("fetch", {"url": url}),
            ("fetch", {"url": f"{SITE}/notes/{device.model.lower()}.html"}),
            ("read_notes", {}),
        )
        finding = f"{device.model} as a spare: {device.ports} ports, {device.watts} W, supply {device.supply}"
        agent.one("", "save_note", title=f"spare {device.model}", text=finding)
        agent.say(f"{finding}; {device.flaw} is mended in {device.fixed_in}.")
        agent.plant(
            "artifact", f"Which supply does the spare {device.model} need?", device.supply,
            f"{device.model} as a spare", device.supply,
        )  # fmt: skip
        agent.findings.append(finding)

    def _asked_back(self) -> None:
        agent, model = self.agent, self.chosen[self.rng.randrange(max(1, len(self.chosen) - 1))]
        device = next(device for device in self.devices if device.model == model)
        agent.user(f"How hot may the one of the {device.family} get? And is {device.supply} right?")
        text = f"That is {model}; I look at its page again."
        found = agent.one(
            text, "find_in_page", url=f"{SITE}{device.path}", pattern=f"-40 to|{re.escape(device.supply)}"
        )
        warm, supply = found.split("\n")
        agent.say(f"{model}: {warm}, and yes, {supply}. On with the next.")


def record(max_tokens: int, seed: int) -> Recorded:
    """Record a session of reading HTML pages."""
    return PageSession(max_tokens, seed).record()
