//! The configuration: defaults, then a file, then the environment, then flags; the later wins.
//!
//! Every key stands in the embedded `config/defaults.yaml`; another key is an error that names the nearest known one.
//! How the values are used is not known here.

mod layers;
pub mod secrets;
mod units;

pub use layers::{Layer, Layers, Setting, flatten};
pub use units::{ByteSize, Interval, PortRange};

use segue_domain::artifact::value::ConfigurationValues;
use segue_domain::artifact::{Argument, Cpu, Memory, Scale};
use segue_domain::command::Rules;
use segue_domain::event::is_event_type;
use segue_domain::log::KEPT_TYPES;
use segue_workers::containers::docker::Registry;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The embedded defaults, with a comment on every key; `docs/reference/configuration.md` has them in one table.
pub const DEFAULTS: &str = include_str!("../../config/defaults.yaml");

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {path} cannot be read: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The text is no configuration.
    #[error("{origin}: {reason}")]
    Malformed {
        /// Where it stands.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no such key.
    #[error("{origin}: unknown key '{key}'{hint}")]
    UnknownKey {
        /// Where it stands.
        origin: String,
        /// The key.
        key: String,
        /// The nearest known key, in words.
        hint: String,
    },
    /// The value does not fit.
    #[error("{origin}: '{key}' cannot be {value}: {reason}")]
    Value {
        /// Where it stands.
        origin: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is expected.
        reason: String,
    },
}

/// The configuration, and the values as they were written.
#[derive(Clone, Debug)]
pub struct Config {
    /// The values, typed.
    pub settings: Settings,
    /// The same as one nested map, as written.
    pub document: Value,
    /// What each layer says by itself, as one nested map each.
    pub layers: BTreeMap<Layer, Value>,
}

impl Config {
    /// The defaults, changed by `file`, then by those of `environment` that begin with `SEGUE_`, then by `flags`.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = Setting>,
    ) -> Result<Self, ConfigError> {
        let mut layers = Layers::defaults();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
            layers.file(&path.display().to_string(), &text)?;
        }
        layers.environment(environment)?;
        for flag in flags {
            layers.set(flag)?;
        }
        layers.finish()
    }

    /// The values as references in artifacts find them, without secrets.
    pub fn values(&self) -> ConfigurationValues {
        let text = |(key, value): (String, Value)| match value {
            _ if secrets::is_secret(&key) => None,
            Value::String(text) => Some((key, text)),
            Value::Number(_) | Value::Bool(_) => Some((key, value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        ConfigurationValues::new(flatten(&self.document).into_iter().filter_map(text))
    }
}

/// All settings; the keys are explained in [`DEFAULTS`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct Settings {
    pub namespace: String,
    pub data: PathBuf,
    pub api: ApiSettings,
    pub model: ModelSettings,
    pub operation: OperationSettings,
    pub gateway_driver: GatewayDriverSettings,
    pub container_driver: ContainerDriverSettings,
    pub log: LogSettings,
}

/// `api`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct ApiSettings {
    pub interface: IpAddr,
    pub port: u16,
    pub workers: std::num::NonZeroUsize,
    pub response_timeout: Interval,
    pub strip_path_segments: usize,
    pub legacy_clients: bool,
    pub max_body: ByteSize,
    pub bodies_max: ByteSize,
    pub requests_max: usize,
    pub sse: SseSettings,
    pub websocket: WebsocketSettings,
    pub ui: UiSettings,
}

/// `api.sse`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct SseSettings {
    pub keep_alive: Interval,
    pub write_timeout: Interval,
    pub streams_max: usize,
}

/// `api.websocket`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct WebsocketSettings {
    pub idle_timeout: Interval,
    pub sockets_max: usize,
    pub requests_max: std::num::NonZeroUsize,
}

/// `api.ui`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct UiSettings {
    pub directory: Option<PathBuf>,
    pub index: PathBuf,
}

/// `model`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct ModelSettings {
    pub default_deployable_type: String,
}

/// `operation`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct OperationSettings {
    pub drain: Interval,
    pub synchronisation: SynchronisationSettings,
    pub sla: PeriodSettings,
    pub escalation: PeriodSettings,
    pub health: WindowSettings,
    pub metrics: WindowSettings,
    pub deployment: DeploymentSettings,
    pub gateway: GatewaySettings,
}

/// `operation.synchronisation`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct SynchronisationSettings {
    pub period: Interval,
    pub initial_delay: Interval,
    pub timeout: TimeoutSettings,
}

/// `operation.sla` and `operation.escalation`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct PeriodSettings {
    pub period: Interval,
}

/// `operation.health` and `operation.metrics`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct WindowSettings {
    pub enabled: bool,
    pub window: Interval,
}

impl WindowSettings {
    /// Over what is measured; `None` is not at all.
    pub fn measured(&self) -> Option<std::time::Duration> {
        let seconds = self.window.0.as_secs().clamp(1, 600);
        self.enabled.then(|| std::time::Duration::from_secs(seconds))
    }
}

/// `operation.synchronisation.timeout`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct TimeoutSettings {
    pub ready_for_deployment: Interval,
    pub ready_for_undeployment: Interval,
}

/// `operation.deployment`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct DeploymentSettings {
    pub scale: ScaleSettings,
    #[serde(deserialize_with = "units::arguments")]
    pub arguments: Vec<Argument>,
}

/// `operation.deployment.scale`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct ScaleSettings {
    pub instances: u32,
    #[serde(deserialize_with = "units::from_text")]
    pub cpu: Cpu,
    #[serde(deserialize_with = "units::from_text")]
    pub memory: Memory,
}

/// `operation.gateway`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct GatewaySettings {
    pub port_range: PortRange,
    pub virtual_hosts: VirtualHostsSettings,
}

/// `operation.gateway.virtual_hosts`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct VirtualHostsSettings {
    pub enabled: bool,
    pub domain: String,
    pub port: u16,
}

/// `gateway_driver`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct GatewayDriverSettings {
    #[serde(rename = "type")]
    pub kind: Option<GatewayDriverKind>,
    pub host: String,
    pub haproxy: HaproxySettings,
}

/// `gateway_driver.haproxy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct HaproxySettings {
    pub program: PathBuf,
    #[serde(deserialize_with = "units::optional_text")]
    pub version: Option<String>,
    pub bind: IpAddr,
    pub stats_port: u16,
    pub hard_stop_after: Interval,
}

/// The doors to traffic that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GatewayDriverKind {
    /// HAProxy as a child process.
    Haproxy,
    /// Nothing, in memory.
    Simulated,
}

/// `container_driver`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct ContainerDriverSettings {
    #[serde(rename = "type", deserialize_with = "units::one_or_many")]
    pub kinds: Vec<ContainerDriverKind>,
    pub network: String,
    pub label_namespace: String,
    pub process: ProcessSettings,
    pub docker: DockerSettings,
}

/// `container_driver.process`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct ProcessSettings {
    pub directory: Option<PathBuf>,
    pub stop_timeout: Interval,
}

/// `container_driver.docker`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct DockerSettings {
    pub socket: PathBuf,
    pub host: String,
    pub pull_timeout: Interval,
    pub registries: Vec<Registry>,
}

/// The doors to what runs that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerDriverKind {
    /// Processes of this host.
    Process,
    /// Docker containers.
    Docker,
    /// Nothing, in memory.
    Simulated,
}

/// `log`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "every key is explained once, in the defaults")]
pub struct LogSettings {
    pub level: String,
    pub format: LogFormat,
    pub retention: Retention,
}

/// `log.retention`: by type of event, after which time events are dropped; zero is never.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "BTreeMap<String, Interval>")]
pub struct Retention(pub BTreeMap<String, Interval>);

impl TryFrom<BTreeMap<String, Interval>> for Retention {
    type Error = String;

    fn try_from(ages: BTreeMap<String, Interval>) -> Result<Self, String> {
        for (kind, age) in &ages {
            if !is_event_type(kind) {
                return Err(format!("'{kind}' is no type of event"));
            }
            if KEPT_TYPES.contains(&&**kind) && age.unless_zero().is_some() {
                return Err(format!("events of type '{kind}' are never dropped"));
            }
        }
        Ok(Self(ages))
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Settings {
    /// What the installation settles for all decisions.
    pub fn rules(&self) -> Rules {
        let ScaleSettings { instances, cpu, memory } = self.operation.deployment.scale;
        let hosts = &self.operation.gateway.virtual_hosts;
        Rules {
            gateway_host: self.gateway_driver.host.clone(),
            gateway_ports: self.operation.gateway.port_range.0.clone(),
            default_scale: Scale { cpu, memory, instances },
            default_arguments: self.operation.deployment.arguments.clone(),
            virtual_hosts_domain: hosts.enabled.then(|| hosts.domain.clone()),
            configuration: ConfigurationValues::default(),
        }
    }

    /// The directory of the log itself.
    pub fn log_directory(&self) -> PathBuf {
        self.data.join("log")
    }

    /// The directory of process instances.
    pub fn process_directory(&self) -> PathBuf {
        self.container_driver
            .process
            .directory
            .clone()
            .unwrap_or_else(|| self.data.join("processes"))
    }

    /// The directory of the HAProxy that belongs to this installation.
    pub fn haproxy_directory(&self) -> PathBuf {
        self.data.join("haproxy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_domain::dsl;
    use serde_json::json;
    use std::time::Duration;

    /// The page that has all keys in one table.
    const PAGE: &str = include_str!("../../../../docs/reference/configuration.md");

    fn load(
        file: &str,
        environment: &[(&str, &str)],
        flags: Vec<Setting>,
    ) -> Result<Config, ConfigError> {
        let mut layers = Layers::defaults();
        layers.file("segue.yaml", file)?;
        layers.environment(
            environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        )?;
        for flag in flags {
            layers.set(flag)?;
        }
        layers.finish()
    }

    #[test]
    fn every_key_has_a_comment_and_a_row_in_the_page() {
        let defaults = dsl::document(DEFAULTS).unwrap();
        let mut rows = PAGE.lines().filter_map(|row| row.strip_prefix("| `")?.split_once("` | `"));
        for (key, value) in flatten(&defaults.to_json()) {
            let place = defaults.locate(&format!("/{}", key.replace('.', "/"))).unwrap();
            let line = DEFAULTS.lines().nth(place.line - 1).unwrap();
            assert!(line.contains(" # "), "{key} has no comment: {line}");
            let default = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let (name, rest) = rows.next().expect("a row of the page");
            assert_eq!((name, rest.split_once('`').unwrap().0), (&*key, &*default));
        }
        assert_eq!(rows.next(), None, "the page has no other keys");
    }

    #[test]
    fn the_defaults_are_complete() {
        let settings = Config::load(None, [], []).unwrap().settings;
        assert_eq!(settings.api.port, 8080);
        assert_eq!(settings.api.max_body.0, 8 * 1024 * 1024);
        assert_eq!(settings.api.response_timeout.0, Duration::from_secs(10));
        assert_eq!(settings.rules(), Rules::default());
        assert_eq!(settings.container_driver.kinds, [ContainerDriverKind::Process]);
        assert_eq!(settings.gateway_driver.kind, None);
    }

    #[test]
    fn later_layers_win() {
        let file = "api: {port: 1, interface: 127.0.0.2}\nnamespace: shop";
        let flag = || Setting::flag("api.port", json!(3));
        let port = |environment: &[(&str, &str)], flags| {
            load(file, environment, flags).unwrap().settings.api.port
        };
        assert_eq!(port(&[], vec![]), 1);
        assert_eq!(port(&[("SEGUE_API__PORT", "2"), ("HOME", "/")], vec![]), 2);
        assert_eq!(port(&[("SEGUE_API__PORT", "2")], vec![flag()]), 3);
        let config =
            load(file, &[("SEGUE_CONTAINER_DRIVER__TYPE", "[process, docker]")], vec![flag()])
                .unwrap();
        assert_eq!(config.settings.api.interface.to_string(), "127.0.0.2");
        assert_eq!(config.settings.container_driver.kinds.len(), 2);
        assert_eq!(config.document["namespace"], "shop");
        assert_eq!(config.document["api"]["port"], 3);
        assert_eq!(config.document["api"]["response_timeout"], "10 s");
    }

    #[test]
    fn errors_say_where_and_what() {
        let check = |file: &str, environment: &[(&str, &str)], expected: &str| {
            assert_eq!(load(file, environment, vec![]).unwrap_err().to_string(), expected);
        };
        check(
            "api:\n  prot: 1",
            &[],
            "segue.yaml, line 2: unknown key 'api.prot', did you mean 'api.port'?",
        );
        check(
            "",
            &[("SEGUE_GATEWAY_DRIVER__HOSTS", "x")],
            "SEGUE_GATEWAY_DRIVER__HOSTS: unknown key 'gateway_driver.hosts', did you mean 'gateway_driver.host'?",
        );
        check(
            "api: 5",
            &[],
            "segue.yaml, line 1: 'api' cannot be 5: it is a section and holds keys of its own",
        );
        check(
            "api: {response_timeout: 10}",
            &[],
            "segue.yaml, line 1: 'api.response_timeout' cannot be 10: '10' is no duration, such as 500 ms, 10 s or 5 min",
        );
        check(
            "operation: {gateway: {port_range: 9-1}}",
            &[],
            "segue.yaml, line 1: 'operation.gateway.port_range' cannot be \"9-1\": '9-1' is no range of ports, such as 20000-25000",
        );
    }

    #[test]
    fn credentials_of_registries_are_read_and_shown_to_nobody() {
        let whole = r#"[{"address": "r:5000", "username": "ann", "password": "open sesame"}]"#;
        let variable = "SEGUE_CONTAINER_DRIVER__DOCKER__REGISTRIES";
        let config = load("", &[(variable, whole)], vec![]).unwrap();
        let registries = &config.settings.container_driver.docker.registries;
        assert_eq!((registries.len(), registries[0].username.as_str()), (1, "ann"));
        let wrong = [
            whole.replace("address", "adress"),
            whole.replace("\"ann\"", "[]"),
            whole.replace("\"open sesame\"", "[open sesame]"),
            "[open sesame]".to_owned(),
            "open sesame".to_owned(),
        ];
        for wrong in wrong {
            let error = load("", &[(variable, &wrong)], vec![]).unwrap_err().to_string();
            assert!(error.starts_with(variable), "{error}");
            assert!(!error.contains("sesame"), "{error}");
        }
        let told = format!("{:?} {:?}", config.settings, config.values());
        assert!(!told.contains("sesame"), "{told}");
    }
}
