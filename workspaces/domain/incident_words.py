"""What the kinds, modes, clusters and rungs of incidents mean, each in one line for a person. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.domain.incidents import Cluster, FailureMode, IncidentKind, IncidentState, Rung, Severity


@dataclass(frozen=True, slots=True)
class Words:
    """`name` stands in headings and filters, `line` explains it."""

    name: str
    line: str


K, M, C = IncidentKind, FailureMode, Cluster

KINDS: dict[IncidentKind, Words] = {
    K.LOOP: Words("Loop", "The agent does the same again and gets the same."),
    K.PARALYSIS: Words("Paralysis", "The agent takes turns without an action."),
    K.NO_PROGRESS: Words("No progress", "The agent acts, and nothing changes: no file, no new result, no note."),
    K.CONTRADICTION: Words("Contradiction", "One question got results that cannot all be true."),
    K.STORM: Words("Storm", "Requests or tasks multiply faster than what they draw on can bear."),
    K.TRUNCATION: Words("Truncation", "The model saw less than was sent, or its reply was cut off."),
    K.CONTEXT_FULL: Words("Context full", "What the model must be sent does not fit its window."),
    K.BAD_CALL: Words("Bad call", "Calls that the gate had to correct, again and again."),
    K.HOLLOW_RESULT: Words("Hollow result", "An empty or ambiguous result, taken for success."),
    K.FALSE_CLAIM: Words("False claim", "The agent states an action that no completed call shows."),
    K.UNKNOWN_OUTCOME: Words("Unknown outcome", "An effect was begun, and nobody knows how it ended."),
    K.LOST_WORK: Words("Lost work", "Files or history could not be kept."),
    K.TOOL_CHANGED: Words("Tool changed", "A tool's definition is not the one that was accepted."),
}

MODES: dict[FailureMode, Words] = {
    M.LOST_HISTORY: Words(
        "Lost history", "Conversation, files or effects are forgotten, so work is lost or done twice."
    ),
    M.QUOTA: Words("Quota exhaustion", "A shared allowance runs out, and retries make it worse for everybody."),
    M.LOOP: Words("Loop", "The agent repeats itself, because nothing in its context says that it has been there."),
    M.PARALYSIS: Words("Paralysis", "Contradictory or missing information, and the agent does nothing that helps."),
    M.TRUNCATION: Words("Truncation", "Parts of the context are dropped without a word, instructions among them."),
    M.BAD_CALL: Words("Bad call", "One wrong call, or one hollow result, spoils all that is built on it."),
    M.COMPOUNDING: Words("Compounding", "Small failures add up with the length of a task and the number of agents."),
}

# arXiv 2607.05775
CLUSTERS: dict[Cluster, Words] = {
    C.TOOL_USE: Words("Tool use and parameters", "Wrong tools, wrong arguments, results misread."),
    C.PLANNING: Words("Planning and constraints", "Plans that are not kept, constraints that are forgotten."),
    C.LONG_HORIZON: Words("Long-horizon degradation", "What works over ten steps fails over a hundred."),
    C.COORDINATION: Words("Multi-agent coordination", "Several agents in one another's way."),
    C.SAFETY: Words("Safety and adversarial input", "Harm done, or an agent led astray by what it reads."),
    C.MEASUREMENT: Words("Measurement validity", "What is reported as success is none."),
}

SEVERITIES: dict[Severity, str] = {
    Severity.INFO: "Worth knowing; the agent may well get on by itself.",
    Severity.WARNING: "The agent was told, or will be.",
    Severity.ERROR: "It goes on without help.",
    Severity.CRITICAL: "Work or money is being lost.",
}

STATES: dict[IncidentState, str] = {
    IncidentState.OPEN: "Nobody has taken it up yet",
    IncidentState.ACKNOWLEDGED: "A person deals with it",
    IncidentState.RESOLVED: "Closed, by a person or because it ended",
}

RUNGS: dict[Rung, str] = {
    Rung.NOTED: "Written down; nothing was done about it.",
    Rung.NUDGED: "The evidence was put into the agent's context.",
    Rung.ESCALATED: "The task waits and a person was asked.",
    Rung.STOPPED: "The task was stopped.",
}
