//! From the body of a request to documents, and from problems back to places in it.

use crate::problem::Failure;
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Artifact, Command, Store, Submission, Verb};
use segue_domain::dsl::{self, DeploymentBody, Limits, Node, Options};
use segue_domain::problem::{Problem, ProblemKind, Problems, Result};
use segue_domain::state::State;
use serde_json::Value;

/// Kinds that belong to a later release.
pub const LATER_KINDS: [&str; 1] = ["workflow"];

/// The documents of one body.
#[derive(Clone, Debug)]
pub struct Documents {
    text: String,
    nodes: Vec<Node>,
    /// Whether the body is a list or holds several documents, so that the answer is a list.
    pub many: bool,
}

impl Documents {
    /// Reads a body: one document, several, or one list of them; none when it is empty.
    pub fn read(text: &str) -> Result<Self> {
        let mut nodes = dsl::parse(text, &Limits::default())?;
        let is_list = matches!(&nodes[..], [Node { value: dsl::Value::Sequence(_), .. }]);
        if is_list && let Some(Node { value: dsl::Value::Sequence(items), .. }) = nodes.pop() {
            nodes = items;
        }
        Ok(Self { text: text.to_owned(), many: is_list || nodes.len() > 1, nodes })
    }

    /// Reads a body that is one document, whatever that is.
    pub fn one(text: &str) -> Result<Self> {
        let node = match &dsl::parse(text, &Limits::default())?[..] {
            [] => {
                return Err(Problem::new(
                    ProblemKind::UnexpectedType,
                    "",
                    "a document is expected, the body is empty",
                )
                .into());
            }
            [node] => node.clone(),
            [_, second, ..] => {
                let problem =
                    Problem::new(ProblemKind::UnexpectedType, "", "one document is expected here");
                let problem = problem
                    .at(Some(second.place))
                    .hint("send each to its own path, or all to the collection");
                return Err(problem.into());
            }
        };
        Ok(Self { text: text.to_owned(), nodes: vec![node], many: false })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The document as it was sent, for the archive: the text when it is the only one, else its own part.
    pub fn submission(&self, node: &Node, verb: Verb) -> Submission {
        let representation =
            if self.many { node.to_json() } else { Value::String(self.text.clone()) };
        Submission { verb, representation }
    }

    /// What `read` makes of each document; the problems of several point below the index of theirs.
    pub fn map<T>(&self, mut read: impl FnMut(&Node) -> Result<T>) -> Result<Vec<T>> {
        let mut found = Vec::with_capacity(self.nodes.len());
        let mut problems = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            match read(node).map_err(|refused| refused.map(|problem| located(node, problem))) {
                Ok(one) => found.push(one),
                Err(refused) if !self.many => return Err(refused),
                Err(refused) => problems.extend(refused.below(index)),
            }
            if problems.len() >= Problems::MAX {
                break;
            }
        }
        Problems::check(problems)?;
        Ok(found)
    }

    /// The problems of a decision with their places in the body filled in.
    pub fn locate(&self, problems: Problems) -> Problems {
        problems.map(|problem| match (self.many, problem.place) {
            (_, Some(_)) => problem,
            (false, None) => {
                self.nodes.first().map_or(problem.clone(), |node| located(node, problem))
            }
            (true, None) => {
                let inner = problem.pointer.strip_prefix('/').and_then(|rest| {
                    let (index, inner) = rest.split_once('/').unwrap_or((rest, ""));
                    let inner = if inner.is_empty() { String::new() } else { format!("/{inner}") };
                    Some((self.nodes.get(index.parse::<usize>().ok()?)?, inner))
                });
                let place = inner.and_then(|(node, inner)| nearest(node, &inner));
                problem.at(place)
            }
        })
    }
}

/// The command of several that make one; one alone stays itself, so that its problems point into its document.
pub fn together(documents: &Documents, mut commands: Vec<Command>) -> Command {
    match commands.pop() {
        Some(command) if commands.is_empty() && !documents.many => command,
        last => Command::All(commands.into_iter().chain(last).collect()),
    }
}

/// What a document says of its kind; a plural, unknown or later one is refused.
pub fn kind(node: &Node) -> Result<Option<Kind>> {
    let Some(given) = member(node, "kind") else { return Ok(None) };
    if LATER_KINDS.contains(&given.as_str()) {
        let detail = format!("artifacts of kind '{given}' belong to a later release");
        return Err(Problem::new(ProblemKind::NotSupported, "/kind", detail).into());
    }
    if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.singular() == given) {
        return Ok(Some(kind));
    }
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.singular()).collect();
    let detail = format!("'{given}' is no kind of artifact");
    let problem = Problem::new(ProblemKind::UnexpectedArtifact, "/kind", detail);
    Err(problem.hint(format!("one of {}", kinds.join(", "))).into())
}

/// The kind and the name that a document gives itself, both required.
pub fn key(node: &Node) -> Result<ArtifactKey> {
    let kind = kind(node)?.ok_or_else(|| missing("kind", "such as kind: breed"))?;
    Ok(ArtifactKey::new(kind, name(node)?))
}

/// The key of a document of `expected` kind that gives itself a name.
pub fn key_of(node: &Node, expected: Kind) -> Result<ArtifactKey> {
    match kind(node)? {
        None => {}
        Some(given) if given == expected => {}
        Some(given) => {
            let detail =
                format!("'{}' is expected here, not '{}'", expected.singular(), given.singular());
            return Err(Problem::new(ProblemKind::InconsistentArtifactKind, "/kind", detail).into());
        }
    }
    Ok(ArtifactKey::new(expected, name(node)?))
}

/// The name that a document gives itself.
pub fn name(node: &Node) -> Result<String> {
    if !matches!(node.value, dsl::Value::Mapping(_)) {
        let detail = format!("a map is expected, found {}", node.describe());
        return Err(Problem::new(ProblemKind::UnexpectedType, "", detail).into());
    }
    member(node, "name").ok_or_else(|| missing("name", "such as name: web:1.0").into())
}

/// A scalar member of a map, as text.
pub fn member(node: &Node, name: &str) -> Option<String> {
    let dsl::Value::Mapping(entries) = &node.value else { return None };
    let (_, value) = entries.iter().find(|(key, _)| key.text == name)?;
    value.text()
}

/// The command that stores the document `node`, with what it imports of `state`, and the key of what it stores.
pub fn store(
    node: &Node,
    kind: Kind,
    (options, state): (&Options, &State),
    submission: Submission,
) -> Result<(ArtifactKey, Command)> {
    let node = &*dsl::import(node, state)?;
    let artifact = match kind {
        Kind::Blueprint => Artifact::Blueprint(Box::new(dsl::read_blueprint(node, options)?)),
        Kind::Breed => Artifact::Breed(Box::new(dsl::read_breed(node, options)?)),
        Kind::Escalation => Artifact::Escalation(Box::new(dsl::read_escalation(node, options)?)),
        Kind::Sla => Artifact::Sla(Box::new(dsl::read_sla(node, options)?)),
        Kind::Gateway => Artifact::Gateway(Box::new(dsl::read_gateway(node, options)?)),
        Kind::Rewrite => Artifact::Rewrite(dsl::read_rewrite(node, options)?),
        Kind::Route => Artifact::Route(Box::new(dsl::read_route(node, options)?)),
        Kind::Scale => Artifact::Scale(dsl::read_scale(node, options)?),
        Kind::Condition => Artifact::Condition(dsl::read_condition(node, options)?),
        Kind::Template => Artifact::Template(dsl::read_template(node, options)?),
        Kind::Deployment => {
            unreachable!("deployments are deployed, not stored; the routes tell them apart")
        }
    };
    let name = match &artifact {
        Artifact::Blueprint(blueprint) => &blueprint.name,
        Artifact::Breed(breed) => &breed.name,
        Artifact::Escalation(escalation) => &escalation.name,
        Artifact::Sla(sla) => &sla.name,
        Artifact::Gateway(gateway) => &gateway.name,
        Artifact::Rewrite(rewrite) => &rewrite.name,
        Artifact::Route(route) => &route.name,
        Artifact::Scale(scale) => &scale.name,
        Artifact::Condition(condition) => &condition.name,
        Artifact::Template(template) => &template.name,
    };
    let key = ArtifactKey::new(kind, name);
    Ok((key, Command::Store(Store { artifact, submission })))
}

/// The body of a deployment, with what it imports of `state`.
pub fn deployment_body(
    node: &Node,
    (options, state): (&Options, &State),
) -> Result<Box<DeploymentBody>> {
    let node = &*dsl::import(node, state)?;
    dsl::read_deployment_body(node, options).map(Box::new)
}

/// What is to be taken away from a deployment, with what it imports of `state`.
pub fn removal_body(
    node: &Node,
    (options, state): (&Options, &State),
) -> Result<Box<DeploymentBody>> {
    let node = &*dsl::import(node, state)?;
    dsl::read_removal_body(node, options).map(Box::new)
}

/// A refusal with places, as a failure.
pub fn refused(documents: &Documents, problems: Problems) -> Failure {
    documents.locate(problems).into()
}

fn missing(field: &str, example: &str) -> Problem {
    Problem::new(
        ProblemKind::MissingPathValue,
        format!("/{field}"),
        format!("'{field}' is missing"),
    )
    .hint(example)
}

fn located(node: &Node, problem: Problem) -> Problem {
    let place = problem.place.or_else(|| nearest(node, &problem.pointer));
    problem.at(place)
}

/// The place of the element at `pointer`, or of the nearest one around it that is written.
fn nearest(node: &Node, pointer: &str) -> Option<segue_domain::problem::Place> {
    let mut pointer = pointer;
    loop {
        if let Some(place) = node.locate(pointer) {
            return Some(place);
        }
        pointer = pointer.rsplit_once('/')?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_several_or_a_list() {
        let check = |text: &str, count: usize, many: bool| {
            let documents = Documents::read(text).unwrap();
            assert_eq!((documents.nodes.len(), documents.many), (count, many), "{text}");
        };
        check("", 0, false);
        check("a: 1", 1, false);
        check("a: 1\n---\nb: 2", 2, true);
        check("[{a: 1}]", 1, true);
        check("[{a: 1}, {b: 2}]", 2, true);
    }

    #[test]
    fn problems_of_a_decision_get_their_places() {
        let place = |text: &str, pointer: &str| {
            let documents = Documents::read(text).unwrap();
            let problems =
                documents.locate(Problem::new(ProblemKind::NoService, pointer, "x").into());
            problems.first().place.map(|place| (place.line, place.column))
        };
        assert_eq!(place("a:\n  b: 1", "/a/b"), Some((2, 3)));
        assert_eq!(place("a:\n  b: 1", "/a/c"), Some((1, 1)));
        assert_eq!(place("a: 1\n---\nb: 1\nc: 2", "/1/c"), Some((4, 1)));
        assert_eq!(place("a: 1\n---\nb: 1\nc: 2", "/1"), Some((3, 1)));
        assert_eq!(place("a: 1\n---\nb: 1", "/7/c"), None);
    }

    #[test]
    fn kinds_of_later_releases_say_so() {
        let check = |text: &str, expected: ProblemKind| {
            let documents = Documents::read(text).unwrap();
            assert_eq!(documents.map(key).unwrap_err().first().kind, expected, "{text}");
        };
        check("{kind: workflow, name: a}", ProblemKind::NotSupported);
        check("{kind: breeds, name: a}", ProblemKind::UnexpectedArtifact);
        check("{name: a}", ProblemKind::MissingPathValue);
        check("{kind: breed}", ProblemKind::MissingPathValue);
        check("[a]", ProblemKind::MissingPathValue);
    }
}
