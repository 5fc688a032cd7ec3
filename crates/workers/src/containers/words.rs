//! Command lines: text split into words as a POSIX shell does it, without any expansion.

use crate::driver::Error;

/// The words of `line`; never empty.
pub(super) fn split(line: &str) -> Result<Vec<String>, Error> {
    if line.trim().is_empty() {
        return Err(Error::Permanent(
            "the command line is empty; give the program to run and its arguments".to_owned(),
        ));
    }
    match shlex::split(line) {
        Some(words) if !words.is_empty() => Ok(words),
        Some(_) => Err(Error::Permanent(format!("the command line `{line}` names no program"))),
        None => Err(Error::Permanent(format!(
            "the command line `{line}` does not parse: a quote is not closed, or it ends in a backslash"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, words: &[&str]) {
        assert_eq!(split(line).unwrap(), words);
    }

    #[test]
    fn words_are_split_like_a_shell_does_without_expansion() {
        check("a b  c", &["a", "b", "c"]);
        check("a 'b c' \"d \\\" e\" f\\ g", &["a", "b c", "d \" e", "f g"]);
        check("echo $HOME *.rs | cat > x", &["echo", "$HOME", "*.rs", "|", "cat", ">", "x"]);
        check("a ''", &["a", ""]);
    }

    #[test]
    fn lines_without_a_program_are_refused_for_good() {
        for line in ["", "  ", "a 'b", "a \"b", "a \\", "# only a comment"] {
            assert!(split(line).unwrap_err().is_permanent(), "{line}");
        }
    }
}
