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
        "the usage records of a model call are its tokens and its cost",
        "modelcall",
        """
        SELECT m.task_id, format('model call %s: %s USD and %s tokens, its records say %s and %s', m.id, m.cost_usd,
               coalesce(m.input_tokens, 0) + coalesce(m.cached_input_tokens, 0) + coalesce(m.cache_write_tokens, 0)
                   + coalesce(m.output_tokens, 0), u.cost, u.tokens)
          FROM workspaces_modelcall m
          LEFT JOIN (SELECT model_call_id, sum(quantity) AS tokens, sum(cost_usd) AS cost,
                            bool_or(cost_usd IS NULL) AS unpriced,
                            sum(quantity) FILTER (WHERE unit = 'input_tokens') AS input,
                            sum(quantity) FILTER (WHERE unit = 'output_tokens') AS output,
                            sum(quantity) FILTER (WHERE unit = 'cached_input_tokens') AS cached,
                            sum(quantity) FILTER (WHERE unit = 'cache_write_tokens') AS written
                       FROM workspaces_usagerecord WHERE :task(task_id) GROUP BY 1) u ON u.model_call_id = m.id
         WHERE :task(m.task_id)
           AND ((coalesce(u.input, 0), coalesce(u.output, 0), coalesce(u.cached, 0), coalesce(u.written, 0))
                <> (coalesce(m.input_tokens, 0), coalesce(m.output_tokens, 0), coalesce(m.cached_input_tokens, 0),
                    coalesce(m.cache_write_tokens, 0))
                OR m.cost_usd IS DISTINCT FROM CASE WHEN u.unpriced OR u.model_call_id IS NULL THEN NULL
                                                    ELSE u.cost END)
        """,
    ),
    Rule(
        "booked",
        "every usage record is booked to the user, workspace, task and step of its model call",
        "usagerecord",
        """
        SELECT u.task_id, format('usage record %s (%s %s)', u.id, u.quantity, u.unit)
          FROM workspaces_usagerecord u
          JOIN workspaces_modelcall m ON m.id = u.model_call_id
          JOIN workspaces_task t ON t.id = m.task_id
         WHERE :task(u.task_id) AND (u.quantity < 0 OR u.cost_usd < 0 OR
               (u.task_id, u.step_id, u.workspace_id, u.user_id)
                <> (m.task_id, m.step_id, t.workspace_id, t.created_by_id))
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
]
