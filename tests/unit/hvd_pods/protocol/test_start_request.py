"""Requests: what a master sends is what a worker reads, and everything else is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hvd_pods.protocol import start_request as requests
from hvd_pods.protocol.start_request import ALLOWED, MAX_REQUEST_NUMBER, RequestError, StartRequest

NONCE = "0123"
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=20).map(
    lambda content: content.replace(b"\0", b"").decode("utf-8", "surrogateescape")
)
REQUESTS = st.builds(
    StartRequest,
    run=TEXTS,
    fence=st.integers(0, MAX_REQUEST_NUMBER),
    attempt=st.integers(0, MAX_REQUEST_NUMBER),
    argv=st.lists(TEXTS | BYTES, min_size=1, max_size=5),
    variables=st.dictionaries(st.sampled_from(ALLOWED), TEXTS | BYTES),
    stay=st.floats(0, 1e9),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def check_usable(parsed: StartRequest) -> None:
    """What is let through can be given to a program."""
    environment = parsed.environment({}, 1)
    assert set(environment) <= {"HVD_RUN_ID", "HVD_ATTEMPT", "HVD_FENCE", *ALLOWED}
    given = "".join([*parsed.argv, *environment.values()])
    assert "\0" not in given
    assert given.encode("utf-8", "surrogateescape") or not given
    assert len(parsed.digest()) == 12
    assert 0 <= parsed.stay <= MAX_REQUEST_NUMBER


@given(request=REQUESTS)
@pytest.mark.fuzz
def test_request_that_is_sent_is_the_one_that_is_read(request: StartRequest) -> None:
    assert requests.parse(request.encode(NONCE), NONCE) == request
    with pytest.raises(RequestError):
        requests.parse(request.encode("another"), NONCE)


@pytest.mark.fuzz
@given(content=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
@example(b"")
@example(b"[]")
@example(b"null")
@example(b"[" * 60_000)
@example(b'{"nonce": ' + b"9" * 60_000 + b"}")
def test_any_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(RequestError):
        requests.parse(content, NONCE)


@pytest.mark.parametrize("field", ["nonce", *StartRequest._fields])
def test_request_without_one_of_its_fields_is_refused(field: str) -> None:
    document = json.loads(StartRequest("", 0, 0, ["true"], {}, 0.0).encode(NONCE))
    del document[field]
    with pytest.raises(RequestError, match="must have exactly the fields"):
        requests.parse(json.dumps(document).encode(), NONCE)


@pytest.mark.fuzz
@given(request=REQUESTS, name=st.sampled_from([*StartRequest._fields, "nonce", "more"]), value=JSON)
@pytest.mark.promise("request with any value in a field is good or refused")
def test_request_with_any_value_in_a_field_is_good_or_refused(
    request: StartRequest, name: str, value: Any
) -> None:
    document = {"nonce": NONCE, **request._asdict(), name: value}
    with suppress(RequestError):
        parsed = requests.parse(json.dumps(document).encode(), NONCE)
        assert name not in ("nonce", "more") or value == NONCE
        check_usable(parsed)


def test_variables_of_the_container_stay_and_empty_ones_are_not_given() -> None:
    request = StartRequest("", 0, 0, ["true"], {"HVD_NOTICES": ""}, 0.0)
    assert request.environment({"A": "1", "HVD_FENCE": "x"}, 0) == {"A": "1", "HVD_FENCE": "x"}
    given_ones = StartRequest("run", 5, 2, ["true"], {"HVD_NOTICES": "n"}, 0.0)
    assert given_ones.environment({"HVD_NOTICES": "old"}, 5) == {
        "HVD_NOTICES": "n",
        "HVD_RUN_ID": "run",
        "HVD_FENCE": "5",
        "HVD_ATTEMPT": "2",
    }


def test_hash_of_the_arguments_distinguishes_them() -> None:
    first, second = (StartRequest("", 0, 0, argv, {}, 0.0) for argv in (["a", "b"], ["a b"]))
    assert first.digest() != second.digest()
    assert first.digest() == first._replace(fence=9).digest()


def test_request_of_the_longest_length_is_sent_and_a_longer_one_is_not() -> None:
    empty = len(StartRequest("", 0, 0, [""], {}, 0.0).encode(NONCE))
    longest = StartRequest("", 0, 0, ["x" * (requests.MAX_REQUEST_BYTES - empty)], {}, 0.0)
    assert requests.parse(longest.encode(NONCE), NONCE) == longest
    longer = longest._replace(argv=[longest.argv[0] + "x"])
    with pytest.raises(RequestError, match=r" 65537 .* 65536 "):
        longer.encode(NONCE)
