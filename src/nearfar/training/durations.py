"""Times as people say them."""


def about(seconds: float) -> str:
    """An estimate of a time; nothing takes none.

    >>> about(0.2), about(200)
    ('about 1 s', 'about 3 min 20 s')
    """
    return f"about {duration(max(seconds, 1))}"


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(200), duration(7300)
    ('42 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
