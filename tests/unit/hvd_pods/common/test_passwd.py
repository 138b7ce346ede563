"""The passwd file that ssh and sshd look the pod's UID up in."""

from __future__ import annotations

import os
import pwd

import pytest

from hvd_pods.common import errors, passwd

IMAGE = "root:x:0:0:root:/root:/bin/bash\n\ntrainer:x:1000:4321::/home:/bin/sh\n"


def test_missing_entry_is_added_once() -> None:
    added = passwd.complete_passwd(IMAGE, 4321, 7)
    assert added == [*IMAGE.split(), "horovod-4321:x:4321:7::/tmp:/bin/sh"]
    assert passwd.complete_passwd("\n".join(added), 4321, 7) == added


def test_user_without_an_entry_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert passwd.require_user_name() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with pytest.raises(errors.ConfigurationError, match=r"UID 4000000 .*runAsUser"):
        passwd.require_user_name()
