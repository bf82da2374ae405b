"""The command `tune`, which recommends settings."""
