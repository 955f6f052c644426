"""Rules of budgets: an account holds what the records, the calls that run and the calls that never answered add up to.

For one task: the budgets that are set for the task itself.
"""

from __future__ import annotations

from workspaces.domain.prices import TOKEN_UNITS

from .rule import Rule

_TOKENS = tuple(unit.value for unit in TOKEN_UNITS)

# the accounts in which each model call was held
_HELD = """SELECT held.id::bigint AS account_id, call.*
             FROM workspaces_modelcall AS call CROSS JOIN LATERAL jsonb_array_elements_text(call.held_in) AS held(id)"""

RULES = [
    Rule(
        "budget-spent",
        "what a budget counts as spent is what the usage records of its scope and period add up to",
        "budgetaccount",
        f"""
        WITH RECURSIVE places(top, id) AS (
            SELECT id, id FROM workspaces_workspace UNION
            SELECT places.top, below.id FROM workspaces_workspace AS below
              JOIN places ON below.forked_from_id = places.id),
        line(top, id) AS (
            SELECT id, id FROM workspaces_task UNION
            SELECT line.top, below.id FROM workspaces_task AS below JOIN line ON below.forked_from_id = line.id)
        SELECT budget.task_id, format('account %s (%s of budget %s): %s USD and %s tokens, its records say %s and %s',
               account.id, account.period_key, budget.id, account.spent_usd, account.spent_tokens, told.usd,
               told.tokens)
          FROM workspaces_budgetaccount AS account
          JOIN workspaces_budget AS budget ON budget.id = account.budget_id
         CROSS JOIN LATERAL (
            SELECT coalesce(sum(usage.cost_usd), 0) AS usd,
                   coalesce(sum(usage.quantity) FILTER (WHERE usage.unit IN {_TOKENS}), 0) AS tokens
              FROM workspaces_usagerecord AS usage
              LEFT JOIN workspaces_task AS task ON task.id = usage.task_id
              LEFT JOIN workspaces_modelcall AS call ON call.id = usage.model_call_id
             WHERE usage.created_at >= account.starts_at
               AND coalesce(call.started_at, usage.created_at) >= account.starts_at
               AND (account.ends_at IS NULL OR coalesce(call.started_at, usage.created_at) < account.ends_at)
               AND (budget.scope = 'task' OR account.period_key NOT LIKE 'task:%'
                    OR 'task:' || coalesce(task.root_id, task.id) = account.period_key)
               AND (budget.scope = 'site' OR usage.user_id = budget.user_id OR usage.profile_id = budget.profile_id
                    OR (budget.workspace_id, usage.workspace_id) IN (SELECT top, id FROM places)
                    OR (budget.task_id, usage.task_id) IN (SELECT top, id FROM line))
         ) AS told
         WHERE :task(budget.task_id) AND budget.ended_at IS NULL
           AND (account.spent_usd, account.spent_tokens) <> (told.usd, told.tokens)
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "budget-reserved",
        "what a budget has reserved is what the running calls and sandboxes hold in it",
        "budgetaccount",
        f"""
        SELECT budget.task_id, format('account %s: %s USD and %s tokens are reserved, what runs holds %s and %s',
               account.id, account.reserved_usd, account.reserved_tokens, coalesce(held.usd, 0),
               coalesce(held.tokens, 0))
          FROM workspaces_budgetaccount AS account
          JOIN workspaces_budget AS budget ON budget.id = account.budget_id
          LEFT JOIN (
            SELECT account_id, sum(usd) AS usd, sum(tokens) AS tokens FROM (
                SELECT account_id, coalesce(reserved_usd, 0) AS usd,
                       coalesce(held_tokens, 0) AS tokens
                  FROM ({_HELD} WHERE call.status = 'running') AS calls
                UNION ALL
                SELECT held.id::bigint, hold.usd, 0 FROM workspaces_budgethold AS hold
                 CROSS JOIN LATERAL jsonb_array_elements_text(hold.held_in) AS held(id)) AS each
             GROUP BY account_id) AS held ON held.account_id = account.id
         WHERE :task(budget.task_id)
           AND (account.reserved_usd, account.reserved_tokens) <> (coalesce(held.usd, 0), coalesce(held.tokens, 0))
        """,  # noqa: S608 - no value from outside is in it
    ),
    Rule(
        "budget-assumed",
        "what a budget assumes to be spent is what was reserved for calls of which nobody told what they cost",
        "budgetaccount",
        f"""
        SELECT budget.task_id, format('account %s: %s USD and %s tokens are assumed, its calls say %s and %s',
               account.id, account.assumed_usd, account.assumed_tokens, coalesce(told.usd, 0), coalesce(told.tokens, 0))
          FROM workspaces_budgetaccount AS account
          JOIN workspaces_budget AS budget ON budget.id = account.budget_id
          LEFT JOIN (
            SELECT account_id,
                   sum(CASE WHEN calls.status <> 'replied' THEN coalesce(reserved_usd, 0)
                            WHEN cost_usd IS NULL THEN greatest(0, coalesce(reserved_usd, 0) - coalesce(priced.usd, 0))
                            ELSE 0 END) AS usd,
                   sum(CASE WHEN calls.status = 'replied' AND input_tokens IS NOT NULL THEN 0
                            ELSE coalesce(held_tokens, 0) END) AS tokens
              FROM ({_HELD} WHERE call.status IN ('replied', 'dropped')
                       OR call.status = 'failed' AND call.error_kind IN ('timeout', 'malformed')) AS calls
              LEFT JOIN LATERAL (SELECT sum(usage.cost_usd) AS usd FROM workspaces_usagerecord AS usage
                                  WHERE calls.cost_usd IS NULL AND usage.model_call_id = calls.id) AS priced ON TRUE
             GROUP BY account_id) AS told ON told.account_id = account.id
         WHERE :task(budget.task_id)
           AND (account.assumed_usd, account.assumed_tokens) <> (coalesce(told.usd, 0), coalesce(told.tokens, 0))
        """,  # noqa: S608 - no value from outside is in it
    ),
]
