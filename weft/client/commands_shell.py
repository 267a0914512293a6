"""`weft completion`: what bash, zsh and fish need to complete commands, options and values."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands: eval "$(weft completion bash)"."""
    found = get_completion_class(shell)
    # The argument is one of SHELLS.
    assert found is not None
    click.echo(
        found(
            click.get_current_context().find_root().command, {}, "weft", "_WEFT_COMPLETE"
        ).source()
    )


commands: list[click.Command] = [completion]
