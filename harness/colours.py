"""The colours of every picture: FFN blue, attention orange, wherever they stand beside each other.

Okabe and Ito's, told apart by colour-blind readers and in grey. Pages have the same hues, as shades that read on light
and on dark paper (`report/templates/style.css`).
"""

INK, SOFT, PALE = "#222222", "#6b6b6b", "#dddddd"
FFN, ATTENTION, INTERACTION = "#0072b2", "#e69f00", "#cc79a7"
OTHER = "#009e73"  # embedding, head, whole layers, experts

# Parts of a whole model by role: one hue a block, from dark to light.
ROLES = {
    "ffn gate": "#004a75",
    "ffn up": FFN,
    "ffn down": "#7fb8d8",
    "attention q": "#8a5a00",
    "attention k": "#b87c00",
    "attention v": ATTENTION,
    "attention o": "#f4cf80",
    "embedding": OTHER,
    "other": "#c9c9c9",
}
