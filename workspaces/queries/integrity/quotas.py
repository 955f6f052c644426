"""Rules of quota: what a pool says it holds is what is held for calls that run, and each place in it is somebody's."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "quota-held",
        "the calls in flight of a pool and the output held for them are those of its granted and leased claims",
        "quotapool",
        """
        SELECT c.task_id, format('pool %s (%s) says %s calls and %s tokens are held, its claims say %s and %s',
               p.id, p.name, coalesce((p.state->'f'->>0)::bigint, 0), coalesce((p.state->'f'->>1)::bigint, 0),
               coalesce(c.held, 0), coalesce(c.tokens, 0))
          FROM workspaces_quotapool p
          LEFT JOIN (SELECT pool_id, min(task_id) AS task_id, count(*) AS held, sum(output_tokens) AS tokens
                       FROM workspaces_quotaclaim WHERE state IN ('granted', 'leased') GROUP BY 1) c ON c.pool_id = p.id
         WHERE p.id IN (SELECT q.pool_id FROM workspaces_quotaclaim q WHERE :task(q.task_id))
           AND (coalesce((p.state->'f'->>0)::bigint, 0), coalesce((p.state->'f'->>1)::bigint, 0))
               <> (coalesce(c.held, 0), coalesce(c.tokens, 0))
        """,
    ),
    Rule(
        "quota-queue",
        "as many wait at a pool as it says",
        "quotapool",
        """
        SELECT c.task_id, format('pool %s (%s) says that %s wait, there are %s', p.id, p.name,
               coalesce((p.state->'q'->>2)::bigint, 0), coalesce(c.waiting, 0))
          FROM workspaces_quotapool p
          LEFT JOIN (SELECT pool_id, min(task_id) AS task_id, count(*) AS waiting
                       FROM workspaces_quotaclaim WHERE state = 'waiting' GROUP BY 1) c ON c.pool_id = p.id
         WHERE p.id IN (SELECT q.pool_id FROM workspaces_quotaclaim q WHERE :task(q.task_id))
           AND coalesce((p.state->'q'->>2)::bigint, 0) <> coalesce(c.waiting, 0)
        """,
    ),
    Rule(
        "quota-leases",
        "every lease is of a model call that runs, and holds what the call says; every call that runs has its lease",
        "quotaclaim",
        """
        SELECT coalesce(c.task_id, m.task_id), format('claim %s (%s) and model call %s (%s): %s', c.id, c.state, m.id,
               m.status, problem)
          FROM (SELECT * FROM workspaces_quotaclaim WHERE :task(task_id) AND (state = 'leased'
                    OR model_call_id IS NOT NULL)) c
          FULL JOIN (SELECT * FROM workspaces_modelcall WHERE :task(task_id) AND status = 'running'
                        AND pool_id IS NOT NULL) m ON m.id = c.model_call_id
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN m.id IS NULL THEN 'a lease of no call that runs' END),
               (CASE WHEN c.id IS NULL OR c.state <> 'leased' THEN 'a call that runs without a lease' END),
               (CASE WHEN (c.pool_id, c.task_id, c.input_tokens, c.output_tokens)
                          <> (m.pool_id, m.task_id, m.reserved_input_tokens, m.reserved_output_tokens)
                     THEN 'they do not say the same' END)
         ) AS found(problem)
         WHERE problem IS NOT NULL
        """,
    ),
    Rule(
        "quota-shares",
        "a user's open claims at a pool are counted",
        "quotaclaim",
        """
        SELECT c.task_id, format('user %s at pool %s: %s open, there are %s', s.user_id, s.pool_id, s.open,
               coalesce(c.n, 0))
          FROM workspaces_quotashare s
          LEFT JOIN (SELECT pool_id, user_id, min(task_id) AS task_id, count(*) AS n FROM workspaces_quotaclaim
                      WHERE state <> 'idle' GROUP BY 1, 2) c ON c.pool_id = s.pool_id AND c.user_id = s.user_id
         WHERE s.open <> coalesce(c.n, 0)
           AND s.pool_id IN (SELECT q.pool_id FROM workspaces_quotaclaim q WHERE :task(q.task_id))
        """,
    ),
]
