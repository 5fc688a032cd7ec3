//! Relative links in Markdown lead somewhere.

use super::Finding;
use std::path::{Component, Path, PathBuf};

/// Checks `[text](target)` and `[name]: target` outside of code. `exists` answers for a path from the root.
pub(super) fn check(file: &str, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in
            targets(&without_code(content)).into_iter().filter(|target| is_relative(target))
        {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            let resolved = resolve(file, path);
            if !resolved.as_deref().is_some_and(&exists) {
                findings.push(Finding::new(
                    file,
                    line,
                    format!("the link to {target} leads nowhere"),
                ));
            }
        }
    }
    findings
}

fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target.trim());
    inline.chain(definition).map(|target| target.trim_matches(['<', '>'])).collect()
}

fn is_relative(target: &str) -> bool {
    let external = target.contains("://") || target.starts_with("mailto:");
    !external && !target.starts_with('#') && !target.is_empty()
}

/// The path from the root; none when it leads out of the project.
fn resolve(file: &str, target: &str) -> Option<PathBuf> {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut resolved = PathBuf::new();
    for component in folder.join(target).components() {
        match component {
            Component::Normal(part) => resolved.push(part),
            Component::ParentDir if resolved.pop() => {}
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved)
}

/// The line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_line(line: &str) -> Vec<String> {
        let there = ["docs/other.md", "README.md", "docs"].map(Path::new);
        check("docs/page.md", line, |path| there.contains(&path))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn links_are_resolved_from_their_own_folder() {
        for line in [
            "[a](other.md)",
            "[a](../README.md#top)",
            "[a](./other.md \"t\")",
            "[a]: ../docs",
            "[a](#here)",
        ] {
            assert_eq!(check_line(line), Vec::<String>::new(), "{line}");
        }
        assert_eq!(
            check_line("see [a](gone.md#x)"),
            ["docs/page.md:1: the link to gone.md#x leads nowhere"]
        );
    }

    #[test]
    fn a_link_stays_in_the_project() {
        assert_eq!(check_line("[a](../../README.md)").len(), 1);
        assert_eq!(check_line("[a](/README.md)").len(), 1);
    }

    #[test]
    fn code_and_other_sites_have_no_relative_links() {
        assert!(check_line("`list[0](x)` [a](https://example.org/x)").is_empty());
        assert!(check_line("```\n[a](gone.md)\n```").is_empty());
    }
}
