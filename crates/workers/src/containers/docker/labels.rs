//! The labels of containers: all that Segue keeps about them, and how it finds them again.

use crate::containers::hash::sha1_hex;
use crate::containers::{InstanceSpec, Owner};
use bollard::models::{ContainerSummary, EventActor, ImageInspect};
use indexmap::IndexMap;
use std::collections::HashMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const KIND: &str = "deployment-service";
const PART_CHARACTERS_MAX: usize = 63;
const HASH_DIGITS: usize = 32;

/// The id of a service, `segue_<deployment>_<breed>`. Followed by `_` and a unique suffix it is the name of an
/// instance: valid as a container name, and recognised by people.
pub fn service_id(deployment: &str, breed: &str) -> String {
    format!("segue_{}_{}", id_part(deployment), id_part(breed))
}

fn id_part(part: &str) -> String {
    let inner = !part.is_empty() && !part.starts_with('-') && !part.ends_with('-');
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if inner && part.len() <= PART_CHARACTERS_MAX && part.chars().all(plain) {
        return part.to_owned();
    }
    sha1_hex(&format!("{part}0000"))[..HASH_DIGITS].to_owned()
}

/// Filters of a list of containers, in the form of Docker's API.
pub(super) type Filters = HashMap<String, Vec<String>>;

/// The names of labels in this installation.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    label_namespace: String,
    namespace: String,
}

impl Labels {
    pub(super) fn new(label_namespace: &str, namespace: &str) -> Self {
        Self { label_namespace: label_namespace.to_owned(), namespace: namespace.to_owned() }
    }

    /// The labels of a new container.
    pub(super) fn of_new(
        &self,
        spec: &InstanceSpec,
        image: &ImageInspect,
        created: OffsetDateTime,
    ) -> HashMap<String, String> {
        let scale = serde_json::json!({
            "instances": spec.instances,
            "cpu": spec.cpu.cores(),
            "memory": spec.memory.to_string(),
        });
        let digests = image.repo_digests.clone().unwrap_or_default();
        let bytes = serde_json::json!({"id": image.id, "digests": digests});
        let ports = serde_json::to_string(&spec.ports).expect("a map of texts to numbers is JSON");
        let values = [
            ("namespace", self.namespace.clone()),
            ("deployment", spec.owner.deployment.clone()),
            ("cluster", spec.owner.cluster.clone()),
            ("service", spec.owner.service.clone()),
            ("id", service_id(&spec.owner.deployment, &spec.owner.service)),
            ("instance", spec.name.clone()),
            ("scale", scale.to_string()),
            ("definition", spec.fingerprint.clone()),
            ("ports", ports),
            ("image", bytes.to_string()),
            ("created", created.format(&Rfc3339).expect("a time of this era is RFC 3339")),
        ];
        let mut labels: HashMap<String, String> =
            values.into_iter().map(|(name, value)| (self.key(name), value)).collect();
        if !self.label_namespace.is_empty() {
            labels.insert(self.label_namespace.clone(), KIND.to_owned());
        }
        labels
    }

    /// Finds every container of a service of this installation.
    pub(super) fn of_all(&self) -> Filters {
        self.filters(&[])
    }

    /// Finds those of one deployment.
    pub(super) fn of_deployment(&self, deployment: &str) -> Filters {
        self.filters(&[("deployment", deployment)])
    }

    /// Finds the container of one instance.
    pub(super) fn of_instance(&self, deployment: &str, instance: &str) -> Filters {
        self.filters(&[("deployment", deployment), ("instance", instance)])
    }

    /// The deployment of a container; empty when its labels do not say.
    pub(super) fn deployment(&self, container: &ContainerSummary) -> String {
        self.value(container, "deployment").unwrap_or_default()
    }

    /// The deployment of the container that an event of Docker's is about: its attributes hold the labels.
    pub(super) fn deployment_of<'a>(&self, actor: &'a EventActor) -> Option<&'a String> {
        actor.attributes.as_ref()?.get(&self.key("deployment"))
    }

    pub(super) fn owner(&self, container: &ContainerSummary) -> Option<Owner> {
        Some(Owner {
            deployment: self.value(container, "deployment")?,
            cluster: self.value(container, "cluster")?,
            service: self.value(container, "service")?,
        })
    }

    pub(super) fn instance(&self, container: &ContainerSummary) -> Option<String> {
        self.value(container, "instance")
    }

    pub(super) fn fingerprint(&self, container: &ContainerSummary) -> String {
        self.value(container, "definition").unwrap_or_default()
    }

    /// Port name to the number inside the container.
    pub(super) fn ports(&self, container: &ContainerSummary) -> IndexMap<String, u16> {
        let text = self.value(container, "ports").unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The digests under which its image came from registries.
    pub(super) fn digests(&self, container: &ContainerSummary) -> Vec<String> {
        let text = self.value(container, "image").unwrap_or_default();
        let bytes: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        serde_json::from_value(bytes["digests"].clone()).unwrap_or_default()
    }

    /// When it was created. Docker's own list tells only the second, and two instances may be of the same one.
    pub(super) fn created(&self, container: &ContainerSummary) -> OffsetDateTime {
        let label = self
            .value(container, "created")
            .and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok());
        let listed = || OffsetDateTime::from_unix_timestamp(container.created?).ok();
        label.or_else(listed).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    fn filters(&self, labels: &[(&str, &str)]) -> Filters {
        let kind =
            (!self.label_namespace.is_empty()).then(|| format!("{}={KIND}", self.label_namespace));
        let namespace = format!("{}={}", self.key("namespace"), self.namespace);
        let others = labels.iter().map(|(name, value)| format!("{}={value}", self.key(name)));
        HashMap::from([(
            "label".to_owned(),
            kind.into_iter().chain([namespace]).chain(others).collect(),
        )])
    }

    fn value(&self, container: &ContainerSummary, name: &str) -> Option<String> {
        container.labels.as_ref()?.get(&self.key(name)).cloned()
    }

    fn key(&self, name: &str) -> String {
        match self.label_namespace.as_str() {
            "" => name.to_owned(),
            namespace => format!("{namespace}.{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_id_are_kept_or_hashed() {
        assert_eq!(service_id("shop", "web-1"), "segue_shop_web-1");
        for part in ["web:1", "Web", "-a", "a-", "", &"a".repeat(64)] {
            let hash = id_part(part);
            assert!(
                hash.len() == 32 && hash.chars().all(|c| c.is_ascii_hexdigit()),
                "{part}: {hash}"
            );
        }
        // printf 'web:10000' | sha1sum
        assert_eq!(service_id("shop", "web:1"), "segue_shop_da83a2f5323e845c3a8dee4a96c2ca3e");
        assert_eq!(id_part(&"a".repeat(63)).len(), 63);
    }

    #[test]
    fn without_a_label_namespace_there_is_no_prefix() {
        assert_eq!(Labels::new("", "n").key("id"), "id");
        assert_eq!(Labels::new("io.segue", "n").key("id"), "io.segue.id");
        let filters = Labels::new("io.segue", "n").of_deployment("d");
        assert_eq!(
            filters["label"],
            ["io.segue=deployment-service", "io.segue.namespace=n", "io.segue.deployment=d"]
        );
    }
}
