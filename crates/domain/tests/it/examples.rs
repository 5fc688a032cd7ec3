//! The examples that the language was described with work as written.

use crate::world::{HOST, World, deploy, store};
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::dsl::{self, Options};
use segue_domain::problem::Problems;
use std::path::Path;

/// In the order of the page.
const EXAMPLES: [(&str, &str); 4] = [
    ("breed", include_str!("examples/breed.yaml")),
    ("gateway", include_str!("examples/gateway.yaml")),
    ("sla", include_str!("examples/sla.yaml")),
    ("blueprint", include_str!("examples/blueprint.yaml")),
];

/// Shows: I1-formats
#[test]
fn the_examples_are_read_and_what_is_printed_reads_the_same() {
    for (kind, text) in EXAMPLES {
        let printed = printed(kind, text).unwrap_or_else(|problems| panic!("{kind}: {problems:?}"));
        let Some(printed) = printed else { continue };
        assert_eq!(self::printed(kind, &printed), Ok(Some(printed.clone())), "{kind}");
    }
}

/// The page is kept beside the project where the project is developed.
#[test]
fn the_examples_are_those_of_the_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/spec/dsl.md");
    let Ok(page) = std::fs::read_to_string(page) else { return };
    let parts = page.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = parts.filter_map(|part| part.split("```").next()).collect();
    assert_eq!(blocks, EXAMPLES.map(|(_, text)| text));
}

/// The canonical form; `None` where no reader knows the kind alone.
fn printed(kind: &str, text: &str) -> Result<Option<String>, Problems> {
    let (node, options) = (dsl::document(text)?, Options::default());
    let document = match kind {
        "breed" => dsl::write_breed(&dsl::read_breed(&node, &options)?),
        "gateway" => {
            let gateway = dsl::read_gateway(&node, &options)?;
            dsl::write_gateway(&gateway, &dsl::GatewayView::default())
        }
        "scale" => dsl::write_scale(&dsl::read_scale(&node, &options)?),
        "route" => dsl::write_route(&dsl::read_route(&node, &options)?),
        "rewrite" => dsl::write_rewrite(&dsl::read_rewrite(&node, &options)?),
        "template" => dsl::write_template(&dsl::read_template(&node, &options)?),
        "blueprint" => dsl::write_blueprint(&dsl::read_blueprint(&node, &options)?),
        // An example without a name, as it stands in a cluster.
        "sla" => {
            dsl::read_cluster_sla(&node, &options)?;
            return Ok(None);
        }
        _ => return Ok(None),
    };
    Ok(Some(document.to_string()))
}

/// The page of the documentation.
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

/// Shows: I1-formats
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
        let printed = dsl::representation(&world.state(), &key, HOST).unwrap();
        world.execute(&store(kind, &printed.to_string()).unwrap()).unwrap();
        assert_eq!(dsl::representation(&world.state(), &key, HOST).unwrap(), printed, "{text}");
    }
    for kind in Kind::ALL {
        assert!(kinds.contains(&kind), "{} has an example", kind.singular());
    }
}
