//! Merging and taking away, as transcripts.
