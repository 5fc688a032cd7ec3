//! `cargo xtask conformance`: which test shows which rule. `docs/reference/rules.yaml` lists the rules; tests say what
//! they show in a doc comment, `/// Shows: D16, I4.1-pagination`; `docs/reference/conformance.md` is made of both.
//! `cargo xtask tidy` checks that every rule has a test and that the page is up to date.
//!
//! Knows nothing of what a rule means, nor whether a test passes: that is what running the tests is for.

use crate::tidy::Finding;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const RULES: &str = "docs/reference/rules.yaml";
const PAGE: &str = "docs/reference/conformance.md";

/// What the rules are rules of.
const ABOUT: &str = "\
The interface is that of Vamp 0.9.x, as a specification describes it that is no part of this project: `interface 4.1` is a section\n\
of it, and rules whose id begins with I are its sentences, shortened. Rules with D are decisions where it is silent or contradicts\n\
itself; what was decided is what the rule says. They are not the pages of [decisions](../decisions/README.md), which are about how\n\
Segue is built. Comments in the code also name sections of three more texts of that kind, which say it in detail: `documents`,\n\
`runtime` and `wire`.\n";

/// How the line of a doc comment begins that names rules. Put together from parts, so that this file does not find itself.
const MARK: &str = concat!("///", " Shows: ");

/// The head of the list of what has no test yet.
const NOT_YET: &str = "not_yet:";

/// Writes the page anew, after striking from the list of what has no test the rules that have one by now.
pub fn run(workspace: &Workspace) -> Result<()> {
    let sources = sources(workspace)?;
    let path = workspace.root().join(RULES);
    let text = fs::read_to_string(&path).with_context(|| format!("{RULES} cannot be read"))?;
    let (marks, findings) = collect(&sources);
    let text = struck(&text, &marks);
    let rules = Rules::read(&text)?;
    let findings = [findings, rules.check(&marks)].concat();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("conformance: {} finding(s); nothing was written", findings.len());
    }
    fs::write(path, text).with_context(|| format!("{RULES} cannot be written"))?;
    fs::write(workspace.root().join(PAGE), rules.page(&marks))
        .with_context(|| format!("{PAGE} cannot be written"))?;
    println!(
        "conformance: {} rules, {} without a test",
        rules.rules.len(),
        rules.not_yet.len() + rules.rules.iter().filter(|rule| rule.second_stage.is_some()).count()
    );
    Ok(())
}

/// What is wrong with the rules, the marks or the page.
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let read = |name| fs::read_to_string(workspace.root().join(name)).unwrap_or_default();
    let (marks, mut findings) = collect(&sources(workspace)?);
    let rules = Rules::read(&read(RULES))?;
    findings.extend(rules.check(&marks));
    if findings.is_empty() && read(PAGE) != rules.page(&marks) {
        findings.push(Finding::new(PAGE, 1, "not up to date; run cargo xtask conformance"));
    }
    Ok(findings)
}

/// One rule of the interface or of the decisions.
#[derive(Debug)]
struct Rule {
    id: String,
    source: String,
    sentence: String,
    /// Why it is built later, where the texts say that it is.
    second_stage: Option<String>,
}

#[derive(Debug)]
struct Rules {
    rules: Vec<Rule>,
    /// Rules without a test, and why.
    not_yet: BTreeMap<String, String>,
}

/// A test that says of itself that it shows a rule.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Mark {
    rule: String,
    file: String,
    line: usize,
    test: String,
}

impl Rules {
    fn read(text: &str) -> Result<Self> {
        let document: Value =
            serde_yaml::from_str(text).with_context(|| format!("{RULES} is no YAML"))?;
        let text_of = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
        let rules =
            document["rules"].as_array().with_context(|| format!("{RULES} has no rules"))?;
        let rules = rules.iter().map(|rule| {
            let field = |key| {
                text_of(rule, key)
                    .with_context(|| format!("{RULES}: a rule has no '{key}': {rule}"))
            };
            Ok(Rule {
                id: field("id")?,
                source: field("source")?,
                sentence: field("rule")?,
                second_stage: text_of(rule, "second_stage"),
            })
        });
        let not_yet = document["not_yet"].as_object().into_iter().flatten();
        let not_yet = not_yet
            .map(|(id, why)| (id.clone(), why.as_str().unwrap_or_default().to_owned()))
            .collect();
        Ok(Self { rules: rules.collect::<Result<_>>()?, not_yet })
    }

    fn check(&self, marks: &[Mark]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut known = BTreeMap::new();
        for rule in &self.rules {
            if known.insert(rule.id.as_str(), rule).is_some() {
                findings.push(Finding::new(RULES, 1, format!("{} stands twice", rule.id)));
            }
        }
        for mark in marks.iter().filter(|mark| !known.contains_key(mark.rule.as_str())) {
            let sentence = format!("{RULES} has no rule {}", mark.rule);
            findings.push(Finding::new(&mark.file, mark.line, sentence));
        }
        let mut say = |sentence: String| findings.push(Finding::new(RULES, 1, sentence));
        for rule in &self.rules {
            let shown = marks.iter().any(|mark| mark.rule == rule.id);
            let excused = rule.second_stage.is_some() || self.not_yet.contains_key(&rule.id);
            match (shown, excused) {
                (false, false) => say(format!("no test shows {}: {}", rule.id, rule.sentence)),
                (true, true) => {
                    say(format!("{} has a test by now; run cargo xtask conformance", rule.id));
                }
                (true, false) | (false, true) => {}
            }
        }
        for id in self.not_yet.keys().filter(|id| !known.contains_key(id.as_str())) {
            say(format!("not_yet names {id}, which is no rule"));
        }
        findings
    }

    fn page(&self, marks: &[Mark]) -> String {
        let shown = self.rules.iter().filter(|rule| marks.iter().any(|mark| mark.rule == rule.id));
        let mut page = format!(
            "# Conformance\n\n\
            Which test shows which rule of the interface and of the decisions that settle its gaps. Made by\n\
            `cargo xtask conformance` from [rules.yaml](rules.yaml) and from the marks above the tests; a rule without a test\n\
            fails the build. {} of {} rules are shown by a test.\n\n\
            {ABOUT}\n\
            | id | source | rule | shown by |\n|---|---|---|---|\n",
            shown.count(),
            self.rules.len()
        );
        for rule in &self.rules {
            let tests: Vec<String> = marks
                .iter()
                .filter(|mark| mark.rule == rule.id)
                .map(|mark| format!("[{}](../../{})", mark.test, mark.file))
                .collect();
            let tests = if let Some(reason) = &rule.second_stage {
                format!("second stage: {reason}")
            } else if let Some(reason) = self.not_yet.get(&rule.id) {
                format!("**nothing yet**: {reason}")
            } else {
                tests.join(", ")
            };
            let sentence = rule.sentence.replace('|', "\\|");
            writeln!(page, "| {} | {} | {sentence} | {tests} |", rule.id, rule.source)
                .expect("a text takes whatever is written");
        }
        page
    }
}

/// The Rust files of the workspace, by name.
fn sources(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let files = workspace.files()?.into_iter();
    let rust = files.filter(|file| Path::new(file).extension().is_some_and(|end| end == "rs"));
    Ok(rust
        .filter_map(|file| {
            let text = fs::read_to_string(workspace.root().join(&file)).ok()?;
            Some((file, text))
        })
        .collect())
}

fn collect(sources: &[(String, String)]) -> (Vec<Mark>, Vec<Finding>) {
    let (mut marks, mut findings) = (Vec::new(), Vec::new());
    for (file, text) in sources {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(ids) = line.strip_prefix(MARK) else { continue };
            let Some(test) = test_at(&lines, index) else {
                findings.push(Finding::new(file, index + 1, "this mark stands above no test"));
                continue;
            };
            marks.extend(ids.split([',', ' ']).filter(|word| is_id(word)).map(|id| Mark {
                rule: id.trim_end_matches('.').to_owned(),
                file: file.clone(),
                line: index + 1,
                test: test.to_owned(),
            }));
        }
    }
    marks.sort();
    marks.dedup_by(|one, other| {
        (&one.rule, &one.file, &one.test) == (&other.rule, &other.file, &other.test)
    });
    (marks, findings)
}

/// Whether a word is the id of a rule, such as `D16` or `I4.1-accept`. Other words name other texts.
fn is_id(word: &str) -> bool {
    let rest = word.strip_prefix(['D', 'I']);
    rest.is_some_and(|rest| rest.starts_with(|begin: char| begin.is_ascii_digit()))
}

/// The name of the test whose attributes and doc comment the line at `index` belongs to.
fn test_at<'a>(lines: &[&'a str], index: usize) -> Option<&'a str> {
    let belongs = |line: &&str| line.starts_with("///") || line.starts_with("#[");
    let before = lines[..index].iter().rev().take_while(|line| belongs(line)).count();
    let after = index + lines[index..].iter().take_while(|line| belongs(line)).count();
    let is_test = |line: &&str| line.starts_with("#[test]") || line.contains("::test");
    if !lines[index - before..after].iter().any(is_test) {
        return None;
    }
    let (_, rest) = lines.get(after)?.split_once("fn ")?;
    rest.split(['(', '<']).next()
}

/// The rules without those lines of `not_yet` whose rule has a test.
fn struck(text: &str, marks: &[Mark]) -> String {
    let mut in_list = false;
    let kept = text.lines().filter(|line| {
        in_list |= *line == NOT_YET;
        let id = line.trim().split(':').next().unwrap_or_default();
        !(in_list && marks.iter().any(|mark| mark.rule == id))
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "rules:\n\
        - {id: D1, source: here, rule: 'one | two'}\n\
        - {id: D2, source: here, rule: two}\n\
        - {id: D3, source: here, rule: three, second_stage: workflows}\n\
        not_yet:\n  D2: later\n";

    fn source(marks: &str, attribute: &str) -> Vec<(String, String)> {
        let text = format!("/// Words.\n{MARK}{marks}\n{attribute}\nfn it_works() {{\n}}\n");
        vec![("tests/a.rs".to_owned(), text)]
    }

    fn sentences(marks: &str, attribute: &str) -> Vec<String> {
        let (marks, mut findings) = collect(&source(marks, attribute));
        findings.extend(Rules::read(LIST).unwrap().check(&marks));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_rule_has_a_test_or_a_reason() {
        assert_eq!(sentences("D1", "#[test]"), Vec::<String>::new());
        assert_eq!(sentences("D1, runtime 10.3", "#[test]"), Vec::<String>::new());
        assert_eq!(sentences("D1", "#[tokio::test]"), Vec::<String>::new());
        let without = "docs/reference/rules.yaml:1: no test shows D1: one | two";
        assert_eq!(
            sentences("D1", "#[inline]"),
            ["tests/a.rs:2: this mark stands above no test", without]
        );
        assert_eq!(
            sentences("D1, D9", "#[test]"),
            ["tests/a.rs:2: docs/reference/rules.yaml has no rule D9"]
        );
        assert_eq!(
            sentences("D1, D2", "#[test]"),
            ["docs/reference/rules.yaml:1: D2 has a test by now; run cargo xtask conformance"]
        );
    }

    #[test]
    fn what_has_a_test_is_struck_and_shown() {
        let (marks, _) = collect(&source("D1, D2", "#[test]"));
        let text = struck(LIST, &marks);
        assert!(!text.contains("D2: later") && text.contains("id: D2"), "{text}");
        let page = Rules::read(&text).unwrap().page(&marks);
        assert!(
            page.contains("| D1 | here | one \\| two | [it_works](../../tests/a.rs) |"),
            "{page}"
        );
        assert!(page.contains("| D3 | here | three | second stage: workflows |"), "{page}");
        assert!(page.contains("2 of 3 rules"), "{page}");
    }
}
