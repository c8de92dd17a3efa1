"""A real browser on a real site that sends a strict Content-Security-Policy; skipped where there is no browser."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.conf import settings as project
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from tests.processes import wait_until

BROWSERS, DRIVER = ("chromium", "chromium-browser", "google-chrome"), "chromedriver"
PASSWORD = "open sesame"
SOURCES = ("script-src", "style-src", "img-src", "connect-src", "form-action")
# What chromedriver says of a command during which the page was replaced.
GONE = "Node with given id does not belong to the document"
BETWEEN_PAGES = ("navigation", "unloaded", "execution context", "loading status", GONE)
POLICY = "; ".join(["default-src 'none'", *(f"{source} 'self'" for source in SOURCES)])


def strict(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A middleware that has browsers refuse all scripts and styles but those of files of the site."""

    def respond(request: Any) -> Any:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return respond


@pytest.fixture
def site(transactional_db: None, settings: Any) -> Iterator[str]:
    """The address of the site on the database of the test."""
    settings.MIDDLEWARE = ["tests.browser.conftest.strict", *settings.MIDDLEWARE]
    server = LiveServer("localhost")
    settings.ALLOWED_HOSTS = ["localhost"]
    yield server.url
    server.stop()


class Browser:
    """Chromium without a window, with what operators do in it."""

    def __init__(self, driver: Any, site: str, exceptions: Any) -> None:
        self.driver = driver
        self.site = site
        self.failed = exceptions.WebDriverException
        # Not there yet, replaced at this moment, or still behind something else.
        self.away = (
            exceptions.NoSuchElementException, exceptions.StaleElementReferenceException,
            exceptions.ElementNotInteractableException, exceptions.ElementClickInterceptedException,
        )  # fmt: skip

    def log_in(self, *codenames: str) -> User:
        """As staff with these permissions, or without any as a superuser; as if it had been done a while ago."""
        user = self.user(*codenames)
        client = Client()
        client.force_login(user)
        cookie = {"name": project.SESSION_COOKIE_NAME, "value": client.cookies[project.SESSION_COOKIE_NAME].value}
        self.driver.execute_cdp_cmd("Network.setCookie", {**cookie, "url": self.site})
        return user

    def user(self, *codenames: str) -> User:
        """Somebody who may log in."""
        user = User.objects.create_user("ada", password=PASSWORD, is_staff=True, is_superuser=not codenames)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        return user

    def type_password(self) -> None:
        """Log in by the form."""
        self.go("/admin/")
        self.one("[name=username]").send_keys("ada")
        self.one("[name=password]").send_keys(PASSWORD)
        self.click("[type=submit]")
        self.reads("#user-tools", "Log out")

    def go(self, path: str) -> None:
        """Open a page of the site."""
        self.driver.get(f"{self.site}{path}")

    def one(self, selector: str) -> Any:
        """The first element, once there is one."""
        find = partial(self.driver.find_elements, "css selector", selector)
        return wait_until(lambda: self._between_pages(find), message=self.told(selector))[0]

    def click(self, selector: str) -> None:
        """Click the element, once there is one."""
        wait_until(lambda: self._clicked(selector), message=self.told(selector))

    def _clicked(self, selector: str) -> bool:
        found = self._between_pages(partial(self.driver.find_elements, "css selector", selector))
        if not found:
            return False
        try:
            found[0].click()
        except self.away:
            return False
        except self.failed as error:
            # As much as a stale element: it went while the driver looked for the point to click.
            if GONE not in str(error):
                raise
            return False
        return True

    @contextmanager
    def pressed(self, selector: str) -> Iterator[None]:
        """Hold the button of the mouse down on the element within the block, and release it at the end."""
        find = "const box = document.querySelector(arguments[0]); box.scrollIntoView({block: 'center'});"
        place = self.ask(f"{find} const {{x, y}} = box.getBoundingClientRect(); return {{x, y}}", selector)
        place = {axis: pixels + 9 for axis, pixels in place.items()}
        mouse = partial(self.driver.execute_cdp_cmd, "Input.dispatchMouseEvent")
        mouse({"type": "mousePressed", "button": "left", "clickCount": 1, **place})
        yield
        mouse({"type": "mouseReleased", "button": "left", "clickCount": 1, **place})

    def ask(self, script: str, *arguments: Any) -> Any:
        """Return what a script returns, asked again if the page was replaced meanwhile."""
        run = partial(self.driver.execute_script, script, *arguments)
        return wait_until(lambda: self._between_pages(lambda: [run()]), message=self.told(script))[0]

    def text(self, selector: str) -> str:
        """Return the text of an element, in one step since parts of the page are replaced; empty if it is missing."""
        script = "return document.querySelector(arguments[0])?.textContent ?? ''"
        read: str = self._between_pages(partial(self.driver.execute_script, script, selector)) or ""
        return " ".join(read.split())

    def _between_pages(self, act: Callable[[], Any]) -> Any:
        """Return what it returns, or None if the page was replaced meanwhile."""
        try:
            return act()
        except self.failed as error:
            if not any(words in str(error) for words in BETWEEN_PAGES):
                raise
            return None

    def reads(self, selector: str, words: str) -> None:
        """Wait until the element has the words."""
        wait_until(lambda: words in self.text(selector), message=self.told(f"{selector}: {words}"))

    def told(self, wanted: str) -> Callable[[], str]:
        """For a message: what was wanted, and what is there."""
        return lambda: f"no {wanted!r} at {self.driver.current_url}: {self.text('body')[:2000]}"

    def narrow(self, width: int) -> None:
        """Have a screen of so many pixels from now on, as phones (390) and tablets (800) have."""
        screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def cut_off(self) -> list[str]:
        """The buttons and what is filled in that do not fit the width of the screen, as HTML."""
        script = """
            const shown = document.querySelectorAll("#content :is(input, select, textarea, button)");
            const right = document.documentElement.clientWidth;
            return [...shown].filter(one => one.getBoundingClientRect().right > right).map(one => one.outerHTML);
        """
        cut_off: list[str] = self.driver.execute_script(script)
        return cut_off

    def complaints(self) -> list[str]:
        """Return the messages in the browser's console, without those about the favicon."""
        return [entry["message"] for entry in self.driver.get_log("browser") if "favicon" not in entry["message"]]


@pytest.fixture(scope="session")
def window() -> Iterator[Any]:
    """One browser for all tests, since starting it takes longer than most of them."""
    selenium = pytest.importorskip("selenium.webdriver", reason="needs selenium, which is in requirements-dev.txt")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which(DRIVER)
    if program is None or driver is None:
        pytest.skip("needs a browser: install Debian's chromium and chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1600"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        # Chromium has no sandbox for root, as whom containers run.
        options.add_argument("--no-sandbox")
    exceptions = pytest.importorskip("selenium.common.exceptions")
    try:
        window = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    except exceptions.WebDriverException as error:
        # As much as none: what the machine forbids it to do is nothing that we could mend.
        pytest.skip(f"the browser here does not start: {str(error.msg).splitlines()[0]}")
    try:
        yield window
    finally:
        window.quit()


@pytest.fixture
def browser(window: Any, site: str) -> Iterator[Browser]:
    """A browser in which nobody is logged in; it leaves the site before the site goes."""
    window.get_log("browser")
    yield Browser(window, site, pytest.importorskip("selenium.common.exceptions"))
    window.get("about:blank")
    window.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    window.execute_cdp_cmd("Network.clearBrowserCookies", {})
