//! Rules for single files: what a Rust file begins with, how long it is, and words that stand nowhere.

use super::Finding;

const LINES_MAX: usize = 600;

/// A word of Rust that must not be used. Put together from parts, so that this file does not find itself.
struct Word {
    text: &'static str,
    sentence: &'static str,
    allowed_in_tests: bool,
}

const WORDS: [Word; 6] = [
    Word {
        text: concat!("#[", "allow("),
        sentence: "write #[expect(..., reason = \"...\")]: it complains when it is no longer needed",
        allowed_in_tests: false,
    },
    Word {
        text: concat!("#![", "allow("),
        sentence: "write #![expect(..., reason = \"...\")]: it complains when it is no longer needed",
        allowed_in_tests: false,
    },
    Word {
        text: concat!("todo", "!("),
        sentence: "what is not written yet must not answer as if it were",
        allowed_in_tests: false,
    },
    Word {
        text: concat!("unimple", "mented!("),
        sentence: "what is not written yet must not answer as if it were",
        allowed_in_tests: false,
    },
    Word {
        text: concat!("#[", "ignore"),
        sentence: "a test that does not run tests nothing; long ones ask for SEGUE_TEST_LONG",
        allowed_in_tests: false,
    },
    Word {
        text: concat!("thread::", "sleep"),
        sentence: "wait for a condition, with a limit; where only polling can, say `// Polled: why` above",
        allowed_in_tests: true,
    },
];

/// Folders of the machines that this is written on.
const MACHINE_FOLDERS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Checks one text file; `file` is its path from the root.
pub(super) fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        lines(text).filter_map(|(line, content)| machine_path(file, line, content)).collect();
    if std::path::Path::new(file).extension().is_some_and(|extension| extension == "rs") {
        findings.extend(check_rust(file, text));
    }
    findings
}

fn check_rust(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.starts_with("//! ") {
        findings.push(Finding::new(file, 1, "a module starts with what it is for, as //! lines"));
    }
    let count = text.lines().count();
    if count > LINES_MAX {
        let sentence = format!("{count} lines; a file has one subject in at most {LINES_MAX}");
        findings.push(Finding::new(file, LINES_MAX + 1, sentence));
    }
    let tests_from = first_test_line(file, text);
    let mut polled = false;
    for (line, content) in lines(text) {
        let code = without_comment(content);
        let found = WORDS.iter().filter(|word| code.contains(word.text));
        let found = found.filter(|word| !word.allowed_in_tests || (line < tests_from && !polled));
        findings.extend(found.map(|word| Finding::new(file, line, word.sentence)));
        polled = content.trim_start().starts_with("// Polled: ");
    }
    findings
}

/// From where on there are only tests: the module for unit tests stands last.
fn first_test_line(file: &str, text: &str) -> usize {
    if file.split('/').any(|part| part == "tests" || part == "tests.rs") {
        return 1;
    }
    let rows: Vec<&str> = text.lines().map(str::trim).collect();
    let begins = |pair: &[&str]| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    rows.windows(2).position(begins).map_or(usize::MAX, |index| index + 1)
}

/// Comments may name what must not be used.
fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

fn machine_path(file: &str, line: usize, content: &str) -> Option<Finding> {
    let found = MACHINE_FOLDERS.iter().find(|folder| {
        content.match_indices(**folder).any(|(at, _)| {
            let before = content[..at].chars().next_back();
            // As part of a longer path or an address it is no folder of a machine.
            !before.is_some_and(|char| {
                char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | '/' | '~' | '}' | '*')
            })
        })
    })?;
    Some(Finding::new(file, line, format!("{found} exists on one machine only")))
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(file: &str, text: &str) -> Vec<String> {
        check(file, text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_says_what_it_is_for() {
        assert_eq!(check_text("a.rs", "use x;\n").len(), 1);
        assert!(check_text("a.rs", "//! For this.\nuse x;\n").is_empty());
        assert!(check_text("a.txt", "use x;\n").is_empty());
    }

    #[test]
    fn a_file_has_at_most_600_lines() {
        let long = format!("//! Long.\n{}", "x;\n".repeat(600));
        let sentence = "a.rs:601: 601 lines; a file has one subject in at most 600";
        assert_eq!(check_text("a.rs", &long), [sentence]);
        assert!(check_text("a.rs", &long[..long.len() - 3]).is_empty());
    }

    #[test]
    fn forbidden_words_are_found_outside_of_comments() {
        for word in &WORDS {
            let text = format!("//! Words.\n// {0}\n    {0}x\n", word.text);
            assert_eq!(check_text("a.rs", &text), [format!("a.rs:3: {}", word.sentence)]);
        }
    }

    #[test]
    fn tests_may_sleep() {
        let sleep = WORDS[5].text;
        let unit =
            format!("//! A.\nfn f() {{}}\n\n#[cfg(test)]\nmod tests {{\n    {sleep}(x);\n}}\n");
        assert!(check_text("a.rs", &unit).is_empty());
        let integration = format!("//! A.\n{sleep}(x);\n");
        assert!(check_text("tests/it/a.rs", &integration).is_empty());
        assert_eq!(check_text("crates/api/src/a.rs", &integration).len(), 1);
    }

    #[test]
    fn paths_of_one_machine_are_found_and_addresses_are_not() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(check_text("a.md", &format!("see `{folder}x`")).len(), 1);
            assert_eq!(check_text("a.md", &format!("{folder}x")).len(), 1);
            assert!(
                check_text("a.md", &format!("https://example.org{folder}x and docs{folder}x"))
                    .is_empty()
            );
        }
    }
}
