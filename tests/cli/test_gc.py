"""`gc` on the command line."""

import json

import pytest

from context_compressor import FileOffloadStore
from tests.offload.directories import DAY, hold_elsewhere, names_in, namespaces_in, put


@pytest.fixture
async def store(tmp_path):
    path = tmp_path / "store"
    for name, days in {"old": 40, "older": 60, "young": 1}.items():
        await put(path, name, age_seconds=days * DAY)
    return path


def test_it_removes_by_age_and_says_so(cli, store):
    ran = cli("gc", "store", "--max-age", "30d")

    assert (ran.code, ran.err) == (0, "")
    assert namespaces_in(store) == ["young"]
    for part in ("older", "60.0 d", "removed: 2 namespaces, 2,000 bytes; left 1,000 bytes", "in use 0"):
        assert part in ran.out


def test_it_removes_by_bytes_the_longest_unused_first(cli, store):
    assert cli("gc", "store", "--max-bytes", "2kB").code == 0
    assert namespaces_in(store) == ["old", "young"]


def test_a_dry_run_only_tells(cli, store):
    ran = cli("gc", "store", "--max-age", "30d", "--dry-run")

    assert "would be removed: 2 namespaces, 2,000 bytes; would leave 1,000 bytes" in ran.out
    assert namespaces_in(store) == ["old", "older", "young"]


def test_without_limits_it_tells_what_is_there(cli, store):
    ran = cli("gc", "store")

    assert ran.out.startswith("store: 3 namespaces, 3,000 bytes; in use 0, kept 0\n")
    assert namespaces_in(store) == ["old", "older", "young"]


def test_json_tells_all(cli, store):
    ran = cli("gc", "store", "--max-age", "50d", "--max-bytes", 1_500, "--keep", "old", "--json")

    told = json.loads(ran.out)
    assert [(each["name"], each["reason"]) for each in told.pop("removed")] == [
        ("older", "age"),
        ("young", "bytes"),
    ]
    assert told == {
        "store": "store",
        "dry_run": False,
        "namespaces": 3,
        "in_use": 0,
        "kept": 1,
        "bytes_before": 3_000,
        "bytes_after": 1_000,
    }


def test_what_another_process_has_open_stays_and_is_counted(cli, store):
    process = hold_elsewhere(store, "open")
    ran = cli("gc", "store", "--max-bytes", 0, "--max-age", "0s")
    process.communicate("")

    assert namespaces_in(store) == ["open"]
    assert "in use 1" in ran.out
    assert "more than 0 bytes: the rest is in use, or to be kept" in ran.out


def test_a_namespace_that_ran_empty_goes(cli, store):
    FileOffloadStore(store, "young")
    for file in (store / "young").iterdir():
        file.unlink()

    assert "nothing in it" in cli("gc", "store").out
    assert namespaces_in(store) == ["old", "older"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("500", 500),
        ("500B", 500),
        ("1.5k", 1_500),
        ("2MB", 2_000_000),
        ("2 mib", 2 * 1024**2),
        ("3GB", 3 * 10**9),
        ("1TiB", 1024**4),
    ],
)
def test_sizes(given, expected):
    from context_compressor.cli.options import read_size

    assert read_size(given, "--max-bytes") == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("45s", 45), ("90m", 5_400), ("1.5h", 5_400), ("2w", 14 * DAY)]
)
def test_ages(given, expected):
    from context_compressor.cli.gc import read_age

    assert read_age(given) == expected


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["gc"], "DIR"),
        (["gc", "nowhere"], "does not exist"),
        (["gc", "file"], "is no directory"),
        (["gc", "store", "--max-bytes", "lots"], "--max-bytes lots: not a size; write 500MB"),
        (["gc", "store", "--max-bytes", "-5"], "--max-bytes -5"),
        (["gc", "store", "--max-bytes", "9" * 400], "--max-bytes: the number is too large"),
        (["gc", "store", "--max-bytes", "9" * 300 + "TB"], "--max-bytes: the number is too large"),
        (["gc", "store", "--max-age", "9" * 400 + "d"], "--max-age: the number is too large"),
        (["gc", "store", "--max-age", "30"], "--max-age 30: not an age; write 30d"),
        (["gc", "store", "--keep", "../up"], "--keep ../up"),
    ],
)
def test_bad_input_is_named_and_nothing_happens(cli, store, arguments, named):
    (store.parent / "file").write_text("")
    before = names_in(store)
    ran = cli(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert named in ran.err
    assert names_in(store) == before


def test_a_directory_that_no_store_made_is_left_alone(cli, tmp_path):
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / "src" / "main.py").write_text("")
    (tmp_path / "project" / "empty").mkdir(0o700)

    ran = cli("gc", "project", "--max-bytes", 0, "--max-age", "0s")

    assert "0 namespaces" in ran.out
    assert names_in(tmp_path / "project") == ["empty", "src"]
