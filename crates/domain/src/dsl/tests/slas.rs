//! SLAs and escalations.

use super::{node, options, problems};
use crate::dsl::{
    read_blueprint, read_escalation, read_sla, write_blueprint, write_escalation, write_sla,
};
use serde_json::{Value as Json, json};

fn escalation(fields: &str, expected: &Json) {
    let read = read_escalation(&node(&format!("name: e\n{fields}")), &options());
    let mut written = write_escalation(&read.unwrap_or_else(|found| panic!("{fields}\n{found}")));
    for head in ["name", "kind", "metadata"] {
        written.as_object_mut().unwrap().shift_remove(head);
    }
    assert_eq!(written.to_string(), expected.to_string(), "{fields}");
}

fn sla(fields: &str, expected: &Json) {
    let read = read_sla(&node(&format!("name: s\n{fields}")), &options());
    let mut written = write_sla(&read.unwrap_or_else(|found| panic!("{fields}\n{found}")));
    for head in ["name", "kind", "metadata"] {
        written.as_object_mut().unwrap().shift_remove(head);
    }
    assert_eq!(written.to_string(), expected.to_string(), "{fields}");
}

#[test]
fn escalations() {
    escalation(
        "type: scale_instances\ntarget: store\nminimum: 1\nmaximum: 4\nscale_by: 1",
        &json!({"type": "scale_instances", "target": "store", "minimum": 1, "maximum": 4, "scale_by": 1}),
    );
    escalation(
        "type: scale_cpu\nminimum: 1\nmaximum: 2.5\nscale_by: .5",
        &json!({"type": "scale_cpu", "minimum": 1.0, "maximum": 2.5, "scale_by": 0.5}),
    );
    escalation(
        "type: scale_memory\nminimum: 512\nmaximum: 1e3\nscale_by: 64",
        &json!({"type": "scale_memory", "minimum": 512.0, "maximum": 1000.0, "scale_by": 64.0}),
    );
    let group =
        json!({"type": "to_all", "escalations": [{"ref": "a"}, {"type": "x", "parameters": {}}]});
    escalation("to_all: [a, {type: x}]", &group);
    escalation("to_all: {escalations: [{ref: a}, {type: x}]}", &group);
    escalation("type: to_all\nescalations: [{reference: a}, {type: x}]", &group);
    escalation("to_one: []", &json!({"type": "to_one", "escalations": []}));
    let other = json!({"type": "page", "parameters": {"b": {"c": [1, null]}, "a": 1}});
    escalation("type: page\na: 1\nparameters: {b: {c: [1, ~]}}", &other);
    escalation(
        "type: page\nparameters: 5",
        &json!({"type": "page", "parameters": {"parameters": 5}}),
    );
}

#[test]
fn what_no_escalation_is() {
    let refuse = |fields: &str, expected: &[&str]| {
        let read = read_escalation(&node(&format!("name: e\n{fields}")), &options());
        assert_eq!(problems(&read), expected, "{fields}");
    };
    refuse("a: 1", &["missing-path-value /type 1:1"]);
    refuse("to_all: []\nx: 1", &["missing-path-value /type 1:1"]);
    refuse("to_all: a", &["unexpected-type /to_all 2:9"]);
    refuse("to_all: {}", &["missing-path-value /to_all/escalations 2:1"]);
    refuse("type: to_one\nescalations: a", &["unexpected-type /escalations 3:14"]);
    refuse("type: to_one\nescalations: [5]", &["unexpected-type /escalations/0 3:15"]);
    refuse(
        "type: to_one\nescalations: [{name: a, type: b}]",
        &["either-reference-or-anonymous /escalations/0/name 3:22"],
    );
    refuse(
        "type: scale_cpu",
        &[
            "missing-path-value /minimum 1:1",
            "missing-path-value /maximum 1:1",
            "missing-path-value /scale_by 1:1",
        ],
    );
    let step = "minimum: 1\nmaximum: 2\nscale_by: 1";
    refuse(
        &format!("type: scale_memory\n{}", step.replace('2', "2GB")),
        &["unexpected-type /maximum 4:10"],
    );
    refuse(
        &format!("type: scale_instances\n{}", step.replace('2', "2.0")),
        &["unexpected-type /maximum 4:10"],
    );
    refuse(&format!("type: scale_cpu\n{step}\nx: 1"), &["unexpected-element /x 6:1"]);
    refuse(&format!("type: scale_cpu\n{step}\ntarget: a/b"), &["illegal-name /target 6:9"]);
}

#[test]
fn slas() {
    let window = "type: response_time_sliding_window\nthreshold: {upper: 800, lower: 90}\nwindow: {interval: 120, cooldown: 300}";
    let head = json!({"type": "response_time_sliding_window", "window": {"interval": 120, "cooldown": 300},
        "threshold": {"upper": 800, "lower": 90}});
    let with = |escalations: Json| {
        let mut expected = head.clone();
        expected["escalations"] = escalations;
        expected
    };
    sla(window, &with(json!([])));
    sla(&format!("{window}\nescalations: a"), &with(json!([{"ref": "a"}])));
    sla(&format!("{window}\nescalations: [a]"), &with(json!([{"ref": "a"}])));
    let both = json!([{"type": "to_all", "escalations": [{"ref": "a"}, {"ref": "b"}]}]);
    sla(&format!("{window}\nescalations: [a, b]"), &with(both));
    sla("type: escalation_only", &json!({"type": "escalation_only", "escalations": []}));
    sla(
        "type: mine\nx: 1\nescalations: {to_one: [a]}",
        &json!({"type": "mine", "parameters": {"x": 1}, "escalations": [{"type": "to_one", "escalations": [{"ref": "a"}]}]}),
    );
    let refuse = |fields: &str, expected: &[&str]| {
        let read = read_sla(&node(&format!("name: s\n{fields}")), &options());
        assert_eq!(problems(&read), expected, "{fields}");
    };
    refuse("x: 1", &["missing-path-value /type 1:1"]);
    refuse("type: escalation_only\nx: 1", &["unexpected-element /x 3:1"]);
    refuse(
        &window.replace("{upper: 800, lower: 90}", "{upper: 1.5}"),
        &["missing-path-value /threshold/lower 3:1", "unexpected-type /threshold/upper 3:20"],
    );
    refuse(
        &window.replace("{interval: 120, cooldown: 300}", "5"),
        &["unexpected-inner-element /window 4:9"],
    );
    refuse(&window.replace("300", "-1"), &["unexpected-type /window/cooldown 4:35"]);
}

#[test]
fn slas_of_clusters() {
    let shown = |sla: &str, expected: &Json| {
        let text = format!("name: b\nclusters: {{c: {{services: x, sla: {sla}}}, d: y}}");
        let blueprint = read_blueprint(&node(&text), &options());
        let written = write_blueprint(&blueprint.unwrap_or_else(|found| panic!("{sla}\n{found}")));
        assert_eq!(written.pointer("/clusters/c/sla"), Some(expected), "{sla}");
    };
    shown("s", &json!({"ref": "s", "escalations": []}));
    shown("{ref: s, escalations: a, name: x}", &json!({"ref": "s", "escalations": [{"ref": "a"}]}));
    shown("{type: escalation_only}", &json!({"type": "escalation_only", "escalations": []}));
    let refuse = |sla: &str, expected: &[&str]| {
        let text = format!("name: b\nclusters:\n  c: {{services: x, sla: {sla}}}\n  d: y");
        assert_eq!(problems(&read_blueprint(&node(&text), &options())), expected, "{sla}");
    };
    refuse("5", &["unexpected-type /clusters/c/sla 3:25"]);
    refuse("{name: s}", &["missing-path-value /clusters/c/sla/type 3:20"]);
    refuse("{name: s, type: x}", &["either-reference-or-anonymous /clusters/c/sla/name 3:32"]);
    refuse("{ref: s, type: x}", &["unexpected-element /clusters/c/sla/type 3:34"]);
    let step = "minimum: 1, maximum: 2, scale_by: 1";
    shown(
        &format!("{{type: escalation_only, escalations: {{type: scale_cpu, target: d, {step}}}}}"),
        &json!({"type": "escalation_only", "escalations": [
            {"type": "scale_cpu", "target": "d", "minimum": 1.0, "maximum": 2.0, "scale_by": 1.0}]}),
    );
    refuse(
        &format!(
            "{{ref: s, escalations: [a, {{to_one: [{{type: scale_cpu, target: no, {step}}}]}}]}}"
        ),
        &[
            "unresolved-scale-escalation-target-cluster /clusters/c/sla/escalations/1/to_one/0/target 3:79",
        ],
    );
}
