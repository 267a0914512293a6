"""Plans of recurring jobs in a folder that several masters' processes share."""

import json
import os
from pathlib import Path

from am.plan.reuse import Kept, PlanShelf, plan_from_data, plan_to_data
from weft.model.errors import InputError
from weft.model.plan import Plan


class DiskShelf(PlanShelf):
    """A shelf whose plans outlive the process; a disk that fails costs a search, never a plan."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def find(self, key: str) -> Kept | None:
        """Return the plan in the folder, as another process may have left it."""
        if not key:
            return None
        try:
            data = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            return Kept(plan_from_data(data["plan"]), str(data["digest"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError, InputError):
            return super().find(key)

    def keep(self, key: str, plan: Plan, digest: str) -> bool:
        """Write the plan as a whole file, or leave what is there."""
        if not super().keep(key, plan, digest):
            return False
        path = self._folder / f"{key}.json"
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"digest": digest, "plan": plan_to_data(plan)})
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, path)
        except OSError:
            pass
        finally:
            partial.unlink(missing_ok=True)
        return True
