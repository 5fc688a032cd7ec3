//! What the documents show works: every blueprint in them is read, and printed so that it can be read again.

use segue_domain::dsl::{self, Options};
use std::path::{Path, PathBuf};

/// How a block that holds a blueprint begins.
const BLUEPRINT: &str = "```yaml blueprint";

#[test]
fn blueprints_in_the_documents_are_read_and_printed() {
    let mut found = 0;
    for file in documents() {
        let text = std::fs::read_to_string(&file).expect("a document is text");
        for block in blocks(&text) {
            found += 1;
            let check = |text: &str| {
                let document = dsl::document(text)?;
                dsl::read_blueprint(&document, &Options::default())
            };
            let blueprint = check(&block).unwrap_or_else(|problems| {
                panic!("{}: {problems:#?}\n{block}", file.display());
            });
            let printed = dsl::write_blueprint(&blueprint).to_string();
            assert_eq!(check(&printed).expect("what is printed is read"), blueprint);
        }
    }
    assert!(found > 0, "the README shows a blueprint");
}

#[test]
fn pages_that_the_readme_leads_to_name_commands_that_exist() {
    let root = root();
    let page = std::fs::read_to_string(root.join("docs/reference/command-line.md")).expect("text");
    let program = segue_tests::service::program();
    let help = std::process::Command::new(program).arg("--help").output().expect("it runs");
    let help = String::from_utf8(help.stdout).expect("help is text");
    for command in ["serve", "replay", "migrate", "backup", "restore", "down", "example-service"] {
        assert!(page.contains(&format!("segue {command}")), "{command} is documented");
        assert!(help.contains(command), "{command} exists");
    }
}

#[test]
fn the_readme_leads_to_every_page() {
    let root = root();
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("a page is text");
    let (readme, decisions) = (read("README.md"), read("docs/decisions/README.md"));
    for page in documents().iter().filter_map(|page| page.strip_prefix(&root).ok()) {
        let page = page.to_string_lossy();
        let is_linked = match page.strip_prefix("docs/decisions/") {
            Some("README.md") | None => readme.contains(&format!("]({page})")),
            Some(decision) => decisions.contains(&format!("]({decision})")),
        };
        assert!(is_linked || page == "README.md", "{page}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace").into()
}

/// The README and everything below `docs`.
fn documents() -> Vec<PathBuf> {
    let mut files = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder is read") {
            let path = entry.expect("an entry is read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files
}

fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == BLUEPRINT {
            let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}
