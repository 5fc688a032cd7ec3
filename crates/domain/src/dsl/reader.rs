//! What all readers share: strict reading of maps, and the stages in which problems are collected.
//!
//! Readers take every key they know from a [`Fields`]; what is left is unknown. Problems are kept by stage, and the
//! first stage that has any ends the reading (documents, section 1.3). Rules of a whole artifact are checked on the
//! typed artifact; [`Reading`] remembers where each part of it was written, whatever short form was used.

use super::tree::{Key, Node, Value, pointer_segment};
use super::{Options, fields};
use crate::{
    artifact::{Kind, Metadata},
    problem::{Place, Problem, ProblemKind, Problems, Result},
};
use std::collections::HashMap;
use std::rc::Rc;

/// A part of a document: the node, where it is written, and where it would be written in the canonical form.
#[derive(Clone, Debug)]
pub(super) struct Element<'n> {
    pub node: &'n Node,
    pub pointer: Rc<str>,
    /// Nearly always the pointer itself.
    pub canonical: Rc<str>,
    /// Of the key in a map, else of the node.
    pub place: Place,
}

impl<'n> Element<'n> {
    /// The document as a whole.
    pub fn root(node: &'n Node) -> Self {
        let pointer: Rc<str> = Rc::default();
        Self { node, canonical: Rc::clone(&pointer), pointer, place: node.place }
    }

    /// The same part, standing for another one of the canonical form.
    pub fn standing_for(mut self, canonical: impl Into<Rc<str>>, reading: &mut Reading) -> Self {
        let canonical = canonical.into();
        let is_itself = canonical == self.pointer;
        self.canonical = if is_itself { Rc::clone(&self.pointer) } else { canonical };
        reading.mark(&self.canonical, &self.pointer, self.place);
        self
    }

    /// The items of a list, or `None` when this is none.
    pub fn items(&self, reading: &mut Reading) -> Option<Vec<Element<'n>>> {
        let Value::Sequence(items) = &self.node.value else { return None };
        let mut elements = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            elements.push(self.child(&index.to_string(), node, node.place, reading));
        }
        Some(elements)
    }

    /// The entries of a map with their keys, or `None` when this is none. Null values are among them.
    pub fn entries(&self, reading: &mut Reading) -> Option<Vec<(&'n Key, Element<'n>)>> {
        let Value::Mapping(entries) = &self.node.value else { return None };
        let mut elements = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            elements.push((key, self.child(&key.text, node, key.place, reading)));
        }
        Some(elements)
    }

    pub fn is_null(&self) -> bool {
        self.node.value == Value::Null
    }

    /// The text of a text scalar; `None` for everything else, numbers included.
    pub fn plain_text(&self) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar(scalar) if scalar.kind == super::ScalarKind::Text => Some(&scalar.text),
            _ => None,
        }
    }

    pub fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Mapping(_))
    }

    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::Sequence(_))
    }

    fn child(
        &self,
        segment: &str,
        node: &'n Node,
        place: Place,
        reading: &mut Reading,
    ) -> Element<'n> {
        let segment = pointer_segment(segment);
        let below = |parent: &str| -> Rc<str> { [parent, "/", &segment].concat().into() };
        let pointer = below(&self.pointer);
        let is_itself = Rc::ptr_eq(&self.pointer, &self.canonical);
        let canonical = if is_itself { Rc::clone(&pointer) } else { below(&self.canonical) };
        reading.mark(&canonical, &pointer, place);
        Element { node, pointer, canonical, place }
    }
}

/// The keys of one map, each to be taken by its reader.
pub(super) struct Fields<'n> {
    element: Element<'n>,
    entries: Vec<Entry<'n>>,
    known: Vec<&'static str>,
}

struct Entry<'n> {
    key: &'n Key,
    node: &'n Node,
    is_taken: bool,
}

impl<'n> Fields<'n> {
    /// The keys of `element`; anything but a map is a problem.
    pub fn open(element: &Element<'n>, reading: &mut Reading) -> Option<Self> {
        let Value::Mapping(entries) = &element.node.value else {
            reading.wrong_type(element, "a map");
            return None;
        };
        reading.mark(&element.canonical, &element.pointer, element.place);
        let entries =
            entries.iter().map(|(key, node)| Entry { key, node, is_taken: false }).collect();
        Some(Self { element: element.clone(), entries, known: Vec::new() })
    }

    /// Whether `name` is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key.text == name && entry.node.value != Value::Null)
    }

    /// Whether `name` is there, null or not.
    pub fn has_key(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key.text == name)
    }

    /// Takes `name`; null equals absent.
    pub fn take(&mut self, name: &'static str, reading: &mut Reading) -> Option<Element<'n>> {
        self.known.push(name);
        let entry =
            self.entries.iter_mut().find(|entry| entry.key.text == name && !entry.is_taken)?;
        entry.is_taken = true;
        let element = self.element.child(name, entry.node, entry.key.place, reading);
        (!element.is_null()).then_some(element)
    }

    /// Takes `name`, or its `synonym` when it is absent; both stand for `name` in the canonical form.
    pub fn take_either(
        &mut self,
        name: &'static str,
        synonym: &'static str,
        reading: &mut Reading,
    ) -> Option<Element<'n>> {
        if self.has(name) {
            return self.take(name, reading);
        }
        self.known.push(name);
        let canonical = format!("{}/{name}", self.element.canonical);
        Some(self.take(synonym, reading)?.standing_for(canonical, reading))
    }

    /// Takes `name`; its absence is a problem.
    pub fn require(&mut self, name: &'static str, reading: &mut Reading) -> Option<Element<'n>> {
        let element = self.take(name, reading);
        if element.is_none() {
            reading.missing(&self.element, name, self.misspelt(name));
        }
        element
    }

    /// Takes `name`, or its `synonym`; the absence of both is a problem.
    pub fn require_either(
        &mut self,
        name: &'static str,
        synonym: &'static str,
        reading: &mut Reading,
    ) -> Option<Element<'n>> {
        let element = self.take_either(name, synonym, reading);
        if element.is_none() {
            reading.missing(&self.element, name, self.misspelt(name));
        }
        element
    }

    /// The key that somebody may have meant as `name`: one that nobody took, and that is spelt almost so.
    fn misspelt(&self, name: &'static str) -> Option<&'n Key> {
        let open = self.entries.iter().filter(|entry| !entry.is_taken).map(|entry| entry.key);
        open.min_by_key(|key| strsim::damerau_levenshtein(&key.text, name))
            .filter(|key| closest(&key.text, &[name]).is_some())
    }

    /// Accepts `names` and reads nothing of them.
    pub fn ignore(&mut self, names: &[&'static str], reading: &mut Reading) {
        for name in names {
            self.take(name, reading);
        }
    }

    /// How many keys are there, not null, and not taken yet.
    pub fn untaken(&self) -> usize {
        let open = |entry: &&Entry<'_>| !entry.is_taken && entry.node.value != Value::Null;
        self.entries.iter().filter(open).count()
    }

    /// Takes all keys that nobody took, as content that is kept verbatim; those of a map `parameters` stand for
    /// themselves.
    pub fn parameters(&mut self, reading: &mut Reading) -> Metadata {
        let given =
            self.entries.iter().find(|entry| entry.key.text == "parameters" && !entry.is_taken);
        let is_map = given.is_some_and(|entry| matches!(entry.node.value, Value::Mapping(_)));
        let given = if is_map { self.take("parameters", reading) } else { None };
        let mut parameters = given.and_then(|map| fields::json_map(&map)).unwrap_or_default();
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_taken) {
            entry.is_taken = true;
            if entry.node.value != Value::Null {
                parameters.insert(entry.key.text.clone(), entry.node.to_json());
            }
        }
        parameters
    }

    /// Takes `kind`, which must be one of `kinds` when it is there.
    pub fn kind(&mut self, kinds: &[Kind], reading: &mut Reading) {
        let Some(element) = self.take("kind", reading) else { return };
        if !kinds.iter().any(|kind| element.plain_text() == Some(kind.singular())) {
            let expected: Vec<_> =
                kinds.iter().map(|kind| format!("'{}'", kind.singular())).collect();
            let detail = format!("the kind here is {}", expected.join(" or "));
            let problem = element.problem(ProblemKind::InconsistentArtifactKind, detail);
            reading.kinds.push(
                problem.hint(format!("write {}, or leave 'kind' out", expected.join(" or "))),
            );
        }
    }

    /// Takes what is tolerated at the top of an artifact, and gives its metadata.
    pub fn top(&mut self, kinds: &[Kind], reading: &mut Reading) -> Metadata {
        self.kind(kinds, reading);
        self.metadata(reading)
    }

    /// Takes `metadata`.
    pub fn metadata(&mut self, reading: &mut Reading) -> Metadata {
        let Some(element) = self.take("metadata", reading) else { return Metadata::new() };
        fields::json_map(&element).unwrap_or_else(|| {
            let problem = element.problem(ProblemKind::UnsupportedMetadata, "metadata is a map");
            reading.refuse(problem.hint("write metadata: {KEY: VALUE}"));
            Metadata::new()
        })
    }

    /// Takes `name`, filled in from the path when it is absent, and gives where it stands.
    pub fn name(&mut self, reading: &mut Reading) -> Option<(String, Element<'n>)> {
        let expected = reading.options.name.clone();
        let Some(element) = self.take("name", reading) else {
            if expected.is_none() {
                reading.missing(&self.element, "name", self.misspelt("name"));
            }
            return expected.map(|name| (name, self.element.clone()));
        };
        let name = fields::text(&element, reading)?;
        if let Some(expected) = expected.filter(|expected| *expected != name) {
            let detail = format!("the name is '{name}', but the path says '{expected}'");
            let problem = element.problem(ProblemKind::InconsistentArtifactName, detail);
            reading
                .refuse(problem.hint("leave the name out, or send the document to its own path"));
        }
        Some((name, element))
    }

    /// Takes `name`, which is a general name.
    pub fn general_name(&mut self, reading: &mut Reading) -> Option<String> {
        let (name, element) = self.name(reading)?;
        fields::general_name(&element, &name, reading).then_some(name)
    }

    /// Moves all keys but `kept` into fields of their own.
    pub fn split_off(&mut self, kept: &[&str]) -> Fields<'n> {
        let (kept, moved) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| kept.contains(&entry.key.text.as_str()));
        self.entries = kept;
        Fields { element: self.element.clone(), entries: moved, known: Vec::new() }
    }

    pub fn element(&self) -> &Element<'n> {
        &self.element
    }

    /// Lets these fields stand for another part of the canonical form.
    pub fn stand_for(&mut self, canonical: String, reading: &mut Reading) {
        self.element = self.element.clone().standing_for(canonical, reading);
    }

    /// How many keys are there and not null.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.node.value != Value::Null).count()
    }

    /// What to write instead of `key`, which is not known.
    fn instead_of(&self, key: &str) -> String {
        match closest(key, &self.known) {
            Some(known) => format!("did you mean '{known}'?"),
            None if self.known.is_empty() => "leave it out".to_owned(),
            None => format!("leave it out; known here are {}", self.known.join(", ")),
        }
    }

    /// Reports the keys that nobody took.
    pub fn close(self, reading: &mut Reading) {
        for entry in
            self.entries.iter().filter(|entry| !entry.is_taken && entry.node.value != Value::Null)
        {
            let key = &entry.key.text;
            let pointer = format!("{}/{}", self.element.pointer, pointer_segment(key));
            let detail = format!("'{key}' is not known here");
            let mut problem = Problem::new(ProblemKind::UnexpectedElement, pointer, detail)
                .at(Some(entry.key.place));
            problem.hint = Some(self.instead_of(key));
            reading.unknown.push(problem);
        }
    }
}

impl Element<'_> {
    /// A problem with this part.
    pub fn problem(&self, kind: ProblemKind, detail: impl Into<String>) -> Problem {
        let place = if self.is_null() { self.place } else { self.node.place };
        Problem::new(kind, &*self.pointer, detail).at(Some(place))
    }
}

/// The state of one reading: its options, and the problems found so far.
pub(super) struct Reading<'o> {
    pub options: &'o Options,
    /// Whether the parts of a deployment that Segue itself sets are accepted and ignored.
    pub is_deployment: bool,
    /// Whether such parts were met, so that this is a deployment as it was printed.
    pub is_printed: bool,
    read: Vec<Problem>,
    rules: Vec<RuleProblem>,
    kinds: Vec<Problem>,
    unknown: Vec<Problem>,
    marks: HashMap<Rc<str>, (Rc<str>, Place)>,
}

/// A rule of a whole artifact that was broken; the rule with the lowest rank is checked first.
pub(super) struct RuleProblem {
    pub rank: u8,
    /// With a canonical pointer.
    pub problem: Problem,
}

impl<'o> Reading<'o> {
    pub fn new(options: &'o Options) -> Self {
        Self {
            options,
            is_deployment: false,
            is_printed: false,
            read: Vec::new(),
            rules: Vec::new(),
            kinds: Vec::new(),
            unknown: Vec::new(),
            marks: HashMap::new(),
        }
    }

    /// Reports a problem of the first stage.
    pub fn refuse(&mut self, problem: Problem) {
        self.read.push(problem);
    }

    /// Reports a broken rule of the artifact as a whole.
    pub fn break_rule(
        &mut self,
        rank: u8,
        element: &Element<'_>,
        kind: ProblemKind,
        (detail, hint): (String, &str),
    ) {
        let problem = Problem::new(kind, &*element.canonical, detail).hint(hint);
        self.rules.push(RuleProblem { rank, problem });
    }

    pub fn wrong_type(&mut self, element: &Element<'_>, expected: &str) {
        let path = element.pointer.trim_start_matches('/');
        let found = element.node.describe_value();
        let detail = if path.is_empty() {
            format!("expected {expected}, found {found}")
        } else {
            format!("'{path}' takes {expected}, found {found}")
        };
        let problem = element.problem(ProblemKind::UnexpectedType, detail);
        self.refuse(problem.hint(format!("write {expected}")));
    }

    /// Reports that `name` is absent; `misspelt` is the key that may have been meant as it.
    pub fn missing(&mut self, parent: &Element<'_>, name: &str, misspelt: Option<&Key>) {
        let pointer = format!("{}/{}", parent.pointer, pointer_segment(name));
        let detail = format!("'{}' is required", &pointer[1..]);
        let mut problem = Problem::new(ProblemKind::MissingPathValue, pointer, detail);
        problem.place = Some(misspelt.map_or(parent.place, |key| key.place));
        problem.hint = Some(misspelt.map_or_else(
            || format!("add '{name}'"),
            |key| format!("'{}' is not known here; did you mean '{name}'?", key.text),
        ));
        self.refuse(problem);
    }

    /// Where the rules met so far end; to be handed to [`Reading::settle_rules`].
    pub fn rules_begin(&self) -> usize {
        self.rules.len()
    }

    /// Ends the rules of one artifact: of those broken since `begin` and of `more` only the first rule counts. Inside
    /// another artifact they belong to its first stage.
    pub fn settle_rules(&mut self, begin: usize, more: Vec<RuleProblem>, is_nested: bool) {
        let mut broken = self.rules.split_off(begin);
        broken.extend(more);
        let Some(rank) = broken.iter().map(|broken| broken.rank).min() else { return };
        for broken in broken.into_iter().filter(|broken| broken.rank == rank) {
            let problem = self.place(broken.problem);
            if is_nested {
                self.read.push(problem);
            } else {
                self.rules.push(RuleProblem { rank, problem });
            }
        }
    }

    /// Ends the reading: the problems of the first stage that has any, else what was read.
    pub fn finish<T>(self, read: Option<T>) -> Result<T> {
        let rules = self.rules.into_iter().map(|broken| broken.problem).collect();
        for mut stage in [self.read, rules, self.kinds, self.unknown] {
            stage.sort_by_key(|problem| (problem.place.is_none(), problem.place));
            Problems::check(stage)?;
        }
        read.ok_or_else(|| {
            Problem::new(ProblemKind::UnexpectedType, "", "the document cannot be read").into()
        })
    }

    fn mark(&mut self, canonical: &Rc<str>, pointer: &Rc<str>, place: Place) {
        self.marks.insert(Rc::clone(canonical), (Rc::clone(pointer), place));
    }

    /// The same problem where it was written: at the part that stands for it, or the nearest part around it.
    fn place(&self, mut problem: Problem) -> Problem {
        let mut canonical = problem.pointer.as_str();
        loop {
            if let Some((pointer, place)) = self.marks.get(canonical) {
                problem.place = Some(*place);
                problem.pointer = pointer.as_ref().to_owned();
                return problem;
            }
            match canonical.rfind('/') {
                Some(end) => canonical = &canonical[..end],
                None => return problem,
            }
        }
    }
}

/// The name among `known` that `key` was probably meant to be.
fn closest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    if key.chars().count() > 64 {
        return None;
    }
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(key, name), *name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
