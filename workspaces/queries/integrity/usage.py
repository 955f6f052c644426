"""Rules of usage and money: the sums are those of the model calls, each is booked once and to one user."""

from __future__ import annotations

from .rule import Rule

RULES = [
    Rule(
        "sums",
        "a task's tokens and cost are the sums of its model calls; calls whose price nobody knows are counted",
        "task",
        """
        SELECT t.id, format('it says %s + %s tokens, %s USD, %s unpriced; its calls say %s + %s, %s, %s',
               t.prompt_tokens, t.output_tokens, t.cost_usd, t.unpriced_calls, m.prompt, m.output, m.cost, m.unpriced)
          FROM workspaces_task t
          LEFT JOIN (SELECT task_id,
                            sum(coalesce(input_tokens, 0) + coalesce(cached_input_tokens, 0)
                                + coalesce(cache_write_tokens, 0)) AS prompt,
                            sum(coalesce(output_tokens, 0)) AS output,
                            sum(coalesce(cost_usd, 0)) AS cost,
                            count(*) FILTER (WHERE status = 'replied' AND cost_usd IS NULL OR status = 'dropped'
                                OR status = 'failed' AND error_kind IN ('timeout', 'malformed')) AS unpriced
                       FROM workspaces_modelcall WHERE :task(task_id) GROUP BY task_id) m ON m.task_id = t.id
         WHERE :task(t.id) AND (t.prompt_tokens, t.output_tokens, t.cost_usd, t.unpriced_calls)
               <> (coalesce(m.prompt, 0), coalesce(m.output, 0), coalesce(m.cost, 0), coalesce(m.unpriced, 0))
        """,
    ),
    Rule(
        "usage",
        "the usage records of a model call are its tokens, each counted once, and its cost",
        "modelcall",
        """
        SELECT m.task_id, format('model call %s: %s USD and %s tokens, its records say %s and %s', m.id, m.cost_usd,
               coalesce(m.input_tokens, 0) + coalesce(m.cached_input_tokens, 0) + coalesce(m.cache_write_tokens, 0)
                   + coalesce(m.output_tokens, 0), u.cost, u.tokens)
          FROM workspaces_modelcall m
          LEFT JOIN (SELECT model_call_id, sum(quantity) FILTER (WHERE unit LIKE '%_tokens') AS tokens,
                            sum(cost_usd) AS cost, bool_or(cost_usd IS NULL) AS unpriced,
                            sum(quantity) FILTER (WHERE unit = 'input_tokens') AS input,
                            sum(quantity) FILTER (WHERE unit IN ('output_tokens', 'reasoning_tokens')) AS output,
                            sum(quantity) FILTER (WHERE unit = 'reasoning_tokens') AS reasoning,
                            sum(quantity) FILTER (WHERE unit = 'cached_input_tokens') AS cached,
                            sum(quantity) FILTER (WHERE unit = 'cache_write_tokens') AS written
                       FROM workspaces_usagerecord WHERE :task(task_id) GROUP BY 1) u ON u.model_call_id = m.id
         WHERE :task(m.task_id)
           AND ((coalesce(u.input, 0), coalesce(u.output, 0), coalesce(u.cached, 0), coalesce(u.written, 0))
                <> (coalesce(m.input_tokens, 0), coalesce(m.output_tokens, 0), coalesce(m.cached_input_tokens, 0),
                    coalesce(m.cache_write_tokens, 0))
                OR coalesce(u.reasoning, m.reasoning_tokens, 0) <> coalesce(m.reasoning_tokens, 0)
                OR m.cost_usd IS DISTINCT FROM CASE WHEN u.unpriced OR u.model_call_id IS NULL THEN NULL
                                                    ELSE u.cost END)
        """,
    ),
    Rule(
        "prices",
        "a usage record costs its quantity at its price, and one without a price has no cost but nothing's",
        "usagerecord",
        """
        SELECT u.task_id, format('usage record %s: %s %s at %s make %s', u.id, u.quantity, u.unit, u.unit_price_usd,
                                 u.cost_usd)
          FROM workspaces_usagerecord u
         WHERE :task(u.task_id) AND (u.cost_usd IS NULL AND u.unit_price_usd IS NOT NULL
               OR abs(u.cost_usd - u.quantity * u.unit_price_usd) > 0.000000002 + u.quantity * 1e-15)
        """,
    ),
    Rule(
        "rollup",
        "the sums of usage are those of the records, hour by hour, and there is no other",
        "usagerollup",
        """
        SELECT task_id, format('%s of %s in the hour %s: the sum has %s records, %s, %s USD and %s unpriced too many',
                               unit, purpose, hour, sum(records), sum(quantity), sum(cost_usd), sum(unpriced))
          FROM (SELECT hour, user_id, workspace_id, task_id, profile_id, model, purpose, unit, records, quantity,
                       cost_usd, unpriced, unpriced_quantity
                  FROM workspaces_usagerollup WHERE :task(task_id)
                 UNION ALL
                SELECT date_trunc('hour', created_at, 'UTC'), user_id, workspace_id, task_id, profile_id, model,
                       purpose, unit, -count(*), -sum(quantity), -coalesce(sum(cost_usd), 0),
                       -count(*) FILTER (WHERE cost_usd IS NULL),
                       -coalesce(sum(quantity) FILTER (WHERE cost_usd IS NULL), 0)
                  FROM workspaces_usagerecord WHERE :task(task_id) GROUP BY 1, 2, 3, 4, 5, 6, 7, 8) both_ways
         GROUP BY hour, user_id, workspace_id, task_id, profile_id, model, purpose, unit
        HAVING (sum(records), sum(quantity), sum(cost_usd), sum(unpriced), sum(unpriced_quantity)) <> (0, 0, 0, 0, 0)
        """,
    ),
    Rule(
        "days",
        "the sums of usage by the day are those by the hour, and there is no other",
        "usageday",
        """
        SELECT task_id, format('%s on %s: the sum has %s records, %s USD and %s unpriced too many', purpose, day,
                               sum(records), sum(cost_usd), sum(unpriced))
          FROM (SELECT day, user_id, workspace_id, task_id, profile_id, model, purpose, records, cost_usd, unpriced
                  FROM workspaces_usageday WHERE :task(task_id)
                 UNION ALL
                SELECT (hour AT TIME ZONE 'UTC')::date, user_id, workspace_id, task_id, profile_id, model, purpose,
                       -sum(records), -sum(cost_usd), -sum(unpriced)
                  FROM workspaces_usagerollup WHERE :task(task_id) GROUP BY 1, 2, 3, 4, 5, 6, 7) both_ways
         GROUP BY day, user_id, workspace_id, task_id, profile_id, model, purpose
        HAVING (sum(records), sum(cost_usd), sum(unpriced)) <> (0, 0, 0)
        """,
    ),
    Rule(
        "booked",
        "every usage record is booked to one user and workspace: to those of its task, and of its model call",
        "usagerecord",
        """
        SELECT u.task_id, format('usage record %s (%s %s)', u.id, u.quantity, u.unit)
          FROM workspaces_usagerecord u
          LEFT JOIN workspaces_modelcall m ON m.id = u.model_call_id
          LEFT JOIN workspaces_task t ON t.id = u.task_id
          LEFT JOIN workspaces_profileversion v ON v.id = t.profile_version_id
         WHERE :task(u.task_id) AND (u.quantity < 0 OR u.cost_usd < 0
               OR t.id IS NOT NULL AND (u.workspace_id, u.user_id, u.profile_id)
                  IS DISTINCT FROM (t.workspace_id, t.created_by_id, v.profile_id)
               OR (m.id IS NULL) <> (u.purpose IN ('sandbox', 'storage'))
               OR m.id IS NOT NULL AND (u.task_id, u.step_id, u.model, u.purpose) IS DISTINCT FROM
                  (m.task_id, m.step_id, m.model,
                   CASE WHEN m.purpose = 'step' AND m.attempt > 1 THEN 'retry' ELSE m.purpose END))
        """,
    ),
    Rule(
        "meters",
        "what a sandbox was read to have used is booked",
        "sandboxmeter",
        """
        SELECT NULL::bigint, format('workspace %s: its meters were read to %s CPU seconds, %s are booked', workspace_id,
                                    m.cpu, coalesce(r.cpu, 0))
          FROM (SELECT workspace_id, sum(cpu_s) AS cpu FROM workspaces_sandboxmeter GROUP BY 1) m
          LEFT JOIN (SELECT workspace_id, sum(quantity)::float8 AS cpu, count(*) AS records FROM workspaces_usagerecord
                      WHERE unit = 'cpu_seconds'
                        AND workspace_id IN (SELECT workspace_id FROM workspaces_task WHERE :task(id)) GROUP BY 1) r
         USING (workspace_id)
         WHERE workspace_id IN (SELECT workspace_id FROM workspaces_task WHERE :task(id))
           AND m.cpu > coalesce(r.cpu, 0) + 0.000001 * (coalesce(r.records, 0) + 1)
        """,
    ),
    Rule(
        "model-calls",
        "each call has its intent in the trace, with what it was for, and what ended says when",
        "modelcall",
        """
        SELECT m.task_id, format('model call %s is %s, finished at %s, %s intents, %s ends', m.id, m.status,
                                 m.finished_at, coalesce(e.intents, 0), coalesce(e.ends, 0))
          FROM workspaces_modelcall m
          LEFT JOIN (SELECT (data->>'model_call')::bigint AS id,
                            count(*) FILTER (WHERE kind = 'model.called') AS intents,
                            string_agg(DISTINCT coalesce(data->>'purpose', 'step'), ', ') AS purposes,
                            count(*) FILTER (WHERE kind <> 'model.called') AS ends
                       FROM workspaces_event
                      WHERE :task(task_id) AND kind IN ('model.called', 'model.replied', 'model.failed',
                            'model.dropped') GROUP BY 1) e ON e.id = m.id
         WHERE :task(m.task_id) AND ((m.status = 'running') = (m.finished_at IS NOT NULL)
               OR e.purposes <> m.purpose
               OR coalesce(e.intents, 0) <> 1
               OR coalesce(e.ends, 0) <> CASE WHEN m.status = 'running' THEN 0 ELSE 1 END)
        """,
    ),
    Rule(
        "imports",
        "every line of a provider's export that was read or could not be is kept, and counted once",
        "usageimport",
        """
        SELECT NULL::bigint, format('import %s says %s rows read and %s unreadable; there are %s and %s', i.id,
                                    i.rows_read, i.rows_bad, coalesce(r.good, 0), coalesce(r.bad, 0))
          FROM workspaces_usageimport i
          LEFT JOIN (SELECT source_id, count(*) FILTER (WHERE problem = '') AS good,
                            count(*) FILTER (WHERE problem <> '') AS bad
                       FROM workspaces_usageimportrow GROUP BY 1) r ON r.source_id = i.id
         WHERE :task(0) AND (i.rows_read, i.rows_bad) <> (coalesce(r.good, 0), coalesce(r.bad, 0))
        """,
    ),
]
