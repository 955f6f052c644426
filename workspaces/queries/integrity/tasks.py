"""Rules of tasks: waits, leases, steps, branches, checkpoints, and nothing left over that nobody will ever end."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "waits",
        "what waits says for what, since when and until when; nothing else pretends to wait",
        "task",
        """
        SELECT t.id, format('%s, for "%s", since %s until %s', t.status, t.waiting_for, t.waiting_since,
                            t.waiting_until)
          FROM workspaces_task t
         WHERE :task(t.id) AND CASE WHEN t.status = 'waiting'
               THEN t.waiting_for = '' OR t.waiting_reason = '' OR t.waiting_since IS NULL
                    OR t.waiting_until IS NULL
               ELSE t.waiting_for <> '' OR t.waiting_reason <> '' OR t.waiting_since IS NOT NULL
                    OR t.waiting_until IS NOT NULL END
        """,
    ),
    Rule(
        "questions",
        "a task that waits for an operator has asked; a closed question says by whom or why",
        "escalation",
        """
        SELECT t.id, 'it waits for an operator and no question is open'
          FROM workspaces_task t
         WHERE :task(t.id) AND t.status = 'waiting' AND t.waiting_for = 'operator' AND NOT EXISTS (
               SELECT 1 FROM workspaces_escalation x WHERE x.task_id = t.id AND x.status = 'open')
        UNION ALL
        SELECT x.task_id, format('question %s is %s, decision "%s", answered at %s', x.id, x.status, x.decision,
                                 x.answered_at)
          FROM workspaces_escalation x
         WHERE :task(x.task_id) AND (x.status = 'answered') <> (
               x.decision <> '' AND x.answered_at IS NOT NULL AND x.answered_by_id IS NOT NULL)
        UNION ALL
        SELECT x.task_id, format('question %s is open, its call %s is %s', x.id, c.id, c.status)
          FROM workspaces_escalation x JOIN workspaces_toolcall c ON c.id = x.tool_call_id
         WHERE :task(x.task_id) AND x.status = 'open' AND c.status <> 'held'
        UNION ALL
        SELECT x.task_id, format('question %s was %s, the trace tells it %s times', x.id, x.status, coalesce(e.n, 0))
          FROM workspaces_escalation x
          LEFT JOIN (SELECT (data->>'escalation')::bigint AS id, kind, count(*) AS n FROM workspaces_event
                      WHERE :task(task_id) AND kind IN ('escalation.answered', 'escalation.expired',
                            'escalation.withdrawn') GROUP BY 1, 2) e
               ON e.id = x.id AND e.kind = 'escalation.' || x.status
         WHERE :task(x.task_id) AND x.status <> 'open' AND coalesce(e.n, 0) <> 1
        """,
    ),
    Rule(
        "leases",
        "a task is held by a worker that has a name, or by none",
        "task",
        """
        SELECT t.id, format('lease of "%s" until %s, fence %s', t.lease_owner, t.lease_until, t.fence)
          FROM workspaces_task t
         WHERE :task(t.id) AND (t.lease_owner = '' AND t.lease_until IS NOT NULL OR t.fence < 0
               OR t.fence = 0 AND t.lease_until IS NOT NULL OR t.lease_until > now() + interval '1 hour')
        """,
    ),
    Rule(
        "workspaces",
        "a workspace is held by one of its own tasks that has not ended; a command runs only for the holder",
        "workspace",
        """
        SELECT t.id, format('workspace %s is held by it, a %s task of workspace %s', w.id, t.status, t.workspace_id)
          FROM workspaces_workspace w JOIN workspaces_task t ON t.id = w.held_by_id
         WHERE :task(t.id) AND (t.workspace_id <> w.id OR t.status IN ('succeeded', 'failed', 'cancelled'))
        UNION ALL
        SELECT t.id, format('call %s runs in workspace %s, which the task does not hold', c.id, w.id)
          FROM workspaces_toolcall c
          JOIN workspaces_task t ON t.id = c.task_id
          JOIN workspaces_workspace w ON w.id = t.workspace_id
         WHERE :task(t.id) AND c.status = 'running' AND w.held_by_id IS DISTINCT FROM t.id
        """,
    ),
    Rule(
        "leftovers",
        "a task that has ended, and a branch that was left, have nothing open",
        "task",
        """
        SELECT c.task_id, format('tool call %s (%s) is %s', c.id, c.name, c.status)
          FROM workspaces_toolcall c JOIN workspaces_task t ON t.id = c.task_id
         WHERE :task(t.id) AND c.status NOT IN ('done', 'abandoned')
           AND (t.status IN ('succeeded', 'failed', 'cancelled') OR c.branch_id <> t.branch_id)
        UNION ALL
        SELECT m.task_id, format('model call %s is %s', m.id, m.status)
          FROM workspaces_modelcall m JOIN workspaces_task t ON t.id = m.task_id
          JOIN workspaces_step s ON s.id = m.step_id
         WHERE :task(t.id) AND m.status = 'running'
           AND (t.status IN ('succeeded', 'failed', 'cancelled') OR s.branch_id <> t.branch_id)
        UNION ALL
        SELECT x.task_id, format('question %s is open', x.id)
          FROM workspaces_escalation x JOIN workspaces_task t ON t.id = x.task_id
         WHERE :task(t.id) AND x.status = 'open' AND t.status IN ('succeeded', 'failed', 'cancelled')
        UNION ALL
        SELECT l.task_id, format('the hold %s stands', l.id)
          FROM workspaces_latch l JOIN workspaces_task t ON t.id = l.task_id
         WHERE :task(t.id) AND l.released_at IS NULL AND t.status IN ('succeeded', 'failed', 'cancelled')
        UNION ALL
        SELECT t.id, format('it is %s since %s, finished at %s, cancelling %s', t.status, t.status_since,
                            t.finished_at, t.cancelling)
          FROM workspaces_task t
         WHERE :task(t.id) AND CASE WHEN t.status IN ('succeeded', 'failed', 'cancelled')
               THEN t.finished_at IS NULL OR t.cancelling OR t.latch_id IS NOT NULL
               ELSE t.finished_at IS NOT NULL END
        """,
    ),
    Rule(
        "orphans",
        "every row belongs to the task, the branch and the step that its parents belong to",
        "step",
        """
        SELECT s.task_id, format('step %s lies on a branch of task %s', s.id, b.task_id)
          FROM workspaces_step s JOIN workspaces_branch b ON b.id = s.branch_id
         WHERE :task(s.task_id) AND b.task_id <> s.task_id
        UNION ALL
        SELECT c.task_id, format('tool call %s lies elsewhere than its step %s', c.id, s.id)
          FROM workspaces_toolcall c JOIN workspaces_step s ON s.id = c.step_id
         WHERE :task(c.task_id) AND (s.task_id, s.branch_id) <> (c.task_id, c.branch_id)
        UNION ALL
        SELECT m.task_id, format('model call %s lies elsewhere than its step %s', m.id, s.id)
          FROM workspaces_modelcall m JOIN workspaces_step s ON s.id = m.step_id
         WHERE :task(m.task_id) AND s.task_id <> m.task_id
        UNION ALL
        SELECT k.task_id, format('checkpoint %s lies elsewhere than its branch or step', k.id)
          FROM workspaces_checkpoint k JOIN workspaces_branch b ON b.id = k.branch_id
          LEFT JOIN workspaces_step s ON s.id = k.step_id
         WHERE :task(k.task_id) AND (b.task_id <> k.task_id
               OR s.id IS NOT NULL AND ((s.task_id, s.branch_id) <> (k.task_id, k.branch_id)
               OR s.number <> k.step_number))
        UNION ALL
        SELECT x.task_id, format('question %s is about a call of task %s', x.id, c.task_id)
          FROM workspaces_escalation x JOIN workspaces_toolcall c ON c.id = x.tool_call_id
         WHERE :task(x.task_id) AND c.task_id <> x.task_id
        """,
    ),
    Rule(
        "steps",
        "the steps of a branch count up from its first, and only the last is not settled",
        "step",
        """
        SELECT min(b.task_id), format('branch %s begins with step %s; it has %s steps, from %s to %s', b.number,
                                      b.first_step, count(*), min(s.number), max(s.number))
          FROM workspaces_step s JOIN workspaces_branch b ON b.id = s.branch_id
         WHERE :task(b.task_id)
         GROUP BY b.id
        HAVING min(s.number) <> b.first_step OR max(s.number) - min(s.number) + 1 <> count(*)
        UNION ALL
        SELECT s.task_id, format('step %s is %s, and a later one follows on its branch', s.number, s.phase)
          FROM workspaces_step s
         WHERE :task(s.task_id) AND s.phase <> 'settled' AND EXISTS (
               SELECT 1 FROM workspaces_step o WHERE o.branch_id = s.branch_id AND o.number > s.number)
        UNION ALL
        SELECT t.id, format('%s steps are counted, %s are settled', t.steps_taken, coalesce(s.n, 0))
          FROM workspaces_task t
          LEFT JOIN (SELECT task_id, count(*) AS n FROM workspaces_step WHERE phase = 'settled' AND :task(task_id)
                      GROUP BY 1) s ON s.task_id = t.id
         WHERE :task(t.id) AND t.steps_taken <> coalesce(s.n, 0)
        """,
    ),
    Rule(
        "phases",
        "a step's phase is the one that its calls have reached",
        "step",
        """
        SELECT s.task_id, format('step %s is %s: %s', s.number, s.phase, problem)
          FROM workspaces_step s
          JOIN workspaces_branch b ON b.id = s.branch_id
         CROSS JOIN LATERAL (SELECT
               EXISTS (SELECT 1 FROM workspaces_modelcall m WHERE m.step_id = s.id AND m.status = 'replied'
                          AND m.purpose = 'step') AS replied,
               EXISTS (SELECT 1 FROM workspaces_modelcall m WHERE m.step_id = s.id) AS asked,
               EXISTS (SELECT 1 FROM workspaces_toolcall c WHERE c.step_id = s.id) AS calls,
               EXISTS (SELECT 1 FROM workspaces_toolcall c WHERE c.step_id = s.id
                          AND c.status NOT IN ('done', 'abandoned')) AS unfinished) AS has
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN s.phase = 'context' AND has.replied THEN 'its reply is stored' END),
               (CASE WHEN s.phase <> 'context' AND NOT has.replied
                          AND NOT (s.number = b.first_step AND b.parent_id IS NOT NULL AND NOT has.asked)
                     THEN 'no reply is stored' END),
               (CASE WHEN s.phase IN ('context', 'replied') AND has.calls THEN 'its calls are judged' END),
               (CASE WHEN s.phase = 'settled' AND has.unfinished THEN 'a call has no result' END),
               (CASE WHEN (s.phase = 'settled') <> (s.settled_at IS NOT NULL)
                     THEN 'settled and when do not agree' END),
               (CASE WHEN s.phase = 'settled' AND NOT EXISTS (
                          SELECT 1 FROM workspaces_checkpoint k WHERE k.step_id = s.id)
                     THEN 'it has no checkpoint' END)
         ) AS found(problem)
         WHERE :task(s.task_id) AND problem IS NOT NULL
        """,
    ),
    Rule(
        "branches",
        "branches count up, and each begins at a checkpoint of the line that it leaves",
        "branch",
        """
        SELECT t.id, format('it stands on branch %s and has %s, from %s to %s', own.number, count(b.id),
                            min(b.number), max(b.number))
          FROM workspaces_task t
          LEFT JOIN workspaces_branch own ON own.id = t.branch_id
          LEFT JOIN workspaces_branch b ON b.task_id = t.id
         WHERE :task(t.id)
         GROUP BY t.id, own.id
        HAVING own.id IS NULL OR own.task_id <> t.id OR min(b.number) <> 1 OR max(b.number) <> count(b.id)
               OR own.number <> max(b.number)
        UNION ALL
        SELECT b.task_id, format('branch %s leaves branch %s of task %s at %s, where no checkpoint is', b.number,
                                 p.number, p.task_id, b.parent_seq)
          FROM workspaces_branch b JOIN workspaces_branch p ON p.id = b.parent_id
         WHERE :task(b.task_id) AND NOT EXISTS (
               SELECT 1 FROM workspaces_checkpoint k WHERE k.branch_id = p.id AND k.seq = b.parent_seq)
        UNION ALL
        SELECT b.task_id, format('branch %s has the wrong parent', b.number)
          FROM workspaces_branch b JOIN workspaces_task t ON t.id = b.task_id
          LEFT JOIN workspaces_branch p ON p.id = b.parent_id
         WHERE :task(b.task_id) AND p.task_id IS DISTINCT FROM
               CASE WHEN b.number > 1 THEN b.task_id ELSE t.forked_from_id END
        """,
    ),
    Rule(
        "checkpoints",
        "a checkpoint stands at its event, with a snapshot of its disk, and every step that was settled has one",
        "checkpoint",
        """
        SELECT k.task_id, format('checkpoint %s at %s has no such event on its branch', k.id, k.seq)
          FROM workspaces_checkpoint k JOIN workspaces_branch b ON b.id = k.branch_id
          LEFT JOIN workspaces_event e ON e.task_id = k.task_id AND e.seq = k.seq AND e.kind = 'checkpoint.saved'
               AND e.branch_number = b.number
          LEFT JOIN workspaces_snapshot n ON n.id = k.snapshot_id AND n.ref = e.data->>'snapshot'
         WHERE :task(k.task_id) AND (e.id IS NULL OR n.id IS NULL)
        UNION ALL
        SELECT e.task_id, format('event %s tells of a checkpoint that is gone', e.seq)
          FROM workspaces_event e
         WHERE :task(e.task_id) AND e.kind = 'checkpoint.saved' AND NOT EXISTS (
               SELECT 1 FROM workspaces_checkpoint k WHERE k.task_id = e.task_id AND k.seq = e.seq)
        UNION ALL
        SELECT k.task_id, format('checkpoint %s holds %s pending calls, its event tells %s', k.id,
                                 jsonb_array_length(k.pending), e.data->>'pending')
          FROM workspaces_checkpoint k
          JOIN workspaces_event e ON e.task_id = k.task_id AND e.seq = k.seq
         WHERE :task(k.task_id) AND jsonb_array_length(k.pending)::text IS DISTINCT FROM e.data->>'pending'
        UNION ALL
        SELECT k.task_id, format('checkpoint %s: its disk is of a workspace of another lineage', k.id)
          FROM workspaces_checkpoint k
          JOIN workspaces_snapshot n ON n.id = k.snapshot_id
          JOIN workspaces_task t ON t.id = k.task_id
         WHERE :task(k.task_id) AND n.workspace_id <> t.workspace_id AND NOT EXISTS (
               SELECT 1 FROM workspaces_task o WHERE coalesce(o.root_id, o.id) = coalesce(t.root_id, t.id)
                  AND o.workspace_id = n.workspace_id)
        UNION ALL
        SELECT k.task_id, format('checkpoint %s counts more than its task', k.id)
          FROM workspaces_checkpoint k JOIN workspaces_task t ON t.id = k.task_id
         WHERE :task(k.task_id) AND (k.prompt_tokens > t.prompt_tokens OR k.output_tokens > t.output_tokens
               OR k.cost_usd > t.cost_usd OR k.seq > t.last_seq)
        """,
    ),
    Rule(
        "audit",
        "what a person did to a task stands in the audit log",
        "auditentry",
        """
        SELECT coalesce(e.task_id, a.task_id), format('%s: the trace tells %s times, the audit log %s times',
               coalesce(e.act, a.act), coalesce(e.n, 0), coalesce(a.n, 0))
          FROM (SELECT task_id, CASE kind WHEN 'task.rolled_back' THEN 'task.rollback'
                                          WHEN 'escalation.answered' THEN 'escalation'
                                          WHEN 'escalation.approved_once' THEN 'escalation'
                                          WHEN 'approval.standing' THEN 'approval'
                                          WHEN 'approval.revoked' THEN 'approval'
                                          WHEN 'incident.acknowledged' THEN 'incident.acknowledge'
                                          WHEN 'task.cancelling' THEN 'task.cancel' END AS act, count(*) AS n
                  FROM workspaces_event
                 WHERE :task(task_id) AND kind IN ('task.rolled_back', 'escalation.answered', 'task.cancelling',
                       'escalation.approved_once', 'approval.standing', 'approval.revoked',
                       'incident.acknowledged')
                 GROUP BY 1, 2) e
          FULL JOIN (SELECT task_id, CASE WHEN action LIKE 'escalation.%' THEN 'escalation'
                                                 WHEN action LIKE 'approval.%' THEN 'approval'
                                                 ELSE action END AS act, count(*) AS n
                       FROM workspaces_auditentry
                      WHERE task_id IS NOT NULL AND :task(task_id)
                        AND (action IN ('task.rollback', 'task.cancel', 'incident.acknowledge')
                             OR action LIKE 'escalation.%' OR action LIKE 'approval.%')
                      GROUP BY 1, 2) a ON a.task_id = e.task_id AND a.act = e.act
         WHERE coalesce(e.n, 0) <> coalesce(a.n, 0)
        """,
    ),
]
