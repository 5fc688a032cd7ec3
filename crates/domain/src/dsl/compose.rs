//! The import of docker-compose documents as blueprints (documents, section 15).
//!
//! What has no counterpart is left out and said in notes; nothing of a composition is refused for being unknown.

use super::{
    Options, document, fields, read_blueprint,
    reader::{Element, Reading},
    tree::{Node, pointer_segment},
};
use crate::artifact::{Blueprint, value};
use crate::problem::{Place, Problem, ProblemKind, Result};
use indexmap::{IndexMap, IndexSet};
use serde_json::{Map, Value as Json, json};

/// The version that every imported breed gets.
const VERSION: &str = "1.0.0";

/// A blueprint made of a composition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// The blueprint.
    pub blueprint: Blueprint,
    /// What was understood, left out and added, one line each.
    pub notes: Vec<String>,
}

/// Reads a composition as the blueprint `name`.
pub fn read_compose(node: &Node, name: &str) -> Result<Composed> {
    let options = Options::default();
    let mut reading = Reading::new(&options);
    let mut composition = Composition::default();
    composition.read(&Element::root(node), &mut reading);
    reading.finish(Some(()))?;
    composition.connect();
    if composition.services.is_empty() {
        let problem = Problem::new(ProblemKind::NoService, "/services", "there is no service")
            .at(Some(node.locate("/services").unwrap_or(node.place)));
        return Err(problem.hint("write services: {NAME: {image: IMAGE}}").into());
    }
    let written = document(&composition.blueprint(name).to_string())?;
    let places = |pointer: &str| composition.place(pointer).unwrap_or(node.place);
    let blueprint = read_blueprint(&written, &options).map_err(|problems| {
        problems.map(|problem| {
            let place = places(&problem.pointer);
            problem.at(Some(place))
        })
    })?;
    Ok(Composed { blueprint, notes: composition.notes })
}

#[derive(Default)]
struct Composition {
    services: IndexMap<String, Part>,
    notes: Vec<String>,
}

/// One service of a composition.
struct Part {
    place: Place,
    image: String,
    command: Option<String>,
    depends_on: IndexSet<String>,
    environment: IndexMap<String, Option<String>>,
    /// Name to text.
    ports: IndexMap<String, String>,
}

impl Composition {
    fn read(&mut self, root: &Element<'_>, reading: &mut Reading) {
        let Some(entries) = root.entries(reading) else {
            reading.wrong_type(root, "a map with 'services'");
            return;
        };
        for (key, element) in entries {
            match &key.text[..] {
                "version" => {
                    let version = fields::scalar_text(&element).unwrap_or_default();
                    self.note(&format!("compose version: {version}"));
                }
                "services" if element.is_null() => {}
                "services" => self.read_services(&element, reading),
                other => self.note(&format!("unsupported: {other}")),
            }
        }
    }

    fn read_services(&mut self, element: &Element<'_>, reading: &mut Reading) {
        let Some(entries) = element.entries(reading) else {
            reading.wrong_type(element, "a map from name to service");
            return;
        };
        for (key, element) in entries {
            if let Some(service) = self.read_service(&key.text, &element, reading) {
                self.services.insert(key.text.clone(), service);
            }
        }
    }

    fn read_service(
        &mut self,
        name: &str,
        element: &Element<'_>,
        reading: &mut Reading,
    ) -> Option<Part> {
        let Some(entries) = element.entries(reading) else {
            reading.wrong_type(element, "a map with 'image'");
            return None;
        };
        let mut image = None;
        let mut service = Part {
            place: element.place,
            image: String::new(),
            command: None,
            depends_on: IndexSet::new(),
            environment: IndexMap::new(),
            ports: IndexMap::new(),
        };
        for (key, element) in entries.into_iter().filter(|(_, element)| !element.is_null()) {
            match &key.text[..] {
                "image" => image = fields::text(&element, reading),
                "command" => service.command = command(&element, reading),
                "depends_on" => service.depends_on = names(&element, reading),
                "environment" => service.environment = environment(&element, reading),
                "ports" => service.ports = self.read_ports(name, &element, reading),
                other => self.note(&format!("service '{name}': unsupported: {other}")),
            }
        }
        if image.is_none() {
            reading.missing(element, "image", None);
        }
        service.image = image?;
        Some(service)
    }

    fn read_ports(
        &mut self,
        service: &str,
        element: &Element<'_>,
        reading: &mut Reading,
    ) -> IndexMap<String, String> {
        let mut ports = IndexMap::new();
        let Some(items) = element.items(reading) else {
            reading.wrong_type(element, "a list of ports such as 80 or 8080:80");
            return ports;
        };
        for item in items {
            let Some(text) = fields::scalar_text(&item) else {
                self.note(&format!("service '{service}': unsupported: a port that is no text"));
                continue;
            };
            if let Some((number, port)) = self.read_port(service, &text, &item, reading) {
                ports.insert(format!("port_{number}"), port);
            }
        }
        ports
    }

    /// The number and the text of a port: `c`, `h:c` or `ip:h:c`, of a range the first.
    fn read_port(
        &mut self,
        service: &str,
        text: &str,
        element: &Element<'_>,
        reading: &mut Reading,
    ) -> Option<(u16, String)> {
        let (before, own) = match text.rsplit_once(':') {
            Some((before, own)) => (Some(before), own),
            None => (None, text),
        };
        let (range, protocol) = match own.split_once('/') {
            Some((range, protocol)) => (range, Some(protocol)),
            None => (own, None),
        };
        let suffix = match protocol.map(str::to_ascii_lowercase).as_deref() {
            None => "",
            Some("tcp") => "/tcp",
            Some("http") => "/http",
            Some(other) => {
                let detail = format!("'{other}' is no protocol of a port");
                let problem = element.problem(ProblemKind::UnsupportedProtocol, detail);
                reading.refuse(problem.hint("the protocols are http and tcp"));
                return None;
            }
        };
        let first = match range.split_once('-') {
            Some((first, _)) => {
                self.note(&format!(
                    "service '{service}': of the range '{range}' only {first} is used"
                ));
                first
            }
            None => range,
        };
        let Ok(number) = first.trim().parse::<u16>() else {
            let detail = format!("'{text}' is no port");
            let problem = element.problem(ProblemKind::InvalidPort, detail);
            reading.refuse(problem.hint("write 80, 8080:80 or 127.0.0.1:8080:80"));
            return None;
        };
        if let Some(before) = before {
            self.note(&format!("service '{service}': '{before}' before port {number} is ignored"));
        }
        Some((number, format!("{number}{suffix}")))
    }

    /// Turns values that name another service and a port of it into references.
    fn connect(&mut self) {
        let mut ports = Vec::new();
        let names: IndexSet<String> = self.services.keys().cloned().collect();
        let mut notes = Vec::new();
        for (name, service) in &mut self.services {
            for (variable, value) in &mut service.environment {
                let Some(text) = value else { continue };
                let target = text.split_once(':').filter(|(target, digits)| {
                    let is_number =
                        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                    target != name && names.contains(*target) && is_number
                });
                if let Some((target, digits)) = target {
                    let (target, port) = (target.to_owned(), format!("port_{digits}"));
                    notes.push(format!("service '{name}': {variable} refers to {target}.{port}"));
                    *text = format!("${target}.host:${target}.ports.{port}");
                    service.depends_on.insert(target.clone());
                    ports.push((target, port, digits_of(text)));
                } else if value::parse(text).is_err() {
                    notes
                        .push(format!("service '{name}': the '$' in {variable} stands for itself"));
                    *text = text.replace('$', "$$");
                }
            }
        }
        self.notes.append(&mut notes);
        for (target, port, digits) in ports {
            let service = self.services.get_mut(&target);
            let is_new = service.is_some_and(|service| {
                let is_new = !service.ports.contains_key(&port);
                service.ports.entry(port.clone()).or_insert(digits);
                is_new
            });
            if is_new {
                self.notes.push(format!("service '{target}': port {port} is added"));
            }
        }
    }

    fn blueprint(&self, name: &str) -> Json {
        let clusters = self.services.iter().map(|(name, service)| {
            let service = json!({
                "breed": service.breed(name),
                "dialects": service.dialects(),
            });
            (name.clone(), json!({ "services": [service] }))
        });
        json!({"name": name, "kind": "blueprint", "clusters": clusters.collect::<Map<_, _>>()})
    }

    /// Where the service stands that `pointer` of the blueprint leads into.
    fn place(&self, pointer: &str) -> Option<Place> {
        let name = pointer.strip_prefix("/clusters/")?.split('/').next()?;
        self.services.iter().find(|(own, _)| pointer_segment(own) == name).map(|(_, own)| own.place)
    }

    fn note(&mut self, note: &str) {
        // A note is one line.
        self.notes.push(note.replace(['\n', '\r'], " "));
    }
}

impl Part {
    fn breed(&self, name: &str) -> Json {
        let dependencies = self.depends_on.iter().map(|own| (own.clone(), breed_name(own).into()));
        json!({
            "name": breed_name(name),
            "deployable": {"type": "container/docker", "definition": self.image},
            "ports": self.ports,
            "environment_variables": self.environment,
            "dependencies": dependencies.collect::<Map<String, Json>>(),
        })
    }

    fn dialects(&self) -> Json {
        match &self.command {
            Some(command) => json!({"docker": {"command": command}}),
            None => json!({}),
        }
    }
}

fn breed_name(service: &str) -> String {
    format!("{service}:{VERSION}")
}

/// The digits at the end of a reference to a port.
fn digits_of(reference: &str) -> String {
    reference.rsplit_once("port_").map(|(_, digits)| digits.to_owned()).unwrap_or_default()
}

/// A command as one text; the words of a list are joined.
fn command(element: &Element<'_>, reading: &mut Reading) -> Option<String> {
    let Some(items) = element.items(reading) else { return fields::text(element, reading) };
    let words: Option<Vec<String>> = items.iter().map(|item| fields::text(item, reading)).collect();
    Some(words?.join(" "))
}

/// The names in a list, or the keys of a map.
fn names(element: &Element<'_>, reading: &mut Reading) -> IndexSet<String> {
    if let Some(entries) = element.entries(reading) {
        return entries.into_iter().map(|(key, _)| key.text.clone()).collect();
    }
    let Some(items) = element.items(reading) else {
        reading.wrong_type(element, "a list of services");
        return IndexSet::new();
    };
    items.iter().filter_map(|item| fields::text(item, reading)).collect()
}

/// A list of `KEY=VALUE`, or a map.
fn environment(element: &Element<'_>, reading: &mut Reading) -> IndexMap<String, Option<String>> {
    if let Some(entries) = element.entries(reading) {
        let mut variables = IndexMap::new();
        for (key, value) in entries {
            let text = if value.is_null() { None } else { fields::text(&value, reading) };
            variables.insert(key.text.clone(), text);
        }
        return variables;
    }
    let Some(items) = element.items(reading) else {
        reading.wrong_type(element, "a list of KEY=VALUE or a map");
        return IndexMap::new();
    };
    let texts = items.iter().filter_map(|item| fields::text(item, reading));
    let variable = |text: String| match text.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (text, None),
    };
    texts.map(variable).collect()
}
