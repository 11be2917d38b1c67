"""Small pieces of English for what a person reads."""


def counted(number: int, noun: str) -> str:
    """A count with its noun, "1 flag" or "2,000 flags"; the plural takes an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
