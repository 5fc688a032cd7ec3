//! The tags of an event.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// How many tags a posted event may have, and how many a query may name. The groups that come with them do not count:
/// who posts an event gives the tags, and the service adds the groups.
pub const TAGS_MAX: usize = 1_000;

/// Up to so many tags are compared with each other, which is faster than a set.
const COMPARED_MAX: usize = 32;

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
        let mut seen: HashSet<String> = HashSet::new();
        let mut is_new = |tag: &String, expanded: &[String]| {
            if expanded.len() <= COMPARED_MAX {
                return !expanded.contains(tag);
            }
            if seen.is_empty() {
                seen.extend(expanded.iter().cloned());
            }
            seen.insert(tag.clone())
        };
        for tag in tags {
            let tag = tag.into();
            let group = tag
                .split_once(':')
                .map(|(group, _)| group.to_owned())
                .filter(|group| !group.is_empty());
            for tag in std::iter::once(tag).chain(group) {
                if is_new(&tag, &expanded) {
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

    /// Whether all of `tags` are among them.
    pub fn contains_all(&self, tags: &[String]) -> bool {
        if tags.len() <= COMPARED_MAX {
            return tags.iter().all(|tag| self.contains(tag));
        }
        let own: HashSet<&str> = self.0.iter().map(String::as_str).collect();
        tags.iter().all(|tag| own.contains(tag.as_str()))
    }
}

/// What is wrong with `count` tags of `owner`, which is "an event" or "a query"; `None` when there are no more than
/// [`TAGS_MAX`].
pub(crate) fn too_many_tags(owner: &str, count: usize) -> Option<String> {
    (count > TAGS_MAX).then(|| format!("{owner} has at most {TAGS_MAX} tags, this one has {count}"))
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

    #[test]
    fn few_and_many_tags_are_looked_for_alike() {
        let tags = Tags::expand((0..200).map(|number| format!("number:{number}")));
        let all = tags.as_slice().to_vec();
        for count in [0, 1, COMPARED_MAX, COMPARED_MAX + 1, all.len()] {
            assert!(tags.contains_all(&all[..count]), "{count}");
            let more = [&all[..count], &["other".to_owned()]].concat();
            assert!(!tags.contains_all(&more), "{count} and another");
        }
    }

    #[test]
    fn what_is_too_much_is_said() {
        assert_eq!(too_many_tags("an event", TAGS_MAX), None);
        let said = too_many_tags("an event", TAGS_MAX + 1);
        assert_eq!(said.as_deref(), Some("an event has at most 1000 tags, this one has 1001"));
    }

    proptest::proptest! {
        #[test]
        fn many_tags_are_expanded_as_few_are(
            tags in proptest::collection::vec("[a-c]{1,2}(:[0-9]{1,2})?", 0..120),
        ) {
            let mut expected: Vec<&str> = Vec::new();
            for tag in &tags {
                expected.push(tag);
                expected.extend(tag.split_once(':').map(|(group, _)| group));
            }
            let mut seen = HashSet::new();
            expected.retain(|tag| seen.insert(*tag));
            let found = Tags::expand(tags.clone());
            proptest::prop_assert_eq!(found.as_slice(), expected);
        }
    }
}
