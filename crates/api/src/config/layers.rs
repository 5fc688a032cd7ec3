//! Lays settings over the defaults, one by one, so that a wrong one is named with the place where it stands.

use super::{Config, ConfigError, DEFAULTS, Settings, secrets};
use segue_domain::dsl::{self, Node};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What environment variables begin with.
const PREFIX: &str = "SEGUE_";

/// The section whose keys are names that users choose: types of events.
const OPEN_SECTION: &str = "log.retention";

/// The setting that holds secrets, and what is expected of it.
const SECRET_SETTING: &str = "container_driver.docker.registries";
const SECRET_FORM: &str = "a list of {address, username, password} is expected, all three texts";

/// Where settings come from; the later wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The embedded defaults.
    Defaults,
    /// The file given with `--config`.
    File,
    /// The environment.
    Environment,
    /// The command line.
    CommandLine,
}

/// One value for one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Which layer it belongs to.
    pub layer: Layer,
    /// The key, `section.key`.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Where it stands, for messages.
    pub origin: String,
}

impl Setting {
    /// A value given on the command line.
    pub fn flag(key: &str, value: Value) -> Self {
        let (layer, origin) = (Layer::CommandLine, "command line".to_owned());
        Self { layer, key: key.to_owned(), value, origin }
    }
}

/// Settings on top of one another.
#[derive(Clone, Debug)]
pub struct Layers {
    document: Value,
    /// All keys, dotted.
    keys: Vec<String>,
    /// What each layer says by itself.
    apart: BTreeMap<Layer, Value>,
}

impl Layers {
    /// The embedded defaults alone.
    pub fn defaults() -> Self {
        let document = dsl::document(DEFAULTS)
            .expect("the embedded defaults parse, a test reads them")
            .to_json();
        let keys = flatten(&document).into_iter().map(|(key, _)| key).collect();
        let apart = BTreeMap::from([(Layer::Defaults, document.clone())]);
        Self { document, keys, apart }
    }

    /// Adds the settings of a YAML text; an empty one adds none.
    pub fn file(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let malformed = |reason: String| ConfigError::Malformed { origin: name.to_owned(), reason };
        let documents = dsl::documents(text).map_err(|problems| {
            let place = problems
                .first()
                .place
                .map(|place| format!("line {}: ", place.line))
                .unwrap_or_default();
            malformed(format!("{place}{problems}"))
        })?;
        let document = match &documents[..] {
            [] => return Ok(()),
            [document] => document,
            more => {
                return Err(malformed(format!("one document is expected, found {}", more.len())));
            }
        };
        let content = document.to_json();
        if !content.is_object() {
            return Err(malformed("a map of settings is expected".to_owned()));
        }
        for (key, value) in self.settings(&content) {
            let origin = match line(document, &key) {
                Some(line) => format!("{name}, line {line}"),
                None => name.to_owned(),
            };
            self.set(Setting { layer: Layer::File, key, value, origin })?;
        }
        Ok(())
    }

    /// Adds the variables that begin with `SEGUE_`; `__` separates sections.
    pub fn environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (name, text) in variables {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            let key = key.to_ascii_lowercase().replace("__", ".");
            let value = dsl::document(&text)
                .map_or_else(|_| Value::String(text.clone()), |node| node.to_json());
            self.set(Setting { layer: Layer::Environment, key, value, origin: name })?;
        }
        Ok(())
    }

    /// Adds one setting.
    pub fn set(&mut self, setting: Setting) -> Result<(), ConfigError> {
        let Setting { layer, key, value, origin } = setting;
        if !self.keys.contains(&key) && open_key(&key).is_none() {
            return Err(self.unknown(key, &value, origin));
        }
        let pointer = format!("/{}", key.replace('.', "/"));
        if open_key(&key).is_some() {
            insert(&mut self.document, &key, value.clone());
        } else {
            let place = self.document.pointer_mut(&pointer);
            *place.expect("known keys are those of the document") = value.clone();
        }
        match serde_json::from_value::<Settings>(self.document.clone()) {
            Ok(_) => {
                let apart = self.apart.entry(layer).or_insert_with(|| Value::Object(Map::new()));
                insert(apart, &key, value);
                Ok(())
            }
            // Whoever reads the error is not told what may be a password in the wrong place.
            Err(_) if key == SECRET_SETTING => {
                let (value, reason) = (secrets::REDACTED.to_owned(), SECRET_FORM.to_owned());
                Err(ConfigError::Value { origin, key, value, reason })
            }
            Err(error) => Err(ConfigError::Value {
                origin,
                key,
                value: value.to_string(),
                reason: error.to_string(),
            }),
        }
    }

    /// The configuration that all layers make.
    pub fn finish(self) -> Result<Config, ConfigError> {
        let settings = serde_json::from_value(self.document.clone()).map_err(|error| {
            ConfigError::Malformed { origin: "defaults".to_owned(), reason: error.to_string() }
        })?;
        Ok(Config { settings, document: self.document, layers: self.apart })
    }

    /// The settings in `content`: what is a value in the defaults is a value here, whatever it holds.
    fn settings(&self, content: &Value) -> Vec<(String, Value)> {
        let mut settings = Vec::new();
        collect(content, "", &|key| self.keys.iter().any(|known| known == key), &mut settings);
        settings
    }

    fn unknown(&self, key: String, value: &Value, origin: String) -> ConfigError {
        let section = format!("{key}.");
        if self.keys.iter().any(|known| known.starts_with(&section)) {
            let reason = "it is a section and holds keys of its own".to_owned();
            let mut value = value.clone();
            secrets::redact(&mut value);
            return ConfigError::Value { origin, key, value: value.to_string(), reason };
        }
        let distance = |known: &&String| strsim::damerau_levenshtein(known, &key);
        let nearest = self.keys.iter().min_by_key(distance);
        let hint =
            nearest.map(|nearest| format!(", did you mean '{nearest}'?")).unwrap_or_default();
        ConfigError::UnknownKey { origin, key, hint }
    }
}

/// The name that `key` has in the open section, when it is in there.
fn open_key(key: &str) -> Option<&str> {
    let name = key.strip_prefix(OPEN_SECTION)?.strip_prefix('.')?;
    (!name.is_empty() && !name.contains('.')).then_some(name)
}

/// All values of a nested map with dotted keys, in order.
pub fn flatten(document: &Value) -> Vec<(String, Value)> {
    let mut settings = Vec::new();
    collect(document, "", &|_| false, &mut settings);
    settings
}

/// Sets the value of a dotted key of a nested map.
fn insert(document: &mut Value, key: &str, value: Value) {
    let mut place = document;
    for part in key.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[part];
    }
    *place = value;
}

fn collect(
    value: &Value,
    prefix: &str,
    is_value: &dyn Fn(&str) -> bool,
    settings: &mut Vec<(String, Value)>,
) {
    match value {
        Value::Object(members) if !is_value(prefix) => {
            for (key, value) in members {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                collect(value, &key, is_value, settings);
            }
        }
        value => settings.push((prefix.to_owned(), value.clone())),
    }
}

/// The line of `key`, or of the nearest section around it.
fn line(document: &Node, key: &str) -> Option<usize> {
    let pointer = format!("/{}", key.replace('.', "/"));
    document.locate(&pointer).map(|place| place.line)
}
