//! What a program printed, bounded: its last words, for the reason that a failed service shows, and its last lines.

const LINES_MAX: usize = 5;
const CHARACTERS_MAX: usize = 600;

/// How much of the end of an output is worth reading.
pub(super) const TAIL_BYTES: u64 = 4096;

/// How much of an output is looked at for its last lines.
pub(super) const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// The last `count` lines of `output`, as they were printed. What is no UTF-8 is replaced.
pub(super) fn last_of(output: &[u8], count: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

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
    fn lines_are_counted_from_the_end() {
        assert_eq!(last_of(b"", 2), [""; 0]);
        assert_eq!(last_of(b"a\n\nb", 9), ["a", "", "b"]);
        assert_eq!(last_of(b"a\r\n\xffb\nc\n", 2), ["\u{fffd}b", "c"]);
    }

    #[test]
    fn the_last_lines_are_kept_and_bounded() {
        assert_eq!(ended("exited with status 1", b""), "exited with status 1");
        assert_eq!(ended("exited with status 1", b" \n\n"), "exited with status 1");
        assert_eq!(ended("x", b"1\n2\n3\n4\n5\n6\n\x1b[0m7\n\n"), "x: 3\n4\n5\n6\n[0m7");
        assert_eq!(ended("x", "ä".repeat(5000).as_bytes()).chars().count(), CHARACTERS_MAX + 3);
    }
}
