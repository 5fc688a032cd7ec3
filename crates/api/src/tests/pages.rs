//! What `docs/reference/events.md` shows is what happens: its requests are sent in order, its answers compared.

use super::Running;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/reference/events.md");

/// A fenced block: what stands after the fence, and its lines.
fn blocks() -> Vec<(&'static str, String)> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((info, block.join("\n")));
        }
    }
    blocks
}

/// What differs from run to run.
fn without_chance(mut value: Value) -> Value {
    if let Value::Array(items) = value {
        return items.into_iter().map(without_chance).collect();
    }
    if let Some(members) = value.as_object_mut() {
        members.remove("id");
        members.remove("timestamp");
    }
    value
}

#[tokio::test]
async fn the_page_about_events_shows_what_happens() {
    let segue = Running::start().await;
    let mut last = None;
    let (mut requests, mut answers) = (0, 0);
    for (info, block) in blocks() {
        let words: Vec<&str> = info.split(' ').collect();
        match words[..] {
            ["yaml" | "json", method, path, status] => {
                requests += 1;
                let reply = segue.client.send(method, path, &[], &block).await;
                assert_eq!(reply.status.to_string(), status, "{info}\n{block}\n{reply:?}");
                last = Some(reply.json());
            }
            ["json", "answer"] => {
                answers += 1;
                let expected: Value = serde_json::from_str(&block).expect("the page shows JSON");
                let own = last.take().expect("an answer follows its request");
                assert_eq!(without_chance(own), without_chance(expected), "{block}");
            }
            _ => {}
        }
    }
    assert!(requests > 5 && answers > 3, "{requests} requests and {answers} answers");
    segue.stop().await;
}
