"""Makes a task for the local model in a running product: `python -m tests.model.prepare '{"base_url": …}'`.

A process of its own that belongs to the product by its environment. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentdesk.settings")
django.setup()

from tests.harness import make_user, make_workspace  # noqa: E402
from workspaces.actions.profiles import create_profile  # noqa: E402
from workspaces.actions.tasks import create_task  # noqa: E402

# Without the form of the last call before its eyes, the model calls finish with no summary, again and again.
SYSTEM_PROMPT = (
    "You are a careful agent. Do the steps of the instruction in their order. Reply with the call for the next step "
    "only, and stop there: you see its result before you go on. To change a file that is there, call edit_file: old is "
    "the text that is in the file now, new is the text in its place. When the last step is done, end with "
    '{"name": "finish", "arguments": {"summary": "<what was done>"}}.'
)
INSTRUCTION = (
    "Step 1: create hello.txt with the text hello. Step 2: edit hello.txt so that it says hello world. "
    "Step 3: finish with a summary of what was done."
)


def task(base_url: str, model: str, driver: str, temperature: float, seed: int, hold: bool) -> dict[str, Any]:
    name = (
        f"model-{secrets.token_hex(4)}"  # each task comes from a process of its own: the harness's counters begin anew
    )
    owner = make_user(name)
    workspace = make_workspace(owner, driver=driver, name=name)
    version = create_profile(
        name=name,
        workspace=workspace,
        actor=owner,
        provider="openai",
        base_url=base_url,
        model=model,
        system_prompt=SYSTEM_PROMPT,
        tools=["write_file", "edit_file", "read_file", "finish"],
        provider_options={"extra_body": {"seed": seed}},
        temperature=temperature,
        max_output_tokens=256,
        context_window_tokens=8192,
        max_steps=12,
        model_timeout_s=900,
        local_allowed=True,
    )
    made = create_task(workspace=workspace, profile_version=version, instruction=INSTRUCTION, actor=owner, hold=hold)
    return {
        "id": made.pk,
        "owner": owner.pk,
        "workspace": {"key": workspace.sandbox_key, "driver": workspace.driver},
    }


if __name__ == "__main__":
    print(json.dumps(task(**json.loads(sys.argv[1]))))
