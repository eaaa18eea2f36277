"""What every page says of how to read it."""

READING = [
    "A loss is how much worse an arm is than the unquantized model on the same items; positive is worse. "
    "Accuracy: base less arm. nll and kl: arm less base, in nats a token.",
    "The dot is the loss, the line its interval. Whole documents are resampled, all arms together, because items of "
    "one document are not independent. The band around zero is the margin within which a loss counts as none.",
    "worse, better: told from zero after correction for all tests. equivalent: inside the margin by two one-sided "
    "tests. undecided: neither; more items may decide it. exploratory: under 20 documents, so no verdict. Of contrasts "
    "(interaction, difference, contrast with a claimed share): positive or negative in place of worse or better.",
    "alone: the loss with only that part quantized. restored: what keeping that part in 16 bits would save. Their mean "
    "halves the interaction between parts by convention (Shapley), so the two stand beside it.",
    "kl measures how far predictions moved, not harm: it is never negative and is not tested against zero.",
    "An interval covers the draw of items. It does not cover another model, another text, or another calibration draw.",
]

SWEEP_READING = [
    "Bits a weight: mean over all matrices of both blocks, scales and zero points counted, untouched ones at 16. So a "
    "point where only the FFN is quantized sits further right than one where both are.",
    "The front holds every setting that no other beats in both bits and loss. It ends where a loss is no longer told "
    "from zero. Its order rests on estimates; whether a step is real is said beside it, from differences item by item.",
    "Hollow points lose less than rounding to bfloat16 does.",
]
