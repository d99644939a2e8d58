"""What fairseq-generate prints, written by hand."""


def block(number, *hypotheses, source="x", target=None, text=None):
    """The lines of one sentence.

    A hypothesis is its words, or (its words, the numbers of its P- line). ``text`` is what the D- lines
    hold where it is not the words.
    """
    lines = [f"S-{number}\t{source}"]
    if target is not None:
        lines.append(f"T-{number}\t{target}")
    for hypothesis in hypotheses:
        words, numbers = (hypothesis, None) if isinstance(hypothesis, str) else hypothesis
        if numbers is None:
            numbers = " ".join(["-0.5000"] * (len(words.split()) + 1))
        lines += [
            f"H-{number}\t-0.5\t{words}",
            f"D-{number}\t-0.5\t{words if text is None else text}",
            f"P-{number}\t{numbers}",
        ]
    return lines


def blocks(texts, targets=None):
    """The lines of several sentences with one hypothesis each."""
    targets = targets or [None] * len(texts)
    pairs = enumerate(zip(texts, targets, strict=True))
    return [line for n, (text, target) in pairs for line in block(n, text, target=target)]


def write(path, lines):
    """Write the lines; the path."""
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path
