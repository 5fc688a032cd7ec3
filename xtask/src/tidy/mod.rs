//! `cargo xtask tidy`: the rules that neither the compiler nor clippy checks. Each rule is a function from what is on
//! disk to findings; here they are fed and their findings printed.

mod layers;
mod links;
mod sources;

use crate::conformance;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::fmt;
use std::fs;
use std::path::Path;

/// A rule that is broken somewhere. Printed as `file:line: sentence`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Finding {
    file: String,
    line: usize,
    sentence: String,
}

impl Finding {
    /// A finding at `line`, from 1, of `file`, a path from the root.
    pub fn new(file: &str, line: usize, sentence: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, sentence: sentence.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.sentence)
    }
}

/// Checks every file that git tracks, and the manifests.
pub fn run(workspace: &Workspace) -> Result<()> {
    let files = workspace.files()?;
    let mut findings = layers::check(workspace.metadata(), workspace.root())?;
    for file in &files {
        let path = workspace.root().join(file);
        // A file that git tracks may be deleted in the working tree, and a link may lead to a folder.
        let Ok(content) = fs::read(&path) else { continue };
        // What is no text has no lines to check.
        let Ok(text) = String::from_utf8(content) else { continue };
        findings.extend(sources::check(file, &text));
        if Path::new(file).extension().is_some_and(|extension| extension == "md") {
            findings
                .extend(links::check(file, &text, |target| workspace.root().join(target).exists()));
        }
    }
    findings.extend(conformance::check(workspace)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} finding(s) in {} files", findings.len(), files.len());
    }
    println!("tidy: {} files, nothing to say", files.len());
    Ok(())
}
