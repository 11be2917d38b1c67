"""Our own colours; Textual's themes stay available."""

from textual.theme import Theme

CUDA_TUI = Theme(
    name="cuda-tui",
    primary="#6ea8c9",
    secondary="#4c6b7f",
    accent="#c9a86e",
    warning="#d8a657",
    error="#d9706b",
    success="#8bb85c",
    foreground="#d5dade",
    background="#12161a",
    surface="#171c21",
    panel="#1f262d",
    dark=True,
    variables={
        "text-muted": "#87929b",
        "text-disabled": "#4d5861",
        "text-primary": "#7fb6d6",
        "text-success": "#9cc66d",
        "text-warning": "#dfb266",
        "text-error": "#e5837e",
        "text-accent": "#d1b27a",
        "border": "#3a444d",
        "border-blurred": "#2a323a",
        "scrollbar": "#333d46",
        "scrollbar-hover": "#46525d",
        "scrollbar-active": "#5c6b78",
        "scrollbar-background": "#12161a",
        "input-selection-background": "#6ea8c9 30%",
    },
)
