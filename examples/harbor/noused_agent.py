"""Runs noused in Harbor, for Terminal-Bench and its other datasets.

harbor run -d terminal-bench@2.0 --agent-import-path noused_agent:NousedAgent --model anthropic/claude-sonnet-4-5
"""
import json
import os
import shlex
import shutil
from pathlib import Path

from harbor.agents.base import BaseAgent

BIN = "/usr/local/bin"
LOGS = "/logs/agent"  # the container's; Harbor has it as self.logs_dir
# What a provider's key is called; with the daemon's own variables nothing else of the host goes into the container.
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "XAI_API_KEY", "MISTRAL_API_KEY",
        "GROQ_API_KEY", "DEEPSEEK_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL")


class NousedAgent(BaseAgent):
    """noused in the container of the task: one session, whose trajectory Harbor gets."""

    SUPPORTS_ATIF = True

    def __init__(self, *args, bin_dir=None, max_cost=None, **kwargs):
        super().__init__(*args, **kwargs)
        found = shutil.which("noused")
        self._bin = Path(bin_dir) if bin_dir else Path(found).parent if found else None
        self._max_cost = max_cost

    @staticmethod
    def name():
        return "noused"

    def version(self):
        return None

    async def setup(self, environment):
        if self._bin is None:
            raise RuntimeError("noused is not in PATH: name its folder with --agent-kwarg bin_dir=…")
        for program in ("nous", "noused"):
            await environment.upload_file(self._bin / program, f"{BIN}/{program}")
        await self._run(environment, f"chmod 755 {BIN}/nous {BIN}/noused && nous --version")

    async def run(self, instruction, environment, context):
        words = ["nous", "prompt", "--new", "--json=result", "--approvals", "allow"]
        if self.model_name:
            words += ["--model", self.model_name]
        if self._max_cost:
            words += ["--max-cost", str(self._max_cost)]
        ask = f"printf %s {shlex.quote(instruction)} | {shlex.join(words)} - >{LOGS}/result.json 2>{LOGS}/nous.txt"
        try:
            await self._run(environment, f"mkdir -p {LOGS}; {ask}", check=False)
        finally:  # also where Harbor's time is up: what was done until then counts
            await self._run(
                environment,
                f"nous export --format atif >{LOGS}/trajectory.json 2>>{LOGS}/nous.txt; nous stop >/dev/null 2>&1",
                check=False)
        self._tell(context)

    def _tell(self, context):
        """Fills in what Harbor counts, as far as there is a result."""
        try:
            result = json.loads((Path(self.logs_dir) / "result.json").read_text())
        except (OSError, ValueError):
            return
        usage = result.get("usage") or {}
        context.n_input_tokens = usage.get("input_tokens")
        context.n_output_tokens = usage.get("output_tokens")
        context.n_cache_tokens = usage.get("cached_tokens", 0)
        context.cost_usd = (result.get("cost") or {}).get("amount")
        context.metadata = {"session_id": result["session_id"], "stop_reason": result["stop_reason"], "error": result["error"]}

    async def _run(self, environment, command, check=True):
        env = {name: os.environ[name] for name in KEYS if os.environ.get(name)}
        done = await environment.exec(command=command, env=env)
        if check and done.return_code != 0:
            raise RuntimeError(f"{command}: exit status {done.return_code}: {done.stderr or done.stdout}")
        return done
