"""What is masked in texts and documents that leave for other people."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdchart.watch.masking import MASK, Masker, is_secret_name

pytestmark = pytest.mark.timeout(120)
MARKER = "hunter2hunter2"
PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"
# In two parts, for programs that look for keys in repositories.
CLOUD_KEY = "AKIA" + "IOSFODNN7EXAMPLE"
SECRET_NAMES = ["password", "apiKey", "HF_TOKEN", "credentials", "secret", "cookies"]
# Words that name a Secret, such as `secretName`, are not among these keys, nor is `path`.
KEYS = st.one_of(
    st.sampled_from(["key", "value", "data", "kind", "--option", "items", *SECRET_NAMES]),
    st.text(string.ascii_lowercase[:8] + "_-.", max_size=8),
)
# A value somewhere within maps and lists, beside others.
NESTED = st.recursive(
    st.just(MARKER),
    lambda inner: st.one_of(
        st.lists(st.one_of(inner, st.sampled_from(["--option", "word"])), max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=6,
)


@given(st.sampled_from(SECRET_NAMES), NESTED)
def test_any_value_below_a_secrets_name_is_masked(name: str, nested: Any) -> None:
    assert MARKER not in str(Masker().document({"values": [{name: nested}]}))


@given(
    st.sampled_from([*SECRET_NAMES, "TRACKER_TOKEN"]),
    st.from_regex(r"[0-9a-f]{8,40}|[0-9]{8,15}[a-z]{0,8}|[A-Za-z0-9+/]{16,40}", fullmatch=True),
)
def test_a_secret_of_any_letters_and_digits_is_masked(name: str, secret: str) -> None:
    # A number of tokens has letters after its digits, too: a prefix of hexadecimal ones.
    masker = Masker()
    assert secret not in str(masker.text(f"{name}={secret}"))
    assert secret not in str(masker.document({"env": [{"name": name, "value": secret}]}))


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("WANDB_API_KEY", True),
        ("HF_TOKEN", True),
        ("dbPassword", True),
        ("aws_secret_access_key", True),
        ("GITHUB_PAT", True),
        ("auth", True),
        ("KEYBOARD", False),
        ("PATH", False),
        ("monkey", False),
        ("AUTHOR", False),
        ("MASTER_PORT", False),
    ],
)
def test_secrets_are_known_by_their_names(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=abc123 next", f"password={MASK} next"),
        ("'api_key': 'abcdef'", f"'api_key': '{MASK}'"),
        ("postgres://me:pw@db/x", f"postgres://{MASK}@db/x"),
        ("tokens: 4096, 12.5 tokens/s", "tokens: 4096, 12.5 tokens/s"),
        ("--my-token=abcdef --tokens=4096", f"--my-token={MASK} --tokens=4096"),
        ("--token abcdef --epochs 3", f"--token {MASK} --epochs 3"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abc-_x", MASK),
        ("the key step of 3", "the key step of 3"),
        ("login with password=83749201 ok", f"login with password={MASK} ok"),
        ("--password 83749201", f"--password {MASK}"),
        ("Authorization: Token abcdef", f"Authorization: Token {MASK}"),
        ("authorization=ApiKey abcdef", f"authorization=ApiKey {MASK}"),
        ("password='two words, one' next", f"password='{MASK}' next"),
        ('os.environ["HF_TOKEN"] = "abcdef"', f'os.environ["HF_TOKEN"] = "{MASK}"'),
        ("passphrase: abcdef, pass=abcdef", f"passphrase: {MASK}, pass={MASK}"),
        ("AccountKey=abcdef;Suffix=x", f"AccountKey={MASK};Suffix=x"),
        ("https://a/b?sv=1&sig=abcdef", f"https://a/b?sv=1&sig={MASK}"),
        ("https://a/b?X-Amz-Signature=abcdef", f"https://a/b?X-Amz-Signature={MASK}"),
        ("Set-Cookie: sid=abcdef; path=/", f"Set-Cookie: {MASK}; path=/"),
        ("--auth abcdef --author ann", f"--auth {MASK} --author ann"),
        ("dckr_pat_abcdefghijkl", MASK),
        ("npm_config_registry_of_team", "npm_config_registry_of_team"),
        ("DB_PASS=abcdef --key-frames 120", f"DB_PASS={MASK} --key-frames 120"),
        ("bearer: abcdef", f"bearer: {MASK}"),
        ("hf_abcdefghijklmnop sk-proj-abcdef123456", f"{MASK} {MASK}"),
        ("--api-key abcdef --key=abcdef", f"--api-key {MASK} --key={MASK}"),
        (f"{PRIVATE_KEY}\nnext", f"{MASK}\nnext"),
        (f"AWS_ACCESS_KEY_ID={CLOUD_KEY} aws s3 cp", f"AWS_ACCESS_KEY_ID={MASK} aws s3 cp"),
        (f"using {CLOUD_KEY} now", f"using {MASK} now"),
    ],
)
def test_secrets_are_known_by_their_form(text: str, expected: str) -> None:
    assert Masker().text(text) == expected


@pytest.mark.parametrize(
    "line",
    [
        "checkpoint path: /output/ckpt, PATH=/usr/bin:/bin, pattern=model.*",
        "patience: 100, patch_size=16x16, passed: True, passes=3000, compass=300",
        "signature: f(input), the key step of 3, bypass=maybe",
        'File "hub.py", line 3, in hf_hub_download(repo_id)',
        "tokenizer = AutoTokenizer.from_pretrained(name)",
        "token_type_ids=tensor([0, 0]), tokens_per_second=12345, token_ids: [101, 102]",
        "--tokenizer gpt2-large --max-tokens 100000 --key-frames 120",
        "tokens: 100000, 12.5 tokens/s, tokens=12345tok/s, num_tokens: 1.5M",
        "pip install sk-learn-estimators",
        "step 100/2000 loss=0.6931 accuracy=0.9861 images/s=1234.5",
    ],
)
def test_lines_of_ordinary_trainings_are_kept(line: str) -> None:
    assert Masker().text(line) == line


def test_words_of_language_models_are_no_secrets() -> None:
    masker = Masker()
    values = {
        "args": ["--tokenizer", "gpt2-large", "--model", "gpt2-large"],
        "env": [{"name": "MAX_TOKENS", "value": "1000000"}],
        "maxTokens": 1000000,
    }
    assert masker.document(values) == values
    assert masker.text("gpt2-large reads 1000000 words") == "gpt2-large reads 1000000 words"


@pytest.mark.parametrize(
    ("document", "masked"),
    [
        (
            {"env": [{"name": "API_KEY", "value": "a"}, {"name": "MODEL", "value": "b"}]},
            {"env": [{"name": "API_KEY", "value": MASK}, {"name": "MODEL", "value": "b"}]},
        ),
        (
            {"args": ["python", "--hub-token", "abcdef", "--epochs", "3"]},
            {"args": ["python", "--hub-token", MASK, "--epochs", "3"]},
        ),
        ({"kind": "Secret", "stringData": {"a": "b"}}, {"kind": "Secret", "stringData": MASK}),
        (
            {"kind": "ConfigMap", "data": {"id_rsa": PRIVATE_KEY}},
            {"kind": "ConfigMap", "data": {"id_rsa": MASK}},
        ),
        ({"value": "https://me:pw@data/x"}, {"value": f"https://{MASK}@data/x"}),
        ({"credentials": {"db": {"user": "abc"}}}, {"credentials": {"db": {"user": MASK}}}),
        ({"tokens": [{"name": "a", "value": "b"}]}, {"tokens": [{"name": "a", "value": MASK}]}),
    ],
)
def test_secrets_of_a_document_are_masked_and_nothing_else(document: Any, masked: Any) -> None:
    assert Masker().document(document) == masked


def test_a_secret_of_a_document_is_masked_in_later_texts() -> None:
    masker = Masker()
    masker.document({"password": "correct-horse"})
    assert masker.text("login with correct-horse") == f"login with {MASK}"


def test_a_long_value_is_shown_as_its_size() -> None:
    assert "36000 characters" in Masker().document({"archive": "QUJD" * 9000})["archive"]


@pytest.mark.parametrize(
    "document",
    [
        {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        {"tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        {"topologyKey": "kubernetes.io/hostname"},
        {"secretKeyRef": {"name": "mine", "key": "a"}},
        {"secretKeyRef": {"name": "mine", "key": "a", "optional": True}},
        {"secret": {"secretName": "mine", "items": [{"key": "a", "path": "b"}]}},
    ],
)
def test_keys_of_labels_taints_files_and_secrets_are_no_secrets(document: dict[str, Any]) -> None:
    masker = Masker()
    assert masker.document(document) == document
    assert masker.text("Insufficient nvidia.com/gpu") == "Insufficient nvidia.com/gpu"


@pytest.mark.parametrize("part", ["x", "a.", "token", "--key", "x-secret-", "&x-sig", "pass'"])
def test_a_long_line_is_masked_within_the_time_of_a_test(part: str) -> None:
    assert Masker().text(part * 100_000).startswith(part)
