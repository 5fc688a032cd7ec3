//! A disk that fails below the running service: what is not durable is refused, and what was acknowledged stays.

use segue_tests::service::{Answer, Service, Setup};
use segue_tests::shop;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Before the C library: as long as the file `BROKEN_DISK` exists, the disk takes nothing.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int synced(const char *name, int file) {
    const char *broken = getenv("BROKEN_DISK");
    if (broken && access(broken, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(file);
}

int fdatasync(int file) { return synced("fdatasync", file); }
int fsync(int file) { return synced("fsync", file); }
"#;

/// The shim as a library in `folder`.
fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&source, SHIM).expect("the folder can be written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let compiled = cc.output().expect("there is a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

#[test]
fn a_disk_that_fails_to_sync_stops_writes_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let environment =
        vec![("LD_PRELOAD", text(&shim(folder.path()))), ("BROKEN_DISK", text(&broken))];
    let mut service = Service::start_with(Setup { environment, ..Setup::default() });
    service.api.put(shop::SHOP, &shop::version("1", 1)).expect(202);
    shop::wait_done(&service.api, "shop", "web:1", 1);
    let post = |service: &Service, number: usize| {
        service.api.post("/api/v1/events", &json!({"tags": [format!("disk:{number}")]}))
    };
    let numbers = |service: &Service| -> BTreeSet<String> {
        let events = service.api.events(&["disk"]);
        let tags = events.iter().flat_map(|event| event["tags"].as_array().unwrap());
        let numbers = tags.filter_map(|tag| tag.as_str()?.strip_prefix("disk:"));
        numbers.map(str::to_owned).collect()
    };
    for number in 0..20 {
        post(&service, number).expect(201);
    }
    let scale = json!({"name": "doomed", "cpu": 1, "memory": "64MB", "instances": 1});
    service.api.post("/api/v1/scales", &scale).expect(201);
    let before = numbers(&service);
    assert_eq!(before.len(), 20);
    fs::write(&broken, "").unwrap();
    let refused = |answer: Answer| {
        let problem = answer.expect(503);
        let detail = problem["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains("Input/output error"), "{problem:#}");
        assert!(problem["errors"].is_array() && problem["type"] == "not-ready", "{problem:#}");
    };
    // The second finds nothing to delete any more, and yet nothing is deleted.
    refused(service.api.delete("/api/v1/scales/doomed", &json!({})));
    refused(service.api.delete("/api/v1/scales/doomed", &json!({})));
    refused(post(&service, 20));
    refused(post(&service, 21));
    refused(service.api.put(shop::SHOP, &shop::version("1", 2)));
    assert_eq!(numbers(&service), before, "reads go on");
    service.api.get(shop::SHOP).expect(200);
    refused(service.api.get("/readyz"));
    assert!(service.api.get("/livez").is_success());
    // A disk that works again is not trusted before a restart: nobody knows what it dropped.
    fs::remove_file(&broken).unwrap();
    refused(post(&service, 22));
    service.kill9();
    service.restart();
    let after = numbers(&service);
    // What was under way when the disk failed, which was the deletion, may have happened; what came later did not.
    let more: Vec<&String> = after.difference(&before).collect();
    assert!(after.is_superset(&before) && more.is_empty(), "{more:?}");
    post(&service, 23).expect(201);
    shop::wait_done(&service.api, "shop", "web:1", 1);
}
