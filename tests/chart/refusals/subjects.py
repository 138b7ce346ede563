"""All contradictions, by subject: one for each file of templates/checks whose name it has.

`env` has those that horovod.env refuses.
"""

from __future__ import annotations

from tests.chart.refusals import (
    code,
    data,
    end,
    env,
    fields,
    images,
    keys,
    launch,
    monitoring,
    names,
    network,
    reserved,
    scheduling,
    security,
    workers,
)

SUBJECTS = {
    "code": code.CONTRADICTIONS,
    "data": data.CONTRADICTIONS,
    "end": end.CONTRADICTIONS,
    "env": env.CONTRADICTIONS,
    "fields": fields.CONTRADICTIONS,
    "images": images.CONTRADICTIONS,
    "keys": keys.CONTRADICTIONS,
    "launch": launch.CONTRADICTIONS,
    "monitoring": monitoring.CONTRADICTIONS,
    "names": names.CONTRADICTIONS,
    "network": network.CONTRADICTIONS,
    "reserved": reserved.CONTRADICTIONS,
    "scheduling": scheduling.CONTRADICTIONS,
    "security": security.CONTRADICTIONS,
    "workers": workers.CONTRADICTIONS,
}
