//! Every example of the documents' reference is read, and what is printed of it is read as the same.

use crate::world::{World, deploy, store};
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::dsl;

const PAGE: &str = include_str!("../../../../docs/reference/documents.md");

/// The blocks that say their kind, in their order.
fn examples() -> Vec<(Kind, String)> {
    let mut examples = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```yaml ") else { continue };
        let kind = Kind::ALL.into_iter().find(|known| known.singular() == kind).expect(line);
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        examples.push((kind, block.join("\n")));
    }
    examples
}

#[test]
fn the_examples_of_the_page_are_read_and_printed() {
    let mut world = World::new();
    let mut kinds = Vec::new();
    for (kind, text) in examples() {
        kinds.push(kind);
        if kind == Kind::Deployment {
            deploy("shop", &text).unwrap();
            continue;
        }
        world.execute(&store(kind, &text).unwrap()).unwrap();
        let name = dsl::document_key(&dsl::document(&text).unwrap()).unwrap().1.unwrap();
        let key = ArtifactKey::new(kind, name);
        let printed = dsl::representation(&world.state(), &key).unwrap();
        world.execute(&store(kind, &printed.to_string()).unwrap()).unwrap();
        assert_eq!(dsl::representation(&world.state(), &key).unwrap(), printed, "{text}");
    }
    for kind in Kind::ALL {
        assert!(kinds.contains(&kind), "{} has an example", kind.singular());
    }
}
