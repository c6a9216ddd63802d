"""Tries the adapter against a stub of Harbor's interface: stub_test.py FOLDER-OF-NOUS FOLDER."""
import asyncio, json, os, shutil, subprocess, sys, types
from pathlib import Path

bin_dir, work = Path(sys.argv[1]), Path(sys.argv[2])


class BaseAgent:
    def __init__(self, logs_dir, model_name=None, logger=None, mcp_servers=None, **kwargs):
        assert not kwargs, kwargs
        self.logs_dir, self.model_name = logs_dir, model_name


class Environment:
    """A container that is a folder: /usr/local/bin and /logs/agent are in it."""

    async def upload_file(self, source_path, target_path):
        assert target_path.startswith("/usr/local/bin/")
        (work / "bin").mkdir(exist_ok=True)
        shutil.copyfile(source_path, work / "bin" / Path(target_path).name)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None):
        for there, here in (("/usr/local/bin", "bin"), ("/logs/agent", "logs")):
            command = command.replace(there, str(work / here))
        env = {**os.environ, **(env or {}), "PATH": f"{work / 'bin'}:/usr/bin:/bin"}
        done = subprocess.run(["bash", "-c", command], cwd=work / "task", env=env, capture_output=True, text=True)
        return types.SimpleNamespace(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)


class Context:
    n_input_tokens = n_output_tokens = n_cache_tokens = cost_usd = metadata = None


for name in ("harbor", "harbor.agents", "harbor.agents.base"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["harbor.agents.base"].BaseAgent = BaseAgent
sys.path.insert(0, str(Path(__file__).parent))
from noused_agent import NousedAgent  # noqa: E402


async def trial():
    (work / "task").mkdir()
    agent = NousedAgent(logs_dir=work / "logs", model_name="offline", bin_dir=str(bin_dir), max_cost="2")
    assert agent.name() == "noused"
    context, environment = Context(), Environment()
    await agent.setup(environment)
    await agent.run('!write {"path":"it\'s.txt","content":"done"}', environment, context)
    assert (work / "task" / "it's.txt").read_text() == "done", (work / "logs" / "nous.txt").read_text()
    assert context.n_input_tokens > 0 and context.metadata["stop_reason"] == "completed", vars(context)
    steps = json.loads((work / "logs" / "trajectory.json").read_text())["steps"]
    assert [s["source"] for s in steps] == ["user", "agent", "agent"], steps
    assert "created" in steps[1]["observation"]["results"][0]["content"], steps


asyncio.run(trial())
print("ok")
