"""The audit's items of quota and money: what shows that an allowance ran out, and what keeps it from doing so. Pure.

A pool whose limits nobody knows, and a task above which no budget stands, are said to be so.
"""

from __future__ import annotations

from workspaces.domain.audit_facts import Facts, Item, Presence, Proof
from workspaces.domain.audit_words import artifact, control, detector, n, page, trace
from workspaces.domain.incidents import Cluster, IncidentKind

P, C, K = Presence, Cluster, IncidentKind
_POOLS = (Proof("Quota pools", "quota"),)


def quota(facts: Facts) -> list[Item]:
    priced = facts.model_calls - facts.unpriced
    return [
        artifact(
            "Waits and refusals, in the trace",
            P.PRESENT,
            f"{n(facts.quota_waits, 'wait')} for quota, {n(facts.rate_limits, 'rate limit')} and "
            f"{n(facts.provider_failures, 'provider failure')} recorded",
            trace(facts, group="model", words="Model events"), C.COORDINATION,
        ),
        artifact(
            "Usage records, priced",
            P.PRESENT if priced == facts.model_calls else P.PARTIAL if priced else P.MISSING,
            f"{n(facts.model_calls, 'model call')}"
            + (f", the price of {facts.unpriced:,} is not known" if facts.unpriced else ", each with its price"),
            page(facts, "context", "Tokens and cost"), C.MEASUREMENT,
        ),
        artifact("History of each quota pool", *_pool_history(facts), _POOLS, C.COORDINATION, C.MEASUREMENT),
        control("A pool shared by tasks", *_shared_pool(facts), _POOLS, C.COORDINATION),
        control(
            "Retries paid from a budget of the pool, and a circuit",
            P.PARTIAL if facts.pools_not_closed else P.PRESENT,
            "no task retries on its own: answers bring in what retries take, and without any the circuit opens; "
            f"{n(facts.circuits_opened, 'opening')} so far"
            + (f", {n(facts.pools_not_closed, 'pool')} not closed again" if facts.pools_not_closed else ""),
            _POOLS, C.COORDINATION,
        ),
        budgets(facts),
        detector(facts, "Storm detector", (K.STORM,), C.COORDINATION),
    ]  # fmt: skip


def _pool_history(facts: Facts) -> tuple[Presence, str]:
    if not facts.pools:
        return P.PARTIAL, "no call was made yet, so no pool was used"
    told = f"use, refusals, waits and queue of {n(facts.pools, 'pool')}, minute by minute, and what changed in them"
    return P.PRESENT, told + (f"; {n(facts.queued_now, 'task')} in a queue now" if facts.queued_now else "")


def _shared_pool(facts: Facts) -> tuple[Presence, str]:
    alone = facts.model_calls - facts.pooled_calls
    if not facts.pools:
        if facts.model_calls:
            return P.MISSING, f"{n(facts.model_calls, 'model call')}, none of them through a pool"
        return P.PARTIAL, "no call was made yet: a pool is made at the first one"
    told = [f"{n(facts.pooled_calls, 'call')} admitted by {n(facts.pools, 'pool')}"]
    if alone > 0:
        told.append(f"{n(alone, 'call')} from before there were pools")
    if facts.pools_unlimited:
        told.append(
            f"the limits of {facts.pools_unlimited} are not known: nobody set any and the provider named none, "
            "so calls are held back only once it refuses"
        )
    if facts.fallbacks:
        told.append(f"{n(facts.fallbacks, 'call')} answered by a fallback")
    return (P.PARTIAL if facts.pools_unlimited else P.PRESENT), "; ".join(told)


def budgets(facts: Facts) -> Item:
    if not facts.budgets:
        presence = P.MISSING
        told = "none is set: cost is counted and shown, and nothing stops it but the step limit and a person"
    else:
        every = facts.tasks_with_budget == facts.tasks
        presence = P.PRESENT if every else P.PARTIAL
        told = f"{n(facts.budgets, 'budget')} in force; reserved before each call, and without room the task waits: "
        told += f"{n(facts.budget_waits, 'wait')} so far"
        if not every:
            told += f"; {facts.tasks - facts.tasks_with_budget} of {n(facts.tasks, 'task')} have none above them"
    return control("Budgets", presence, told, (Proof("Budgets", "budgets"),), C.COORDINATION, C.LONG_HORIZON)
