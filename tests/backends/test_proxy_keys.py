"""Keys: several that differ, keys that open executions of their own, and what stands of them on the disk."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy.http_messages import KeysDifferError, key_of  # noqa: E402
from gyre.backends.proxy.limits import Bounds  # noqa: E402
from gyre.backends.proxy.open_keys import OpenKeys  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402
from gyre.errors import InputError  # noqa: E402

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")


def open_bench(renderer: Any, folder: Path) -> Any:
    engines = lambda: [ScriptedEngine("one", saying(renderer, "Hello."))]  # noqa: E731
    return bench(renderer, folder, engines, open_to_all=True)


def status(made: Bench, key: str, path: str = "") -> int:
    url = f"{made.proxy.url}{path}/v1/chat/completions"
    return int(httpx.post(url, json=BODY, headers={"x-api-key": key}, timeout=20).status_code)


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ([("authorization", "Bearer a")], "a"),
        ([("authorization", "bearer  a "), ("x-api-key", "a")], "a"),
        ([("authorization", "Basic eDp5"), ("x-api-key", "a")], "a"),
        ([("authorization", "Bearer "), ("x-api-key", "a")], "a"),
        ([("authorization", "Bearer a"), ("authorization", "Bearer a")], "a"),
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], None),
        ([("authorization", "Bearer a"), ("x-api-key", "b")], None),
        ([("x-api-key", "a"), ("x-api-key", "b")], None),
        ([], ""),
    ],
)
def test_of_keys_that_differ_none_is_taken(headers: list[tuple[str, str]], key: str | None) -> None:
    scope = {"headers": [(name.encode(), value.encode()) for name, value in headers]}
    if key is None:
        with pytest.raises(KeysDifferError):
            key_of(scope)
    else:
        assert key_of(scope) == key


def test_a_request_with_two_keys_is_refused(renderer: Any, tmp_path: Path) -> None:
    with bench(renderer, tmp_path / "out", lambda: []) as made:
        one, two = made.open("one"), made.open("two")
        headers = {"authorization": f"Bearer {one.key}", "x-api-key": two.key}
        answer = httpx.get(f"{made.proxy.url}/v1/models", headers=headers)
        assert (answer.status_code, answer.json()["error"]["message"][:34]) == (
            401,
            "the request carries keys that diff",
        )


def test_names_of_open_executions_say_nothing_of_their_keys(renderer: Any, tmp_path: Path) -> None:
    names = []
    for folder in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        with open_bench(renderer, folder) as made:
            assert status(made, "sk-guessable") == 200
            names.append(made.call(made.proxy.executions)[0]["id"])
    first, again, elsewhere = names
    assert first == again != elsewhere  # found again after a restart; salted for each folder
    assert hashlib.sha256(b"sk-guessable").hexdigest()[:16] not in first
    assert stat.S_IMODE((tmp_path / "a" / "keys.salt").stat().st_mode) == 0o600
    for file in (tmp_path / "a").iterdir():
        assert b"sk-guessable" not in file.read_bytes()


def test_after_a_restart_nobody_takes_over_an_execution_that_another_opened_by_name(
    renderer: Any, tmp_path: Path
) -> None:
    with open_bench(renderer, tmp_path / "out") as made:
        assert status(made, "mine", "/x/task-1") == 200
        assert status(made, "other", "/x/task-1") == 401
        assert status(made, "two words", "/x/task-2") == 403
    with open_bench(renderer, tmp_path / "out") as made:
        assert status(made, "other", "/x/task-1") == 401
        assert status(made, "mine", "/x/task-1") == 200
        assert len(made.records("task-1")) == 1  # replayed from the log


def test_nothing_is_kept_of_executions_that_cannot_be_opened(renderer: Any, tmp_path: Path) -> None:
    settings = ProxySettings(bounds=Bounds(executions=2))
    engines = lambda: [ScriptedEngine("one", saying(renderer, "Hello."))]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines, settings, open_to_all=True) as made:
        assert [status(made, f"key-{n}", f"/x/task-{n}") for n in range(4)] == [200, 200, 403, 403]
    assert len((tmp_path / "out" / "keys.owners").read_text().split()) == 2 * 2


def test_owners_are_kept_beside_a_line_that_was_torn(tmp_path: Path) -> None:
    assert OpenKeys(tmp_path).owns("first", "mine")
    with (tmp_path / "keys.owners").open("a") as file:
        file.write("second abc")  # the disk was full
    assert OpenKeys(tmp_path).owns("third", "mine")
    again = OpenKeys(tmp_path)
    assert not again.owns("first", "other")
    assert not again.owns("third", "other")


def test_a_salt_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "keys.salt").write_text("zz")
    with pytest.raises(InputError, match=r"keys\.salt.*remove it"):
        OpenKeys(tmp_path)
    (tmp_path / "keys.salt").write_text("ab")
    with pytest.raises(InputError, match="cut short"):
        OpenKeys(tmp_path)
    (tmp_path / "keys.salt").unlink()
    keys = OpenKeys(tmp_path)
    (tmp_path / "keys.owners").write_text("torn\n\nx y\n")
    assert OpenKeys(tmp_path).name("k") == keys.name("k")
