"""The passwd file that ssh and sshd look the pod's UID up in."""

from __future__ import annotations

import passwd


def test_a_missing_passwd_entry_is_added_once() -> None:
    image = "root:x:0:0:root:/root:/bin/bash\n"
    added = passwd.passwd_lines(image, 4321, 0)
    assert added[0] == image.strip()
    assert added[1].split(":")[2:4] == ["4321", "0"]
    assert passwd.passwd_lines("\n".join(added), 4321, 0) == added
