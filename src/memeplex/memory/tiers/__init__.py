"""The memory tiers of a memetic agent: what each holds, and how one becomes the other."""

from memeplex.memory.tiers.memory import TiersMemory, TiersSettings
from memeplex.memory.tiers.working import Said, Talk, ToolCall

__all__ = ["Said", "Talk", "TiersMemory", "TiersSettings", "ToolCall"]
