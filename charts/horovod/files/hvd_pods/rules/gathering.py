"""Rules of the hosts: which ones an attempt uses, which are missing and why, which are lost.

A run has a number of hosts in each group. It begins as soon as so many of a group answer, whichever
these are, and leaves the others idle: spares. After a failure the next attempt chooses again, so
that a spare takes the place of a host that is gone. A run whose groups have a minimum begins
without hosts that do not come, and takes them later (rules/growing.py).

An upgrade leaves pods of an earlier revision, which may never answer, and which nothing but the
master replaces. The pod of a node that is gone, which Kubernetes has given up after some minutes,
stays until somebody deletes it for good: its StatefulSet creates no other one before.
"""

from __future__ import annotations

from collections import Counter
from typing import Collection, Mapping, Sequence

from hvd_pods.agent.banner import STALE, NoAnswer
from hvd_pods.cluster.shapes import Object, parse_time
from hvd_pods.common import pod_problems
from hvd_pods.common.errors import ConfigurationError, HostsTimeoutError, LostHostError, RunError
from hvd_pods.common.pod_problems import Diagnosis
from hvd_pods.common.record import Key
from hvd_pods.common.run import Host, Pod, Run
from hvd_pods.common.run_events import RunEvent
from hvd_pods.rules import messages as m
from hvd_pods.rules.host_names import (
    describe,
    describe_loss,
    describe_spares,
    format_hosts,
    read_hosts,
)
from hvd_pods.rules.state import Activity, Gathered, State, Step
from hvd_pods.rules.timers import TimerKind

# Seconds until the pods of missing hosts are read: soon at first, because an upgrade may have left
# pods that will never answer; then seldom, because each is a request to the API server.
FIRST_REPORT_AFTER = 1.0
REPORT_EVERY = 5.0
# An unchanged report is repeated after this many seconds, to show that the master still waits.
REPEAT_REPORT_AFTER = 60.0
# Seconds in which all hosts have to answer whose ranks may have finished without a master.
LEFT_WITHIN = 5.0
# Seconds for which hosts that answered in the attempt before are waited for, when there are enough
# others.
MISS_WITHIN = 3.0
# Seconds between two looks at pods while ranks train without them.
LOOK_EVERY = 60.0
# Grace before a pod that should have ended, on a node that does not say so, is force-deleted.
GIVE_UP_AFTER = 60.0
# Factor on launch.lostAfterSeconds while all hosts are silent: the master itself may be offline.
MASTER_OFFLINE_FACTOR = 5
# Seconds to wait for a Service that was deleted, whose pods have no addresses then, and for a
# StatefulSet that was deleted or makes pods of another revision: somebody may be at it.
SERVICE_WITHIN = 60.0
# Stale pods of a host that are deleted at once in an attempt. The second one may come from a
# controller that has not seen the upgrade yet; if the fourth one is stale, too, the StatefulSet is,
# until somebody mends it. So later ones are deleted as well, but only after so many seconds each.
MOST_REPLACED = 3
REPLACE_EVERY = 20.0
AGAIN = "with the values of the release: helm upgrade, or hvdchart restart"
NO_ANSWER = NoAnswer("it has not responded yet")


def begin(step: Step) -> None:
    """Wait for the hosts of an attempt that begins."""
    step.set_timer(TimerKind.PODS, step.now + FIRST_REPORT_AFTER)
    if _orphan_fence(step.state):
        step.set_timer(TimerKind.RESUME, step.now + LEFT_WITHIN)
    extend_deadline(step)


def expect(state: State) -> Gathered:
    """What the attempt after the present one may count on: hosts that should answer at once.

    Those of the present attempt that still answer, or of the one that another master has left.
    """
    before = state.attempt
    if before.launch:
        gone = {*before.gathered.reasons, *before.launch.leaving}
        expected = frozenset(before.gathered.answering) - gone
        return Gathered(expected=expected, patience=MISS_WITHIN)
    if state.was_training:
        recorded = read_hosts(state.run, state.recorded_hosts)
        names = frozenset(host.name for host in recorded)
        return Gathered(expected=names, patience=state.run.shrink_after)
    return Gathered(patience=state.run.shrink_after)


def lose_patience(step: Step) -> None:
    """Begin without the hosts that are missing, where the run can do without them."""
    step.set_gathered(patience=0.0)
    start_if_possible(step)


def _note_enough(step: Step) -> None:
    """There are as many hosts as the run can do with: wait for the others for some time."""
    state = step.state
    is_new = state.activity == Activity.GATHERING and TimerKind.SHRINK not in state.timers
    gathered = state.gathered
    if is_new and gathered.patience and _has_least(state.run, gathered.answering):
        step.set_timer(TimerKind.SHRINK, step.now + state.gathered.patience)


def _has_least(run: Run, answering: Collection[str]) -> bool:
    """Whether a run can do with these hosts, although others may be missing."""
    return not _count_lacking(run.least_workers, run, answering)


def _find_usable(state: State) -> Mapping[str, Pod]:
    """The hosts that answer; of those whose GPU has failed, as many as the others are too few.

    While hosts are waited for that should answer, the others may be enough yet.
    """
    run = state.run
    answering = state.gathered.answering
    if not state.broken:
        return answering
    usable = {name: pod for name, pod in answering.items() if pod not in state.broken}
    if not _may_shrink(state):
        return usable
    lacking = Counter(_count_lacking(run.least_workers, run, usable))
    for host in run.hosts:
        if host.name in answering and host.name not in usable and lacking[host.stateful_set] > 0:
            lacking[host.stateful_set] -= 1
            usable[host.name] = answering[host.name]
    return usable


def _orphan_fence(state: State) -> int:
    """The fence number of the orphaned launch; 0 if another one has begun."""
    return 0 if state.used_hosts else state.orphan_fence


def _has_other_state(state: State) -> bool:
    """Whether workers may have another run's state in memory, which this run's ranks remove.

    Ranks that this Job has started before have. Without a record, nothing shows other runs.
    """
    is_first = state.hold.is_held and not state.hold.data.get(Key.RUN)
    return not (state.was_training or is_first)


def extend_deadline(step: Step) -> None:
    """Wait launch.hostsTimeoutSeconds from now on for further hosts."""
    until = step.now + step.state.run.hosts_timeout
    step.set_gathered(deadline=until)
    step.set_timer(TimerKind.HOSTS, until)


def on_answer(step: Step, event: m.HostAnswers) -> None:
    """A host answers: it may be the last one that was missing."""
    gathered = step.state.gathered
    reasons = {name: why for name, why in gathered.reasons.items() if name != event.host}
    answering = {**gathered.answering, event.host: event.pod}
    step.set_gathered(answering=answering, reasons=reasons, all_hosts_silent=False)
    if step.state.activity == Activity.GATHERING and event.host not in gathered.arrived:
        # An autoscaler may bring one node after the other.
        step.set_gathered(arrived=gathered.arrived | {event.host})
        extend_deadline(step)
    start_if_possible(step)


def on_problem(step: Step, event: m.HostProblem) -> None:
    """A host does not answer. One that did is lost when it has been silent for long."""
    gathered = step.state.gathered
    limit = step.state.lost_after
    step.set_gathered(reasons={**gathered.reasons, event.host: event.why})
    if event.why.is_stale and event.why != gathered.reasons.get(event.host):
        list_pods(step)
    if event.host not in gathered.answering:
        return
    if event.silent >= limit and event.all_hosts_silent:
        limit *= MASTER_OFFLINE_FACTOR
        if not gathered.all_hosts_silent:
            why = "no worker responds: this pod may have lost the network"
            step.log(f"{why}; waiting {limit:.0f} s")
        step.set_gathered(all_hosts_silent=True)
    if event.silent >= limit:
        _drop(step, event.host)


def on_gone(step: Step, event: m.HostGone) -> None:
    """A host's pod ends, or is another one now: it no longer counts among those that answer."""
    _drop(step, event.host)
    reasons = step.state.gathered.reasons
    step.set_gathered(reasons={n: why for n, why in reasons.items() if n != event.host})


def _drop(step: Step, host: str) -> None:
    answering = step.state.gathered.answering
    step.set_gathered(answering={name: pod for name, pod in answering.items() if name != host})


def start_if_possible(step: Step) -> None:
    """Hand out the code as soon as enough hosts answer and the launcher is prepared."""
    _note_enough(step)
    state = step.state
    is_waiting = (
        state.activity == Activity.GATHERING and state.attempt.is_prepared and not state.is_stopped
    )
    if not is_waiting or not is_enough(step):
        return
    run = state.run
    answering = state.gathered.answering
    chosen = choose_hosts(run, _find_usable(state), state.broken)
    for name, pod in chosen.items():
        step.log(f"host {name} at {pod.address}, {state.facts.hosts[name].slots} slots")
    spares = describe_spares(run, len(answering) - len(chosen))
    step.report(RunEvent.HOSTS_READY, f"{len(chosen)} workers respond{spares}")
    step.clear_timers(TimerKind.HOSTS, TimerKind.RESUME, TimerKind.SHRINK)
    if count_missing_workers(run, chosen):
        step.do(m.FreezeHosts([*chosen]))
    else:
        # Another master may replace the workers while this one ends: it must not do the same. And
        # a pod that is to end still trains until its grace period is over.
        step.clear_timers(TimerKind.PODS)
        step.do(m.FreezeHosts())
    step.set(activity=Activity.DELIVERING)
    step.set_attempt(pods=chosen)
    addresses = {name: pod.address for name, pod in answering.items()}
    saves = _has_other_state(state)
    orphan_fence = _orphan_fence(state)
    orphan_ranks = sum(host.slots for host in read_hosts(run, state.recorded_hosts))
    step.do(m.Deliver(state.attempt.number, addresses, chosen, saves, orphan_fence, orphan_ranks))


def is_enough(step: Step) -> bool:
    """Whether the attempt can start with the hosts that answer.

    Until the timer "resume", all hosts are waited for whose ranks may have finished.
    """
    state = step.state
    run = state.run
    usable = _find_usable(state)
    is_waiting = TimerKind.RESUME in state.timers and len(state.gathered.answering) < len(run.hosts)
    may_start = _may_shrink(state) and _has_least(run, usable)
    return not is_waiting and (may_start or not count_missing_workers(run, usable))


def _may_shrink(state: State) -> bool:
    """Whether the attempt need not wait for the hosts that are missing, if others are enough."""
    gathered = state.gathered
    is_complete = gathered.expected is not None and gathered.expected <= gathered.answering.keys()
    return is_complete or not gathered.patience


def count_missing_workers(run: Run, answering: Collection[str]) -> dict[str, int]:
    """Count the hosts that groups still need, by the name of their StatefulSet.

    Groups that need none are left out.
    """
    return _count_lacking(run.needed_workers, run, answering)


def _count_lacking(
    needed: Mapping[str, int], run: Run, answering: Collection[str]
) -> dict[str, int]:
    present = Counter(host.stateful_set for host in run.hosts if host.name in answering)
    lacking = {name: number - present[name] for name, number in needed.items()}
    return {name: number for name, number in lacking.items() if number > 0}


def choose_hosts(
    run: Run, answering: Mapping[str, Pod], broken: Collection[Pod] = ()
) -> dict[str, Pod]:
    """Return the hosts to use: the first of each group in the run's order, broken ones last.

    By that order, ranks stay where they were as long as their hosts answer.
    """
    missing = dict(run.needed_workers)
    chosen = {}
    for host in sorted(run.hosts, key=lambda host: answering.get(host.name) in broken):
        if host.name in answering and missing[host.stateful_set]:
            missing[host.stateful_set] -= 1
            chosen[host.name] = answering[host.name]
    return chosen


def find_missing(run: Run, answering: Collection[str]) -> list[Host]:
    """Return the hosts that do not answer, of groups that need more; spares are among them."""
    lacking = count_missing_workers(run, answering)
    return [
        host for host in run.hosts if host.name not in answering and host.stateful_set in lacking
    ]


def may_replace_pods(state: State) -> bool:
    """Whether pods in the way are this master's to replace: later they may be the next run's."""
    activities = [Activity.GATHERING]
    if _trains_with_fewer(state):
        activities.append(Activity.TRAINING)
    return state.activity in activities and not (state.is_stopped or state.hold.lost_to)


def _trains_with_fewer(state: State) -> bool:
    launch = state.attempt.launch
    is_short = launch and count_missing_workers(state.run, launch.hosts)
    return bool(is_short) and state.activity == Activity.TRAINING


def list_pods(step: Step) -> None:
    """Look at the pods of missing hosts, unless that is under way."""
    state = step.state
    if not may_replace_pods(state):
        return
    has_fewer = _trains_with_fewer(state)
    step.set_timer(TimerKind.PODS, step.now + (LOOK_EVERY if has_fewer else REPORT_EVERY))
    if state.gathered.is_listing:
        return
    missing = []
    if state.activity == Activity.GATHERING or has_fewer:
        missing = find_missing(state.run, state.gathered.answering)
    reasons = state.gathered.reasons.values()
    if not (missing or any(why.is_stale for why in reasons)):
        return
    if not state.run.api:
        report_missing(step, m.PodsListed(state.attempt.number))
        return
    step.set_gathered(is_listing=True)
    step.do(m.ListPods(state.attempt.number, [host.name for host in missing]))


def on_pods(step: Step, event: m.PodsListed) -> None:
    """The pods were listed: replace those in the way, and say why hosts are missing, or lost."""
    state = step.state
    step.set_gathered(is_listing=False)
    launch = state.attempt.launch
    if launch and launch.lost:
        explain_loss(step, event, launch.lost)
    if not may_replace_pods(state):
        return
    _replace(step, event.pods)
    if state.activity == Activity.GATHERING:
        _scale_up(step, event)
        report_missing(step, event)


def _replace(step: Step, pods: Mapping[str, Object]) -> None:
    """Delete pods of an earlier revision, and pods for good that should have ended long ago."""
    answering = step.state.gathered.answering
    hosts = step.state.facts.hosts
    stale = {}
    ending = {}
    for name, host in hosts.items():
        item = pods[name]["metadata"] if name in pods else {}
        if "uid" not in item:
            continue
        since = item.get("deletionTimestamp")
        is_stale = _is_stale(host, pods[name])
        replaced = step.state.gathered.replaced
        if not is_stale and name in replaced:
            # Whatever its StatefulSet made before, it has been mended.
            step.set_gathered(replaced={n: each for n, each in replaced.items() if n != name})
        # While ranks train, a stale one may be the next run's.
        is_in_the_way = since is None and is_stale and not _trains_with_fewer(step.state)
        if is_in_the_way and _may_replace(step, name, item["uid"]):
            stale[name] = item["uid"]
        elif since and name not in answering and step.wall - parse_time(since) > GIVE_UP_AFTER:
            node = pods[name].get("spec", {}).get("nodeName")
            log_once(step, f"{name} should have ended at {since} on {node}: replacing it")
            ending[name] = item["uid"]
    if stale:
        log_once(step, f"replacing workers {STALE}: {format_hosts([hosts[n] for n in stale])}")
        step.do(m.DeletePods(stale))
    if ending:
        step.do(m.DeletePods(ending, grace=0))


def _may_replace(step: Step, name: str, uid: str) -> bool:
    """Whether a stale pod of this host may be deleted now, which is noted then."""
    gathered = step.state.gathered
    uids, at = gathered.replaced.get(name, (frozenset(), 0.0))
    if len(uids | {uid}) > MOST_REPLACED and step.now - at < REPLACE_EVERY:
        return False
    if len(uids) <= MOST_REPLACED:
        uids |= {uid}
    step.set_gathered(replaced={**gathered.replaced, name: (uids, step.now)})
    return True


def _makes_stale_pods(step: Step, host: Host, pod: Object | None) -> bool:
    """Whether a StatefulSet has replaced stale pods of a host with stale ones, again and again."""
    uids, _ = step.state.gathered.replaced.get(host.name, (frozenset(), 0.0))
    # It may have no pod for a moment, after the last one was deleted.
    return len(uids | {pod["metadata"].get("uid")} if pod else uids) > MOST_REPLACED


def log_once(step: Step, text: str) -> None:
    """Log a message once in an attempt, of what is tried again and again."""
    announced = step.state.gathered.announced
    if text not in announced:
        step.log(text)
        step.set_gathered(announced=announced | {text})


def _is_stale(host: Host, pod: Object) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("horovod/revision") != host.revision)


def _scale_up(step: Step, event: m.PodsListed) -> None:
    """Scale up the StatefulSets without the pods of missing hosts.

    An attempt that expected to be the last one scaled them to 0, and then another attempt was made:
    after an eviction, which does not count as a failure, or a roll-back. Or the API server was away
    when the attempt began. A run that ends or trains leaves them alone: it may be the suspension of
    the run that took them away.
    """
    run = step.state.run
    missing = find_missing(run, step.state.gathered.answering)
    absent = {host.stateful_set for host in missing if host.name not in event.pods}
    if event.problem:
        return
    for name in sorted(absent):
        # A person may have chosen the number of workers, where it may change.
        step.do(m.ScaleUp(name, run.initial_workers[name], run.least_workers[name]))


def diagnose(step: Step, hosts: Sequence[Host], event: m.PodsListed) -> dict[Host, Diagnosis]:
    """Explain why each of these hosts is missing or lost."""
    reasons = step.state.gathered.reasons
    found = {}
    for host in hosts:
        why = reasons.get(host.name, NO_ANSWER)
        pod = event.pods.get(host.name)
        if event.problem:
            found[host] = Diagnosis(f"{why.reason}; cannot read pods: {event.problem}")
        elif not step.state.run.api:
            found[host] = Diagnosis(why.reason)
        elif host.stateful_set in event.gone:
            found[host] = _broken(host, "was deleted", f"create it again {AGAIN}")
        elif (pod is None or _is_stale(host, pod)) and _makes_stale_pods(step, host, pod):
            what = f"makes pods {STALE}, as after kubectl rollout undo"
            found[host] = _broken(host, what, f"change it back {AGAIN}")
        elif pod is None:
            found[host] = pod_problems.diagnose_refusal(event.refusals.get(host.stateful_set, ""))
        elif _is_stale(host, pod):
            found[host] = Diagnosis(STALE)
        else:
            diagnosis = pod_problems.diagnose(pod)
            # A container that does not run does not listen either: no need to say so.
            if diagnosis.wait_seconds is None:
                diagnosis = diagnosis._replace(reason=f"{diagnosis.reason}; {why.reason}")
            is_known = diagnosis.queued or diagnosis.wait_seconds is not None
            # A run that has trained had slices. Before that, their controller may be slow.
            if why.lacks_service and step.state.was_training and not is_known:
                remedy = "create the deleted Service again: helm upgrade, with the same values"
                diagnosis = diagnosis._replace(remedy=remedy, wait_seconds=SERVICE_WITHIN)
            found[host] = diagnosis
    return found


def _broken(host: Host, what: str, remedy: str) -> Diagnosis:
    """What keeps a host from coming until somebody mends its StatefulSet."""
    reason = f"the StatefulSet {host.stateful_set} {what}"
    return Diagnosis(reason, permanent=True, remedy=remedy, wait_seconds=SERVICE_WITHIN)


def report_missing(step: Step, event: m.PodsListed) -> None:
    """Log why hosts are missing, and let the attempt fail for a problem that lasts."""
    state = step.state
    gathered = step.state.gathered
    missing = find_missing(state.run, gathered.answering)
    if not missing:
        return
    found = diagnose(step, missing, event)
    since = {
        host.name: gathered.since.get(host.name, step.now)
        for host, item in found.items()
        if item.wait_seconds is not None
    }
    step.set_gathered(diagnoses={host.name: item for host, item in found.items()}, since=since)
    if any(item.queued for item in found.values()):
        # launch.hostsTimeoutSeconds begins when they are admitted, and have their data.
        extend_deadline(step)
    text = f"waiting for {_count_missing(step, missing)}: {'; '.join(_describe(found))}"
    if text != gathered.report or step.now - gathered.reported_at > REPEAT_REPORT_AFTER:
        step.log(f"{text} ({step.state.gathered.deadline - step.now:.0f} s left)")
        step.set_gathered(report=text, reported_at=step.now)
    stuck = {host: item for host, item in found.items() if item.wait_seconds is not None}
    reasons = {item.reason for item in stuck.values()}
    if reasons - gathered.announced:
        step.set_gathered(announced=gathered.announced | reasons)
        text = "; ".join([*_describe(stuck), *_remedies(stuck)])
        step.report(RunEvent.HOSTS_MISSING, text)
    lasting = [
        host
        for host, item in stuck.items()
        if step.now - since[host.name] >= (item.wait_seconds or 0.0)
    ]
    if _is_too_few(state.run, lasting):
        step.then(m.AttemptEnds(_missing_error(step, found, "cannot start", RunError)))


def _is_too_few(run: Run, lasting: Collection[Host]) -> bool:
    """Whether a group has more hosts with problems that last than it can do without."""
    problems = Counter(host.stateful_set for host in lasting)
    return any(
        problems[name] > run.initial_workers[name] - run.least_workers[name]
        for name in run.stateful_sets
    )


def time_out(step: Step) -> None:
    """No further host has come in a whole time-out: fail, with the reasons of the missing hosts."""
    state = step.state
    if state.activity == Activity.GATHERING and _has_least(state.run, state.gathered.answering):
        lose_patience(step)
        return
    if state.activity != Activity.GATHERING or is_enough(step):
        # Where only the launcher is not prepared yet, that takes its own time.
        return
    missing = find_missing(state.run, state.gathered.answering)
    found = {
        host: state.gathered.diagnoses.get(host.name)
        or Diagnosis(state.gathered.reasons.get(host.name, NO_ANSWER).reason)
        for host in missing
    }
    what = f"did not answer within launch.hostsTimeoutSeconds={state.run.hosts_timeout:.0f}"
    step.then(m.AttemptEnds(_missing_error(step, found, what, HostsTimeoutError)))


def _count_missing(step: Step, missing: Sequence[Host]) -> str:
    """Report how many of the hosts to start with are missing: spares may replace them."""
    run = step.state.run
    needed = sum(run.needed_workers.values())
    lacking = sum(count_missing_workers(run, step.state.gathered.answering).values())
    return f"{min(lacking, len(missing))} of {needed} workers"


def _missing_error(
    step: Step, found: Mapping[Host, Diagnosis], what: str, kind: type[RunError]
) -> RunError:
    """The end of an attempt without these hosts; of this kind, unless no attempt can help."""
    lines = [
        f"{_count_missing(step, list(found))} {what}:",
        *(f"  {line}" for line in _describe(found)),
        *_remedies(found),
    ]
    text = "\n".join(lines)
    if any(item.permanent for item in found.values()):
        return ConfigurationError(text)
    return kind(text)


def _describe(found: Mapping[Host, Diagnosis]) -> list[str]:
    """A line for each reason, with its hosts."""
    return describe({host: item.reason for host, item in found.items()})


def _remedies(found: Mapping[Host, Diagnosis]) -> list[str]:
    """A line for each remedy, in the order of the hosts."""
    remedies = dict.fromkeys(item.remedy for item in found.values() if item.remedy)
    return [f"what to do: {remedy}" for remedy in remedies]


def find_silent(step: Step) -> dict[Host, str]:
    """Return the hosts of the launch that do not answer at this moment, and why."""
    attempt = step.state.attempt
    hosts = step.state.facts.hosts
    used = attempt.launch.hosts if attempt.launch else ()
    answering = attempt.gathered.answering
    reasons = attempt.gathered.reasons
    return {
        hosts[name]: reasons.get(name, NO_ANSWER).reason
        for name in used
        if name in reasons or name not in answering
    }


def announce_loss(step: Step, lost: Mapping[Host, str]) -> LostHostError:
    """Let the pods of lost hosts be listed, to say why. Returns the problem of the attempt."""
    names = [host.name for host in lost]
    step.set_launch(lost=tuple(names))
    if step.state.run.api:
        step.do(m.ListPods(step.state.attempt.number, names))
    else:
        explain_loss(step, m.PodsListed(step.state.attempt.number), names)
    return LostHostError(describe_loss(lost), 1)


def explain_loss(step: Step, event: m.PodsListed, lost: Sequence[str]) -> None:
    """Say which hosts were lost, and what is known of their pods."""
    hosts = [step.state.facts.hosts[name] for name in lost]
    text = f"lost {'; '.join(_describe(diagnose(step, hosts, event)))}"
    step.log(f"{text}: ending this attempt")
    step.report(RunEvent.HOST_LOST, text)
    step.set_launch(lost=())
