"""Rules of calls and their effects: an intent before, a result after, once, and held ones only with leave."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "intents",
        "every run of a call was written down before it began",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) ran %s times, with %s intents', c.id, c.name, c.attempt,
                                 coalesce(e.n, 0))
          FROM workspaces_toolcall c
          LEFT JOIN (SELECT (data->>'tool_call')::bigint AS id, count(*) AS n FROM workspaces_event
                      WHERE :task(task_id) AND kind = 'call.started' GROUP BY 1) e ON e.id = c.id
         WHERE :task(c.task_id) AND (coalesce(e.n, 0) <> c.attempt
               OR c.attempt > 0 AND c.started_at IS NULL
               OR c.status = 'running' AND c.attempt = 0
               OR c.finished_at < c.started_at)
        """,
    ),
    Rule(
        "effect-intent",
        "no effect outside the sandbox began without its row in the ledger",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s, %s) ran without a row in the ledger', c.id, c.name, c.effect)
          FROM workspaces_toolcall c
          LEFT JOIN workspaces_ledgerentry l ON l.key = c.effect_key
         WHERE :task(c.task_id) AND c.effect IN ('external', 'irreversible') AND c.attempt > 0
           AND (l.id IS NULL OR l.created_at > c.started_at)
        """,
    ),
    Rule(
        "effect-once",
        "an effect is begun again only when a person said that it had not happened",
        "ledgerentry",
        """
        SELECT min(c.task_id), format('effect %s began %s times; %s times a person said that it had not happened',
                                      left(c.effect_key, 12), sum(c.attempt), sum(coalesce(n.answers, 0)))
          FROM workspaces_toolcall c
          LEFT JOIN (SELECT tool_call_id, count(*) AS answers FROM workspaces_escalation
                      WHERE decision = 'not_done' AND status = 'answered' GROUP BY 1) n ON n.tool_call_id = c.id
         WHERE c.effect_key <> ''
           AND c.effect_key IN (SELECT o.effect_key FROM workspaces_toolcall o WHERE :task(o.task_id))
         GROUP BY c.effect_key HAVING sum(c.attempt) > 1 + sum(coalesce(n.answers, 0))
        """,
    ),
    Rule(
        "tool-definitions",
        "a tool of an MCP server was called only by a definition that a person had accepted before",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) went by a definition that nobody had accepted', c.id, c.name)
          FROM workspaces_toolcall c
          JOIN workspaces_task t ON t.id = c.task_id
          JOIN workspaces_profileversion v ON v.id = t.profile_version_id
         WHERE :task(c.task_id) AND c.result_data ? 'mcp_server' AND NOT EXISTS (
               SELECT 1 FROM workspaces_auditentry a
                WHERE a.action = 'tool.accept' AND (a.data->>'profile_id')::bigint = v.profile_id
                  AND a.at <= c.started_at AND a.data->'definitions' @>
                      jsonb_build_array(jsonb_build_object('name', c.name, 'hash', c.result_data->>'definition')))
        """,
    ),
    Rule(
        "effect-again",
        "no effect began after it was completed",
        "ledgerentry",
        """
        SELECT c.task_id, format('call %s (%s) began after its effect was completed', c.id, c.name)
          FROM workspaces_ledgerentry l
          JOIN workspaces_toolcall c ON c.effect_key = l.key AND c.attempt > 0
         WHERE :task(c.task_id) AND l.state = 'completed' AND c.started_at > l.completed_at
        """,
    ),
    Rule(
        "ledger",
        "the ledger and the calls tell the same",
        "ledgerentry",
        """
        SELECT c.task_id, format('ledger row %s (%s): %s', l.id, l.state, problem)
          FROM workspaces_ledgerentry l
          JOIN workspaces_toolcall c ON c.id = l.tool_call_id
          JOIN workspaces_task t ON t.id = c.task_id
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN c.effect_key <> l.key THEN 'its call has another key' END),
               (CASE WHEN l.root_task_id <> coalesce(t.root_id, t.id) THEN 'it is booked to another root task' END),
               (CASE WHEN c.attempt = 0 THEN 'its call never ran' END),
               (CASE WHEN (l.state = 'completed') <> (l.completed_at IS NOT NULL)
                     THEN 'completed and when do not agree' END),
               (CASE WHEN l.state = 'completed' AND NOT EXISTS (
                          SELECT 1 FROM workspaces_toolcall d WHERE d.effect_key = l.key AND d.status = 'done')
                     THEN 'no call has its result' END),
               (CASE WHEN l.state = 'intended' AND c.status = 'abandoned'
                     THEN 'it is under way by a call that was given up' END),
               (CASE WHEN l.state = 'intended' AND c.status = 'done' AND NOT EXISTS (
                          SELECT 1 FROM workspaces_escalation x WHERE x.tool_call_id = c.id
                             AND (x.status = 'answered' AND x.decision IN ('reject', 'answer')
                                  OR x.status = 'expired'))
                     THEN 'its call has a result, the ledger has none' END)
         ) AS found(problem)
         WHERE :task(c.task_id) AND problem IS NOT NULL
        """,
    ),
    Rule(
        "replays",
        "a replayed call gave the recorded result of a completed effect",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) is a replay of nothing', c.id, c.name)
          FROM workspaces_toolcall c
          LEFT JOIN workspaces_ledgerentry l ON l.key = c.effect_key AND l.state = 'completed' AND l.result = c.result
         WHERE :task(c.task_id) AND c.verdict = 'replay' AND (l.id IS NULL OR c.attempt > (
               SELECT count(*) FROM workspaces_escalation x WHERE x.tool_call_id = c.id AND x.decision = 'not_done'))
        """,
    ),
    Rule(
        "approvals",
        "a held call ran only with an unexpired approval of exactly its arguments, each used once",
        "toolcall",
        """
        SELECT c.task_id, format('held call %s (%s) ran %s times, with %s approvals', c.id, c.name, c.attempt,
                                 count(a.id))
          FROM workspaces_toolcall c
          LEFT JOIN workspaces_approval a ON a.tool_call_id = c.id AND a.arguments_hash = c.arguments_hash
               AND a.used_at IS NOT NULL AND a.used_at < a.expires_at AND a.used_at >= a.given_at
         WHERE :task(c.task_id) AND c.verdict = 'hold' AND c.attempt > 0
         GROUP BY c.id
        HAVING count(a.id) < c.attempt OR NOT bool_or(coalesce(a.used_at = c.started_at, FALSE))
        """,
    ),
    Rule(
        "leave",
        "every approval was given by the person whose answer stands in the escalations",
        "approval",
        """
        SELECT c.task_id, format('approval %s of call %s (%s) has no such answer', a.id, c.id, c.name)
          FROM workspaces_approval a JOIN workspaces_toolcall c ON c.id = a.tool_call_id
         WHERE :task(c.task_id) AND NOT EXISTS (
               SELECT 1 FROM workspaces_escalation x WHERE x.tool_call_id = c.id AND x.status = 'answered'
                  AND x.decision IN ('approve', 'edit', 'always', 'not_done') AND x.answered_by_id = a.given_by_id
                  AND x.answered_at = a.given_at
                  AND (a.also_by_id IS NULL OR x.first_approved_by_id = a.also_by_id
                       AND x.first_hash = a.arguments_hash AND x.first_approved_at <= a.given_at))
           AND NOT EXISTS (
               SELECT 1 FROM workspaces_standingapproval s WHERE s.id = a.standing_id AND s.task_id = c.task_id
                  AND s.arguments_hash = a.arguments_hash AND s.given_by_id = a.given_by_id
                  AND s.given_at <= a.given_at AND (s.revoked_at IS NULL OR s.revoked_at >= a.given_at))
        """,
    ),
    Rule(
        "standing",
        "a standing approval was given, and revoked, by the person and for the call that the trace tells of",
        "standingapproval",
        """
        SELECT s.task_id, format('the standing approval %s of %s at %s: %s', s.id, s.name, s.seq, problem)
          FROM workspaces_standingapproval s
          JOIN workspaces_branch b ON b.id = s.branch_id
          LEFT JOIN workspaces_event e ON e.task_id = s.task_id AND e.seq = s.seq AND e.kind = 'approval.standing'
               AND e.branch_number = b.number AND b.task_id = s.task_id AND e.actor_id = s.given_by_id
          LEFT JOIN workspaces_toolcall c ON c.id = (e.data->>'tool_call')::bigint AND c.task_id = s.task_id
          LEFT JOIN (SELECT (data->>'standing')::bigint AS id, min(actor_id) AS actor_id, count(*) AS n
                       FROM workspaces_event
                      WHERE :task(task_id) AND kind = 'approval.revoked' GROUP BY 1) r ON r.id = s.id
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN e.id IS NULL THEN 'nobody gave it' END),
               (CASE WHEN (c.name, c.arguments_hash) IS DISTINCT FROM (s.name, s.arguments_hash)
                     THEN 'it was given for another call' END),
               (CASE WHEN coalesce(r.n, 0) <> CASE WHEN s.revoked_at IS NULL THEN 0 ELSE 1 END
                          OR r.actor_id IS DISTINCT FROM s.revoked_by_id THEN 'revoked, and the trace tells otherwise'
                END)
         ) AS found(problem)
         WHERE :task(s.task_id) AND problem IS NOT NULL
        """,
    ),
    Rule(
        "two-persons",
        "a call that needs two persons ran only with the approvals of two",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) needs two persons and ran with fewer', c.id, c.name)
          FROM workspaces_toolcall c
          JOIN workspaces_task t ON t.id = c.task_id
          JOIN workspaces_profileversion v ON v.id = t.profile_version_id
         WHERE :task(c.task_id) AND c.verdict = 'hold' AND c.attempt > 0
           AND v.policy->(c.policy_rule - 1)->>'approver' = 'two_persons' AND NOT EXISTS (
               SELECT 1 FROM workspaces_approval a WHERE a.tool_call_id = c.id AND a.used_at = c.started_at
                  AND a.arguments_hash = c.arguments_hash AND a.also_by_id <> a.given_by_id AND a.standing_id IS NULL)
        """,
    ),
    Rule(
        "refused",
        "a call that the profile's policy refuses never ran",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) ran against rule %s', c.id, c.name, c.policy_rule)
          FROM workspaces_toolcall c
          JOIN workspaces_task t ON t.id = c.task_id
          JOIN workspaces_profileversion v ON v.id = t.profile_version_id
         WHERE :task(c.task_id) AND c.attempt > 0 AND v.policy->(c.policy_rule - 1)->>'verdict' = 'correct'
        """,
    ),
    Rule(
        "verdicts",
        "a call runs only after its verdict, and a corrected one never",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) has the verdict "%s", the status %s and ran %s times',
                                 c.id, c.name, c.verdict, c.status, c.attempt)
          FROM workspaces_toolcall c
         WHERE :task(c.task_id) AND (c.verdict = '' AND c.status <> 'proposed'
               OR c.verdict = 'correct' AND (c.attempt > 0 OR c.status <> 'done')
               OR c.attempt > 0 AND (c.arguments IS NULL OR c.effect = ''))
        """,
    ),
    Rule(
        "one-at-a-time",
        "the calls of a step run in their order, one after the other",
        "toolcall",
        """
        SELECT c.task_id, format('call %s (%s) began before call %s had ended', c.id, c.name, o.id)
          FROM workspaces_toolcall c
          JOIN workspaces_toolcall o ON o.step_id = c.step_id AND o.position < c.position
         WHERE :task(c.task_id) AND c.attempt > 0 AND o.attempt > 0 AND o.verdict = 'allow' AND c.verdict = 'allow'
           AND (o.finished_at IS NULL OR o.finished_at > c.started_at) AND o.status <> 'held'
           AND NOT EXISTS (SELECT 1 FROM workspaces_escalation x WHERE x.tool_call_id = o.id)
        """,
    ),
]
