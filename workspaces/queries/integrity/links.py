"""Rules of links that act: each was used once, while it was good, by whom it says, and that is in the audit log."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "links",
        "a link that was used was good then, and the audit log says once what it did and by whom",
        "actionlink",
        """
        SELECT e.task_id, format('link %s (%s), used at %s: good until %s, revoked at %s, audit entries: %s', l.id,
                                 l.action, l.used_at, l.expires_at, coalesce(l.revoked_at::text, 'never'), said.times)
          FROM workspaces_actionlink AS l LEFT JOIN workspaces_escalation AS e ON e.id = l.escalation_id
          CROSS JOIN LATERAL (
               SELECT count(*) AS times, bool_and(a.actor_id IS NOT DISTINCT FROM l.used_by_id) AS theirs
                 FROM workspaces_auditentry AS a
                WHERE a.action = 'link.' || l.action AND (a.data->>'link')::bigint = l.id) AS said
         WHERE :task(e.task_id)
           AND (l.used_at IS NULL AND said.times > 0
                OR l.used_at IS NOT NULL
                   AND (l.used_at >= l.expires_at OR l.used_at > l.revoked_at OR said.times <> 1 OR NOT said.theirs))
        """,
    ),
    Rule(
        "link-answers",
        "an approval by a link was of the arguments that the link was sent with, by whom it acted as",
        "actionlink",
        """
        SELECT e.task_id, format('link %s approved question %s, which is %s (%s)', l.id, e.id, e.status, e.decision)
          FROM workspaces_actionlink AS l JOIN workspaces_escalation AS e ON e.id = l.escalation_id
         WHERE :task(e.task_id) AND l.action = 'approve' AND l.used_at IS NOT NULL
           AND NOT EXISTS (SELECT FROM workspaces_approval AS a
                            WHERE a.tool_call_id = e.tool_call_id AND a.arguments_hash = l.arguments_hash
                              AND l.used_by_id IN (a.given_by_id, a.also_by_id))
           AND NOT EXISTS (SELECT FROM workspaces_event AS v
                            WHERE v.task_id = e.task_id AND v.kind = 'escalation.approved_once'
                              AND v.actor_id = l.used_by_id AND (v.data->>'escalation')::bigint = e.id)
        """,
    ),
]
