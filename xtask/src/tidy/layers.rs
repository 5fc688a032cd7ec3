//! Who may depend on whom: `domain` ← `workers` ← `api`, tests on all of them, `xtask` on none; and what each layer
//! must not know of the outside.

use super::Finding;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// What a package may depend on.
struct Layer {
    package: &'static str,
    /// Packages of this workspace that it may use.
    below: &'static [&'static str],
    /// Beginnings of the names of packages that it must not use.
    forbidden: &'static [&'static str],
    /// Tokio's features that it may use, where tokio itself is no matter of course.
    tokio: Option<&'static [&'static str]>,
}

const LAYERS: [Layer; 5] = [
    Layer {
        package: "segue-domain",
        below: &[],
        forbidden: &["actix", "bollard", "ureq", "clap", "rand"],
        tokio: Some(&["sync"]),
    },
    Layer {
        package: "segue-workers",
        below: &["segue-domain"],
        forbidden: &["actix", "clap"],
        tokio: None,
    },
    Layer {
        package: "segue-api",
        below: &["segue-domain", "segue-workers"],
        forbidden: &[],
        tokio: None,
    },
    Layer {
        package: "segue-tests",
        below: &["segue-domain", "segue-workers", "segue-api"],
        forbidden: &[],
        tokio: None,
    },
    Layer {
        package: "xtask",
        below: &[],
        forbidden: &["actix", "bollard", "rocksdb", "rustls", "native-tls"],
        tokio: Some(&[]),
    },
];

/// Checks what `cargo metadata` read from the `Cargo.toml` files.
pub(super) fn check(metadata: &Value, root: &Path) -> Result<Vec<Finding>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let path = package["manifest_path"].as_str().context("a package has no manifest")?;
        let text = fs::read_to_string(path).with_context(|| format!("{path} cannot be read"))?;
        let file = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path)).to_string_lossy();
        findings.extend(check_package(package, &names, &file, &text));
    }
    Ok(findings)
}

fn check_package(package: &Value, workspace: &[&str], file: &str, text: &str) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some(layer) = LAYERS.iter().find(|layer| layer.package == name) else {
        let sentence =
            format!("the package {name} belongs to no layer; add it to the layers in xtask");
        return vec![Finding::new(file, 1, sentence)];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .flat_map(|dependency| check_dependency(layer, dependency, workspace, file, text))
        .collect()
}

fn check_dependency(
    layer: &Layer,
    dependency: &Value,
    workspace: &[&str],
    file: &str,
    text: &str,
) -> Vec<Finding> {
    let name = dependency["name"].as_str().unwrap_or_default();
    let finding = |sentence: String| Finding::new(file, line_of(text, dependency, name), sentence);
    let mut findings = Vec::new();
    if workspace.contains(&name) && !layer.below.contains(&name) {
        let sentence =
            format!("{} must not depend on {name}: dependencies point down only", layer.package);
        findings.push(finding(sentence));
    }
    // Tests may use more than the code that they test.
    if dependency["kind"] == "dev" {
        return findings;
    }
    if layer.forbidden.iter().any(|forbidden| name.starts_with(forbidden)) {
        findings.push(finding(format!(
            "{} must not depend on {name}: it belongs to another layer",
            layer.package
        )));
    }
    if let Some(allowed) = layer.tokio.filter(|_| name == "tokio") {
        let features =
            dependency["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for feature in features.filter(|feature| !allowed.contains(feature)) {
            findings.push(finding(format!(
                "{} must not use tokio's '{feature}': it runs nothing",
                layer.package
            )));
        }
    }
    findings
}

/// The line that names the dependency, under its own name or under the one it is renamed to.
fn line_of(text: &str, dependency: &Value, name: &str) -> usize {
    let key = dependency["rename"].as_str().unwrap_or(name);
    let names =
        |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.', '=']));
    text.lines().position(names).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_one(package: &str, dependency: &Value) -> Vec<String> {
        let text = "[package]\n\n[dependencies]\nsegue-api.workspace = true\nactix-web = \"4\"\ntokio = {}\n";
        let package = json!({"name": package, "dependencies": [dependency]});
        let names = ["segue-domain", "segue-workers", "segue-api", "segue-tests", "xtask"];
        check_package(&package, &names, "Cargo.toml", text)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn dependencies_point_down() {
        let up = json!({"name": "segue-api", "kind": null});
        let sentence = "Cargo.toml:4: segue-workers must not depend on segue-api: dependencies point down only";
        assert_eq!(check_one("segue-workers", &up), [sentence]);
        assert_eq!(
            check_one("segue-workers", &json!({"name": "segue-api", "kind": "dev"})).len(),
            1
        );
        assert!(check_one("segue-tests", &up).is_empty());
        assert!(
            check_one("segue-workers", &json!({"name": "segue-domain", "kind": null})).is_empty()
        );
    }

    #[test]
    fn a_layer_does_not_know_the_libraries_of_another() {
        let web = json!({"name": "actix-web", "kind": null});
        assert_eq!(check_one("segue-domain", &web).len(), 1);
        assert_eq!(check_one("segue-workers", &web).len(), 1);
        assert!(check_one("segue-api", &web).is_empty());
    }

    #[test]
    fn the_domain_has_tokios_channels_and_no_runtime() {
        let tokio =
            |features: &[&str], kind| json!({"name": "tokio", "kind": kind, "features": features});
        assert!(check_one("segue-domain", &tokio(&["sync"], Value::Null)).is_empty());
        let findings = check_one("segue-domain", &tokio(&["sync", "rt"], Value::Null));
        assert_eq!(
            findings,
            ["Cargo.toml:6: segue-domain must not use tokio's 'rt': it runs nothing"]
        );
        assert!(check_one("segue-domain", &tokio(&["rt"], json!("dev"))).is_empty());
    }

    #[test]
    fn every_package_has_a_layer() {
        assert_eq!(check_one("segue-new", &json!({"name": "serde"})).len(), 1);
    }
}
