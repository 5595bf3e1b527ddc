"""What the engine's tests have in common: no child and no open store outlives its test."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from engine.stores.nftban import NftbanStore

Child = subprocess.Popen[str]


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Start a Python program with pipes to it; it is killed when the test is over."""
    children: list[Child] = []

    def starter(code: str, *args: str, pass_fds: tuple[int, ...] = ()) -> Child:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
        )
        children.append(child)
        return child

    yield starter
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture(autouse=True)
def closed_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close each store that a test has opened and left so: a descriptor for each folder."""
    opened: list[NftbanStore] = []
    begin = NftbanStore.__init__

    def noted(store: NftbanStore, *args: object, **settings: object) -> None:
        begin(store, *args, **settings)  # type: ignore[arg-type]
        opened.append(store)

    monkeypatch.setattr(NftbanStore, "__init__", noted)
    yield
    for store in opened:
        store.close()
