//! What is said about each operation of the API: a row for each method of each path.

use utoipa::openapi::HttpMethod;

/// What a reader of the description has to know first.
pub(super) const INTRODUCTION: &str = "Segue deploys services from YAML blueprints and routes traffic between their \
versions.\n\nBodies are JSON or YAML, read by one reader whatever `Content-Type` says; answers are JSON, or YAML with \
`Accept: application/x-yaml`. Lists come in pages. With `validate_only=true` a request is checked and answered as \
usual, and nothing is stored. Refusals are problem documents that name the element, its line and column, and what to \
write instead. Schemas of documents are at `/schemas/{kind}.json`.\n\nBeside what is described here there are a \
WebSocket at `/websocket` and a reverse proxy below `/proxy`.";

/// One method of one path.
pub(super) struct Operation {
    pub(super) method: HttpMethod,
    /// With parameters in braces.
    pub(super) path: String,
    pub(super) tag: &'static str,
    pub(super) summary: String,
    pub(super) query: Vec<Query>,
    pub(super) body: Option<Body>,
    /// Of success.
    pub(super) status: u16,
    /// Another status of success, when only validated.
    pub(super) status_validated: Option<u16>,
    pub(super) content: Content,
    /// Whether the answer is a page of a list.
    pub(super) is_paged: bool,
    /// Whether what it is about has a revision.
    pub(super) has_revision: bool,
}

/// A query parameter.
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) kind: QueryType,
    pub(super) description: &'static str,
    pub(super) is_required: bool,
}

#[derive(Clone, Copy)]
pub(super) enum QueryType {
    Boolean,
    Integer,
    Text,
    /// Repeatable.
    Texts,
}

/// What is sent.
pub(super) enum Body {
    /// One document of this schema.
    One(&'static str),
    /// One or several documents of this schema.
    Several(&'static str),
    /// A query of events.
    Query,
    /// Text in a foreign language.
    Text,
}

/// What success is answered with.
pub(super) enum Content {
    Empty,
    Document(&'static str),
    List(&'static str),
    OneOrList(&'static str),
    Text,
    Html,
    Stream,
    /// JSON of this media type, whatever was asked for.
    Json(&'static str),
}

impl Operation {
    fn new(method: HttpMethod, path: &str, tag: &'static str, summary: impl Into<String>) -> Self {
        Self {
            method,
            path: path.to_owned(),
            tag,
            summary: summary.into(),
            query: Vec::new(),
            body: None,
            status: 200,
            status_validated: None,
            content: Content::Empty,
            is_paged: false,
            has_revision: false,
        }
    }

    fn get(path: &str, tag: &'static str, summary: impl Into<String>) -> Self {
        Self::new(HttpMethod::Get, path, tag, summary)
    }

    fn post(path: &str, tag: &'static str, summary: impl Into<String>) -> Self {
        Self::new(HttpMethod::Post, path, tag, summary).with(VALIDATE_ONLY)
    }

    fn put(path: &str, tag: &'static str, summary: impl Into<String>) -> Self {
        Self::new(HttpMethod::Put, path, tag, summary).with(VALIDATE_ONLY)
    }

    fn delete(path: &str, tag: &'static str, summary: impl Into<String>) -> Self {
        Self::new(HttpMethod::Delete, path, tag, summary).with(VALIDATE_ONLY)
    }

    fn with(mut self, query: Query) -> Self {
        self.query.push(query);
        self
    }

    fn takes(self, body: Body) -> Self {
        Self { body: Some(body), ..self }
    }

    fn answers(self, status: u16, content: Content) -> Self {
        Self { status, content, ..self }
    }

    fn or_when_validated(self, status: u16) -> Self {
        Self { status_validated: Some(status), ..self }
    }

    fn revised(self) -> Self {
        Self { has_revision: true, ..self }
    }

    fn paged(self) -> Self {
        Self { is_paged: true, ..self.with(PAGE).with(PER_PAGE) }
    }
}

const fn query(name: &'static str, kind: QueryType, description: &'static str) -> Query {
    Query { name, kind, description, is_required: false }
}

const PAGE: Query = query("page", QueryType::Integer, "From 1.");
const PER_PAGE: Query = query("per_page", QueryType::Integer, "30 when absent, at most 1,000.");
const LINES: Query = query("lines", QueryType::Integer, "100 when absent, at most 1,000.");
const VALIDATE_ONLY: Query =
    query("validate_only", QueryType::Boolean, "Check, and store nothing.");
const EXPAND: Query = query(
    "expand_references",
    QueryType::Boolean,
    "Put full definitions where references are, recursively.",
);
const ONLY: Query =
    query("only_references", QueryType::Boolean, "Put references where full definitions are.");
const AS_BLUEPRINT: Query = query("as_blueprint", QueryType::Boolean, "Export as a blueprint.");
const TAG: Query =
    query("tag", QueryType::Texts, "All of these tags, of which there may be several.");
const TAGS: Query = query("tags", QueryType::Texts, "The same as tag.");
const TYPE: Query = query("type", QueryType::Text, "The type of the events.");
const FLATTEN: Query = query("flatten", QueryType::Boolean, "One map with dotted keys.");
const LAYER: Query = query(
    "type",
    QueryType::Text,
    "One layer: reference (the defaults), application (the file), environment or system (flags).",
);
const FROM: Query =
    query("from", QueryType::Integer, "The last position seen; the header Last-Event-ID wins.");

/// Collections with the kind of what they hold.
const COLLECTIONS: [(&str, &str); 10] = [
    ("blueprints", "blueprint"),
    ("breeds", "breed"),
    ("conditions", "condition"),
    ("escalations", "escalation"),
    ("gateways", "gateway"),
    ("rewrites", "rewrite"),
    ("routes", "route"),
    ("scales", "scale"),
    ("slas", "sla"),
    ("templates", "template"),
];

/// Every operation of the interface.
pub(super) fn all() -> Vec<Operation> {
    let collections =
        COLLECTIONS.into_iter().flat_map(|(collection, kind)| collection_of(collection, kind));
    [
        general(),
        collections.collect(),
        deployments(),
        deployment_parts(),
        events(),
        health(),
        metrics(),
        system(),
        description(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn general() -> Vec<Operation> {
    const TAG: &str = "all kinds";
    let path = "/api/v1";
    vec![
        Operation::post(path, TAG, "Create artifacts of any kind, all or none")
            .takes(Body::Several("any_artifact"))
            .answers(202, Content::OneOrList("any_artifact")),
        Operation::put(path, TAG, "Create or update artifacts of any kind, all or none")
            .takes(Body::Several("any_artifact"))
            .answers(202, Content::OneOrList("any_artifact")),
        Operation::delete(path, TAG, "Delete artifacts of any kind, all or none")
            .takes(Body::Several("any_artifact"))
            .answers(202, Content::Empty),
    ]
}

fn collection_of(collection: &'static str, kind: &'static str) -> Vec<Operation> {
    let all = format!("/api/v1/{collection}");
    let one = format!("{all}/{{name}}");
    let expandable = |operation: Operation| match kind {
        "blueprint" | "breed" => operation.with(EXPAND).with(ONLY),
        _ => operation,
    };
    vec![
        expandable(Operation::get(&all, collection, format!("List {collection}")).paged())
            .answers(200, Content::List(kind)),
        Operation::post(&all, collection, format!("Create or overwrite {collection}, all or none"))
            .takes(Body::Several(kind))
            .answers(201, Content::OneOrList(kind))
            .revised(),
        Operation::put(
            &all,
            collection,
            format!("Update {collection} that name themselves, all or none"),
        )
        .takes(Body::Several(kind))
        .answers(200, Content::OneOrList(kind))
        .revised(),
        Operation::delete(
            &all,
            collection,
            format!("Delete {collection} that name themselves, all or none"),
        )
        .takes(Body::Several("any_artifact_by_name"))
        .answers(204, Content::Empty)
        .revised(),
        expandable(Operation::get(&one, collection, format!("Get one of the {collection}")))
            .answers(200, Content::Document(kind))
            .revised(),
        Operation::put(&one, collection, format!("Update one of the {collection}"))
            .takes(Body::One(kind))
            .answers(200, Content::Document(kind))
            .revised(),
        Operation::delete(&one, collection, format!("Delete one of the {collection}"))
            .answers(204, Content::Empty)
            .revised(),
    ]
}

fn deployments() -> Vec<Operation> {
    const TAG: &str = "deployments";
    let (all, one) = ("/api/v1/deployments", "/api/v1/deployments/{deployment}");
    let exported = |operation: Operation| operation.with(AS_BLUEPRINT).with(EXPAND).with(ONLY);
    let kind = "deployment";
    vec![
        exported(Operation::get(all, TAG, "List deployments").paged())
            .answers(200, Content::List(kind)),
        Operation::post(
            all,
            TAG,
            "Deploy under a generated name; answered with 201 when only validated",
        )
        .takes(Body::Several(kind))
        .answers(202, Content::OneOrList(kind))
        .or_when_validated(201)
        .revised(),
        exported(Operation::get(one, TAG, "Get a deployment, or export it as a blueprint"))
            .answers(200, Content::Document(kind))
            .revised(),
        Operation::post(one, TAG, "Deploy under this name, or merge into what runs")
            .takes(Body::One(kind))
            .answers(202, Content::Document(kind))
            .revised(),
        Operation::put(one, TAG, "Deploy under this name, or merge into what runs")
            .takes(Body::One(kind))
            .answers(202, Content::Document(kind))
            .revised(),
        Operation::delete(
            one,
            TAG,
            "Take away the services that the body names; an empty body takes away nothing",
        )
        .takes(Body::One(kind))
        .answers(202, Content::Empty)
        .revised(),
    ]
}

fn deployment_parts() -> Vec<Operation> {
    const TAG: &str = "deployments";
    let scale = "/api/v1/deployments/{deployment}/clusters/{cluster}/services/{service}/scale";
    let sla = "/api/v1/deployments/{deployment}/clusters/{cluster}/sla";
    let output = "/api/v1/deployments/{deployment}/clusters/{cluster}/services/{service}/instances/{instance}/output";
    let set = |operation: Operation, kind: &'static str| {
        operation.takes(Body::One(kind)).answers(202, Content::Document(kind)).revised()
    };
    vec![
        Operation::get(scale, TAG, "Get the scale of a service")
            .answers(200, Content::Document("service_scale"))
            .revised(),
        set(Operation::post(scale, TAG, "Set the scale of a service"), "service_scale"),
        set(Operation::put(scale, TAG, "Set the scale of a service"), "service_scale"),
        Operation::get(sla, TAG, "Get the SLA of a cluster")
            .answers(200, Content::Document("service_sla"))
            .revised(),
        set(Operation::post(sla, TAG, "Set the SLA of a cluster"), "service_sla"),
        set(Operation::put(sla, TAG, "Set the SLA of a cluster"), "service_sla"),
        Operation::delete(sla, TAG, "Delete the SLA of a cluster")
            .answers(202, Content::Empty)
            .revised(),
        Operation::get(output, TAG, "Get the end of what an instance printed")
            .with(LINES)
            .answers(200, Content::Document("instance_output")),
    ]
}

fn events() -> Vec<Operation> {
    const TAG_OF_ALL: &str = "events";
    let filtered =
        |operation: Operation| operation.with(TAG).with(TAGS).with(TYPE).takes(Body::Query);
    vec![
        filtered(
            Operation::get(
                "/api/v1/events",
                TAG_OF_ALL,
                "Find events, newest first, or aggregate them",
            )
            .paged(),
        )
        .answers(200, Content::Document("events")),
        Operation::post("/api/v1/events", TAG_OF_ALL, "Post an event")
            .takes(Body::One("event"))
            .answers(201, Content::Document("stored_event")),
        filtered(
            Operation::get("/api/v1/events/stream", TAG_OF_ALL, "Stream events as they happen")
                .with(FROM),
        )
        .answers(200, Content::Stream),
    ]
}

fn health() -> Vec<Operation> {
    let paths = [
        ("gateways/{gateway}", "Health of a gateway"),
        ("gateways/{gateway}/routes/{route}", "Health of a route"),
        ("deployments/{deployment}", "Health of a deployment"),
        ("deployments/{deployment}/clusters/{cluster}", "Health of a cluster"),
        ("deployments/{deployment}/clusters/{cluster}/services/{service}", "Health of a service"),
    ];
    let operation = |(path, summary)| {
        Operation::get(&format!("/api/v1/health/{path}"), "health and metrics", summary)
            .answers(200, Content::Document("stored_event"))
    };
    paths.into_iter().map(operation).collect()
}

fn metrics() -> Vec<Operation> {
    let paths = [
        ("gateways/{gateway}/{metrics}", "A metric of a gateway"),
        ("gateways/{gateway}/routes/{route}/{metrics}", "A metric of a route"),
        (
            "deployments/{deployment}/clusters/{cluster}/ports/{port}/{metrics}",
            "A metric of a port",
        ),
        (
            "deployments/{deployment}/clusters/{cluster}/services/{service}/ports/{port}/{metrics}",
            "A metric of a port of a service",
        ),
    ];
    let operation = |(path, summary)| {
        Operation::get(&format!("/api/v1/metrics/{path}"), "health and metrics", summary)
            .answers(200, Content::Document("stored_event"))
    };
    paths.into_iter().map(operation).collect()
}

fn system() -> Vec<Operation> {
    const SYSTEM: &str = "system";
    let mut all = Vec::new();
    for path in ["/api/v1/info", "/api/v1/information"] {
        let on = query("on", QueryType::Texts, "Only these sections.");
        let operation = Operation::get(path, SYSTEM, "What runs here").with(on);
        all.push(operation.answers(200, Content::Document("information")));
    }
    for path in ["/api/v1/config", "/api/v1/configuration"] {
        let one = format!("{path}/{{key}}");
        for operation in [
            Operation::get(path, SYSTEM, "The configuration, without secrets"),
            Operation::get(&one, SYSTEM, "One key of the configuration"),
        ] {
            let operation = operation.with(FLATTEN).with(LAYER);
            all.push(operation.answers(200, Content::Document("settings")));
        }
    }
    for path in ["/api/v1/stats", "/api/v1/statistics"] {
        all.push(
            Operation::get(path, SYSTEM, "Statistics").answers(200, Content::Document("settings")),
        );
    }
    for (path, summary) in [
        ("/api/v1/sync", "Run the synchronisation at once"),
        ("/api/v1/sla", "Check SLAs at once"),
        ("/api/v1/escalation", "Check escalations at once"),
    ] {
        all.push(Operation::get(path, SYSTEM, summary).answers(202, Content::Empty));
    }
    for (path, summary) in [
        ("/api/v1/haproxy", "Always refused: the version is missing"),
        ("/api/v1/haproxy/{version}", "The generated configuration of HAProxy"),
        ("/api/v1/vga/{type}/{version}/configuration", "The generated configuration"),
        ("/api/v1/vga/{type}/{version}/config", "The generated configuration"),
        ("/api/v1/vga/{type}/{version}/template", "The template of the configuration"),
    ] {
        all.push(Operation::get(path, SYSTEM, summary).answers(200, Content::Text));
    }
    all.extend(templates());
    for path in ["/api/v1/log", "/api/v1/logs"] {
        let level = query("level", QueryType::Text, "TRACE, DEBUG, INFO, WARN, ERROR or OFF.");
        let logger = query("logger", QueryType::Text, "The beginning of the logger's name.");
        let operation =
            Operation::get(path, SYSTEM, "Stream the service's own log").with(level).with(logger);
        all.push(operation.answers(200, Content::Stream));
    }
    let name = query("name", QueryType::Text, "The name of the blueprint.");
    all.push(
        Operation::post(
            "/api/v1/docker-compose",
            "blueprints",
            "Store a docker-compose file as a blueprint",
        )
        .with(Query { is_required: true, ..name })
        .takes(Body::Text)
        .answers(201, Content::Text),
    );
    for (path, summary) in [
        ("/livez", "Whether the process answers"),
        ("/readyz", "Whether the log is replayed and the drivers answer"),
        ("/api/v1/livez", "Whether the process answers"),
        ("/api/v1/readyz", "Whether the log is replayed and the drivers answer"),
    ] {
        all.push(Operation::get(path, SYSTEM, summary).answers(200, Content::Text));
    }
    all
}

fn templates() -> [Operation; 2] {
    const PATH: &str = "/api/v1/vga/{type}/{version}/template";
    const SUMMARY: &str =
        "Replace the template of the configuration; an empty one restores Segue's own";
    [Operation::post(PATH, "system", SUMMARY), Operation::put(PATH, "system", SUMMARY)]
        .map(|operation| operation.takes(Body::Text).answers(202, Content::Text))
}

fn description() -> Vec<Operation> {
    const TAG: &str = "description";
    vec![
        Operation::get("/openapi.json", TAG, "This description")
            .answers(200, Content::Json("application/json")),
        Operation::get("/schemas/{file}", TAG, "The JSON Schema of a kind, such as breed.json")
            .answers(200, Content::Json("application/schema+json")),
        Operation::get("/docs", TAG, "This description as pages").answers(200, Content::Html),
        Operation::get("/docs/{file}", TAG, "A file of the pages").answers(200, Content::Html),
    ]
}
