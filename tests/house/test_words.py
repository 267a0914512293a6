"""What functions say of themselves: a sentence that begins with a verb."""

import ast
import re
from collections.abc import Iterator

from tools import figures

FOLDERS = (*figures.PRODUCT, "testkit", "tools")
NOUNS = ("property", "cached_property")  # what is read like a field is named like one
COMMANDS = ("command", "group")  # their first line is the help text, with the name of the whole
# The verbs so far; a new one belongs here, a noun or "What", "Whether", "The", "One" does not.
SAID = """
    Accept Account Acknowledge Adapt Add Adopt Answer Append Apply Ask Await Become Begin Believe
    Bind Book Break Breed Bring Build Call Cancel Carry Change Check Choose Clear Close Collect
    Compact Compare Compile Connect Copy Count Crash Cut Decide Decode Decommission Deliver Divide
    Do Drain Draw Drive Drop End Exchange Fail Feed Fetch Fill Find Finish Flush Follow Forget Fork
    Free Fuzz Generate Give Go Grant Hand Handle Hang Have Hear Hold Import Insert Install Journal
    Judge Keep Kill Label Lay Learn Leave Let List Listen Load Lock Log Look Lose Lower Make Mark
    Match Measure Merge Move Name Narrow Note Observe Offer Open Order Pack Pass Pause Pick Place
    Plan Plant Post Prepare Print Prove Push Put Queue Quote Raise Read Recommission Reconnect
    Record Redirect Refuse Register Relay Release Remember Remove Rename Repeat Replace Replay
    Report Reserve Restart Restore Resume Return Run Sample Say Scan Schedule Score Search Send
    Serve Set Shake Show Shut Simulate Spend Split Spread Start Step Stop Submit Subtract Sum Sweep
    Take Tell Try Turn Unmark Unpack Update Use Wait Wake Want Watch Withdraw Work Wrap Write Yield
"""
VERBS = frozenset(SAID.split())
ENDS = (".", "?", "!", "`")  # the last one: of a command behind the sentence
QUESTIONS = re.compile(r"(What|How|Why|When|Where|Who|Which|Nothing|Nobody)\b")


def _last_name(decorator: ast.expr) -> str:
    """`click.command("x")` -> `command`; `Shape.side.setter` -> `setter`."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def faults(tree: ast.Module) -> Iterator[str]:
    """Functions whose docstring begins with no verb, and properties that begin with a question."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        said = ast.get_docstring(node)
        decorators = {_last_name(decorator) for decorator in node.decorator_list}
        if said is None or node.name.startswith("test_") or decorators & {*COMMANDS}:
            continue
        if node.name == "__init__":  # says what its parameters are
            continue
        if decorators & {*NOUNS}:
            if QUESTIONS.match(said):
                yield f"{node.name}: {said.splitlines()[0]}"
        elif re.split(r"\W", said, maxsplit=1)[0] not in VERBS:
            yield f"{node.name}: {said.splitlines()[0]}"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """\"Return whether ...\" says what a caller gets; \"Whether ...\" leaves it to be guessed."""
    found = [
        f"{path.relative_to(figures.ROOT)}: {fault}"
        for folder in FOLDERS
        for path in sorted((figures.ROOT / folder).rglob("*.py"))
        if "_pb2" not in path.name
        for fault in faults(ast.parse(path.read_text()))
    ]
    assert not found, "say it with a verb (VERBS has those so far):\n" + "\n".join(found)


def cut_off(tree: ast.Module) -> Iterator[str]:
    """Docstrings whose first line is no whole sentence, nor the head of a list after a gap."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first, gap, *_ = [*(ast.get_docstring(node) or ".").splitlines(), "", ""]
            if not first.endswith(ENDS) and (gap or not first.endswith(":")):
                yield f"{getattr(node, 'name', 'module')}: {first}"


def test_the_first_line_of_a_docstring_is_a_sentence() -> None:
    """It is what an editor shows beside a name; the rest comes after an empty line."""
    found = [
        f"{path.relative_to(figures.ROOT)}: {fault}"
        for folder in FOLDERS
        for path in sorted((figures.ROOT / folder).rglob("*.py"))
        if "_pb2" not in path.name
        for fault in cut_off(ast.parse(path.read_text()))
    ]
    assert not found, "end it with its first line:\n" + "\n".join(found)


def test_a_noun_and_a_question_are_seen() -> None:
    planted = ast.parse(
        """
def bare():
    "Whether it is there."
def good():
    "Return whether it is there."
class Shape:
    @property
    def side(self):
        "How long it is."
    @property
    def area(self):
        "Whether it has one."
@cli.command("run")
def run():
    "Weft: a manager."
"""
    )
    assert list(faults(planted)) == ["bare: Whether it is there.", "side: How long it is."]


def test_a_sentence_that_breaks_off_is_seen() -> None:
    planted = ast.parse(
        '''
"""A module of words:

* one;
* another.
"""
def bare():
    """Return what is held, of those that
    are left.
    """
def head():
    """Return what is held:
    all of it.
    """
def good():
    """Return what is held.

    All of it, that is
    """
'''
    )
    found = ["bare: Return what is held, of those that", "head: Return what is held:"]
    assert list(cut_off(planted)) == found
