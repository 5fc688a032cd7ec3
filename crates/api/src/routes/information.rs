//! What the service tells of itself (wire, section 12, info).

use super::{events, statics};
use crate::service::{Running, Service};
use futures::future::join_all;
use segue_domain::artifact::Kind;
use serde_json::{Map, Value, json};
use std::fs;
use std::time::Duration;

/// The sections that can be asked for.
const SECTIONS: [&str; 7] = [
    "jvm",
    "persistence",
    "key_value",
    "pulse",
    "gateway_driver",
    "container_driver",
    "workflow_driver",
];

/// How long one section may take.
const SECTION_TIMEOUT: Duration = Duration::from_secs(3);

/// The document; without `wanted` sections it has all. A section that fails says so in its own place.
pub(super) async fn document(service: &Service, running: &Running, wanted: &[String]) -> Value {
    let mut document = Map::new();
    document.insert(
        "message".to_owned(),
        json!("This is Segue: services from blueprints, traffic through gateways."),
    );
    document.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    document.insert("uuid".to_owned(), json!(service.uuid.to_string()));
    document.insert("running_since".to_owned(), json!(events::timestamp(service.running_since)));
    let all = wanted.is_empty();
    let names =
        SECTIONS.into_iter().filter(|name| all || wanted.iter().any(|wanted| wanted == name));
    let sections = names.map(async |name| {
        let made = tokio::time::timeout(SECTION_TIMEOUT, section(name, service, running)).await;
        let late = || format!("no answer within {} s", SECTION_TIMEOUT.as_secs());
        let made = made.unwrap_or_else(|_| Err(late()));
        (name.to_owned(), made.unwrap_or_else(|error| json!({ "error": error })))
    });
    document.extend(join_all(sections).await);
    Value::Object(document)
}

async fn section(name: &str, service: &Service, running: &Running) -> Result<Value, String> {
    Ok(match name {
        "jvm" => process(service),
        "persistence" => {
            let state = running.store.state();
            let counts = Kind::ALL.into_iter().map(|kind| {
                (kind.collection().to_owned(), json!({ "count": statics::count(&state, kind) }))
            });
            let artifacts = Value::Object(counts.collect());
            json!({ "database": { "type": "rocksdb", "artifacts": artifacts }, "archiving": true })
        }
        "pulse" => json!({ "type": "rocksdb", "events": running.store.log().last().0 }),
        "gateway_driver" => {
            running.gateways.ping().await.map_err(|error| error.to_string())?;
            let kind = running.gateways.name();
            json!({ "type": kind, "marshallers": { &running.configuration_version: { "type": "haproxy" } } })
        }
        "container_driver" => {
            let pings = join_all(running.containers.iter().map(|driver| driver.ping())).await;
            pings.into_iter().collect::<Result<Vec<()>, _>>().map_err(|error| error.to_string())?;
            let names: Vec<&str> = running.containers.iter().map(|driver| driver.name()).collect();
            let container: Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
            json!({ "type": names.join(","), "container": container })
        }
        // There is no key-value store and there are no workflows in this release.
        "key_value" => json!({ "type": "none" }),
        _ => json!({}),
    })
}

/// Figures of the process and its machine in the shape that the predecessor's clients know.
pub(super) fn process(service: &Service) -> Value {
    let status = read("/proc/self/status");
    let kilobytes = |text: &str, key: &str| number(text, key).unwrap_or(0) * 1024;
    let used = kilobytes(&status, "VmRSS:");
    let peak = kilobytes(&status, "VmHWM:");
    let machine_memory = kilobytes(&read("/proc/meminfo"), "MemTotal:");
    // A control group without limit says `max`.
    let group = read("/sys/fs/cgroup/memory.max").trim().parse().unwrap_or(u64::MAX);
    let max = machine_memory.min(group);
    let threads = number(&status, "Threads:").unwrap_or(0);
    let host = read("/proc/sys/kernel/hostname");
    let up_time = time::OffsetDateTime::now_utc() - service.running_since;
    json!({
        "operating_system": machine(),
        "runtime": {
            "process": format!("{}@{}", std::process::id(), host.trim()),
            "virtual_machine_name": "segue",
            "virtual_machine_vendor": "",
            "virtual_machine_version": "",
            "start_time": milliseconds(service.running_since.unix_timestamp_nanos()),
            "up_time": milliseconds(up_time.whole_nanoseconds()),
        },
        "memory": {
            "heap": { "init": 0, "max": max, "committed": peak, "used": used },
            "non_heap": { "init": 0, "max": -1, "committed": 0, "used": 0 },
        },
        "threads": { "count": threads, "peak_count": threads, "daemon_count": 0, "total_started_count": threads },
    })
}

/// What the process runs on.
pub(super) fn machine() -> Value {
    let load = read("/proc/loadavg");
    let load: f64 = load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(-1.0);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json!({
        "name": read("/proc/sys/kernel/ostype").trim(),
        "architecture": std::env::consts::ARCH,
        "version": read("/proc/sys/kernel/osrelease").trim(),
        "available_processors": u32::try_from(processors).map_or(1.0, f64::from),
        "system_load_average": load,
    })
}

/// A file of the system; empty where there is none, since these figures are told as far as they are known.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number behind `key` in a list of lines.
fn number(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn milliseconds(nanoseconds: i128) -> i64 {
    i64::try_from(nanoseconds / 1_000_000).unwrap_or(i64::MAX)
}
