//! The problem catalogue: every way in which a document or a wish can be refused, each with a stable type.
//!
//! Readers and `decide` both answer with [`Problems`]. This module knows no transport; how a problem becomes an
//! answer is the business of whoever embeds the crate.

use std::fmt;

/// Why something was refused: one or more problems of the same stage, in document order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// Boxed, so that a `Result` is small where all is well.
    first: Box<Problem>,
    rest: Vec<Problem>,
}

/// One problem, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which rule was broken.
    pub kind: ProblemKind,
    /// JSON pointer of the element; empty for the document as a whole.
    pub pointer: String,
    /// Where that is in the text, when there is one.
    pub place: Option<Place>,
    /// What is wrong.
    pub detail: String,
    /// What to write or do instead.
    pub hint: Option<String>,
}

/// A place in a text; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// Result of whatever can be refused.
pub type Result<T> = std::result::Result<T, Problems>;

impl Problem {
    /// A problem at `pointer`, without place and hint.
    pub fn new(kind: ProblemKind, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, pointer: pointer.into(), place: None, detail: detail.into(), hint: None }
    }

    /// The same problem with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same problem with its place in the text.
    #[must_use]
    pub fn at(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }
}

impl Problems {
    /// Nobody reads more than that many at once; what looks for problems may stop there.
    pub const MAX: usize = 100;

    /// The problems in `list`, or `None` when there are none.
    pub fn of(list: Vec<Problem>) -> Option<Self> {
        let mut list = list.into_iter();
        let first = list.next()?;
        Some(Self { first: Box::new(first), rest: list.collect() })
    }

    /// `Ok` when `list` is empty.
    pub fn check(list: Vec<Problem>) -> Result<()> {
        Self::of(list).map_or(Ok(()), Err)
    }

    /// The first problem; it gives the answer its type and detail.
    pub fn first(&self) -> &Problem {
        &self.first
    }

    /// All problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        std::iter::once(&*self.first).chain(&self.rest)
    }

    /// The same problems, each changed by `change`: to prefix pointers, or to fill in places.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(Problem) -> Problem) -> Self {
        Self {
            first: Box::new(change(*self.first)),
            rest: self.rest.into_iter().map(change).collect(),
        }
    }

    /// The problems of the document at `index` of several.
    pub fn below(self, index: usize) -> impl Iterator<Item = Problem> {
        std::iter::once(*self.first).chain(self.rest).map(move |problem| Problem {
            pointer: format!("/{index}{}", problem.pointer),
            ..problem
        })
    }
}

impl From<Problem> for Problems {
    fn from(first: Problem) -> Self {
        Self { first: Box::new(first), rest: Vec::new() }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first.detail)?;
        if self.rest.is_empty() { Ok(()) } else { write!(f, " (and {} more)", self.rest.len()) }
    }
}

impl std::error::Error for Problems {}

macro_rules! catalogue {
    ($($variant:ident = $name:literal, $title:literal;)*) => {
        /// The stable types of problems (documents, section 16).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemKind {
            $(#[doc = $title] $variant,)*
        }

        impl ProblemKind {
            /// Every type of problem, in the order of the catalogue.
            pub const ALL: &'static [ProblemKind] = &[$(ProblemKind::$variant,)*];

            /// The stable name, as answers give it.
            pub fn name(self) -> &'static str {
                match self { $(ProblemKind::$variant => $name,)* }
            }

            /// What it means, in a few words.
            pub fn title(self) -> &'static str {
                match self { $(ProblemKind::$variant => $title,)* }
            }
        }
    };
}

catalogue! {
    YamlParsing = "yaml-parsing", "Not valid YAML or JSON, or a limit exceeded";
    DuplicateKey = "duplicate-key", "A key stands twice in one map";
    MissingPathValue = "missing-path-value", "A required field is absent";
    UnexpectedType = "unexpected-type", "Wrong type of value";
    UnexpectedInnerElement = "unexpected-inner-element", "A map was expected on the way to a nested field";
    UnexpectedElement = "unexpected-element", "Unknown key";
    EitherReferenceOrAnonymous = "either-reference-or-anonymous", "An inline element has a name but no reference";
    NotAnonymous = "not-anonymous", "A gateway inside a blueprint has a name";
    IllegalName = "illegal-name", "Illegal name";
    IllegalStrictName = "illegal-strict-name", "Illegal name of a port, variable or constant";
    InconsistentArtifactName = "inconsistent-artifact-name", "The name in the path differs from the name in the body";
    InconsistentArtifactKind = "inconsistent-artifact-kind", "The kind is not the expected one";
    UnsupportedMetadata = "unsupported-metadata", "Metadata is no map";
    ValueSyntax = "value-syntax", "A value reference does not parse";
    ConditionSyntax = "condition-syntax", "A condition does not parse";
    MalformedTrait = "malformed-trait", "The value of a trait is no scalar";
    MissingPortValue = "missing-port-value", "A port of a breed has no value";
    MissingConstantValue = "missing-constant-value", "A constant of a breed has no value";
    InvalidPort = "invalid-port", "A port is outside 0 to 65535";
    RecursiveDependencies = "recursive-dependencies", "Dependencies form a cycle";
    UnresolvedDependencyInTraitValue = "unresolved-dependency-in-trait-value", "A value refers to something undeclared";
    InvalidArgument = "invalid-argument", "An argument is malformed";
    InvalidArgumentValue = "invalid-argument-value", "An argument has an illegal value";
    UnresolvedDependency = "unresolved-dependency", "No service satisfies a dependency";
    UnresolvedGatewayPort = "unresolved-gateway-port", "A gateway names an unknown cluster or port";
    UnresolvedEnvironmentVariable = "unresolved-environment-variable", "A variable names nothing that is declared";
    NonUniqueBlueprintBreedReference = "non-unique-blueprint-breed-reference", "A breed is used twice in a blueprint";
    NonUniqueBreedReference = "non-unique-breed-reference", "A breed is used twice in a deployment";
    UnresolvedBreedDependency = "unresolved-breed-dependency", "A dependency is not part of the blueprint";
    GatewayRouteWeight = "gateway-route-weight", "The weights of a gateway do not fit";
    UnsupportedRouteWeight = "unsupported-route-weight", "The weights do not fit after the merge";
    InvalidRouteWeight = "invalid-route-weight", "The weights do not fit after the removal";
    UnresolvedServiceRoute = "unresolved-service-route", "An internal route is no service of its cluster";
    UnresolvedScaleEscalationTargetCluster = "unresolved-scale-escalation-target-cluster", "An escalation names an unknown cluster";
    NoService = "no-service", "There is no service at all";
    MissingEnvironmentVariable = "missing-environment-variable", "A variable of a service has no value";
    UnresolvedVariableValue = "unresolved-variable-value", "A variable or port has no value when deployed";
    IllegalGatewaySticky = "illegal-gateway-sticky-value", "Unknown kind of stickiness";
    IllegalGatewayVirtualHosts = "illegal-gateway-virtual-hosts", "Virtual hosts are no list of texts";
    StickyPortType = "sticky-port-type", "A tcp gateway cannot be sticky";
    ConditionPortType = "condition-port-type", "A tcp gateway has no conditions";
    DuplicateGatewayPort = "duplicate-gateway-port", "Two gateways share a port";
    IllegalAnonymousRoutingPortMapping = "illegal-anonymous-routing-port-mapping", "A gateway without port name fits several ports";
    UnsupportedGatewayName = "unsupported-gateway-name", "Illegal name of a gateway";
    UnsupportedRoutePath = "unsupported-route-path", "A route path has no or more than four segments";
    InvalidGatewayPort = "invalid-gateway-port", "The port of a gateway is outside 0 to 65535";
    UnsupportedPathRewrite = "unsupported-path-rewrite", "A rewrite is not of the form `NEW_PATH if CONDITION`";
    UnavailableGatewayPort = "unavailable-gateway-port", "The port is used by another gateway";
    InternalGatewayCreate = "internal-gateway-create", "Internal gateways come with their deployment";
    InternalGatewayUpdate = "internal-gateway-update", "The routes of an internal gateway belong to its deployment";
    InternalGatewayRemove = "internal-gateway-remove", "Internal gateways go with their deployment";
    UnresolvedPortReference = "unresolved-port-reference", "A health check names an unknown port";
    NegativeFailuresNumber = "negative-failures-number", "The failures of a health check are negative";
    UndefinedStateIntention = "undefined-state-intention", "Unknown intention";
    UndefinedStateStep = "undefined-state-step", "Unknown phase";
    NoTagEvent = "no-tag-event", "An event needs at least one tag";
    EventType = "event-type", "Illegal event type";
    EventTimestamp = "event-timestamp", "Illegal timestamp";
    EventQueryTime = "event-query-time", "Both an open and a closed bound are given";
    InvalidConfigurationTemplate = "invalid-configuration-template", "The proxy does not take what the template makes";
    UnsupportedAggregator = "unsupported-aggregator", "Unknown aggregator";
    IdempotencyKeyReused = "idempotency-key-reused", "The key was given to another request";
    UnsupportedProtocol = "unsupported-protocol", "A protocol other than http and tcp";
    EmptyImport = "empty-import", "An import names nothing";
    ImportDefinition = "import-definition", "An import is no name of a template or artifact";
    ImportReference = "import-reference", "What is imported is not stored";
    ArtifactNotFound = "artifact-not-found", "A reference cannot be resolved";
    UnexpectedArtifact = "unexpected-artifact", "Unknown kind of artifact";
    NotSupported = "not-supported", "Not supported by this release";
    InvalidParameter = "invalid-parameter", "A parameter or header is missing or cannot be read";
    NotFound = "not-found", "Not found";
    MethodNotAllowed = "method-not-allowed", "The path knows other methods";
    NotAcceptable = "not-acceptable", "Answers are JSON or YAML";
    UnsupportedMediaType = "unsupported-media-type", "Bodies are JSON or YAML";
    RevisionConflict = "revision-conflict", "Other writes came in between";
    PreconditionFailed = "precondition-failed", "The artifact has another revision";
    PayloadTooLarge = "payload-too-large", "The body is too large";
    TooManyRequests = "too-many-requests", "A limit of requests or streams is reached";
    Internal = "internal", "Unexpected failure";
    BadGateway = "bad-gateway", "The target is not available";
    NotReady = "not-ready", "Not ready to answer";
    Timeout = "timeout", "The time limit is exceeded";
}
