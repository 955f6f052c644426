"""Brings a request that is too large into the window: offload, clip, summarise, in this order, and tell what went.

Nothing is sent that lacks a pinned text, or that does not fit: a person is asked instead. Safe to come to again after
a crash at any point: files are named by what they hold, a summary that was stored is not asked for again, and the
rows and their receipt are one transaction.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

from workspaces.actions import compactions
from workspaces.domain import compaction as rules
from workspaces.domain.compaction import ContextPolicy, Cut, Pinned
from workspaces.domain.context import Entry, History, Replaced, SegmentKind, Summarised
from workspaces.domain.states import ModelCallPurpose, ModelCallStatus
from workspaces.engine import side_calls, unsent
from workspaces.engine.context import next_request
from workspaces.engine.disk import Disk
from workspaces.engine.run import Run
from workspaces.models import Message, ModelCall, Step, Summary, ToolCall
from workspaces.providers.base import ChatMessage, ChatRequest, ProviderError
from workspaces.queries.contexts import Built, made
from workspaces.sandboxes.base import SandboxError, SandboxGone, SandboxUnavailable

SUMMARY_TRIES = 2
SUMMARIES_AT_MOST = 6  # in one step: each takes in the one before
REST_AFTER_FAILURE = 5  # steps without another try, unless nothing fits without one
LEAST_GAIN = 0.1  # of the room, that a summary has to free while the request still fits
PINNED_TOLD = 50  # in a receipt


def fitting_request(run: Run, step: Step, disk: Disk) -> Built:
    """The next request: it fits, and holds all that is pinned. Raises Ended when a person is asked instead."""
    built = next_request(run)
    policy = rules.read_policy(run.version.context_policy)
    if _prompt(built) > _room(built) * policy.start_at:
        work = Compaction(run, step, disk, built, policy)
        work.do()
        if work.went:
            work.store()
            built = next_request(run)
        if not built.manifest.fits:
            unsent.ask_about_full(run, step, built, went=work.went, failed=work.failed)
    unsent.check_pinned(run, step, built)
    return built


class Compaction:
    """One pass over a request. What it changes is in `history` until `store` writes it down."""

    def __init__(self, run: Run, step: Step, disk: Disk, built: Built, policy: ContextPolicy) -> None:
        self.run = run
        self.step = step
        self.disk = disk
        self.before = built
        self.policy = policy
        self.history: History = built.history
        self.now = built
        self.replaced: dict[int, tuple[Entry, Replaced, str]] = {}  # by message: what, by what, why not offloaded
        self.summaries: list[tuple[Cut, Summarised, ModelCall]] = []
        self.refused: list[tuple[int, str]] = []
        self.failed = ""
        self._began = time.monotonic()
        self._cannot_offload = "" if {"read_file", "shell"} & set(run.tools) else "the agent has no tool to read files"

    @property
    def went(self) -> bool:
        return bool(self.replaced or self.summaries)

    def do(self) -> None:
        """Down to the target from the older turns; what does not fit even then, from the recent ones as well."""
        policy = self.policy
        goal = _room(self.before) * policy.target
        self._shorten(goal, policy.keep_recent)
        if policy.summarise:
            self._summarise(goal, policy.keep_recent)
        if not self.now.manifest.fits:
            self._shorten(_room(self.before), 1)
            if policy.summarise:
                self._summarise(_room(self.before), 1)
            self._shorten(_room(self.before), 0)

    def _take(self, history: History) -> None:
        self.history = history
        manifest = self.before.manifest
        self.now = made(
            self.run.version,
            self.before.frame,
            history,
            manifest.ranges,
            as_of=manifest.as_of_seq,
            scratchpad=self.before.scratchpad,
            limits=self.before.limits,
        )

    # offload, clip

    def _shorten(self, goal: float, keep_recent: int) -> None:
        too_many = _prompt(self.now) - goal
        if too_many <= 0:
            return
        long = rules.long_entries(self.history, keep_recent=keep_recent, over_tokens=self.policy.offload_over_tokens)
        outputs = [entry for entry in long if entry.kind is SegmentKind.TOOL_OUTPUT]
        others = [entry for entry in long if entry.kind is not SegmentKind.TOOL_OUTPUT]
        known = self._already_in_files(outputs)
        found: list[Replaced] = []
        for entry in [*outputs, *others]:
            if too_many <= 0:
                break
            shorter, why = self._shorter(entry, known)
            if shorter is not None:
                assert entry.line is not None
                self.replaced[entry.line.message_id] = (entry, shorter, why)
                found.append(shorter)
                too_many -= entry.tokens - shorter.tokens
        if found:
            self._take(rules.with_replacements(self.history, found))

    def _shorter(self, entry: Entry, known: dict[int, str]) -> tuple[Replaced | None, str]:
        """The entry offloaded, or clipped and why it was not offloaded."""
        line = entry.line
        assert line is not None
        if entry.kind is not SegmentKind.TOOL_OUTPUT:
            return rules.clipped(entry), ""
        if not self._cannot_offload:
            path = known.get(line.message_id) or rules.file_of(line.message_id)
            shorter = rules.offloaded(entry, path)
            if shorter is None or line.message_id in known or self._written(path, line.content):
                return shorter, ""
        return rules.clipped(entry), self._cannot_offload

    def _written(self, path: str, text: str) -> bool:
        """Into the workspace: the next checkpoint takes a new snapshot. Writing it again changes nothing."""
        sandbox = self.disk.awake()
        self.disk.changed()
        try:
            sandbox.write(path, text.encode())
        except (SandboxUnavailable, SandboxGone):
            raise
        except SandboxError as error:  # also a full disk
            self._cannot_offload = f"{error}"
            return False
        return True

    def _already_in_files(self, outputs: Sequence[Entry]) -> dict[int, str]:
        """Message → where the tool itself has put its whole output."""
        ids = [entry.line.message_id for entry in outputs if entry.line is not None]
        if not ids:
            return {}
        places = {(row.task_id, row.seq): row.pk for row in Message.objects.filter(pk__in=ids).only("task", "seq")}
        calls = ToolCall.objects.filter(task__in={task for task, _ in places}, seq__in={seq for _, seq in places})
        found: dict[int, str] = {}
        for call in calls.filter(result_data__has_key="offloaded_path").only("task", "seq", "result_data"):
            message = places.get((call.task_id, call.seq or 0))
            if message is not None:
                found[message] = call.result_data["offloaded_path"]
        return found

    # summarise

    def _summarise(self, goal: float, keep_recent: int) -> None:
        while _prompt(self.now) > goal and len(self.summaries) < SUMMARIES_AT_MOST and not self.failed:
            fits = self.now.manifest.fits
            cut = rules.oldest_turns(
                self.history,
                keep_recent=keep_recent,
                too_many=int(_prompt(self.now) - goal),
                summary_tokens=self.policy.summary_max_tokens,
            )
            if cut is None:
                return
            gain = cut.tokens - self.policy.summary_max_tokens
            if fits and (gain < _room(self.before) * LEAST_GAIN or self._failed_lately()):
                return
            if not self._summarised(cut):
                return

    def _summarised(self, cut: Cut | None) -> bool:
        """Whether a summary of the cut, or of a part of it that fits into a request, was had and taken."""
        policy = self.policy
        room = int(_estimated(self.before, self.before.manifest.window_tokens - policy.summary_max_tokens))
        why = ""
        for _ in range(SUMMARY_TRIES):
            prompt = None
            while cut is not None:
                prompt = rules.summary_prompt(cut, max_tokens=policy.summary_max_tokens, room_tokens=room, refused=why)
                if prompt is not None:
                    break
                cut = rules.fewer(cut)
            if cut is None or prompt is None:
                self.failed = "the oldest turn does not fit into a request for its summary"
                return False
            call = self._reply(*prompt)
            if call is None:
                return False
            why = rules.why_refused(call.text, calls=len(call.calls), finish_reason=call.finish_reason, cut=cut)
            if not why:
                summary = rules.summarised(cut, call.text)
                self.summaries.append((cut, summary, call))
                self._take(rules.with_summary(self.history, summary))
                return True
            self.refused.append((call.pk, why))
            compactions.refuse_summary(self.run.task.pk, self.run.fence, self.step, call, why)
        self.failed = f"the model's summaries were refused, the last because {why}"
        return False

    def _reply(self, system: str, user: str) -> ModelCall | None:
        request = ChatRequest(
            model=self.policy.summary_model or self.run.version.model,
            messages=(ChatMessage("system", system), ChatMessage("user", user)),
            max_output_tokens=self.policy.summary_max_tokens,
            purpose=ModelCallPurpose.SUMMARY.value,
        )
        try:
            return side_calls.ask(self.run, self.step, request)
        except ProviderError as error:
            self.failed = f"no summary was to be had: {error}"
            return None

    def _failed_lately(self) -> bool:
        """A summary that could not be had is not tried again in every step."""
        last = (
            ModelCall.objects.filter(
                task=self.run.task, step__branch=self.run.branch, purpose=ModelCallPurpose.SUMMARY.value
            )
            .exclude(step_id=self.step.pk)
            .exclude(status=ModelCallStatus.DROPPED.value)
            .select_related("step")
            .order_by("-pk")
            .first()
        )
        if last is None or last.step.number < self.step.number - REST_AFTER_FAILURE:
            return False
        return not Summary.objects.filter(task=self.run.task, model_call__step=last.step).exists()

    # the receipt

    def store(self) -> None:
        run = self.run
        unsent.check_pinned(run, self.step, self.now)
        compactions.store_compaction(
            run.task.pk,
            run.fence,
            self.step,
            replaced=[shorter for _, shorter, _ in self.replaced.values()],
            summaries=self.summaries,
            receipt=self._receipt(unsent.pinned_in(self.now)),
        )

    def _receipt(self, pinned: list[Pinned]) -> dict[str, Any]:
        manifest = self.before.manifest
        offloaded, clipped = [], []
        for entry, shorter, why in self.replaced.values():
            assert entry.line is not None
            told: dict[str, Any] = {
                "message": shorter.message_id,
                "seq": entry.line.seq,
                "tokens_before": entry.tokens,
                "tokens_after": shorter.tokens,
            }
            if shorter.path:
                offloaded.append({**told, "path": shorter.path})
            else:
                clipped.append({**told, "why": why} if why else told)
        over = "it did not fit" if not manifest.fits else f"it took more than {self.policy.start_at:.0%} of the room"
        return {
            "why": over,
            "tokens_before": manifest.prompt_tokens,
            "tokens_after": self.now.manifest.prompt_tokens,
            "window_tokens": manifest.window_tokens,
            "reserved_output_tokens": manifest.reserved_output_tokens,
            "offloaded": offloaded,
            "clipped": clipped,
            "summarised": self._receipt_of_summary(),
            "refused": [{"model_call": call, "why": why} for call, why in self.refused],
            "not_done": self.failed,
            "pinned": [
                {"what": item.what, "message": item.message_id, "sha256": _sha(item.text)[:16]}
                for item in pinned[:PINNED_TOLD]
            ],
            "pinned_parts": len(pinned),
            "pinned_sha256": _sha("".join(_sha(item.text) for item in pinned)),
            "duration_s": round(time.monotonic() - self._began, 3),
        }

    def _receipt_of_summary(self) -> dict[str, Any] | None:
        if not self.summaries:
            return None
        covered = [entry for cut, _, _ in self.summaries for entry in cut.covered]
        lines = [entry.line for entry in covered if entry.line is not None]
        (first_cut, _, _), (_, summary, call) = self.summaries[0], self.summaries[-1]
        earlier = first_cut.earlier
        return {
            "from_seq": lines[0].seq,
            "to_seq": lines[-1].seq,
            "first_message": min(line.message_id for line in lines),
            "last_message": summary.upto,
            "messages": len(lines),
            "replies": summary.replies,
            "earlier_summary": earlier.summary_id if earlier else None,
            "tokens_before": sum(entry.tokens for entry in covered) + (earlier.tokens if earlier else 0),
            "tokens_after": summary.tokens,
            "model_call": call.pk,
            "model_calls": [made_by.pk for _, _, made_by in self.summaries],
        }


def _prompt(built: Built) -> int:
    return built.manifest.prompt_tokens


def _room(built: Built) -> float:
    """What the window has for the request, in estimated tokens as the parts of a request are counted in."""
    return max(0.0, _estimated(built, built.manifest.window_tokens - built.manifest.reserved_output_tokens))


def _estimated(built: Built, tokens: int) -> float:
    """So many of the provider's tokens in estimated ones, by what is known of its counting."""
    calibration = built.manifest.calibration
    return (tokens - calibration.offset) / calibration.factor


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
