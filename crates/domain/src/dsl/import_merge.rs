//! Deep merging of what documents import (documents, 11.2): maps merge, lists are united, everything else is replaced.
//!
//! What is there already is found by hash, so that merging takes as long as what is merged is large.

use super::tree::{Key, Node, Value};
use crate::problem::Place;
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};

/// A map under construction.
#[derive(Default)]
pub(super) struct Merged {
    entries: Vec<(Key, Part)>,
    /// Places in `entries`, by the long form of the key.
    index: HashMap<String, usize>,
}

/// An element under construction.
enum Part {
    /// Nothing was merged into it yet.
    Whole(Node),
    Map(Place, Merged),
    List(Place, United),
}

/// A list under construction.
struct United {
    items: Vec<Node>,
    /// The items as canonical JSON.
    known: HashSet<String>,
}

impl Merged {
    /// Merges the entries of `over` into this map.
    pub fn merge(&mut self, over: Vec<(Key, Node)>) {
        for (key, node) in over {
            if let Some(index) = self.index.get(long(&key.text)) {
                let (own, part) = &mut self.entries[*index];
                own.place = key.place;
                part.merge(node);
            } else {
                self.push(key, node);
            }
        }
    }

    /// What came of it.
    pub fn into_entries(self) -> Vec<(Key, Node)> {
        self.entries.into_iter().map(|(key, part)| (key, part.into_node())).collect()
    }

    fn of(entries: Vec<(Key, Node)>) -> Self {
        let mut map = Self::default();
        for (key, node) in entries {
            map.push(key, node);
        }
        map
    }

    fn push(&mut self, key: Key, node: Node) {
        self.index.entry(long(&key.text).to_owned()).or_insert(self.entries.len());
        self.entries.push((key, Part::Whole(node)));
    }
}

impl Part {
    fn merge(&mut self, over: Node) {
        // The same kind of thing as `over` is merged, and nothing equals an absent key; all else is replaced.
        let own =
            std::mem::replace(self, Part::Whole(Node { place: over.place, value: Value::Null }));
        *self = match (own.opened(), over.value) {
            (Part::Map(_, mut map), Value::Mapping(entries)) => {
                map.merge(entries);
                Part::Map(over.place, map)
            }
            (Part::List(_, mut list), Value::Sequence(items)) => {
                list.unite(items);
                Part::List(over.place, list)
            }
            (own, Value::Null) => own.at(over.place),
            (_, value) => Part::Whole(Node { place: over.place, value }),
        };
    }

    /// The same, ready to be merged into.
    fn opened(self) -> Self {
        match self {
            Part::Whole(Node { place, value: Value::Mapping(entries) }) => {
                Part::Map(place, Merged::of(entries))
            }
            Part::Whole(Node { place, value: Value::Sequence(items) }) => {
                let known = items.iter().map(canonical).collect();
                Part::List(place, United { items, known })
            }
            other => other,
        }
    }

    fn at(self, place: Place) -> Self {
        match self {
            Part::Whole(node) => Part::Whole(Node { place, ..node }),
            Part::Map(_, map) => Part::Map(place, map),
            Part::List(_, list) => Part::List(place, list),
        }
    }

    fn into_node(self) -> Node {
        match self {
            Part::Whole(node) => node,
            Part::Map(place, map) => Node { place, value: Value::Mapping(map.into_entries()) },
            Part::List(place, list) => Node { place, value: Value::Sequence(list.items) },
        }
    }
}

impl United {
    fn unite(&mut self, items: Vec<Node>) {
        for item in items {
            if self.known.insert(canonical(&item)) {
                self.items.push(item);
            }
        }
    }
}

/// The key that `key` is short for: what is imported is in the long form, and both together would be refused.
fn long(key: &str) -> &str {
    match key {
        "env" => "environment_variables",
        "dialect" => "dialects",
        other => other,
    }
}

/// A text that is the same for all nodes that say the same.
fn canonical(node: &Node) -> String {
    let mut json: Json = node.to_json();
    json.sort_all_objects();
    json.to_string()
}
