//! The description of the API (`OpenAPI` 3.1), made of the routing table, of what is said about each operation, and of
//! the schemas of documents. A path that is routed and not described, or the other way round, fails a test.

mod answers;
mod operations;

use crate::idempotency::KEY_BYTES_MAX;
use crate::routes;
use crate::table::{self, Entry};
use operations::{Body, Content, Operation, Query, QueryType};
use segue_domain::dsl::schema;
use serde_json::{Value, json};
use std::sync::LazyLock;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{
    ContentBuilder, HeaderBuilder, HttpMethod, InfoBuilder, OpenApiBuilder, Paths, Ref, RefOr,
    Required, ResponseBuilder,
};

/// Where everything but the probes is.
const ROOT: &str = "/api/v1";
const SCHEMAS: &str = "#/components/schemas/";
/// The forms of documents.
const FORMS: [&str; 2] = ["application/json", "application/x-yaml"];
/// The statuses of refusals that operations have in common; all others come as `default`.
const REFUSALS: [(&str, &str); 2] = [
    ("400", "The body, a parameter or a reference is malformed or invalid."),
    (
        "default",
        "The request was refused: 404, 405, 406, 409, 412, 413, 415, 422, 429, 500, 502 or 503.",
    ),
];

static DOCUMENT: LazyLock<Value> = LazyLock::new(make);

/// The document.
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// The routing table with full paths, less what belongs to later releases.
fn routing_table() -> Vec<Entry> {
    let below_root = table::of(routes::resources).into_iter();
    let below_root =
        below_root.map(|entry| Entry { pattern: format!("{ROOT}{}", entry.pattern), ..entry });
    let elsewhere = table::of(|config| {
        routes::configure_probes(config);
        routes::configure_description(config);
    });
    below_root.chain(elsewhere).filter_map(of_this_release).collect()
}

/// Less what belongs to later releases; templates can be read already.
fn of_this_release(entry: Entry) -> Option<Entry> {
    if !entry.pattern.contains("{later:") {
        return Some(entry);
    }
    let is_readable = entry.pattern.ends_with("{later:template}");
    is_readable.then(|| Entry { methods: vec![actix_web::http::Method::GET], ..entry })
}

fn make() -> Value {
    let routed: Vec<(String, Vec<actix_web::http::Method>)> = routing_table()
        .into_iter()
        .flat_map(|entry| entry.paths().into_iter().map(move |path| (path, entry.methods.clone())))
        .collect();
    let mut paths = Paths::new();
    for operation in operations::all() {
        let is_routed = routed.iter().any(|(path, methods)| {
            shape(path) == shape(&operation.path)
                && methods.iter().any(|method| method.as_str() == name(&operation.method))
        });
        if is_routed {
            paths.add_path_operation(
                &operation.path,
                vec![operation.method.clone()],
                describe(&operation),
            );
        }
    }
    let info = InfoBuilder::new()
        .title("Segue")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(operations::INTRODUCTION));
    let api = OpenApiBuilder::new().info(info).paths(paths).build();
    let mut document = serde_json::to_value(api).unwrap_or_else(|error| {
        unreachable!("a description has text keys only, and yet: {error}");
    });
    let mut schemas = schema::all(SCHEMAS);
    schemas.extend(answers::schemas());
    document["components"] = json!({ "schemas": schemas });
    document
}

/// A path with the names of its parameters left out.
fn shape(path: &str) -> String {
    let segments =
        path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

fn name(method: &HttpMethod) -> &'static str {
    match method {
        HttpMethod::Post => "POST",
        HttpMethod::Put => "PUT",
        HttpMethod::Delete => "DELETE",
        _ => "GET",
    }
}

fn describe(operation: &Operation) -> utoipa::openapi::path::Operation {
    let mut builder = OperationBuilder::new()
        .tag(operation.tag)
        .operation_id(Some(operation_id(operation)))
        .summary(Some(operation.summary.clone()));
    for segment in
        operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    {
        builder = builder.parameter(path_parameter(segment));
    }
    for query in &operation.query {
        builder = builder.parameter(query_parameter(query));
    }
    if operation.method != HttpMethod::Get {
        if operation.has_revision {
            let description = "The ETag that the artifact has to have, or *; else 412.";
            builder = builder.parameter(header_parameter("If-Match", description, None));
        }
        let description = "Carries the request out once, however often it is sent with this key; \
                           422 when it was given to another request.";
        let length_max = Some(KEY_BYTES_MAX);
        builder = builder.parameter(header_parameter("Idempotency-Key", description, length_max));
    }
    if let Some(body) = &operation.body {
        builder = builder.request_body(Some(request_body(body, &operation.method)));
    }
    for status in operation.status_validated.into_iter().chain([operation.status]) {
        builder = builder.response(status.to_string(), success(operation));
    }
    for (status, description) in REFUSALS {
        let content =
            || ContentBuilder::new().schema(Some(Ref::new(format!("{SCHEMAS}problem")))).build();
        let refusal = ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", content())
            .content(FORMS[1], content());
        builder = builder.response(status, refusal);
    }
    builder.build()
}

/// Such as `put_breeds_name`.
fn operation_id(operation: &Operation) -> String {
    let path = match operation.path.strip_prefix(ROOT) {
        Some("") => "artifacts".to_owned(),
        Some(below) => below.to_owned(),
        None => format!("root{}", operation.path),
    };
    let words = path.split(['/', '{', '}', '.', '-']).filter(|word| !word.is_empty());
    let method = name(&operation.method).to_ascii_lowercase();
    std::iter::once(&method[..]).chain(words).collect::<Vec<_>>().join("_")
}

fn success(operation: &Operation) -> utoipa::openapi::Response {
    let text = |kind: &str, description: &str| {
        let content = ContentBuilder::new().schema(Some(of_type(Type::String))).build();
        ResponseBuilder::new().description(description).content(kind, content)
    };
    let mut response = match &operation.content {
        Content::Empty => ResponseBuilder::new().description("Done; the body is empty."),
        Content::Text => text("text/plain", "The text."),
        Content::Html => text("text/html", "The page."),
        Content::Stream => {
            text("text/event-stream", "Events as they happen, each with id, event and data.")
        }
        Content::Json(kind) => {
            let any = ContentBuilder::new().schema(Some(of_type(Type::Object))).build();
            ResponseBuilder::new().description("A JSON document.").content(*kind, any)
        }
        content => {
            let schema = document_schema(content);
            let response =
                ResponseBuilder::new().description("The resource, in the form that was asked for.");
            FORMS.into_iter().fold(response, |response, form| {
                response.content(form, ContentBuilder::new().schema(Some(schema.clone())).build())
            })
        }
    };
    if operation.is_paged {
        response = response
            .header(
                "X-Total-Count",
                header(Type::Integer, "How many items there are on all pages."),
            )
            .header("Link", header(Type::String, "The first, previous, next and last page."));
    }
    if operation.has_revision && !operation.is_paged {
        response = response.header("ETag", header(Type::String, "The revision."));
    }
    response.build()
}

fn header(kind: Type, description: &str) -> utoipa::openapi::Header {
    HeaderBuilder::new().schema(Some(of_type(kind))).description(Some(description)).build()
}

fn document_schema(content: &Content) -> RefOr<Schema> {
    let reference = |name: &str| Ref::new(format!("{SCHEMAS}{name}"));
    match content {
        Content::List(name) => {
            Schema::from(ArrayBuilder::new().items(reference(name)).build()).into()
        }
        Content::OneOrList(name) => one_or_list(name),
        Content::Document(name) => reference(name).into(),
        Content::Empty | Content::Text | Content::Html | Content::Stream | Content::Json(_) => {
            of_type(Type::String)
        }
    }
}

/// One document, or a list of them.
fn one_or_list(name: &str) -> RefOr<Schema> {
    let reference = || Ref::new(format!("{SCHEMAS}{name}"));
    let list = ArrayBuilder::new().items(reference()).build();
    Schema::from(OneOfBuilder::new().item(reference()).item(Schema::from(list)).build()).into()
}

fn request_body(body: &Body, method: &HttpMethod) -> utoipa::openapi::request_body::RequestBody {
    let (schema, description) = match body {
        Body::One(name) => (Ref::new(format!("{SCHEMAS}{name}")).into(), "One document."),
        Body::Several(name) => {
            (one_or_list(name), "One document; or a list, or in YAML several between lines of ---.")
        }
        Body::Query => (
            Ref::new(format!("{SCHEMAS}event_query")).into(),
            "Replaces the parameters. Browsers do not send bodies with GET; other clients do.",
        ),
        Body::Text => (of_type(Type::String), "A text in YAML."),
    };
    let required = matches!(*method, HttpMethod::Post | HttpMethod::Put);
    let builder = RequestBodyBuilder::new()
        .description(Some(description))
        .required(Some(if required { Required::True } else { Required::False }));
    let forms = if matches!(body, Body::Text) { &FORMS[1..] } else { &FORMS[..] };
    forms
        .iter()
        .fold(builder, |builder, form| {
            builder.content(*form, ContentBuilder::new().schema(Some(schema.clone())).build())
        })
        .build()
}

fn path_parameter(name: &str) -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .min_length(Some(1))
        .build();
    let schema = Schema::from(schema);
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
    parameter.required(Required::True).schema(Some(schema)).build()
}

/// A header that a request may have, of at least one character.
fn header_parameter(name: &str, description: &str, length_max: Option<usize>) -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .min_length(Some(1))
        .max_length(length_max)
        .build();
    let schema = Schema::from(schema);
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
    let parameter = parameter.required(Required::False).description(Some(description));
    parameter.schema(Some(schema)).build()
}

fn query_parameter(query: &Query) -> Parameter {
    let schema = match query.kind {
        QueryType::Boolean => of_type(Type::Boolean),
        QueryType::Integer => of_type(Type::Integer),
        QueryType::Text => of_type(Type::String),
        QueryType::Texts => {
            Schema::from(ArrayBuilder::new().items(of_type(Type::String)).build()).into()
        }
    };
    let required = if query.is_required { Required::True } else { Required::False };
    let parameter = ParameterBuilder::new().name(query.name).parameter_in(ParameterIn::Query);
    parameter.required(required).description(Some(query.description)).schema(Some(schema)).build()
}

fn of_type(kind: Type) -> RefOr<Schema> {
    Schema::from(ObjectBuilder::new().schema_type(SchemaType::Type(kind)).build()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn routed(entries: &[Entry]) -> BTreeSet<String> {
        let routes = entries.iter().flat_map(|entry| {
            entry.paths().into_iter().flat_map(|path| {
                let methods = entry.methods.iter().filter(|method| method.as_str() != "HEAD");
                methods.map(move |method| format!("{method} {}", shape(&path))).collect::<Vec<_>>()
            })
        });
        routes.collect()
    }

    #[test]
    fn what_is_routed_is_described_and_the_other_way_round() {
        let routed = routed(&routing_table());
        let paths = document()["paths"].as_object().unwrap().iter();
        let described: BTreeSet<String> = paths
            .flat_map(|(path, item)| {
                let methods = item.as_object().unwrap().keys();
                methods
                    .map(|method| format!("{} {}", method.to_uppercase(), shape(path)))
                    .collect::<Vec<_>>()
            })
            .collect();
        let only = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
            one.difference(other).cloned().collect::<Vec<_>>()
        };
        assert_eq!(only(&routed, &described), Vec::<String>::new(), "routed, not described");
        assert_eq!(only(&described, &routed), Vec::<String>::new(), "described, not routed");
    }

    /// What is described and not routed has to be something that a later release routes.
    #[test]
    fn nothing_is_described_that_will_never_be() {
        let all = table::of(routes::configure);
        let later: Vec<&Entry> =
            all.iter().filter(|entry| entry.pattern.contains("{later:")).collect();
        let routed = routed(&routing_table());
        for operation in operations::all() {
            let described = format!("{} {}", name(&operation.method), shape(&operation.path));
            let words =
                later.iter().flat_map(|entry| entry.pattern.split(['{', '}', ':', '|', '/']));
            let is_later = words
                .filter(|word| !word.is_empty())
                .any(|word| operation.path.split('/').any(|part| part == word));
            assert!(routed.contains(&described) || is_later, "{described}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = document().to_string();
        let schemas = document()["components"]["schemas"].as_object().unwrap();
        for rest in text.split(SCHEMAS).skip(1) {
            let name = rest.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        let ids: Vec<&str> = text
            .split("\"operationId\":\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{ids:?}");
    }
}
