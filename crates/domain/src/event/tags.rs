//! The tags of an event.

use serde::{Deserialize, Serialize};

/// The expanded tags of an event, without duplicates: the given ones in order, each followed by its group.
///
/// A tag `a:b` stands for two tags, `a:b` and its group `a`, the part before the first colon (interface, 6.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tags(Vec<String>);

impl Tags {
    /// Expands `tags`.
    pub fn expand<S: Into<String>>(tags: impl IntoIterator<Item = S>) -> Self {
        let mut expanded: Vec<String> = Vec::new();
        for tag in tags {
            let tag = tag.into();
            let group = tag
                .split_once(':')
                .map(|(group, _)| group.to_owned())
                .filter(|group| !group.is_empty());
            for tag in std::iter::once(tag).chain(group) {
                if !expanded.contains(&tag) {
                    expanded.push(tag);
                }
            }
        }
        Self(expanded)
    }

    /// All tags, groups included.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether `tag` is among them.
    pub fn contains(&self, tag: &str) -> bool {
        self.0.iter().any(|own| own == tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combined_tag_brings_its_group_once() {
        let check = |given: &[&str], expanded: &[&str]| {
            assert_eq!(Tags::expand(given.iter().copied()).as_slice(), expanded);
        };
        check(&["a"], &["a"]);
        check(&["a:b"], &["a:b", "a"]);
        check(&["a:b:c"], &["a:b:c", "a"]);
        check(&["a:b", "a:c", "a"], &["a:b", "a", "a:c"]);
        check(&[":b"], &[":b"]);
    }
}
