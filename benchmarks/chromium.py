"""A real Chromium without a window: opens a file, and keeps what it logs and asks the network for.

It needs the packages chromium and chromium-driver of the system, and selenium.
"""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)
READY = "performance.getEntriesByName('explorer ready').length > 0"


def chromium(profile: Path) -> "Browser":
    """Start it with an empty profile; LookupError where it cannot be found."""
    try:
        from selenium import webdriver
    except ImportError:
        raise LookupError("no selenium: pip install selenium") from None
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        raise LookupError("no Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)  # else selenium looks for one online
    return Browser(webdriver.Chrome(options=options, service=service))


class Browser:
    """One page; `console` and `requests` hold what it said and asked for since it was opened."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.shots = Path(".")
        self.console: list[str] = []
        self.requests: list[str] = []

    def open(self, path: Path, width: int = 1440, height: int = 900, *, dark: bool = False) -> None:
        """Open a report at a width of the screen, and wait until its explorer answers."""
        self.driver.get("about:blank")
        self.listen()
        self.console.clear()
        self.requests.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # no smooth scrolling
        self.command("Emulation.setEmulatedMedia", features=[scheme, still])
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.driver.get(path.as_uri())
        self.wait(READY)

    def quit(self) -> None:
        self.driver.quit()

    def command(self, name: str, **options: Any) -> dict[str, Any]:
        """A command of the Chrome DevTools protocol."""
        return dict(self.driver.execute_cdp_cmd(name, options) or {})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, seconds: float = 30) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, 0.02).until(lambda _: self.run(f"return {condition}"))

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def listen(self) -> None:
        """Read what the browser has logged since the last time."""
        self.console += [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            elif message["method"] == "Network.webSocketCreated":
                self.requests.append(message["params"]["url"])

    def shot(self, name: str) -> None:
        """The whole page as an image."""
        self.run("window.scrollTo(0, 0)")
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        image = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        (self.shots / f"{name}.png").write_bytes(base64.b64decode(image["data"]))
