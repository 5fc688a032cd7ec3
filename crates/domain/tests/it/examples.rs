//! The examples that the language was described with work as written.

use segue_domain::dsl::{self, Options};
use segue_domain::problem::{ProblemKind, Problems};
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
        let printed = match printed(kind, text) {
            Ok(Some(printed)) => printed,
            Ok(None) => continue,
            Err(problems) => {
                // What a release does not support yet it says; everything else has to fit.
                let is_later =
                    problems.iter().all(|problem| problem.kind == ProblemKind::NotSupported);
                assert!(is_later, "{kind}: {problems:?}");
                continue;
            }
        };
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

/// Shows: I1-formats
#[test]
fn the_examples_of_the_documentation_are_read_and_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/documents.md");
    let page = std::fs::read_to_string(page).unwrap();
    let parts = page.split("```yaml ").skip(1);
    let mut kinds = Vec::new();
    for (kind, rest) in parts.filter_map(|part| part.split_once('\n')) {
        let text = rest.split("```").next().unwrap_or_default();
        let printed = printed(kind, text).unwrap_or_else(|problems| panic!("{kind}: {problems:?}"));
        if let Some(printed) = printed {
            assert_eq!(self::printed(kind, &printed), Ok(Some(printed.clone())), "{kind}");
        } else {
            let node = dsl::document(text).unwrap();
            assert_eq!(kind, "deployment");
            dsl::read_deployment_body(&node, &Options::default()).unwrap();
        }
        kinds.push(kind);
    }
    let shown = ["breed", "scale", "gateway", "route", "rewrite", "template", "blueprint"];
    assert!(shown.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
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
        _ => return Ok(None),
    };
    Ok(Some(document.to_string()))
}
