"""A headless Chromium that is driven by tests, and servers that it visits."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.common.by import By

BROWSER = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
REASON = "no Chromium with chromedriver here: apt-get install chromium chromium-driver"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]  # fmt: skip
BROWSERS_OWN = ("data:", "blob:", "chrome:", "devtools:")


class Page:
    """A browser with one page."""

    def __init__(self, folder):
        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER
        for flag in [*FLAGS, f"--user-data-dir={folder}", "--window-size=1240,900"]:
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self.downloads = folder

    def open(self, url):
        self.driver.get(url)
        self.wait(lambda: self.find("source").text)

    def find(self, name):
        return self.driver.find_element(By.ID, name)

    def text(self, name):
        return self.find(name).text

    def script(self, code, *values):
        return self.driver.execute_script(code, *values)

    def press(self, *keys):
        for key in keys:
            self.driver.find_element(By.TAG_NAME, "body").send_keys(key)

    def type(self, *keys):
        """Press keys where the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def wait(self, condition, seconds=120):
        """Wait until something is true, and return it."""
        end = time.monotonic() + seconds
        while True:
            try:
                if found := condition():
                    return found
            except Exception:  # the page is being built
                if time.monotonic() > end:
                    raise
            assert time.monotonic() < end, (
                f"waited in vain; the page says: {self.text('status')!r} {self.text('error')!r}"
            )
            time.sleep(0.05)

    def dark(self, dark):
        value = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def width(self, width, height=900):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def errors(self):
        """What the page complained about since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def addresses(self):
        """All addresses that were requested since the last call."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = {each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"}
        return {url for url in urls if not url.startswith(BROWSERS_OWN)}


@contextmanager
def server(*words, cwd):
    """A ``nearfar`` server in a process of its own: the process and the address of its page."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "nearfar", *words, "--no-browser"], cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if found := re.match(r"open (http://127\.0\.0\.1:\d+/\?token=\S+)", line):
                yield process, found[1]
                break
        else:
            raise AssertionError("".join(lines))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
