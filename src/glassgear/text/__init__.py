"""Text to ids to text: tokenizers, chat templates, streams."""
