//! The last words of a program, bounded, for the reason that a failed service shows.

const LINES_MAX: usize = 5;
const CHARACTERS_MAX: usize = 600;

/// How much of the end of an output is worth reading.
pub(super) const TAIL_BYTES: u64 = 4096;

/// `end`, such as `exited with status 1`, followed by the last lines of `output` when there are any.
pub(super) fn ended(end: &str, output: &[u8]) -> String {
    match last_lines(output) {
        lines if lines.is_empty() => end.to_owned(),
        lines => format!("{end}: {lines}"),
    }
}

/// The last lines of `output` that are not blank, without control characters.
fn last_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let clean = |line: &str| {
        line.chars().filter(|c| !c.is_control()).collect::<String>().trim_end().to_owned()
    };
    let mut lines: Vec<String> = text
        .lines()
        .rev()
        .map(clean)
        .filter(|line| !line.trim().is_empty())
        .take(LINES_MAX)
        .collect();
    lines.reverse();
    let joined = lines.join("\n");
    let surplus = joined.chars().count().saturating_sub(CHARACTERS_MAX);
    joined.chars().skip(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_bounded() {
        assert_eq!(ended("exited with status 1", b""), "exited with status 1");
        assert_eq!(ended("exited with status 1", b" \n\n"), "exited with status 1");
        assert_eq!(ended("x", b"1\n2\n3\n4\n5\n6\n\x1b[0m7\n\n"), "x: 3\n4\n5\n6\n[0m7");
        assert_eq!(ended("x", "ä".repeat(5000).as_bytes()).chars().count(), CHARACTERS_MAX + 3);
    }
}
